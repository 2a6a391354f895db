"""Quotas: instances by user, priority and group, jobs by number, and the document that says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.queue.priority import Priority, demotes_at, effective
from gpu_recovery.core.queue.quota import LimitsInvalid, QuotaKey, QuotaLimits, never_runs, parse_key, parse_limits
from gpu_recovery.core.queue.snapshot import RejectionKind

from tests.core.queue.build import (
    NOW,
    POLICY,
    at,
    given,
    host,
    hosts,
    passed,
    recovering,
    running,
    suspended,
    waiting,
    why,
)

TWO = QuotaLimits({("ann", "NORMAL", "*"): 2})


def test_a_job_over_its_quota_waits_and_lets_the_others_by() -> None:
    """Used and total are in the sentence."""
    busy = [running("r", "i-0", user="ann")]
    line = [waiting("a", 2, user="ann", since=-9), waiting("b", user="bob")]
    answer = passed(line, [host("i-0", free=0), *hosts("i-1", "i-2", "i-3")], busy, limits=TWO)
    assert given(answer) == {"b": ("i-1",)}
    assert why(answer) == {"a": "needs 2 instance(s); 1 of the quota of 2 of ann/NORMAL/ are taken"}
    assert answer.rejected[0].short_of is RejectionKind.QUOTA


def test_what_one_pass_gives_counts_in_the_same_pass() -> None:
    """Three jobs of one instance, a quota of two: two start."""
    line = [waiting(name, user="ann", since=since) for since, name in enumerate("abc", -9)]
    assert set(given(passed(line, hosts("i-1", "i-2", "i-3"), limits=TWO))) == {"a", "b"}


def test_a_job_larger_than_its_whole_quota_hears_that_it_can_never_run() -> None:
    """So does whoever submits it, in the same words."""
    answer = passed([waiting("a", 3, user="ann")], hosts("i-1", "i-2", "i-3"), limits=TWO)
    never = never_runs(TWO, QuotaKey("ann", Priority.NORMAL, ""), 3)
    assert why(answer) == {"a": never}
    assert never is not None and never.endswith("it can never run")
    assert never_runs(TWO, QuotaKey("ann", Priority.NORMAL, ""), 2) is None
    assert never_runs(TWO, QuotaKey("bob", Priority.NORMAL, ""), 99) is None


def test_a_quota_goes_by_the_priority_asked_for() -> None:
    """A demotion moves no counter, and frees no quota of the higher priority."""
    limits = QuotaLimits({("*", "ABOVE_NORMAL", "*"): 1})
    busy = [running("r", "i-0", user="ann", asked=Priority.ABOVE_NORMAL, priority=Priority.NORMAL)]
    line = [waiting("a", user="ann", asked=Priority.ABOVE_NORMAL, priority=Priority.NORMAL)]
    assert given(passed(line, [host("i-0", free=0), host("i-1")], busy, limits=limits)) == {}


def test_a_recovering_gang_holds_its_quota_already() -> None:
    """It is not asked for twice, or it could never come back."""
    used = {QuotaKey("ann", Priority.NORMAL, ""): 2}
    line = [recovering("back", "i-1", "i-2", user="ann")]
    assert set(given(passed(line, hosts("i-1", "i-2"), used=used, limits=TWO))) == {"back"}


def test_the_quota_that_the_head_needs_is_kept_for_it() -> None:
    """Or jobs of its own user behind it that outlast its start would take it, and the head would be passed for ever."""
    busy = [running("r", "i-0", ends=3_600)]
    line = [waiting("head", 2, user="ann", since=-9), waiting("later", user="ann", since=-1, runs_for_s=3_601)]
    answer = passed(line, [host("i-0", free=0), *hosts("i-1", "i-2")], busy, limits=TWO)
    assert set(given(answer)) == {"head"}
    answer = passed(line, [host("i-0", free=0), host("i-1")], busy, limits=TWO)
    assert given(answer) == {}
    assert answer.reservations[0].job_id == "head"
    assert why(answer)["later"] == "needs 1 instance(s); 2 of the quota of 2 of ann/NORMAL/ are taken or kept for head"


@pytest.mark.parametrize("limits", [TWO, QuotaLimits(max_running_jobs=2), QuotaLimits(max_running_jobs_per_user=1)])
def test_a_short_job_of_the_same_user_may_pass_the_promised_head(limits: QuotaLimits) -> None:
    """It ends before the head starts, so what is kept for the head is free until then. A second one finds nothing."""
    busy = [running("r", "i-0", ends=3_600)]
    short = [waiting(name, user="ann", since=-1, runs_for_s=3_600) for name in ("a", "b", "c")]
    line = [waiting("head", 3, gpus=4, user="ann", since=-9), *short]
    limits = replace(limits, instances={("ann", "NORMAL", "*"): 3}) if limits is TWO else limits
    answer = passed(line, [host("i-0", free=0), *hosts("i-1", "i-2")], busy, limits=limits)
    assert set(given(answer)) == ({"a", "b"} if limits.instances else {"a"})
    assert answer.reservations[0] == passed(line[:1], [host("i-0", free=0), *hosts("i-1", "i-2")], busy).reservations[0]


@pytest.mark.parametrize(
    ("limits", "started"),
    [
        (QuotaLimits(max_running_jobs=3), {"a", "b"}),
        (QuotaLimits(max_running_jobs_per_user=2), {"a", "c"}),
        (QuotaLimits(), set("abc")),
    ],
)
def test_no_more_jobs_run_than_may(limits: QuotaLimits, started: set[str]) -> None:
    """On the whole, and of one user."""
    line = [waiting("a", user="ann", since=-9), waiting("b", user="ann", since=-8), waiting("c", user="bob", since=-7)]
    busy = [running("r", "i-0", user="ann")]
    answer = passed(line, [host("i-0", free=0), *hosts("i-1", "i-2", "i-3")], busy, limits=limits)
    assert set(given(answer)) == started
    assert all(one.short_of is RejectionKind.JOBS for one in answer.rejected)


ONE = QuotaLimits(max_running_jobs=1)
HIGH, LOW = Priority.HIGH, Priority.LOW


def test_whoever_replaces_its_victim_is_not_one_job_too_many() -> None:
    """As many run as may: the higher priority has room made for it, and nobody slips in before it has its place."""
    high, thief = waiting("high", since=-9, priority=HIGH), waiting("thief", since=-99, priority=LOW)
    first = passed([high, thief], hosts("n1", free=0), [running("low", "n1", priority=LOW)], limits=ONE)
    assert (given(first), suspended(first)) == ({}, {"low": "high"})
    assert {one.job_id: one.short_of for one in first.rejected} == {
        "high": RejectionKind.ROOM,
        "thief": RejectionKind.JOBS,
    }
    leaving = running("low", "n1", priority=LOW, leaving=True, for_job="high")
    between = passed([high, thief], [host("n1", free=0), host("n2")], [leaving], limits=ONE)
    assert (given(between), suspended(between)) == ({}, {})
    assert given(passed([high, thief], hosts("n1", reserved_for="high"), limits=ONE)) == {"high": ("n1",)}


def test_nobody_starts_in_the_stead_of_one_who_has_not_left() -> None:
    """What is free serves the preemptor only when one job less runs."""
    high = waiting("high", priority=HIGH)
    leaving = running("low", "n1", priority=LOW, leaving=True, for_job="high")
    answer = passed([high], [host("n1", free=0), host("n2")], [leaving], limits=ONE)
    assert given(answer) == {} and [one.short_of for one in answer.rejected] == [RejectionKind.JOBS]


def test_one_victim_is_one_place() -> None:
    """A gang that leaves has hosts for two, and only one of them may run in its stead."""
    line = [waiting("a", since=-9, priority=HIGH), waiting("b", since=-8, priority=HIGH)]
    answer = passed(line, hosts("n1", "n2", free=0), [running("low", "n1", "n2", priority=LOW)], limits=ONE)
    assert suspended(answer) == {"low": "a"}
    assert {one.job_id: one.short_of for one in answer.rejected} == {"a": RejectionKind.ROOM, "b": RejectionKind.JOBS}


def test_a_job_that_leaves_already_counts_as_gone_for_the_next_job_that_replaces_another() -> None:
    """Two jobs may run. One leaves for `a`, so the other may be suspended for `b`."""
    line = [waiting("a", since=-9, priority=HIGH), waiting("b", since=-8, priority=HIGH)]
    busy = [running("r1", "n1", priority=LOW, leaving=True, for_job="a"), running("r2", "n2", priority=LOW)]
    answer = passed(line, hosts("n1", "n2", free=0), busy, limits=QuotaLimits(max_running_jobs=2))
    assert suspended(answer) == {"r2": "b"}


def test_room_for_a_users_limit_is_made_by_that_user_only() -> None:
    """Another's job that leaves is one less of another's."""
    limits = QuotaLimits(max_running_jobs_per_user=1)
    high = waiting("high", user="ann", priority=HIGH)
    mine, other = running("r1", "n1", user="ann", priority=LOW), running("r2", "n2", user="bob", priority=LOW)
    assert suspended(passed([high], hosts("n1", free=0), [mine], limits=limits)) == {"r1": "high"}
    held = running("r0", "n0", user="ann", priority=HIGH)
    answer = passed([high], hosts("n0", "n2", free=0), [held, other], limits=limits)
    assert suspended(answer) == {} and [one.short_of for one in answer.rejected] == [RejectionKind.JOBS]


def test_a_job_that_may_replace_another_later_is_looked_at_then() -> None:
    """Its victim is protected still: the clock alone makes the difference."""
    busy = [running("low", "n1", priority=LOW, since=-60)]
    answer = passed([waiting("high", priority=HIGH)], hosts("n1", free=0), busy, limits=ONE)
    assert suspended(answer) == {} and answer.next_at == at(POLICY.preemption_protect_s - 60)


def test_the_most_specific_limit_wins() -> None:
    """Two names before one; of one name the user's first, then the priority's."""
    document = {
        "*/*/*": 1,
        "*/*/g": 2,
        "*/HIGH/*": 3,
        "ann/*/*": 4,
        "*/HIGH/g": 5,
        "ann/*/g": 6,
        "ann/HIGH/*": 7,
        "ann/HIGH/g": 8,
    }
    key = QuotaKey("ann", Priority.HIGH, "g")
    for expected in range(8, 0, -1):
        assert parse_limits({"instances": document}).of(key) == expected
        document = {text: number for text, number in document.items() if number != expected}
    assert parse_limits({"instances": document}).of(key) is None


def test_limits_and_keys_survive_being_written() -> None:
    """What is stored is read again as it was; a user's name may have slashes in it."""
    document = {"instances": {"ann/HIGH/*": 0, "*/*/*": 4}, "max_running_jobs": 9, "max_running_jobs_per_user": None}
    assert parse_limits(document).document() == document
    key = QuotaKey("team/ann", Priority.EXTREME_HIGH, "")
    assert parse_key(key.text) == key


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], "limits"),
        ({"instance": {}}, "instance"),
        ({"instances": []}, "instances"),
        ({"instances": {"ann": 1}}, "instances.ann"),
        ({"instances": {"a/NICE/g": 1}}, "instances.a/NICE/g"),
        ({"instances": {"a/HIGH/g": -1}}, "instances.a/HIGH/g"),
        ({"instances": {"a/HIGH/g": True}}, "instances.a/HIGH/g"),
        ({"instances": {"a/HIGH/g": "4"}}, "instances.a/HIGH/g"),
        ({"instances": {1: 1}}, "instances.1"),
        ({"max_running_jobs": 0}, "max_running_jobs"),
        ({"max_running_jobs_per_user": 1.5}, "max_running_jobs_per_user"),
    ],
)
def test_a_wrong_limit_is_named(document: Any, field: str) -> None:
    """Whoever sets it reads which entry is wrong, and what it must be."""
    with pytest.raises(LimitsInvalid) as caught:
        parse_limits(document)
    assert caught.value.field == field


@pytest.mark.parametrize("text", ["*/HIGH/g", "ann/*/g", "ann/HIGH/*", "HIGH", "ann/high/g"])
def test_a_key_names_one_user_one_priority_and_one_group(text: str) -> None:
    """Counters are of somebody; only limits are for anybody."""
    with pytest.raises(LimitsInvalid):
        parse_key(text)


def test_above_normal_falls_back_after_half_an_hour_over_all_attempts() -> None:
    """Seed 003; no other priority does."""
    assert effective(Priority.ABOVE_NORMAL, 1_799, POLICY) is Priority.ABOVE_NORMAL
    assert effective(Priority.ABOVE_NORMAL, 1_800, POLICY) is Priority.NORMAL
    assert all(effective(one, 99_999, POLICY) is one for one in Priority if one is not Priority.ABOVE_NORMAL)
    assert demotes_at(Priority.ABOVE_NORMAL, 600, NOW, POLICY) == at(1_200)
    assert demotes_at(Priority.ABOVE_NORMAL, 6_000, NOW, POLICY) == NOW
    assert demotes_at(Priority.HIGH, 600, NOW, POLICY) is None


def test_a_limit_of_jobs_counts_all_victims_of_a_preemption() -> None:
    """Two victims leave, one job comes: the limit allows the job although two of its two places are taken."""
    limits = QuotaLimits(max_running_jobs=2)
    busy = [running("low-1", "n1", priority=LOW), running("low-2", "n2", priority=LOW)]
    answer = passed([waiting("high", 2, priority=HIGH)], hosts("n1", "n2", free=0), busy, limits=limits)
    assert suspended(answer) == {"low-1": "high", "low-2": "high"}
    third = running("other", "n3", priority=Priority.EXTREME_HIGH)
    full = passed([waiting("high", priority=HIGH)], hosts("n1", "n3", free=0), [busy[0], third], limits=ONE)
    assert suspended(full) == {}


def test_a_malformed_limit_is_an_error_that_names_its_entry() -> None:
    """The sentence has the entry and what it must be."""
    assert str(LimitsInvalid("instances.ann", "must be a number")) == "instances.ann: must be a number"
