"""Pairwise test: two rounds of small tests on pairs of instances that find a bad or slow instance.

The rule is that of DLRover's network check (reference, part 3). In the first round neighbours are paired. In the
second round an instance that failed is paired with an instance that passed. The slowest instances that
passed are paired with the fastest.

An instance is bad if it fails in both rounds. It is slow if its better time is more than twice the median. Each group
runs an allgather. A group of a single instance, for lack of a partner, runs the allgather inside the instance; such a
test does not clear a bad network card.

Two rounds find one bad instance among 3 to 64. Of two instances the bad instance is only known if it also fails
alone; else both stay suspected. One slow instance is found among 4 or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpu_recovery.core.diagnosis.observations import PairReport
from gpu_recovery.core.diagnosis.outliers import median
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

Groups = tuple[tuple[str, ...], ...]
"""Groups of instance ids that run a test together."""


@frozen_dataclass()
class Found:
    """Result of the pairwise tests: instance ids, sorted.

    bad: instances that alone explain the failed tests.
    suspected: instances of failed tests that no single instance explains.
    slow: instances that passed but took too long.
    """

    bad: tuple[str, ...] = ()
    suspected: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()


def first_round(instances: Iterable[str]) -> Groups:
    """Pairs of neighbours in the order of their names. The last of an odd number waits for the second round."""
    names = sorted(set(instances))
    return tuple(zip(names[0::2], names[1::2], strict=False))


def second_round(instances: Iterable[str], results: Iterable[PairReport]) -> Groups:
    """Groups of the second round.

    A suspected or untested instance is paired with an instance that passed, the fastest first. If none is left, its
    partner is an instance of another failed pair. Without any partner it is tested alone. Of the other instances that
    passed, the slowest are paired with the fastest.

    Args:
        results: tests of the first round.
    """
    names = sorted(set(instances))
    tests = [test for test in results if test.round == 1]
    suspects = [name for test in sorted(tests, key=_order) if not test.passed for name in sorted(test.instances)]
    took = {name: test.seconds or 0.0 for test in tests if test.passed for name in test.instances}
    good = sorted((name for name in took if name not in suspects), key=lambda name: (took[name], name))
    waiting = [*dict.fromkeys(suspects), *(name for name in names if name not in took and name not in suspects)]
    partners = {name: test.instances for test in tests for name in test.instances}
    groups: list[tuple[str, ...]] = []
    while waiting:
        name = waiting.pop(0)
        if good:
            groups.append((name, good.pop(0)))
            continue
        other = next((candidate for candidate in waiting if candidate not in partners.get(name, ())), None)
        if other is not None:
            waiting.remove(other)
        groups.append((name,) if other is None else (name, other))
    half = len(good) // 2
    groups += zip(good[:half], reversed(good[len(good) - half :]), strict=True)
    return tuple(groups)


def _order(test: PairReport) -> tuple[str, ...]:
    return tuple(sorted(test.instances))


def found(results: Iterable[PairReport], slow_ratio: float = 2.0) -> Found:
    """Result of the tests of both rounds, which may arrive in any order.

    An instance that passed a test with a partner is cleared of every failed test.

    Args:
        slow_ratio: ratio to the median above which a time is slow.
    """
    tests = list(results)
    cleared = {name for test in tests if test.passed and len(test.instances) > 1 for name in test.instances}
    bad, left = _explained(frozenset(test.instances) - cleared for test in tests if not test.passed)
    suspected = {name for group in left for name in group}
    slow = _slow([test for test in tests if test.passed and len(test.instances) > 1], slow_ratio)
    return Found(tuple(sorted(bad)), tuple(sorted(suspected)), tuple(sorted(slow - bad - suspected)))


def _explained(failing: Iterable[frozenset[str]]) -> tuple[set[str], set[frozenset[str]]]:
    """Instances that explain the failed groups, and the groups that no single instance explains."""
    left = set(failing) - {frozenset()}
    culprits: set[str] = set()
    while left and (more := _culprits(left)):
        culprits |= more
        left = {group for group in left if not group & culprits}
    return culprits, left


def _culprits(failing: Iterable[frozenset[str]]) -> set[str]:
    """Instances that are alone in a failed group; else the instance that is in more failed groups than any other.

    Without an instance that is alone, at least two groups must share it, and no second instance may be in as many.
    """
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
    """Instances that explain the tests that took more than `ratio` times the median of all best times."""
    timed = [(test, test.seconds) for test in tests if test.seconds is not None]
    best: dict[str, float] = {}
    for test, seconds in timed:
        for name in test.instances:
            best[name] = min(best.get(name, seconds), seconds)
    if not best:
        return set()
    limit = ratio * median(list(best.values()))
    fast = {name for name, seconds in best.items() if seconds <= limit}
    return _explained(frozenset(test.instances) - fast for test, seconds in timed if seconds > limit)[0]
