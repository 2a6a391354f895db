"""The failures of a run: reproducible, true to their table, and changed by nothing but what they depend on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import mean, median

import pytest

from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.assumptions_file import read
from simulator.goodput.failure_trace import failure_trace

FACTS = read()
LLAMA3, SMALL = FACTS.profile("llama3"), FACTS.profile("small")
CONDITIONS = FACTS.conditions


def test_one_integer_makes_one_course() -> None:
    """Whoever has the seed has the same failures; another seed has others."""
    assert failure_trace(SMALL, CONDITIONS, 7) == failure_trace(SMALL, CONDITIONS, 7)
    assert failure_trace(SMALL, CONDITIONS, 7).failures != failure_trace(SMALL, CONDITIONS, 8).failures


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_causes_of_the_whole_run_are_those_of_the_table(seed: int) -> None:
    """At the size and length of the source, its counts come out whatever the seed."""
    counted = Counter(failure.cause for failure in failure_trace(LLAMA3, CONDITIONS, seed).failures)
    assert counted == {cause.name: cause.weight for cause in LLAMA3.mix}


def test_rare_causes_come_up_in_small_clusters_too() -> None:
    """Rounding to the expected number would leave them out for ever."""
    tiny = replace(LLAMA3, instances=64)
    seen = Counter(failure.cause for seed in range(60) for failure in failure_trace(tiny, CONDITIONS, seed).failures)
    assert seen["silent_corruption"] / seen.total() == pytest.approx(6 / 419, abs=0.01)


def test_failures_are_in_order_and_within_the_run() -> None:
    """Nobody sorts them afterwards."""
    times = [failure.at_s for failure in failure_trace(LLAMA3, CONDITIONS, 1).failures]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < LLAMA3.seconds
    assert mean(times) == pytest.approx(LLAMA3.seconds / 2, rel=0.1)


def test_causes_come_in_no_order() -> None:
    """The most frequent one strikes throughout the run, not at its beginning."""
    failures = failure_trace(LLAMA3, CONDITIONS, 1).failures
    of_gpus = [one.number for one in failures if one.cause == "faulty_gpu"]
    assert mean(of_gpus) == pytest.approx(419 / 2, rel=0.2)


def test_a_reboot_cures_the_share_that_the_table_says() -> None:
    """The split is an assumption; sweeping it must change the split."""
    for share in (0.3, 0.6, 0.9):
        failures = failure_trace(LLAMA3, replace(CONDITIONS, reboot_share=share), 1).failures
        of_nodes = [one for one in failures if one.is_instance_fault and one.shows is not Shows.GONE]
        assert mean(one.cure is Cure.REBOOT for one in of_nodes) == pytest.approx(share, abs=0.08)


def test_a_changed_condition_changes_only_what_it_is_about() -> None:
    """Else a sweep would compare two different sets of luck."""
    before = failure_trace(LLAMA3, CONDITIONS, 1).failures
    after = failure_trace(LLAMA3, replace(CONDITIONS, reboot_share=0.9), 1).failures
    for one, other in zip(before, after, strict=True):
        same = replace(other, cure=one.cure, verdict=one.verdict)
        assert same == one
    assert before != after


def test_people_take_forty_minutes_in_the_median_and_longer_on_average() -> None:
    """The few long nights are what makes the mean."""
    took = [one.human_s for seed in range(20) for one in failure_trace(LLAMA3, CONDITIONS, seed).failures]
    assert median(took) == pytest.approx(CONDITIONS.human_s, rel=0.05)
    assert mean(took) == pytest.approx(68 * 60, rel=0.1)


def test_lemons_have_more_than_their_share_and_stay_few() -> None:
    """1.45 % of the machines at ten times the rate have about an eighth of the failures of nodes."""
    failures = failure_trace(LLAMA3, CONDITIONS, 1).failures
    theirs = [one for one in failures if one.of_lemon]
    assert len({one.place for one in theirs}) <= round(0.0145 * 2_048)
    of_nodes = sum(one.is_instance_fault and one.shows is not Shows.GONE for one in failures)
    assert len(theirs) / of_nodes == pytest.approx(0.128, abs=0.05)


def test_checks_accuse_healthy_machines_as_often_as_the_table_says() -> None:
    """A false alarm is rare for one machine and ordinary for two thousand."""
    conditions = replace(CONDITIONS, false_alarm=1e-4)
    failures = failure_trace(LLAMA3, conditions, 1).failures
    assert sum(len(one.accused) for one in failures) == pytest.approx(419 * 2_048 * 1e-4, rel=0.25)
    assert all(one.place not in one.accused and len(set(one.accused)) == len(one.accused) for one in failures)
    assert not any(one.accused for one in failure_trace(LLAMA3, replace(CONDITIONS, false_alarm=0.0), 1).failures)


def test_as_many_ranks_say_what_their_machine_has_as_the_table_says() -> None:
    """Of those that end at once, of something that can be seen at all; a hang and a silent corruption say nothing."""
    failures = failure_trace(LLAMA3, CONDITIONS, 1).failures
    could = [one for one in failures if one.is_instance_fault and one.shows is Shows.EXIT and one.depth < 1]
    assert mean(one.is_named_in_log(CONDITIONS) for one in could) == pytest.approx(CONDITIONS.told_share, abs=0.05)
    told = {one.number for one in failures if one.is_named_in_log(CONDITIONS)}
    assert told <= {one.number for one in could}
    more = {one.number for one in failures if one.is_named_in_log(replace(CONDITIONS, told_share=1.0))}
    assert told < more == {one.number for one in could}


def test_a_deeper_check_sees_what_a_shallower_one_sees() -> None:
    """Levels add tests to each other."""
    for one in failure_trace(LLAMA3, CONDITIONS, 1).failures:
        assert one.is_seen(CONDITIONS, 1) <= one.is_seen(CONDITIONS, 2) <= one.is_seen(CONDITIONS, 3)
    unseen = [one for one in failure_trace(LLAMA3, CONDITIONS, 1).failures if one.cause == "silent_corruption"]
    assert unseen
    assert not any(one.is_seen(replace(CONDITIONS, seen_3=1.0), 3) for one in unseen)
