"""Growing: an elastic job leaves its ranks, keeps its instances, and continues on more."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.job import growth, state_machine
from gpu_recovery.core.job.downtime import DownPhase, Downtime
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import REFUSED_MAX, CloseCause, FirstEnd, Job, JobStatus, StopPurpose, Suspicion
from gpu_recovery.core.queue.entry import REFUSED_FOR_S, running_job, waiting_job
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


@pytest.mark.parametrize("open_", ["incident", "downtime"])
def test_a_job_whose_training_has_not_gone_on_is_not_stopped_to_grow(open_: str) -> None:
    """It may still load its checkpoint."""
    down = Downtime(1, NOW, DownPhase.FIRST_STEP, NOW)
    record = replace(narrow(), **({"incident_id": "a-1"} if open_ == "incident" else {"downtime": down}))
    entry = entry_of(record)
    assert entry is not None and entry.grows_at(ADAPTIVE) is None
    assert tell(record, asked(record)).outcome is EventOutcome.IGNORED
    assert orders(tell(record, look_at(record)), commands.PokeScheduler) == []
    over = replace(record, incident_id=None, downtime=replace(down, until=NOW))
    assert applied(tell(over, asked(over))).status is S.SUSPENDING


def look_at(record: Job) -> events.JobLookDue:
    return events.JobLookDue(at=NOW, attempt=record.attempt, look_at=record.look_at)  # type: ignore[arg-type]


def test_a_growing_job_avoids_what_it_uses_last_after_its_ranks_have_ended() -> None:
    """Its own instances are no new ones, though it may use one of them last."""
    record = replace(narrow(), avoided=(FirstEnd(1, 1, "i-8"), FirstEnd(1, 1, IDS[1])))
    entry = entry_of(applied(ended(left(suspending(record)))))
    assert entry is not None
    assert waiting_job(entry, ADAPTIVE, NOW).avoids == {"i-8": record.running_at}
    stable = replace(entry, running_at=NOW - timedelta(seconds=ADAPTIVE.stable_run_s))
    assert waiting_job(stable, ADAPTIVE, NOW).avoids == {}


# -- refused launches --------------------------------------------------------------------------------------------------

THREE = (*IDS, "i-9")


def submitting(instances: tuple[str, ...] = THREE, **spec: Any) -> Job:
    """An elastic job of two to three instances whose ranks are being launched."""
    record = queued(spec=replace(SPEC, nnodes=3, **{"nnodes_min": 2, **spec}))
    event = events.JobPlaced(
        at=NOW, attempt=0, version=record.version, instances=instances, epochs=(0,) * len(instances)
    )
    return applied(tell(record, event))


def refuse(record: Job, *instances: str, **fields: Any) -> Any:
    """The decision after ECS has refused the ranks on these instances."""
    about = {"at": NOW, "attempt": record.attempt, "sentence": "ECS refused it", "authorized": True}
    return tell(record, events.LaunchRefused(**{**about, "instances": instances, **fields}))


@pytest.mark.parametrize("lasting", [False, True])
def test_a_refused_elastic_job_continues_on_the_other_instances(lasting: bool) -> None:
    """It keeps their claims, pauses for nothing, and no limit counts it. The next attempt is not wider.

    The claim of the refusing instance is given back: the job may need the instance if another one is lost.
    """
    record = applied(refuse(submitting(), "i-9", lasting=lasting))
    assert (record.status, record.stop_purpose, record.refused) == (S.STOPPING, StopPurpose.GROW, {"i-9": NOW})
    decision = tell(record, events.AllRanksStopped(at=NOW, attempt=1))
    after = applied(decision)
    assert (after.status, after.attempts_uncounted, after.not_before) == (S.RECOVERING, {}, None)
    assert orders(decision, commands.ReleaseInstances) == [commands.ReleaseInstances(("i-9",), attempt=1)]
    entry = entry_of(after)
    assert entry is not None and (entry.kept, entry.width_limit) == (IDS, 2)
    job = waiting_job(entry, ADAPTIVE, NOW)
    assert (job.widths, job.suspects, job.avoids) == ((2, 2), {"i-9": -1}, {"i-9": NOW})
    decision = tell(after, events.JobPlaced(at=NOW, attempt=1, version=after.version, instances=IDS, epochs=(0, 0)))
    (release,) = orders(decision, commands.ReleaseInstances)
    assert (release.instances, decision.record.let_go) == (("i-9",), ())


@pytest.mark.parametrize("why", ["too few", "fixed", "unnamed"])
def test_a_refused_job_without_enough_other_instances_is_queued_again(why: str) -> None:
    """After a number of refusals it fails."""
    spec: dict[str, Any] = {"nnodes_min": None} if why == "fixed" else {}
    record = submitting(**spec)
    refusing = {"too few": THREE[1:], "fixed": ("i-9",), "unnamed": ()}[why]
    record = applied(refuse(record, *refusing))
    assert record.stop_purpose is StopPurpose.RELAUNCH
    assert set(record.refused) == (set(refusing) if why == "too few" else set())
    after = stopped(record)
    assert (after.status, after.attempts_uncounted) == (S.PENDING_RESOURCES, {CloseCause.INSUFFICIENT_RESOURCES: 1})
    assert applied(refuse(submitting(), *THREE, lasting=True)).stop_purpose is StopPurpose.FAIL


def test_a_task_that_ecs_ends_for_lack_of_resources_is_a_refusal() -> None:
    """Its instance is left out."""
    record = applied(tell(submitting(), events.AttemptLaunched(at=NOW, attempt=1)))
    short = replace(failure(EndingKind.SHORT_OF_RESOURCES), instance_id="i-9")
    record = applied(tell(record, events.RankFailed(at=NOW, attempt=1, failure=short)))
    assert (record.stop_purpose, record.refused, record.let_go) == (StopPurpose.GROW, {"i-9": NOW}, ("i-9",))


def test_an_instance_that_another_job_has_taken_is_avoided_no_longer_than_that() -> None:
    """The job continues without it. It refuses no rank later."""
    record = applied(refuse(submitting(), "i-9", authorized=False))
    assert (record.stop_purpose, record.refused, record.let_go) == (StopPurpose.GROW, {}, ("i-9",))


def test_a_refusing_instance_is_avoided_for_some_hours_or_until_a_rank_starts_there() -> None:
    """A stable run does not end this."""
    record = replace(narrow(), refused={"i-9": NOW})
    entry = entry_of(record)
    assert entry is not None
    assert entry.avoids(ADAPTIVE, later(REFUSED_FOR_S - 1)) == {"i-9": NOW}
    assert entry.avoids(ADAPTIVE, later(REFUSED_FOR_S)) == {}
    started = replace(submitting(), refused=dict.fromkeys(("i-8", "i-9"), NOW))
    started = applied(tell(started, events.AttemptLaunched(at=NOW, attempt=1)))
    assert applied(tell(started, events.AllRanksRunning(at=NOW, attempt=1))).refused == {"i-8": NOW}


def test_the_number_of_refusing_instances_in_the_record_is_bounded() -> None:
    """The latest stay."""
    names = tuple(f"i-{n}" for n in range(100, 100 + REFUSED_MAX))
    record = replace(submitting(), refused=dict.fromkeys(names, NOW - timedelta(seconds=9)))
    refused = applied(refuse(record, "i-9")).refused
    assert len(refused) == REFUSED_MAX and refused["i-9"] == NOW
