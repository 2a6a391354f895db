"""How far one number is from the others: the specified 2σ and the guard that decides (reference: row 16).

A population's z-score is at most the root of n - 1, so "more than 2σ" can never be true of five workers or fewer; and
of 64 equal workers with ordinary noise one is beyond 2σ in nine windows of ten. The guard asks for a distance in robust
standard deviations, which one outlier does not stretch, and for an effect that matters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gpu_recovery.core.diagnosis.thresholds import Thresholds

MAD_TO_SIGMA = 1.4826
"""The standard deviation of normal numbers over their median absolute deviation."""
GUARD_MIN = 3
"""Of two numbers nobody can say which is the odd one."""


def mean(numbers: Collection[float]) -> float:
    """The arithmetic mean of at least one number."""
    return sum(numbers) / len(numbers)


def median(numbers: Collection[float]) -> float:
    """The middle of at least one number; the mean of the two middle ones of an even count."""
    ordered = sorted(numbers)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def deviation(numbers: Collection[float]) -> float:
    """The population's standard deviation of at least one number."""
    middle = mean(numbers)
    return float(mean([(one - middle) ** 2 for one in numbers]) ** 0.5)


def robust_sigma(numbers: Collection[float], floor_ratio: float) -> float:
    """1.4826 times the median absolute deviation, at least `floor_ratio` of the median."""
    middle = median(numbers)
    return max(MAD_TO_SIGMA * median([abs(one - middle) for one in numbers]), floor_ratio * middle)


def sigma_decides(count: int, sigma: float) -> bool:
    """Whether any of `count` numbers can be further than `sigma` deviations from their mean."""
    return count - 1 > sigma**2


def beyond_sigma(values: Mapping[str, float], sigma: float) -> list[str]:
    """Whose value is greater than the mean by more than `sigma` deviations: the rule as it is specified."""
    if not values:
        return []
    numbers = list(values.values())
    limit = mean(numbers) + sigma * deviation(numbers)
    return sorted(name for name, value in values.items() if value > limit)


def beyond_guard(values: Mapping[str, float], by: Thresholds) -> list[str]:
    """Whose value is out of line with the others and slower by an amount that matters. Fewer than 3: nobody's."""
    if len(values) < GUARD_MIN:
        return []
    limit = guard_limit(list(values.values()), by)
    return sorted(name for name, value in values.items() if value > limit)


def guard_limit(numbers: Sequence[float], by: Thresholds) -> float:
    """What a number must exceed to be out of line with these."""
    middle = median(numbers)
    return max(middle + by.guard_sigma * robust_sigma(numbers, by.guard_floor_ratio), by.guard_slowness * middle)
