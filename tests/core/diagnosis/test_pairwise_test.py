"""Pairwise tests: one bad machine is found in two rounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gpu_recovery.core.diagnosis.observations import PairReport
from gpu_recovery.core.diagnosis.pairwise_test import Found, Groups, first_round, found, second_round
from gpu_recovery.core.diagnosis.rules.collectives import RULES
from gpu_recovery.core.diagnosis.taxonomy import Cause, Scope, ScopeKind
from hypothesis import given
from hypothesis import strategies as st

from tests.core.diagnosis.small_cases import AT_S, found_by, judged, of_row, rows
from tests.tiers import sampled

Tests = list[PairReport]


def machines(count: int) -> list[str]:
    """So many names, in their order."""
    return [f"i-{n:02d}" for n in range(count)]


def run(
    groups: Groups, number: int, fails: Callable[[tuple[str, ...]], bool], seconds: Callable[[str], float]
) -> Tests:
    """What a round gives."""
    return [
        PairReport(
            report_id=f"{number}-{'-'.join(group)}",
            at_s=AT_S,
            round=number,
            instances=group,
            passed=not fails(group),
            seconds=max(seconds(name) for name in group),
        )
        for group in groups
    ]


def both_rounds(
    names: list[str], fails: Callable[[tuple[str, ...]], bool], seconds: Callable[[str], float] = lambda name: 1.0
) -> Tests:
    """Both rounds, the second planned after the first."""
    first = run(first_round(names), 1, fails, seconds)
    return first + run(second_round(names, first), 2, fails, seconds)


@pytest.mark.parametrize("count", sampled(range(3, 65), fast=20, default=63))
def test_any_single_bad_machine_is_found_in_two_rounds(count: int) -> None:
    """Every one of every number, odd ones too, although a test of it alone shows nothing."""
    names = machines(count)
    for bad in names:
        tests = both_rounds(names, lambda group, bad=bad: bad in group and len(group) > 1)
        assert found(tests) == Found(bad=(bad,)), bad
        assert {test.round for test in tests} == {1, 2}


def test_of_two_machines_the_bad_one_is_found_if_it_fails_alone() -> None:
    """Else nobody can tell them apart, and both are suspected."""
    for bad in ("i-00", "i-01"):
        alone = both_rounds(machines(2), lambda group, bad=bad: bad in group)
        assert found(alone) == Found(bad=(bad,))
        card = both_rounds(machines(2), lambda group, bad=bad: bad in group and len(group) > 1)
        assert found(card) == Found(suspected=("i-00", "i-01"))


@pytest.mark.parametrize("count", sampled(range(2, 65), fast=20, default=63))
def test_nobody_is_accused_where_all_pass(count: int) -> None:
    """And everybody has been tested with a partner."""
    tests = both_rounds(machines(count), lambda group: False)
    assert found(tests) == Found()
    assert {name for test in tests if len(test.instances) > 1 for name in test.instances} == set(machines(count))


@pytest.mark.parametrize("count", sampled(range(2, 65), fast=20, default=63))
def test_a_machine_is_in_one_test_of_a_round(count: int) -> None:
    """Tests of one round run at the same time."""
    names = machines(count)
    for bad in names:
        tests = both_rounds(names, lambda group, bad=bad: bad in group)
        for number in (1, 2):
            members = [name for test in tests if test.round == number for name in test.instances]
            assert len(members) == len(set(members))


@pytest.mark.parametrize("count", [8, 9, 16, 33, 64])
def test_two_bad_machines_are_found_where_enough_are_good(count: int) -> None:
    """In one pair or in two."""
    names = machines(count)
    for one, other in ((0, 1), (0, 2), (1, 6), (3, 4)):
        bad = {names[one], names[other]}
        tests = both_rounds(names, lambda group, bad=bad: bool(bad & set(group)) and len(group) > 1)
        assert found(tests).bad == tuple(sorted(bad))


@pytest.mark.parametrize("count", sampled(range(4, 65), fast=20, default=63))
def test_one_slow_machine_is_found_by_its_better_time(count: int) -> None:
    """Whoever was slow once had a slow partner."""
    names = machines(count)
    for slow in names:
        tests = both_rounds(names, lambda group: False, lambda name, slow=slow: 2.5 if name == slow else 1.0)
        assert found(tests) == Found(slow=(slow,)), slow


def test_the_fastest_meet_the_slowest_in_the_second_round() -> None:
    """DLRover's example: times of 206.9 and 151.8, then 23.2 and 136."""
    tests = [
        PairReport(report_id="a", at_s=0.0, round=1, instances=("n0", "n2"), passed=True, seconds=206.9),
        PairReport(report_id="b", at_s=0.0, round=1, instances=("n1", "n3"), passed=True, seconds=151.8),
    ]
    assert second_round(["n0", "n1", "n2", "n3"], tests) == (("n1", "n2"), ("n3", "n0"))


def test_whoever_failed_meets_the_fastest_of_those_who_passed() -> None:
    """A slow partner would make the second test slow as well."""
    tests = [
        PairReport(report_id="a", at_s=0.0, round=1, instances=("n0", "n1"), passed=False),
        PairReport(report_id="b", at_s=0.0, round=1, instances=("n2", "n3"), passed=True, seconds=9.0),
        PairReport(report_id="c", at_s=0.0, round=1, instances=("n4", "n5"), passed=True, seconds=1.0),
    ]
    groups = second_round([f"n{n}" for n in range(6)], tests)
    assert groups == (("n0", "n4"), ("n1", "n5"), ("n2", "n3"))


def test_whom_nothing_tells_apart_is_suspected_only() -> None:
    """Three machines that fail with one another: any two of them may be bad."""
    tests = [
        PairReport(report_id=f"{one}{other}", at_s=0.0, round=2, instances=(one, other), passed=False)
        for one, other in (("a", "b"), ("b", "c"), ("a", "c"))
    ]
    assert found(tests) == Found(suspected=("a", "b", "c"))


def test_exactly_twice_the_median_is_not_slow() -> None:
    """More than twice is."""
    names = machines(8)
    for ratio, slow in ((2.0, ()), (2.1, ("i-03",))):
        tests = both_rounds(names, lambda group: False, lambda name, ratio=ratio: ratio if name == "i-03" else 1.0)
        assert found(tests).slow == slow


def test_an_instance_at_exactly_twice_the_median_leaves_its_slow_partner_convicted() -> None:
    """Its own best time is not slow, so the partner explains their slow test. The partner's first test has no time."""
    times = [(1, "ac", 2.0), (1, "de", 1.0), (1, "bf", None), (2, "ab", 3.0), (2, "cd", 1.0), (2, "ef", 1.0)]
    tests = [
        PairReport(report_id=f"{n}{pair}", at_s=AT_S, round=n, instances=tuple(pair), passed=True, seconds=seconds)
        for n, pair, seconds in times
    ]
    assert found(tests) == Found(slow=("b",))


@given(st.integers(2, 20), st.integers(0, 2**30), st.randoms())
def test_whoever_passed_with_a_partner_is_not_accused_and_order_does_not_matter(
    count: int, failing: int, shuffled: object
) -> None:
    """Whichever tests fail."""
    bits = iter(f"{failing:030b}" * 4)
    tests = both_rounds(machines(count), lambda group: next(bits) == "1")
    verdict = found(tests)
    passed = {name for test in tests if test.passed and len(test.instances) > 1 for name in test.instances}
    alone = {test.instances[0] for test in tests if not test.passed and len(test.instances) == 1}
    assert not (set(verdict.bad) | set(verdict.suspected)) & (passed - alone)
    again = list(tests)
    shuffled.shuffle(again)  # type: ignore[attr-defined]
    assert found(again) == verdict


def test_a_convicted_machine_is_left_out() -> None:
    """Its network is the verdict, its GPU the rival."""
    tests = both_rounds(machines(8), lambda group: "i-03" in group)
    verdict = judged(tests)
    assert (verdict.cause, verdict.scope) == (Cause.NETWORK, Scope.of(ScopeKind.INSTANCE, "i-03"))
    assert (verdict.remedy, verdict.decided) == ("LEAVE_OUT", True)
    assert verdict.findings[0].english == "i-03 failed its tests with every partner"
    assert verdict.findings[0].chinese == "i-03 与所有伙伴的成对测试均失败"
    assert [one.cause for one in verdict.rivals] == [Cause.GPU_FAULT]


def test_two_suspected_machines_and_a_slow_one_are_said() -> None:
    """Neither of the two is decided."""
    pair = both_rounds(machines(2), lambda group: len(group) > 1)
    found_here = of_row(found_by(RULES, pair), "pairp")
    assert {one.scope.names for one in found_here} == {("i-00",), ("i-01",)}
    assert found_here[0].english == "i-00 or i-01: their tests fail, and cannot tell which of them it is"
    assert found_here[0].chinese == "i-00 或 i-01：成对测试失败，无法区分"
    assert not judged(pair).decided
    slow = both_rounds(machines(8), lambda group: False, lambda name: 3.0 if name == "i-05" else 1.0)
    said = of_row(found_by(RULES, slow), "pairs")
    assert {one.cause for one in said} == {Cause.NETWORK_SLOW, Cause.STRAGGLER}
    assert said[0].english == "i-05 took more than 2 times the median in its best test"
    assert said[0].chinese == "i-05 最快的成对测试也超过中位数的2倍 → 慢节点"
    assert rows(found_by(RULES, both_rounds(machines(8), lambda group: False))) == set()
