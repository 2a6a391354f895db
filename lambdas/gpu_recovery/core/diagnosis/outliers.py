"""Outliers among workers: the 2σ rule as specified, and the guard that decides.

Row 16 of the fault catalogue, docs/diagnosis.md.

A z-score of a population is at most the root of n - 1, so "more than 2σ" is never true for five workers or fewer.
Among 64 equal workers with ordinary noise, a worker exceeds 2σ in nine windows of ten.

The guard names a worker only if its mean exceeds a limit that equal workers exceed in at most one window of 1,000
(`guard_alarms`), independent of their number:

- With repeated calls, the noise of a call is the spread of the calls of each worker about the worker's own mean, pooled
  over all workers (analysis of variance). A straggler does not stretch this spread, and neither do two. The limit is a
  quantile of Student's t, divided by the number of workers (Bonferroni).
- With one call of each worker, the noise is the spread of the other workers: the generalised extreme studentised
  deviate test (B. Rosner, Technometrics 25, 1983), with the same quantiles.

Durations are skewed to the right, because sequences have different lengths. The quantiles are those of a gamma
distribution with a skewness of `guard_skewness` times the relative noise, which is beyond that of lognormal numbers
(three times). The guard also asks for a difference that matters, and for a distance from the spread between the workers
that the noise of their calls does not explain (median absolute deviation).

With few calls or much noise the limit is so high that a straggler would rarely exceed it. The guard then names none,
because what exceeds such a limit is more probably noise.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.quantiles import normal_quantile, skewness_factor, student_quantile
from gpu_recovery.core.diagnosis.thresholds import Thresholds

MAD_TO_SIGMA = 1.4826
"""Ratio of the standard deviation to the median absolute deviation, for normally distributed numbers."""
GUARD_MIN = 3
"""Fewest workers that the guard compares. Of two workers either may be the outlier."""
MEDIAN_VARIANCE = math.pi / 2
"""Variance of the median of many normally distributed numbers, as a multiple of the variance of their mean."""
RESOLUTION = 0.001
"""Least relative noise that is assumed: measured durations are rounded, so equal durations show nothing."""
CALLS_MAX = 1_000
"""Upper bound of the calls of each worker that a result asks for."""

Calls = Mapping[str, Sequence[float]]
"""Seconds of each call by worker; each worker has at least one call, and each call took more than 0 s."""


def mean(numbers: Collection[float]) -> float:
    """Arithmetic mean of at least one number."""
    return sum(numbers) / len(numbers)


def median(numbers: Collection[float]) -> float:
    """Middle of at least one number; the mean of the two middle numbers of an even count."""
    ordered = sorted(numbers)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def deviation(numbers: Collection[float]) -> float:
    """Population standard deviation of at least one number."""
    middle = mean(numbers)
    return float(mean([(number - middle) ** 2 for number in numbers]) ** 0.5)


def sigma_decides(count: int, sigma: float) -> bool:
    """Whether any of `count` numbers can be more than `sigma` deviations from the mean."""
    return count - 1 > sigma**2


def beyond_sigma(values: Mapping[str, float], sigma: float) -> list[str]:
    """Names of values that exceed the mean by more than `sigma` deviations: the rule as specified."""
    if not values:
        return []
    numbers = list(values.values())
    limit = mean(numbers) + sigma * deviation(numbers)
    return sorted(name for name, value in values.items() if value > limit)


@dataclass(frozen=True, slots=True)
class GuardResult:
    """Result of the guard for the calls of one method.

    slow: names of the stragglers, sorted.
    noise: relative standard deviation of one call, without the differences between workers.
    decides: whether a worker that is slower by `guard_finds` would be found. If not, `slow` may still name workers that
        are far beyond that.
    calls: calls of each worker with which the guard would decide at this noise, at most CALLS_MAX.
    """

    slow: tuple[str, ...] = ()
    noise: float = 0.0
    decides: bool = False
    calls: int = 0


def compare(calls: Calls, by: Thresholds, groups: Mapping[str, int] | None = None) -> GuardResult:
    """Compare workers by their calls of one method.

    Args:
        calls: calls of the workers.
        by: the thresholds.
        groups: group of each worker, if a worker is to be compared with its group only. The noise is that of all
            workers.
    """
    if len(calls) < GUARD_MIN:
        return GuardResult()
    workers = _compared(calls, groups or {})
    noise, dof = call_noise(calls)
    if dof >= len(calls) - 2:
        return _by_repeated_calls(workers, noise, dof, by)
    return _by_single_calls(workers, by)


@dataclass(frozen=True, slots=True)
class _Compared:
    """One worker: its ratio to the median of its group, its calls, and the calls and the number of its group."""

    name: str
    ratio: float
    calls: int
    calls_of_group: int
    group: int


def _compared(calls: Calls, groups: Mapping[str, int]) -> list[_Compared]:
    members: dict[int, dict[str, float]] = {}
    for name, of_worker in sorted(calls.items()):
        members.setdefault(groups.get(name, 0), {})[name] = mean(of_worker)
    middles = {group: median(list(means.values())) for group, means in members.items()}
    sizes = {group: sum(len(calls[name]) for name in means) for group, means in members.items()}
    return [
        _Compared(name, value / middles[group], len(calls[name]), sizes[group], group)
        for group, means in members.items()
        for name, value in means.items()
    ]


def call_noise(calls: Calls) -> tuple[float, int]:
    """Relative standard deviation of a call about its worker's mean, and its degrees of freedom, which may be 0."""
    dof = sum(len(of_worker) - 1 for of_worker in calls.values())
    squares = 0.0
    for of_worker in calls.values():
        middle = mean(of_worker)
        squares += sum((seconds / middle - 1) ** 2 for seconds in of_worker)
    return max((squares / dof) ** 0.5 if dof else 0.0, RESOLUTION), dof


def _by_repeated_calls(workers: Sequence[_Compared], noise: float, dof: int, by: Thresholds) -> GuardResult:
    spread = MAD_TO_SIGMA * median([abs(worker.ratio - 1) for worker in workers])
    decides, slow = True, []
    for worker in workers:
        own = noise / worker.calls**0.5
        error = noise * (1 / worker.calls + MEDIAN_VARIANCE / worker.calls_of_group) ** 0.5
        limit = _limit(error, own, dof, len(workers), by)
        unexplained = max(spread**2 - error**2, 0.0) ** 0.5
        known = limit <= _reach(own, by)
        decides &= known
        if known and worker.ratio > max(limit, by.guard_slowness, 1 + by.guard_sigma * unexplained):
            slow.append(worker.name)
    return GuardResult(tuple(sorted(slow)), noise, decides, _calls_needed(noise, workers, by))


def _by_single_calls(workers: Sequence[_Compared], by: Thresholds) -> GuardResult:
    """Remove the slowest workers one after another, and compare each with the rest: the test of Rosner (1983)."""
    order = sorted(workers, key=lambda worker: (worker.ratio, worker.name))
    steps = max(len(order) // 3, 1)
    removed, noise, decides = 0, RESOLUTION, False
    for step in range(1, steps + 1):
        rest = order[:-step]
        middle = mean([worker.ratio for worker in rest])
        dof = len(rest) - len({worker.group for worker in rest})
        if dof < 1:
            break
        spread = (sum((worker.ratio / middle - 1) ** 2 for worker in rest) / dof) ** 0.5
        noise_here, peers = max(spread, RESOLUTION), order[-step].calls_of_group - order[-step].calls
        error = noise_here * (1 + 1 / max(peers, 1)) ** 0.5
        limit = _limit(error, noise_here, dof, steps * (len(rest) + 1), by)
        known = limit <= by.guard_finds
        if known and order[-step].ratio / middle > max(limit, by.guard_slowness_once):
            removed = step
        if step in (1, removed):
            noise, decides = noise_here, known
    slow = tuple(sorted(worker.name for worker in order[len(order) - removed :]))
    return GuardResult(slow, noise, decides, _calls_needed(noise, workers, by))


def _limit(error: float, noise: float, dof: int, tests: int, by: Thresholds) -> float:
    """Ratio to the middle that equal workers exceed with probability `guard_alarms`, in any of `tests` tests.

    Args:
        error: relative standard error of the compared difference.
        noise: relative noise of the mean of the compared worker.
        dof: degrees of freedom of the noise.
    """
    tail = by.guard_alarms / tests
    factor = skewness_factor(normal_quantile(tail), by.guard_skewness * noise)
    return 1 + error * student_quantile(tail, dof) * factor


def _reach(noise: float, by: Thresholds) -> float:
    """Ratio that a worker slower by `guard_finds` exceeds with probability `guard_power`."""
    return by.guard_finds * (1 - normal_quantile(1 - by.guard_power) * noise)


def _calls_needed(noise: float, workers: Sequence[_Compared], by: Thresholds) -> int:
    """Fewest calls of each worker with which the guard decides at this noise, at most CALLS_MAX."""
    few, many, count = 1, CALLS_MAX, len(workers)
    smallest = min(sum(worker.group == group for worker in workers) for group in {worker.group for worker in workers})
    while few < many:
        calls = (few + many) // 2
        error = noise * (1 / calls + MEDIAN_VARIANCE / (calls * smallest)) ** 0.5
        if _limit(error, noise / calls**0.5, count * max(calls - 1, 1), count, by) <= _reach(noise / calls**0.5, by):
            many = calls
        else:
            few = calls + 1
    return few


def slow_groups(groups: Mapping[int, Calls], by: Thresholds) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each group that is slower than the workers of all other groups, with its slow workers.

    A group is slow if its mean exceeds the limit of the guard, and most of its workers, at least two, are slower by a
    ratio that matters. The noise is that of repeated calls; with one call of each worker, the spread of the workers
    about the median of their group.
    """
    every = {name: of_worker for group in groups.values() for name, of_worker in group.items()}
    noise, dof = call_noise(every)
    means = {name: mean(of_worker) for name, of_worker in every.items()}
    if dof < len(every) - 2:
        noise, dof = _noise_within(groups, means)
    for group, own in sorted(groups.items()):
        others = [name for name in every if name not in own]
        if len(own) < 2 or len(others) < 2 or not dof:
            continue
        middle = median([means[name] for name in others])
        size, rest = (sum(len(every[name]) for name in names) for names in (own, others))
        error = noise * (1 / size + MEDIAN_VARIANCE / rest) ** 0.5
        limit = max(_limit(error, noise / size**0.5, dof, len(groups), by), by.guard_slowness)
        slow = tuple(sorted(name for name in own if means[name] > by.guard_slowness * middle))
        if mean([means[name] for name in own]) > limit * middle and len(slow) >= by.rack_most_ratio * len(own):
            yield group, slow


def _noise_within(groups: Mapping[int, Calls], means: Mapping[str, float]) -> tuple[float, int]:
    """Robust spread of the workers about the median of their group, and its degrees of freedom, which may be 0."""
    distances = [
        abs(means[name] / median([means[peer] for peer in group]) - 1)
        for group in groups.values()
        if len(group) > 1
        for name in group
    ]
    dof = sum(len(group) - 1 for group in groups.values()) // 2
    return max(MAD_TO_SIGMA * median(distances) if distances else 0.0, RESOLUTION), dof
