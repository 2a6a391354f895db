"""Preemption: who makes room, for whom, and who never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey, QuotaLimits
from gpu_recovery.core.queue.snapshot import Host, RejectionKind, RunningJob

from tests.core.queue.build import HOUR, POLICY, at, given, host, hosts, passed, running, suspended, waiting, why

HIGH = waiting("high", priority=Priority.HIGH)


def _busy(*jobs: RunningJob) -> list[Host]:
    """The hosts of running jobs, without anything free."""
    return [host(name, free=0) for name in sorted({name for job in jobs for name in job.hosts})]


def _victims(*jobs: RunningJob, nodes: int = 1, **fields: Any) -> set[str]:
    preemptor = replace(HIGH, nodes=nodes)
    return set(suspended(passed([preemptor], _busy(*jobs), jobs, **fields)))


def _low(name: str, *on: str, **fields: Any) -> RunningJob:
    return running(name, *on, priority=fields.pop("priority", Priority.LOW), **fields)


def test_a_lower_priority_makes_room_and_is_told_for_whom() -> None:
    """The order carries what it was decided from, and the hosts that are kept."""
    (order,) = passed([HIGH], _busy(_low("low", "i-1")), [_low("low", "i-1")]).suspensions
    assert (order.job_id, order.version, order.attempt, order.for_job, order.hosts) == ("low", 1, 1, "high", ("i-1",))
    assert order.sentence == "makes room for high of priority HIGH"


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": Priority.HIGH},
        {"priority": Priority.VERY_HIGH},
        {"since": -899},
        {"suspensions": 3},
        {"can_suspend": False},
        {"leaving": True},
    ],
)
def test_who_is_not_suspended(fields: dict[str, Any]) -> None:
    """The same or a higher priority; who has not run its minimum; who was suspended often; who is not ours to suspend
    or ends already."""
    assert _victims(_low("r", "i-1")) == {"r"}
    assert _victims(_low("r", "i-1", **fields)) == set()


def test_a_demotion_that_is_due_counts() -> None:
    """An ABOVE_NORMAL job that has had its half hour makes room for one that has not."""
    line = [waiting("w", priority=Priority.ABOVE_NORMAL)]
    for due, makes_room in ((0, True), (1, False)):
        job = running("r", "i-1", priority=Priority.ABOVE_NORMAL, demotes_at=at(due))
        assert bool(suspended(passed(line, _busy(job), [job]))) is makes_room


def test_nobody_is_suspended_in_vain() -> None:
    """All that may be suspended would not be enough: nobody is."""
    assert _victims(_low("a", "i-1"), running("b", "i-2", priority=Priority.HIGH), nodes=2) == set()


def test_nobody_is_suspended_while_what_is_free_suffices() -> None:
    """Free hosts are used first."""
    answer = passed([HIGH], [host("i-1", free=0), host("i-2")], [_low("low", "i-1")])
    assert (given(answer), suspended(answer)) == ({"high": ("i-2",)}, {})


def test_who_is_over_its_quota_goes_first_then_the_lowest_priority() -> None:
    """The order of the reference, 5.4."""
    low, normal = _low("low", "i-1"), running("normal", "i-2", user="ann")
    assert _victims(low, normal) == {"low"}
    used = {QuotaKey("ann", Priority.NORMAL, ""): 1}
    assert _victims(low, normal, used=used, limits=QuotaLimits({("ann", "*", "*"): 0})) == {"normal"}


def test_few_gangs_rather_than_many() -> None:
    """One gang of two hosts before two jobs of one, though they would lose less."""
    small = [_low("a", "i-1", checkpoint_at=at(-1)), _low("b", "i-2", checkpoint_at=at(-1))]
    assert _victims(*small, _low("gang", "i-3", "i-4"), nodes=2) == {"gang"}


def test_the_least_work_is_lost() -> None:
    """GPU-seconds since the last checkpoint: a job of many GPUs that has just saved goes before a small one."""
    saved = _low("saved", "i-1", "i-2", since=-9 * HOUR, checkpoint_at=at(-30))
    assert _victims(saved, _low("unsaved", "i-3")) == {"saved"}
    assert _victims(_low("a", "i-1", since=-HOUR), _low("b", "i-2", since=-2 * HOUR)) == {"a"}


def test_of_equals_the_newest_goes() -> None:
    """It has waited least for what it has."""
    older, newer = (
        _low(name, on, checkpoint_at=at(-1), since=since)
        for name, on, since in (("older", "i-1", -3 * HOUR), ("newer", "i-2", -2 * HOUR))
    )
    assert _victims(older, newer) == {"newer"}


def test_small_jobs_on_one_host_leave_together() -> None:
    """Four of two GPUs each make a whole host; and no more of them than the job needs."""
    jobs = [_low(f"r{n}", "i-1", gpus=2) for n in range(4)]
    assert _victims(*jobs) == {"r0", "r1", "r2", "r3"}
    answer = passed([replace(HIGH, gpus=4)], _busy(*jobs), jobs)
    assert len(answer.suspensions) == 2


def test_only_jobs_that_must_leave_count_as_the_cost_of_a_host() -> None:
    """One job of host i-1 leaves enough GPUs. The second job there does not make i-1 dearer than i-2."""
    cheap = [_low("a", "i-1", gpus=4, since=-HOUR), _low("b", "i-1", gpus=4, since=-2 * HOUR)]
    dear = _low("c", "i-2", since=-HOUR)
    answer = passed([replace(HIGH, gpus=4)], _busy(*cheap, dear), [*cheap, dear])
    assert suspended(answer) == {"a": "high"}


def test_what_was_chosen_in_vain_is_spared_again() -> None:
    """The small one is chosen first, being of lower priority; the gang, needed too, turns out to be enough alone."""
    assert _victims(_low("small", "i-1"), running("gang", "i-2", "i-3"), nodes=2) == {"gang"}


def test_what_is_being_vacated_for_a_job_is_not_asked_for_twice() -> None:
    """Until it has left, whatever else could be suspended too."""
    leaving = _low("a", "i-1", leaving=True, for_job="high")
    answer = passed([HIGH], _busy(leaving, _low("b", "i-2")), [leaving, _low("b", "i-2")])
    assert suspended(answer) == {}
    assert (answer.rejected[0].short_of, answer.rejected[0].blockers) == (RejectionKind.ROOM, ("a",))
    assert "waits for a to make room" in why(answer)["high"]


@pytest.mark.parametrize("changes", [{"usable": False}, {"reserved_for": "other"}])
def test_a_vacated_host_that_the_job_cannot_use_is_not_waited_for(changes: dict[str, Any]) -> None:
    """The host became faulty or was reserved for another job after its job was told to leave."""
    leaving, other = _low("a", "i-1", leaving=True, for_job="high"), _low("b", "i-2")
    answer = passed([HIGH], [host("i-1", free=0, **changes), host("i-2", free=0)], [leaving, other])
    assert suspended(answer) == {"b": "high"}


def test_what_is_missing_beside_that_is_asked_for() -> None:
    """One of two hosts is on its way: one more is needed, not two."""
    leaving = _low("a", "i-1", leaving=True, for_job="high")
    others = [_low("b", "i-2"), _low("c", "i-3")]
    assert len(_victims(leaving, *others, nodes=2)) == 1


def test_what_a_preemptor_waits_with_is_given_to_nobody_behind_it() -> None:
    """Its free host stays free, or it would never have both at once."""
    answer = passed(
        [replace(HIGH, nodes=2), waiting("b", runs_for_s=1)], [host("i-1", free=0), host("i-2")], [_low("low", "i-1")]
    )
    assert (given(answer), suspended(answer)) == ({}, {"low": "high"})


def test_two_preemptors_get_room_from_two() -> None:
    """No victim makes room for two, and none is chosen for nothing."""
    jobs = [_low("a", "i-1"), _low("b", "i-2"), _low("c", "i-3")]
    line = [HIGH, waiting("also", priority=Priority.HIGH)]
    told = suspended(passed(line, _busy(*jobs), jobs))
    assert sorted(told.values()) == ["also", "high"]


def test_what_a_large_gang_vacates_is_enough_for_two() -> None:
    """Who is next in line waits for its other host, in this pass and in the next, and suspends nobody else."""
    gang, other = _low("gang", "i-1", "i-2", checkpoint_at=at(-1)), _low("other", "i-3")
    line = [HIGH, waiting("also", since=-1, priority=Priority.HIGH)]
    first = passed(line, _busy(gang, other), [gang, other])
    assert suspended(first) == {"gang": "high"}
    assert {one.short_of for one in first.rejected} == {RejectionKind.ROOM}
    leaving = replace(gang, leaving=True, for_job="high")
    fleet = [host("i-1", free=0, reserved_for="high"), *_busy(gang, other)[1:]]
    assert suspended(passed(line, fleet, [leaving, other])) == {}


def test_a_gang_that_leaves_for_one_is_not_told_to_leave_for_another() -> None:
    """Half of each of two hosts is the gang's: it would have to leave for either."""
    jobs = [_low("gang", "i-1", "i-2", gpus=4), _low("a", "i-1", gpus=4), _low("b", "i-2", gpus=4)]
    answer = passed([HIGH, waiting("also", since=-1, priority=Priority.HIGH)], _busy(*jobs), jobs)
    assert len(answer.suspensions) == len(suspended(answer)) == 2
    assert set(suspended(answer).values()) == {"high"}


def test_a_gang_is_suspended_once_however_many_wait_for_it() -> None:
    """The one who comes third finds nothing left to vacate, and heads the line."""
    gang = _low("gang", "i-1", "i-2")
    line = [replace(HIGH, job_id=name, queued_at=at(since)) for since, name in enumerate("abc", -9)]
    answer = passed(line, _busy(gang), [gang])
    assert [(one.job_id, one.for_job) for one in answer.suspensions] == [("gang", "a")]
    assert [one.job_id for one in answer.reservations] == ["c"]


def test_a_job_behind_one_that_waits_suspends_nobody() -> None:
    """What it would have vacated may be what the head waits for."""
    jobs = [_low("a", "i-1"), running("b", "i-2", priority=Priority.HIGH)]
    line = [waiting("head", 2, priority=Priority.HIGH, since=-9), waiting("x", since=-1, priority=Priority.HIGH)]
    assert suspended(passed(line, _busy(*jobs), jobs)) == {}


def test_the_fleet_has_a_budget_of_suspensions() -> None:
    """Whole gangs or none: what would exceed it waits, and is looked at again."""
    jobs = [_low("a", "i-1"), _low("b", "i-2")]
    policy = replace(POLICY, fleet_suspensions_max=3)
    assert len(_victims(*jobs, nodes=2, policy=policy, recent_preemptions=1)) == 2
    assert _victims(*jobs, nodes=2, policy=policy, recent_preemptions=2) == set()
    late = passed([replace(HIGH, nodes=2)], _busy(*jobs), jobs, policy=policy, recent_preemptions=9)
    assert late.next_at == at(POLICY.pending_retry_s)


@pytest.mark.parametrize("fields", [{"usable": False}, {"reserved_for": "other"}, {"leaves_at": at(60)}, {"gpus": 4}])
def test_a_host_that_would_not_help_is_not_vacated(fields: dict[str, Any]) -> None:
    """Sick, kept for another, about to leave, too small."""
    answer = passed([HIGH], [host("i-1", **{"free": 0} | fields), host("i-9", usable=False)], [_low("low", "i-1")])
    assert suspended(answer) == {}


def test_of_a_large_gang_only_what_is_needed_is_kept() -> None:
    """The other hosts of the victim are free for whoever is next."""
    gang = _low("gang", "i-1", "i-2", "i-3")
    (order,) = passed([HIGH], _busy(gang), [gang]).suspensions
    assert len(order.hosts) == 1


def test_priorities_within_one_user_count_like_any() -> None:
    """Only at the same priority does a user not interrupt himself."""
    assert _victims(_low("r", "i-1", user=HIGH.user)) == {"r"}


EXTREME = waiting("extreme", priority=Priority.EXTREME_HIGH)


@pytest.mark.parametrize(
    "limits",
    [
        {"busy": {"since": -60}},
        {"busy": {"suspensions": POLICY.suspensions_max}},
        {"recent_preemptions": POLICY.fleet_suspensions_max},
    ],
)
def test_extreme_high_waits_for_no_protected_time_and_no_limit_of_suspensions(limits: dict[str, Any]) -> None:
    """It is almost exclusive. A job of the next lower priority waits for each."""
    busy = [running("low", "i-1", priority=Priority.LOW, **limits.get("busy", {}))]
    fleet, recent = hosts("i-1", free=0), limits.get("recent_preemptions", 0)
    assert suspended(passed([EXTREME], fleet, busy, recent_preemptions=recent)) == {"low": "extreme"}
    very_high = replace(EXTREME, priority=Priority.VERY_HIGH)
    assert suspended(passed([very_high], fleet, busy, recent_preemptions=recent)) == {}


def test_extreme_high_still_keeps_the_other_rules() -> None:
    """Not its equals, not the jobs of its own user at its own priority, and no job that cannot be suspended."""
    for fields in (
        {"priority": Priority.EXTREME_HIGH},
        {"priority": Priority.LOW, "can_suspend": False},
        {"priority": Priority.LOW, "leaving": True},
    ):
        assert suspended(passed([EXTREME], hosts("i-1", free=0), [running("r", "i-1", **fields)])) == {}


@pytest.mark.parametrize(
    ("busy", "recent", "told"),
    [
        ({"since": -60}, 0, "LOW job low is protected until 00:14 UTC; low passed it, or it could start now"),
        ({"suspensions": 3}, 0, "LOW job low was suspended 3 times in the last 60 minutes"),
        ({}, 100, "as many jobs as the fleet allows were suspended in the last 60 minutes"),
    ],
)
def test_the_reason_names_the_limit_that_keeps_the_victim(busy: dict[str, Any], recent: int, told: str) -> None:
    """Whoever waits for nothing but a protected time hears of it, and until when."""
    answer = passed(
        [HIGH], hosts("i-1", free=0), [running("low", "i-1", priority=Priority.LOW, **busy)], recent_preemptions=recent
    )
    assert why(answer) == {"high": f"needs 1 instance(s) with 8 GPU(s) each; 0 are free; {told}"}
    assert "since" not in busy or answer.next_at == at(840)


def test_a_protected_job_that_would_not_be_enough_is_not_named() -> None:
    """The job waits for GPUs then."""
    gang = replace(HIGH, nodes=2)
    busy = [running("low", "i-1", priority=Priority.LOW, since=-60), running("peer", "i-2", priority=Priority.HIGH)]
    assert why(passed([gang], hosts("i-1", "i-2", free=0), busy)) == {
        "high": "needs 2 instance(s) with 8 GPU(s) each; 0 are free"
    }
