"""Legs of a course: nothing is lost at a cut, nothing counted twice, and what does not fit is said."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest

from simulator.goodput.accounting import ettr
from simulator.goodput.assumptions import Cure
from simulator.goodput.contenders import own_way
from simulator.goodput.failure_trace import Failure, FailureTrace, failure_trace
from simulator.goodput.policy import PolicyRun
from simulator.goodput.production import adaptive
from simulator.goodput.runner import play
from simulator.goodput.segments import LEFT_S, SegmentsDoNotFit, joined, segments_of
from tests.simulator.goodput.test_own_way import CONDITIONS, FACTS, failure, of

pytestmark = pytest.mark.slow

HOUR = 3_600.0


def _calm() -> FailureTrace:
    """Eight failures, half a day apart, of eight machines, each of another one; there are four spares."""
    profile = replace(FACTS.profile("small").resized(8), days=4.5)
    cures = (Cure.REBOOT, Cure.RESTART) * 4
    failures = [failure((n + 1) * 12 * HOUR, place=n, cure=cure) for n, cure in enumerate(cures)]
    return replace(of(*failures), profile=profile)


def _back_at(run: PolicyRun) -> list[float]:
    return [one.training_at for one in run.episodes if one.training_at is not None]


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_each_moment_and_each_failure_is_in_one_leg(number: int) -> None:
    """The legs follow each other from the beginning of the run to its end, and a failure never waits at a cut."""
    given = failure_trace(FACTS.profile("llama3"), CONDITIONS, 1)
    legs = segments_of(given, number)
    assert len(legs) == number
    assert legs[0].begins_s == 0.0 and legs[-1].ends_s == given.profile.seconds
    assert all(one.ends_s == following.begins_s for one, following in pairwise(legs))
    for struck in given.failures:
        (leg,) = (one for one in legs if one.begins_s <= struck.at_s < one.ends_s)
        assert leg is legs[0] or struck.at_s >= leg.begins_s + LEFT_S
    shares = [sum(leg.begins_s <= one.at_s < leg.ends_s for one in given.failures) for leg in legs]
    assert max(shares) <= 1.1 * len(given.failures) / number


def _after_calms(*hours: float) -> FailureTrace:
    """A course of failures, each after so many hours of calm."""
    times = list(accumulate(hours))
    return replace(_calm(), failures=tuple(failure(at * HOUR) for at in times))


@pytest.mark.parametrize(
    ("calms", "before"),
    [
        ((1, 1, 1, 1, 1, 6, 2, 1, 1, 1), 5),
        ((1, 1, 1, 9, 6, 3, 5, 9, 1, 1), 4),  # those of nine hours are too far off
        ((1, 1, 1, 9, 1, 3, 5, 9, 1, 1), 6),
    ],
)
def test_a_cut_is_in_the_longest_calm_nearby(calms: tuple[float, ...], before: int) -> None:
    """Ten failures are cut before the sixth, or before one of its neighbours: a leg may not be much the longer one."""
    given = _after_calms(*calms)
    legs = segments_of(given, 2)
    assert legs[0].ends_s == pytest.approx(given.failures[before].at_s - LEFT_S)


def test_a_run_in_legs_is_the_run_where_nothing_need_be_remembered() -> None:
    """Each failure is another machine's, so that what the next leg does not know makes no difference."""
    given = _calm()
    (whole,), (in_legs,) = (play([(adaptive(2, 4), given)], 1, legs) for legs in (1, 2))
    struck = [(one.failure, one.fault_at, one.was_short) for one in whole.episodes]
    assert [(one.failure, one.fault_at, one.was_short) for one in in_legs.episodes] == struck
    assert len(_back_at(whole)) == len(given.failures)
    assert _back_at(in_legs) == pytest.approx(_back_at(whole), abs=1.0)  # the clock ticks at another moment
    assert (in_legs.reboots, in_legs.messages) == (whole.reboots, whole.messages)
    seconds = given.profile.seconds
    assert ettr(in_legs, seconds, CONDITIONS) == pytest.approx(ettr(whole, seconds, CONDITIONS))


def test_several_processes_make_the_same_of_it() -> None:
    """Which leg is ready first makes no difference."""
    pairs = [(adaptive(2, 4), _calm()), (own_way(2, 4), _calm())]
    assert play(pairs, 2, 2) == play(pairs, 1, 2)


def test_models_go_through_a_course_as_a_whole() -> None:
    """They take milliseconds, and what they remember need not be forgotten."""
    given = failure_trace(FACTS.profile("llama3"), CONDITIONS, 1)
    way = own_way(2, 4)
    assert play([(way, given)], 1, 4) == [way.run(given)]


def test_a_recovery_that_a_cut_goes_through_is_an_error() -> None:
    """The training of the next leg would be counted, though there was none."""
    cut_off = adaptive(2, 1).run(_ends_in_a_recovery())
    assert cut_off.episodes[-1].training_at is None
    with pytest.raises(SegmentsDoNotFit, match=r"in hour 1\.0 was not over"):
        joined([cut_off, PolicyRun(())])
    assert joined([PolicyRun(()), cut_off]).episodes == cut_off.episodes


def _ends_in_a_recovery() -> FailureTrace:
    profile = replace(FACTS.profile("small").resized(4), days=1.01 / 24)
    struck: Failure = failure(HOUR)
    return replace(of(struck), profile=profile)


def test_too_few_failures_make_no_legs() -> None:
    """A leg without failures would say nothing, and a cut without calm anything."""
    with pytest.raises(SegmentsDoNotFit, match="8 failures are too few for 3 legs"):
        segments_of(_calm(), 3)
    close = replace(_calm(), failures=tuple(replace(one, at_s=one.number * 30.0) for one in _calm().failures))
    with pytest.raises(SegmentsDoNotFit, match="no calm"):
        segments_of(close, 2)
