"""Jobs that are moved for an instance's sake, the pauses between relaunches, and what one job may have repaired."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import CloseCause, Job, JobStatus, Origin, StopPurpose
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.core.task import EndingKind

from tests.core.build import (
    ADAPTIVE,
    CLASSIC,
    IDS,
    NOW,
    POLICIES,
    SPEC,
    applied,
    checked,
    diagnosing,
    failure,
    later,
    lost,
    orders,
    placed,
    queued,
    results,
    running,
    stopped,
    stopping,
    suspended,
    suspending,
    tell,
)

S = JobStatus
HEALTHY, REBOOT = CheckOutcome.HEALTHY, CheckOutcome.REBOOT
CAUSES = {events.InstanceNeedsRepair: CloseCause.REPAIR, events.InstanceLeaving: CloseCause.INTERRUPTED}
KINDS = pytest.mark.parametrize("kind", list(CAUSES))
POLICY = pytest.mark.parametrize("policy", POLICIES, ids=["classic", "adaptive"])


def _asked(kind: Any, record: Job, now: datetime = NOW) -> Any:
    return kind(at=now, attempt=record.attempt, instance_id=IDS[0], sentence=f"{IDS[0]} is about to go")


def _submitted() -> Job:
    return applied(tell(placed(queued()), events.AttemptLaunched(at=NOW, attempt=1)))


def _recovering() -> Job:
    return applied(checked(diagnosing(failure(EndingKind.CRASHED)), results(HEALTHY, HEALTHY)))


MAKE: dict[JobStatus, Any] = {
    S.QUEUED: queued,
    S.PENDING_RESOURCES: lambda: applied(
        tell(queued(), events.ResourcesShort(at=NOW, attempt=0, version=1, sentence="needs 2; 1 is free"))
    ),
    S.SUBMITTING: lambda: placed(queued()),
    S.SUBMITTED: _submitted,
    S.RUNNING: running,
    S.LOST: lost,
    S.SUSPENDING: suspending,
    S.SUSPENDED: suspended,
    S.STOPPING: lambda: stopping(failure(EndingKind.FAILED)),
    S.DIAGNOSING: diagnosing,
    S.RECOVERING: _recovering,
    S.SUCCEEDED: lambda: applied(tell(running(), events.AllRanksStopped(at=NOW, attempt=1))),
    S.FAILED: lambda: applied(checked(diagnosing(), results(HEALTHY, HEALTHY))),
    S.CANCELED: lambda: applied(tell(queued(), events.CancelRequested(at=NOW, attempt=0, by="ada"))),
}
MOVED = (S.SUBMITTING, S.SUBMITTED, S.RUNNING, S.LOST)


@KINDS
@pytest.mark.parametrize("status", list(JobStatus))
def test_a_job_asked_to_leave_stops_where_it_has_ranks_and_nowhere_else(kind: Any, status: JobStatus) -> None:
    """Its gang is stopped to go on elsewhere; one that has no ranks, or is being stopped, does nothing more."""
    record = MAKE[status]()
    assert record.status is status
    decision = tell(record, _asked(kind, record))
    if status not in MOVED:
        assert decision.outcome is EventOutcome.IGNORED
        return
    after = decision.record
    assert (after.status, after.stop_purpose, after.stop_cause) == (S.STOPPING, StopPurpose.RELAUNCH, CAUSES[kind])
    assert orders(decision, commands.StopAttempt) == [commands.StopAttempt(record.attempt)]
    assert after.incident_at == NOW and "is about to go" in after.reason
    assert tell(after, _asked(kind, after)).outcome is EventOutcome.IGNORED


@KINDS
@POLICY
def test_leaving_does_not_count_as_an_attempt_and_is_not_diagnosed(kind: Any, policy: Any) -> None:
    """Under either policy it waits for another place; its instances are given back."""
    record = applied(tell(running(policy), _asked(kind, running(policy)), policy))
    decision = tell(record, events.AllRanksStopped(at=NOW, attempt=1, failure=None), policy)
    after = decision.record
    assert (after.status, after.attempts_counted, after.attempts_uncounted) == (S.RECOVERING, 0, {CAUSES[kind]: 1})
    assert orders(decision, commands.ReleaseInstances) and not orders(decision, commands.CheckInstances)


@KINDS
def test_a_job_that_is_moved_again_and_again_fails_in_the_end(kind: Any) -> None:
    """Each cause has its own cap; past it the gang is stopped for good and operators hear of it."""
    record = replace(running(), attempts_uncounted={CAUSES[kind]: ADAPTIVE.uncounted_relaunches_max})
    record = applied(tell(record, _asked(kind, record)))
    assert record.stop_purpose is StopPurpose.FAIL and "relaunch 5 for this cause" in record.reason
    decision = tell(record, events.AllRanksStopped(at=NOW, attempt=1, failure=None))
    assert decision.record.status is S.FAILED and orders(decision, commands.NotifyOperator)
    other = next(cause for cause in CAUSES.values() if cause is not CAUSES[kind])
    spared = replace(running(), attempts_uncounted={other: ADAPTIVE.uncounted_relaunches_max})
    assert tell(spared, _asked(kind, spared)).record.stop_purpose is StopPurpose.RELAUNCH


def test_a_job_that_is_only_observed_is_not_moved_and_says_so_once_for_each_instance() -> None:
    """Whatever is said in between, the same wish is told once; a new attempt begins afresh."""
    record = replace(state_machine.adopted("run-1", SPEC, True, ADAPTIVE, NOW).record, instances=IDS)
    first = tell(record, _asked(events.InstanceNeedsRepair, record))
    assert first.record.status is S.SUBMITTED and "it would be STOPPING" in first.reason
    assert not orders(first, commands.StopAttempt)
    moved = first.record
    assert tell(moved, _asked(events.InstanceNeedsRepair, moved)).outcome is EventOutcome.IGNORED
    other = replace(_asked(events.InstanceLeaving, moved), instance_id=IDS[1])
    assert applied(tell(moved, other)).to_leave == IDS


# -- the pause between relaunches --------------------------------------------------------------------------------------


def _ends(record: Job, at: datetime) -> Job:
    """The running job once it was interrupted at `at`."""
    record = applied(tell(record, _asked(events.InstanceLeaving, record, at), LONG, at))
    return stopped(record, LONG, at)


def _runs(record: Job, at: datetime) -> Job:
    return running(LONG, record, at)


LONG = replace(ADAPTIVE, uncounted_relaunches_max=20, attempts_max=20)


def test_the_first_relaunch_is_immediate_and_the_pause_doubles_up_to_its_cap() -> None:
    """A job that never lasts must not go round the cluster every minute."""
    record, at, between_starts = running(LONG), NOW, []
    for _ in range(8):
        began, ended = at, at + timedelta(seconds=20)
        record = _ends(record, ended)
        at = record.not_before or ended
        between_starts.append(int((at - began).total_seconds()))
        record = _runs(record, at)
    assert between_starts == [20, 60, 120, 240, 480, 900, 900, 900]


def test_the_pauses_begin_anew_after_an_attempt_that_lasted() -> None:
    """Half an hour of training is no crash loop."""
    record = replace(running(LONG), quick_ends=5)
    short = _ends(record, later(LONG.stable_run_s - 1))
    assert (short.quick_ends, short.not_before) == (6, None)  # its run was longer than the pause
    steady = _ends(record, later(LONG.stable_run_s))
    assert (steady.quick_ends, steady.not_before) == (0, None)
    assert steady.status is S.RECOVERING


@pytest.mark.parametrize(("policy", "forgiven"), [(ADAPTIVE, True), (CLASSIC, False)], ids=["adaptive", "classic"])
def test_failures_before_an_attempt_that_lasts_are_history(policy: RecoveryPolicy, forgiven: bool) -> None:
    """Weeks of training outlive more failures than may come in a row; seed 001 counts to two, whatever lies between."""
    record = replace(running(policy), attempts_counted=1, repairs=7)

    def looked(seconds: int) -> Job:
        due = replace(record, look_at=later(seconds))
        return applied(
            tell(due, events.JobLookDue(at=later(seconds), attempt=1, look_at=later(seconds)), policy, later(seconds))
        )

    early, late = looked(policy.stable_run_s - 1), looked(policy.stable_run_s)
    assert (early.attempts_counted, early.repairs) == (1, 7)
    assert (late.attempts_counted, late.repairs) == ((0, 0) if forgiven else (1, 7))


@pytest.mark.parametrize("made", [stopping, diagnosing], ids=["stopping", "diagnosing"])
def test_the_checks_after_a_crash_are_no_training(made: Any) -> None:
    """However long they take: a program that dies at once is not forgiven for them, and its next pause is longer."""
    before = replace(running(), attempts_counted=1, repairs=7, quick_ends=1)
    record = replace(made(failure(EndingKind.CRASHED), record=before), look_at=later(ADAPTIVE.stable_run_s))
    event = events.JobLookDue(at=later(ADAPTIVE.stable_run_s), attempt=1, look_at=later(ADAPTIVE.stable_run_s))
    looked = applied(tell(record, event, ADAPTIVE, later(ADAPTIVE.stable_run_s)))
    assert (looked.attempts_counted, looked.repairs, looked.quick_ends) == (1, 7, 1)
    if made is diagnosing:
        found = results(HEALTHY, HEALTHY)
        after = applied(checked(record, found, now=later(ADAPTIVE.stable_run_s + 60)))
        assert (after.status, after.attempts_counted, after.quick_ends) == (S.RECOVERING, 2, 2)


def test_a_job_that_cools_down_is_thought_of_when_its_pause_is_over() -> None:
    """Not before, for it could not be placed; and not much later."""
    record = replace(running(LONG), quick_ends=2)
    cooling = _ends(record, later(9))
    assert cooling.not_before == later(120)
    entry = entry_of(cooling)
    assert entry is not None and not entry.may_start(later(119)) and entry.may_start(later(120))
    assert placed(cooling, LONG, later(200)).not_before is None


@pytest.mark.parametrize(("ran_s", "left_s"), [(0, 480), (479, 1), (480, 0), (1_700, 0)])
def test_the_run_of_an_attempt_is_part_of_its_pause(ran_s: int, left_s: int) -> None:
    """A pause bounds how often a job starts. An attempt that has run for longer starts again at once."""
    ended = _ends(replace(running(LONG), quick_ends=4), later(ran_s))
    assert (ended.quick_ends, ended.not_before) == (5, later(ran_s + left_s) if left_s else None)


@pytest.mark.parametrize(("quick_ends", "left_s"), [(0, 0), (1, 0), (2, 20), (3, 140)])
def test_the_checks_after_a_failure_are_part_of_its_pause(quick_ends: int, left_s: int) -> None:
    """Nothing is launched meanwhile. A launch that fails again and again has a pause after each of its failures."""
    waiting = diagnosing(failure(EndingKind.CRASHED), record=replace(running(), quick_ends=quick_ends))
    after = applied(checked(waiting, results(HEALTHY, HEALTHY), now=later(100)))
    assert after.not_before == (later(100 + left_s) if left_s else None)
    interrupted = _ends(replace(running(LONG), quick_ends=1, incident_at=NOW), later(600))
    assert interrupted.not_before == later(660)


@pytest.mark.parametrize("outcomes", [(HEALTHY, HEALTHY), (HEALTHY, REBOOT)], ids=["crash", "hardware"])
def test_a_diagnosed_failure_cools_down_like_any_other(outcomes: tuple[CheckOutcome, CheckOutcome]) -> None:
    """Counted or not, what ended quickly waits."""
    waiting = diagnosing(failure(EndingKind.CRASHED), record=replace(running(), quick_ends=1))
    decision = checked(waiting, results(*outcomes))
    assert decision.record.status is S.RECOVERING and decision.record.not_before == later(60)
    delay = f"the next attempt starts after a retry delay of 60 s, at {later(60):%H:%M:%S} UTC at the earliest"
    assert delay in decision.reason


def test_a_job_that_only_cools_down_does_not_wait_for_healthy_instances() -> None:
    """Its instances are healthy, or a fault was found that nobody repairs for it. Without a delay the words stay."""
    waiting = diagnosing(failure(EndingKind.CRASHED), record=replace(running(), quick_ends=1))
    left, mended = (results(HEALTHY, REBOOT, repairing=repairing) for repairing in (False, True))
    for given, waits in ((results(HEALTHY, HEALTHY), False), (left, False), (mended, True)):
        reason = checked(waiting, given).reason
        assert "retry delay of 60 s" in reason and ("waiting for healthy instances" in reason) == waits
    first = checked(diagnosing(failure(EndingKind.CRASHED)), left).reason
    assert "retry delay" not in first and "waiting for healthy instances" in first


def test_a_job_that_a_person_starts_anew_has_no_past() -> None:
    """Its pauses, its repairs and its incident belong to the run that is over."""
    ended = replace(MAKE[S.FAILED](), origin=Origin.ADOPTED, quick_ends=4, not_before=later(9), repairs=8)
    ended = replace(ended, running_at=NOW, to_leave=IDS)
    assert ended.incident_at is not None
    again = applied(tell(ended, events.NewerTaskSeen(at=later(9), attempt=1, created_at=later(9)), now=later(9)))
    assert (again.quick_ends, again.not_before, again.repairs, again.running_at) == (0, None, 0, None)
    assert (again.incident_at, again.to_leave) == (None, ())


# -- repairs for one job -----------------------------------------------------------------------------------------------


def test_a_job_may_have_only_so_many_instances_repaired() -> None:
    """Past that its checks blame, but nothing is repaired for it: a program can make any GPU look sick."""
    for repairs, may_reboot in ((ADAPTIVE.job_repairs_max - 1, True), (ADAPTIVE.job_repairs_max, False)):
        record = stopping(failure(EndingKind.CRASHED), record=replace(running(), repairs=repairs))
        decision = tell(record, events.AllRanksStopped(at=NOW, attempt=1, failure=record.failure))
        (order,) = orders(decision, commands.CheckInstances)
        assert order.request.may_reboot is may_reboot


def test_repairs_of_a_job_are_counted_instance_by_instance() -> None:
    """Those that its checks led to, and only those."""
    decision = checked(diagnosing(failure(EndingKind.CRASHED)), results(REBOOT, REBOOT))
    assert decision.record.repairs == 2
    none = checked(diagnosing(failure(EndingKind.CRASHED)), results(REBOOT, REBOOT, repairing=False))
    assert none.record.repairs == 0


# -- classic, waiting for its own instance -----------------------------------------------------------------------------


def test_a_job_that_waits_for_its_own_held_instance_ends_with_the_hold() -> None:
    """Given up by a person or by its deadline, the job fails; healed after all, it goes on."""
    waiting = applied(checked(diagnosing(policy=CLASSIC), results(HEALTHY, REBOOT), CLASSIC))
    assert (waiting.status, waiting.repairing) == (S.RECOVERING, (IDS[1],))
    assert waiting.deadline_at == later(CLASSIC.recover_timeout_s)
    for healed, status in ((False, S.FAILED), (True, S.RECOVERING)):
        ended = events.RepairEnded(at=NOW, attempt=1, instance_id=IDS[1], healed=healed, sentence="held too long")
        after = applied(tell(waiting, ended, CLASSIC))
        assert (after.status, after.repairing) == (status, ())


# -- deadlines of large gangs ------------------------------------------------------------------------------------------


def _at_deadline(record: Job, policy: Any, **known: Any) -> Any:
    assert record.deadline_at is not None
    about = {"at": record.deadline_at, "attempt": record.attempt, "deadline_at": record.deadline_at}
    return tell(record, events.JobDeadlineReached(**about, **known), policy, record.deadline_at)


def test_a_job_waits_for_its_own_instances_while_their_repairs_go_on() -> None:
    """128 repairs at 20 an hour take longer than `recover_timeout_s`. They end the wait themselves, if they fail."""
    waiting = applied(checked(diagnosing(policy=CLASSIC), results(HEALTHY, REBOOT), CLASSIC))
    later_on = applied(_at_deadline(waiting, CLASSIC, under_way=(IDS[1],)))
    assert later_on.status is S.RECOVERING and waiting.deadline_at is not None
    assert later_on.deadline_at == waiting.deadline_at + timedelta(seconds=CLASSIC.reboot_timeout_s)
    assert applied(_at_deadline(later_on, CLASSIC)).status is S.FAILED


def test_checks_that_began_late_are_waited_for() -> None:
    """The last of 3,000 checks begins minutes after the first. Each has a deadline of its own."""
    record = diagnosing(failure(EndingKind.CRASHED))
    waits = applied(_at_deadline(record, ADAPTIVE, results=results(HEALTHY), under_way=(IDS[1],)))
    assert waits.status is S.DIAGNOSING and record.deadline_at is not None
    assert waits.deadline_at == record.deadline_at + timedelta(seconds=ADAPTIVE.poll_interval_s)
    assert applied(_at_deadline(waits, ADAPTIVE, results=results(HEALTHY))).status is not S.DIAGNOSING
