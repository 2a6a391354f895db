"""Growing: an elastic job leaves its ranks, keeps its instances, and continues on more."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.job import growth, state_machine
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import CloseCause, FirstEnd, Job, JobStatus, StopPurpose, Suspicion
from gpu_recovery.core.queue.entry import running_job
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.core.task import EndingKind, RankFailure

from tests.core.build import (
    ADAPTIVE,
    IDS,
    NOW,
    SPEC,
    applied,
    failure,
    later,
    orders,
    placed,
    queued,
    running,
    stopped,
    suspend_event,
    tell,
)

S = JobStatus
ELASTIC = replace(SPEC, nnodes=3, nnodes_min=1)
LEFT = failure(EndingKind.FAILED, 75)


def narrow(policy: Any = ADAPTIVE) -> Job:
    """A job of one to three instances that runs on two."""
    return running(policy, queued(policy, spec=ELASTIC))


def asked(record: Job, **fields: Any) -> events.GrowRequested:
    return events.GrowRequested(
        **{"at": NOW, "attempt": record.attempt, "version": record.version, "width": 3, **fields}
    )


def suspending(record: Job | None = None) -> Job:
    """That job after rank 0 was asked to leave."""
    record = record or narrow()
    return applied(tell(record, asked(record)))


def left(record: Job, first: RankFailure = LEFT) -> Job:
    """The job after rank 0 has left."""
    return applied(tell(record, events.RankFailed(at=NOW, attempt=record.attempt, failure=first)))


def ended(record: Job, first: RankFailure = LEFT) -> Any:
    """The decision after the end of every rank."""
    return tell(record, events.AllRanksStopped(at=NOW, attempt=record.attempt, failure=first))


def test_the_width_of_a_job_is_that_of_its_attempt() -> None:
    """Before the first attempt it is the largest number."""
    assert queued(spec=ELASTIC).width == 3
    record = narrow()
    assert (record.width, record.quota_nodes, record.spec.nnodes) == (2, 2, 3)
    assert record.reason == "all 2 ranks of attempt 1 run"
    assert running(record=queued(spec=replace(SPEC, nnodes=2))).width == 2


def test_rank_0_is_asked_to_save_and_leave() -> None:
    """As for a suspension. No limit counts it yet."""
    record = narrow()
    decision = tell(record, asked(record))
    after = applied(decision)
    assert (after.status, after.stop_purpose) == (S.SUSPENDING, StopPurpose.GROW)
    assert after.reason == "grows from 2 to 3 instance(s): rank 0 has 5 s to save and exit"
    assert orders(decision, commands.SuspendAttempt) == [commands.SuspendAttempt(1)]
    assert (after.held, after.suspensions, after.incident_id) == (False, (), None)


@pytest.mark.parametrize("by", ["rank 0", "every rank", "the deadline"])
def test_the_job_keeps_its_claims_and_is_next(by: str) -> None:
    """No instance is released, and the attempt does not count."""
    record = suspending()
    if by == "rank 0":
        record = left(record)
    elif by == "the deadline":
        due = events.JobDeadlineReached(at=later(99), attempt=1, deadline_at=record.deadline_at)  # type: ignore[arg-type]
        record = applied(tell(record, due, now=later(99)))
    assert record.stop_purpose is StopPurpose.GROW
    decision = ended(record)
    after = applied(decision)
    assert after.status is S.RECOVERING
    assert orders(decision, commands.ReleaseInstances) == []
    assert len(orders(decision, commands.PokeScheduler)) == 1
    assert after.attempts_uncounted == {CloseCause.GROWN: 1}
    assert (after.attempts_counted, after.incident_at, after.failure) == (0, None, None)
    entry = entry_of(after)
    assert entry is not None
    assert (entry.kept, entry.recovering, entry.holds_quota, entry.may_start(NOW)) == (IDS, True, True, True)


def test_the_next_attempt_takes_the_claims_over() -> None:
    """A claim of the attempt before is no obstacle, and nothing is restarted in place."""
    record = applied(ended(left(suspending())))
    event = events.JobPlaced(at=NOW, attempt=1, version=record.version, instances=(*IDS, "i-9"), epochs=(0, 0, 0))
    decision = tell(record, event)
    (launch,) = orders(decision, commands.LaunchAttempt)
    assert (launch.in_place_of, decision.record.ranks_in_place, decision.record.quota_nodes) == (1, 0, 3)
    assert orders(decision, commands.ReleaseInstances) == []
    assert "in place" not in decision.record.reason


def test_an_instance_that_the_next_attempt_does_not_use_is_released() -> None:
    """It has become unusable meanwhile."""
    record = applied(ended(left(suspending())))
    event = events.JobPlaced(at=NOW, attempt=1, version=record.version, instances=("i-9", IDS[0]), epochs=(0, 0))
    (release,) = orders(tell(record, event), commands.ReleaseInstances)
    assert (release.instances, release.attempt) == ((IDS[1],), 1)


def test_a_gang_that_finishes_under_the_notice_has_succeeded() -> None:
    """Its work is done."""
    record = suspending()
    done = applied(tell(record, events.AllRanksStopped(at=NOW, attempt=1)))
    assert done.status is S.SUCCEEDED


def test_the_instance_of_a_crash_is_checked_and_not_released() -> None:
    """The check takes its claim over."""
    crash = failure(EndingKind.CRASHED)
    decision = ended(left(suspending(), crash), crash)
    assert [order.instance_id for order in orders(decision, commands.TellInstance)] == [crash.instance_id]
    assert decision.record.status is S.RECOVERING
    assert orders(decision, commands.ReleaseInstances) == []


def test_a_user_may_suspend_or_cancel_a_job_that_grows() -> None:
    """Then every instance is released."""
    growing_job = left(suspending())
    held = applied(tell(growing_job, suspend_event(growing_job)))
    decision = ended(held)
    assert decision.record.status is S.SUSPENDED
    assert [order.instances for order in orders(decision, commands.ReleaseInstances)] == [IDS]
    waits = applied(ended(growing_job))
    for event in (suspend_event(waits), events.CancelRequested(at=NOW, attempt=1, by="ada")):
        decision = tell(waits, event)
        assert [order.instances for order in orders(decision, commands.ReleaseInstances)] == [IDS]
        assert entry_of(decision.record) is None or entry_of(decision.record).kept == ()  # type: ignore[union-attr]


def test_a_preemption_of_a_job_that_grows_changes_nothing() -> None:
    """It is no victim: its entry neither works nor leaves."""
    record = suspending()
    entry = entry_of(record)
    assert entry is not None
    assert (entry.grows, entry.works, entry.leaves) == (True, False, False)
    assert running_job(entry, ADAPTIVE, NOW).growing


def test_a_narrow_job_avoids_what_it_uses_last_until_its_run_is_stable() -> None:
    """A suspicion lasts longer than that. It must not keep the job narrow."""
    record = replace(
        narrow(),
        suspicions=(Suspicion(1, 2, "i-9", named=True, passed=True),),
        avoided=(FirstEnd(1, 1, "i-8"),),
    )
    entry = entry_of(record)
    assert entry is not None and record.running_at is not None
    stable_at = record.running_at + timedelta(seconds=ADAPTIVE.stable_run_s)
    before = running_job(entry, ADAPTIVE, stable_at - timedelta(seconds=1))
    assert before.grows_at is not None and before.grows_at < stable_at
    assert before.avoids == dict.fromkeys(("i-8", "i-9"), record.running_at)
    assert running_job(entry, ADAPTIVE, stable_at).avoids == {}


def test_the_interval_and_the_number_of_growths_are_bounded() -> None:
    """A stable run resets the number."""
    record = narrow()
    entry = entry_of(record)
    assert entry is not None and entry.grows_at(ADAPTIVE) == later(ADAPTIVE.elastic_grow_every_s)
    often = replace(record, attempts_uncounted={CloseCause.GROWN: ADAPTIVE.uncounted_relaunches_max})
    entry = entry_of(often)
    assert entry is not None and entry.grows_at(ADAPTIVE) is None
    assert tell(often, asked(often)).outcome is EventOutcome.IGNORED


@pytest.mark.parametrize("why", ["whole", "observed", "outdated", "another attempt"])
def test_a_job_is_not_asked_in_vain(why: str) -> None:
    """It has all its instances, is only observed, or has changed since the scheduler read it."""
    record, fields, policy = narrow(), {}, ADAPTIVE
    if why == "whole":
        record = replace(record, instances=(*IDS, "i-9"))
    elif why == "observed":
        policy = replace(ADAPTIVE, observe_only=True)
    elif why == "outdated":
        fields = {"version": record.version - 1}
    else:
        fields = {"attempt": 0}
    decision = tell(record, asked(record, **fields), policy)
    assert decision.record is record
    assert decision.outcome is not EventOutcome.APPLIED


@pytest.mark.parametrize("status", [status for status in S if status is not S.RUNNING])
def test_only_a_running_job_grows(status: JobStatus) -> None:
    """Everywhere else the request is ignored."""
    assert (status, events.GrowRequested) in state_machine.IGNORED


def test_a_job_that_was_placed_grows_no_more() -> None:
    """Its next end is an end of its own."""
    record = applied(ended(left(suspending())))
    record = placed(record)
    assert not growth.is_growing(record)
    assert stopped(applied(tell(record, events.CancelRequested(at=NOW, attempt=2, by="ada")))).status is S.CANCELED


def test_a_narrow_job_asks_for_more_instances_when_it_runs_and_at_each_poll() -> None:
    """A message that is lost costs one poll interval."""
    record = placed(queued(spec=ELASTIC))
    record = applied(tell(record, events.AttemptLaunched(at=NOW, attempt=1)))
    decision = tell(record, events.AllRanksRunning(at=NOW, attempt=1))
    assert len(orders(decision, commands.PokeScheduler)) == 1
    record = replace(decision.record, commands=())
    look = events.JobLookDue(at=NOW, attempt=1, look_at=record.look_at)  # type: ignore[arg-type]
    assert len(orders(tell(record, look), commands.PokeScheduler)) == 1
    whole = replace(record, instances=(*IDS, "i-9"))
    assert orders(tell(whole, look), commands.PokeScheduler) == []
