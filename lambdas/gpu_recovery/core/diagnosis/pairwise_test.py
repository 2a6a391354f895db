"""Which machine is bad, by two rounds of small tests of two machines each.

The rule of DLRover's network check (reference, part 3): neighbours meet first; then whoever failed meets somebody who
passed, and the slowest of those who passed meet the fastest. Bad is whoever fails in both rounds, slow whoever's better
time is more than twice the median. Each group runs an allgather; a group of one runs it within the machine, for want of
a partner, which clears nobody of a bad network card.

One bad machine among 3 to 64 is found in two rounds. Two machines can only be told apart if the bad one fails alone as
well: else both stay suspected. One slow machine is found among 4 and more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.observations import PairReport
from gpu_recovery.core.diagnosis.outliers import median

Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """bad: nothing else explains the failures. suspected: one of these does. slow: passed, but took too long."""

    bad: tuple[str, ...] = ()
    suspected: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()


def first_round(instances: Iterable[str]) -> Groups:
    """Neighbours in the order of their names. The last of an odd number waits for the second round."""
    names = sorted(set(instances))
    return tuple(zip(names[0::2], names[1::2], strict=False))


def second_round(instances: Iterable[str], results: Iterable[PairReport]) -> Groups:
    """Whoever is suspected or was not tested meets one who passed, the fastest first; else one of another failed pair.

    Whom nobody is left for is tested alone. `results`: those of the first round.
    """
    names = sorted(set(instances))
    tests = [one for one in results if one.round == 1]
    suspects = [name for one in sorted(tests, key=_order) if not one.passed for name in sorted(one.instances)]
    took = {name: one.seconds or 0.0 for one in tests if one.passed for name in one.instances}
    good = sorted((name for name in took if name not in suspects), key=lambda name: (took[name], name))
    waiting = [*dict.fromkeys(suspects), *(name for name in names if name not in took and name not in suspects)]
    partners = {name: one.instances for one in tests for name in one.instances}
    groups: list[tuple[str, ...]] = []
    while waiting:
        name = waiting.pop(0)
        if good:
            groups.append((name, good.pop(0)))
            continue
        other = next((one for one in waiting if one not in partners.get(name, ())), None)
        if other is not None:
            waiting.remove(other)
        groups.append((name,) if other is None else (name, other))
    half = len(good) // 2
    groups += zip(good[:half], reversed(good[len(good) - half :]), strict=True)
    return tuple(groups)


def _order(test: PairReport) -> tuple[str, ...]:
    return tuple(sorted(test.instances))


def found(results: Iterable[PairReport], slow_ratio: float = 2.0) -> Found:
    """What the tests of both rounds say, in whatever order they came; of a test made twice, what failed counts."""
    tests = list(results)
    cleared = {name for one in tests if one.passed and len(one.instances) > 1 for name in one.instances}
    bad, left = _explained(frozenset(one.instances) - cleared for one in tests if not one.passed)
    suspected = {name for group in left for name in group}
    slow = _slow([one for one in tests if one.passed and len(one.instances) > 1], slow_ratio)
    return Found(tuple(sorted(bad)), tuple(sorted(suspected)), tuple(sorted(slow - bad - suspected)))


def _explained(failing: Iterable[frozenset[str]]) -> tuple[set[str], set[frozenset[str]]]:
    """Who explains the groups that fail, and the groups that nobody in particular does."""
    left = set(failing) - {frozenset()}
    guilty: set[str] = set()
    while left and (more := _who_explains(left)):
        guilty |= more
        left = {group for group in left if not group & guilty}
    return guilty, left


def _who_explains(failing: Iterable[frozenset[str]]) -> set[str]:
    """Whoever is left alone in a failing group; else the one, if there is only one, that is in the most of them."""
    alone = {name for group in failing if len(group) == 1 for name in group}
    if alone:
        return alone
    count: dict[str, int] = {}
    for group in failing:
        for name in group:
            count[name] = count.get(name, 0) + 1
    most = max(count.values())
    leading = {name for name, times in count.items() if times == most}
    return leading if most > 1 and len(leading) == 1 else set()


def _slow(tests: Sequence[PairReport], ratio: float) -> set[str]:
    """Who explains the tests that took more than `ratio` medians of everybody's better time."""
    timed = [(one, one.seconds) for one in tests if one.seconds is not None]
    best: dict[str, float] = {}
    for one, seconds in timed:
        for name in one.instances:
            best[name] = min(best.get(name, seconds), seconds)
    if not best:
        return set()
    limit = ratio * median(list(best.values()))
    fast = {name for name, seconds in best.items() if seconds <= limit}
    return _explained(frozenset(one.instances) - fast for one, seconds in timed if seconds > limit)[0]
