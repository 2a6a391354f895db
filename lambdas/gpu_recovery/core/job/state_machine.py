"""The state machine of a job: its transition table, its fence, and the decisions that create a record.

A job is launched in attempts. An attempt is a gang: one rank on each of its instances, all or nothing. When a rank
fails, the whole gang is stopped and the end of every rank is confirmed. If the stop is for a diagnosis, the evidence is
then collected, and every instance is checked behind one barrier. After the barrier the job continues or ends. A decided
diagnosis result may skip the barrier. A job that continues is RECOVERING until the scheduler places the next attempt.

The attempt is the fence: an event about another attempt changes nothing, so a repeated event has no second effect. Each
status waits for one thing until a deadline, and ECS is polled in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from gpu_recovery.core import commands, events
from gpu_recovery.core.job import (
    diagnosing,
    gang_check,
    growth,
    in_place,
    launching,
    lost_contact,
    named_instances,
    recovering,
    recovery_contract,
    stopping,
    suspected_hang,
    suspension,
    warm_spares,
)
from gpu_recovery.core.job.adoption import newer_task
from gpu_recovery.core.job.assessment import incident_since
from gpu_recovery.core.job.deadlines import deadlines
from gpu_recovery.core.job.record import LIVE, Job, JobStatus, Origin
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.job.usage import quota_change, usage_changes
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.published_events import with_job_facts
from gpu_recovery.core.replay_facts import job_facts
from gpu_recovery.core.state_machine import (
    Decision,
    DecisionContext,
    EventOutcome,
    Ignore,
    Step,
    Transition,
    apply_step,
    ignored,
    replace_fields,
    transition_for,
    with_checked_target,
)

OF_ANY_ATTEMPT = (events.SpareSeen, events.SpareEnded, events.NamedInstancePassed)
"""Events that the attempt does not fence: the number of the warm spare does, or the suspicion, which accepts one
result."""
SUBMITTED = "JobSubmitted"
"""Event name at the start of the history of a submitted job."""


def created(job_id: str, spec: JobSpec, policy: RecoveryPolicy, now: datetime) -> Decision[Job]:
    """Return the decision that creates the record of a submitted job and wakes the scheduler."""
    job = Job(job_id=job_id, spec=spec, queued_at=now, status_at=now, version=0)
    step = Step(
        JobStatus.QUEUED, f"submitted by {spec.user or 'an unnamed user'}", {}, (commands.PokeScheduler(f"{job_id}/1"),)
    )
    return decision_after(job, SUBMITTED, step, policy, now)


def adopted(job_id: str, spec: JobSpec, hands_off: bool, policy: RecoveryPolicy, now: datetime) -> Decision[Job]:
    """Return the decision that creates the record of an adopted job, which a user started.

    The ranks are added as they are seen.

    Args:
        hands_off: the job is only observed, never stopped or relaunched.
    """
    job = Job(
        job_id=job_id,
        spec=spec,
        queued_at=now,
        status_at=now,
        version=0,
        attempt=1,
        origin=Origin.ADOPTED,
        hands_off=hands_off,
        started_by_person=True,
        instances=("",) * spec.nnodes,
    )
    reason = f"adopted {'to observe' if hands_off else 'to recover'}: its tasks were started by a user"
    return decision_after(job, "JobAdopted", Step(JobStatus.SUBMITTED, reason), policy, now)


def decide(job: Job, event: events.JobEvent, policy: RecoveryPolicy, now: datetime) -> Decision[Job]:
    """Return the decision about `event` for `job`. Pure: equal arguments give an equal decision.

    Raises:
        IllegalTransition: neither table has a row for the status and the event, or the row does not declare the
            returned status.
    """
    return decide_by(TRANSITIONS, IGNORED, job, event, policy, now)


def decide_by(
    transitions: Mapping[tuple[JobStatus, type[events.JobEvent]], Transition],
    ignored: Mapping[tuple[JobStatus, type[events.JobEvent]], str],
    job: Job,
    event: events.JobEvent,
    policy: RecoveryPolicy,
    now: datetime,
) -> Decision[Job]:
    """Return the decision about `event` by two given tables: those of this module, or those of jobs on Ray.

    Raises:
        IllegalTransition: neither table has a row for the status and the event, or the row does not declare the
            returned status.
    """
    outdated = outdated_reason(job, event)
    if outdated:
        return Decision(job, (), outdated, EventOutcome.OUTDATED)
    transition = transition_for(transitions, ignored, job.status, event)
    step = (
        with_checked_target(transition, job.status, event, transition.decide(job, event, DecisionContext(policy, now)))
        if isinstance(transition, Transition)
        else transition
    )
    if isinstance(step, Ignore):
        return Decision(job, (), step.reason, EventOutcome.IGNORED)
    return decision_after(job, event, step, policy, now)


def outdated_reason(job: Job, event: events.JobEvent) -> str:
    """Return why the event is outdated, or "" if it applies to the current record."""
    if isinstance(event, OF_ANY_ATTEMPT):
        return ""
    if event.attempt != job.attempt:
        return f"about attempt {event.attempt}, the job is at {job.attempt}"
    if isinstance(event, events.JobPlaced | events.ResourcesShort | events.SuspendRequested | events.GrowRequested):
        read = event.version
        if read is not None and read != job.version:
            return f"decided from version {read}, the record is at {job.version}"
    if moved := _moved_time(job, event):
        return moved
    if isinstance(event, events.SuspendRequested | events.ResumeRequested) and job.wished_at is not None:
        by_person = isinstance(event, events.ResumeRequested) or not event.for_job
        again = isinstance(event, events.SuspendRequested) == job.held
        if by_person and (event.at < job.wished_at or (event.at == job.wished_at and again)):
            return "this request, or a later request, was carried out already"
    if isinstance(event, events.CancelRequested) and event.force and job.forced_at and event.at <= job.forced_at:
        return "this request, or a later request, was carried out already"
    if isinstance(event, events.RankSilent | events.RankHeard) and event.instance_id in job.heard:
        known = job.heard[event.instance_id]
        if isinstance(event, events.RankSilent) and event.seen_at < known:
            return "it has reported since then"
        if isinstance(event, events.RankHeard) and event.at <= known:
            return "the report is older than the missing heartbeat, or is known"
    return ""


def _moved_time(job: Job, event: events.JobEvent) -> str:
    """Return why a due time of the event is not that of the record any more; "" if it is, or the event has none."""
    if isinstance(event, events.JobDeadlineReached) and event.deadline_at != job.deadline_at:
        return "about a deadline that has moved"
    if isinstance(event, events.RecoveryLimitPassed) and event.limit_at != job.limit_at:
        return "about a limit that has moved"
    if isinstance(event, events.JobLookDue) and event.look_at != job.look_at:
        return "about a poll that was made already"
    return ""


def decision_after(
    job: Job, event: events.JobEvent | str, step: Step, policy: RecoveryPolicy, now: datetime
) -> Decision[Job]:
    """Return the decision after `step`: new record, commands and quota. A change of status is published as an event."""
    step = warm_spares.without_use(job, step)
    if step.status != job.status or job.version == 0:
        data = {
            "job_id": job.job_id,
            "attempt": step.changes.get("attempt", job.attempt),
            "after": step.status,
            "before": job.status if job.version else None,
            "reason": step.reason,
            "version": job.version + 1,
            "incident_id": step.changes.get("incident_id") or job.incident_id,
        }
        records = _archive_command(job, event, step) if policy.record_attempts else ()
        data["replay"] = job_facts(job, event, policy)
        given = (*step.commands, commands.PublishEvent("Job State Changed", data), *records)
        moved = replace_fields(job, {**step.changes, "status": step.status})
        accounts = {"incident_at": incident_since(job, moved, now), **usage_changes(job, event, step, now)}
        step = Step(step.status, step.reason, {**step.changes, **accounts}, given)
    step = recovery_contract.with_downtime(job, event, step, now)
    step = replace(step, commands=with_job_facts(step.commands, job, step.changes, now))
    decision = apply_step(
        job, step, job.job_id, event, lambda after: deadlines(after, DecisionContext(policy, now)), policy, now
    )
    quota = quota_change(job, decision.record, event)
    return decision if quota is None else replace(decision, quota=quota)


def _archive_command(job: Job, event: events.JobEvent | str, step: Step) -> tuple[commands.RecordAttempt, ...]:
    """Return the command to archive what is final now: the submission, the end of an attempt, or its check results."""
    if event == SUBMITTED:
        return (commands.RecordAttempt(0),)
    ends = job.attempt and job.version and job.status in LIVE and step.status not in LIVE
    return (commands.RecordAttempt(job.attempt),) if ends or job.status is JobStatus.DIAGNOSING else ()


_S = JobStatus
_QUEUED = (_S.QUEUED, _S.PENDING_RESOURCES)
_IN_QUEUE = (*_QUEUED, _S.SUSPENDED)
_UNDER_WAY = (_S.SUBMITTING, _S.SUBMITTED, _S.RUNNING, _S.LOST)
"""Statuses in which the gang runs or is being launched, and is neither stopped nor suspended."""
_AFTER_LAUNCH = (_S.SUBMITTED, _S.RUNNING, _S.LOST, _S.SUSPENDING)
_LEAVING = (_S.SUSPENDING, _S.STOPPING)
_CHECKED = (_S.DIAGNOSING, _S.RECOVERING)
_ENDED = (_S.SUCCEEDED, _S.FAILED, _S.CANCELED)
_NO_RANKS = (*_IN_QUEUE, *_CHECKED, *_ENDED)
"""Statuses in which no rank of the attempt is expected to run."""
_NOT_IN_QUEUE = (*_UNDER_WAY, *_LEAVING, _S.DIAGNOSING, *_ENDED)
_AFTER_STOP = (_S.FAILED, _S.CANCELED, _S.DIAGNOSING, _S.RECOVERING, _S.PENDING_RESOURCES, _S.SUSPENDED)
"""Targets after every rank has ended on our command."""
_AFTER_END = (_S.SUCCEEDED, *_AFTER_STOP)
"""Targets after every rank has ended without a command of ours."""
_AFTER_DIAGNOSIS = (_S.RECOVERING, _S.SUSPENDED, _S.FAILED)
"""Targets after the diagnosis is complete."""

TRANSITIONS: dict[tuple[JobStatus, type[events.JobEvent]], Transition] = {
    (_S.QUEUED, events.JobPlaced): Transition.to(launching.placed, _S.SUBMITTING),
    (_S.QUEUED, events.ResourcesShort): Transition.to(launching.resources_short, _S.PENDING_RESOURCES),
    (_S.QUEUED, events.CancelRequested): Transition.to(stopping.cancel_idle, _S.CANCELED),
    (_S.QUEUED, events.JobLookDue): Transition.to(launching.poll_queued, _S.QUEUED),
    (_S.QUEUED, events.JobDeadlineReached): Transition.to(launching.queued_too_long, _S.FAILED),
    (_S.PENDING_RESOURCES, events.JobPlaced): Transition.to(launching.placed, _S.SUBMITTING),
    (_S.PENDING_RESOURCES, events.CancelRequested): Transition.to(stopping.cancel_idle, _S.CANCELED),
    (_S.PENDING_RESOURCES, events.ResourcesShort): Transition.to(launching.resources_short, _S.PENDING_RESOURCES),
    (_S.PENDING_RESOURCES, events.JobDeadlineReached): Transition.to(
        launching.pending_deadline_reached, _S.PENDING_RESOURCES, _S.FAILED
    ),
    **{(status, events.SuspendRequested): Transition.to(suspension.suspend_queued, _S.SUSPENDED) for status in _QUEUED},
    # Transitions that all statuses of a gang under way share.
    **{(status, events.RankFailed): Transition.to(stopping.rank_failed, _S.STOPPING, status) for status in _UNDER_WAY},
    **{
        (status, events.InstanceNeedsRepair): Transition.to(stopping.instance_needs_repair, _S.STOPPING, status)
        for status in _UNDER_WAY
    },
    **{
        (status, events.InstanceLeaving): Transition.to(stopping.instance_leaving, _S.STOPPING, status)
        for status in _UNDER_WAY
    },
    **{
        (status, events.CancelRequested): Transition.to(stopping.cancel_running, _S.STOPPING)
        for status in (*_UNDER_WAY, _S.SUSPENDING)
    },
    **{
        (status, events.JobLookDue): Transition.to(stopping.observe, status)
        for status in (*_UNDER_WAY, *_LEAVING, _S.DIAGNOSING)
    },
    **{
        (status, events.AllRanksStopped): Transition.to(stopping.ended, *_AFTER_END)
        for status in (_S.SUBMITTING, _S.SUBMITTED, _S.RUNNING)
    },
    **{
        (status, events.RankExited): Transition.to(lost_contact.rank_exited, status)
        for status in (_S.SUBMITTED, _S.RUNNING, _S.LOST)
    },
    **{
        (status, events.SuspendRequested): Transition.to(suspension.suspend_early, _S.STOPPING)
        for status in (_S.SUBMITTING, _S.SUBMITTED, _S.LOST)
    },
    (_S.SUBMITTING, events.AttemptLaunched): Transition.to(launching.launched, _S.SUBMITTED),
    (_S.SUBMITTING, events.LaunchRefused): Transition.to(launching.refused, _S.STOPPING),
    (_S.SUBMITTING, events.AllRanksRunning): Transition.to(launching.running, _S.RUNNING),
    (_S.SUBMITTING, events.JobDeadlineReached): Transition.to(launching.launch_overdue, _S.STOPPING),
    (_S.SUBMITTED, events.AllRanksRunning): Transition.to(launching.running, _S.RUNNING),
    (_S.SUBMITTED, events.JobDeadlineReached): Transition.to(
        launching.start_overdue, _S.STOPPING, _S.SUBMITTED, _S.CANCELED
    ),
    (_S.RUNNING, events.JobDeadlineReached): Transition.to(stopping.runtime_over, _S.STOPPING),
    (_S.RUNNING, events.RankSilent): Transition.to(lost_contact.heartbeat_timed_out, _S.LOST),
    (_S.RUNNING, events.RankHeard): Transition.to(lost_contact.heartbeat_received, _S.RUNNING),
    (_S.RUNNING, events.SuspendRequested): Transition.to(suspension.suspend, _S.SUSPENDING),
    (_S.RUNNING, events.GrowRequested): Transition.to(growth.grow, _S.SUSPENDING),
    (_S.RUNNING, events.ProgressStopped): Transition.to(stopping.stalled, _S.STOPPING, _S.RUNNING),
    (_S.RUNNING, events.StallReported): Transition.to(suspected_hang.stall_reported, _S.RUNNING),
    (_S.RUNNING, events.HangSuspected): Transition.to(suspected_hang.hang_suspected, _S.STOPPING, _S.RUNNING),
    (_S.RUNNING, events.TrainingContinued): Transition.to(launching.recovered, _S.RUNNING),
    (_S.LOST, events.RankSilent): Transition.to(lost_contact.heartbeat_timed_out, _S.LOST),
    (_S.LOST, events.RankHeard): Transition.to(lost_contact.heartbeat_received, _S.LOST, _S.RUNNING),
    (_S.LOST, events.AllRanksStopped): Transition.to(lost_contact.ended, *_AFTER_END),
    (_S.LOST, events.JobDeadlineReached): Transition.to(lost_contact.lost_overdue, _S.LOST, _S.RUNNING, _S.STOPPING),
    (_S.SUSPENDING, events.RankFailed): Transition.to(suspension.rank_left, _S.STOPPING),
    (_S.SUSPENDING, events.AllRanksStopped): Transition.to(
        suspension.all_ranks_left, _S.SUCCEEDED, _S.SUSPENDED, _S.RECOVERING
    ),
    (_S.SUSPENDING, events.JobDeadlineReached): Transition.to(suspension.grace_over, _S.SUSPENDING, _S.STOPPING),
    **{
        (status, event): Transition.to(decide, status)
        for status in (*_LEAVING, _S.DIAGNOSING)
        for event, decide in (
            (events.SuspendRequested, suspension.suspend_after_stop),
            (events.ResumeRequested, suspension.resume),
        )
    },
    (_S.SUSPENDED, events.JobPlaced): Transition.to(launching.placed, _S.SUBMITTING),
    (_S.SUSPENDED, events.ResourcesShort): Transition.to(launching.resources_short, _S.SUSPENDED),
    (_S.SUSPENDED, events.CancelRequested): Transition.to(stopping.cancel_idle, _S.CANCELED),
    (_S.SUSPENDED, events.SuspendRequested): Transition.to(suspension.suspend_queued, _S.SUSPENDED),
    (_S.SUSPENDED, events.ResumeRequested): Transition.to(suspension.resume, _S.SUSPENDED),
    (_S.SUSPENDED, events.JobDeadlineReached): Transition.to(suspension.suspension_overdue, _S.FAILED),
    (_S.STOPPING, events.AttemptLaunched): Transition.to(launching.launched_too_late, _S.STOPPING),
    (_S.STOPPING, events.LaunchRefused): Transition.to(launching.launched_too_late, _S.STOPPING),
    (_S.STOPPING, events.AllRanksStopped): Transition.to(stopping.all_stopped, *_AFTER_STOP),
    (_S.STOPPING, events.AllRanksHeld): Transition.to(in_place.all_held, _S.STOPPING, _S.RECOVERING),
    (_S.STOPPING, events.Diagnosed): Transition.to(in_place.diagnosed_while_held, _S.STOPPING, _S.RECOVERING),
    (_S.STOPPING, events.PassiveEvidenceCollected): Transition.to(in_place.seen_while_held, _S.STOPPING, _S.RECOVERING),
    (_S.STOPPING, events.RepairEnded): Transition.to(stopping.rank_not_ended, _S.FAILED),
    (_S.STOPPING, events.CancelRequested): Transition.to(stopping.cancel_stopping, _S.STOPPING),
    (_S.STOPPING, events.JobDeadlineReached): Transition.to(stopping.stop_overdue, _S.STOPPING, _S.FAILED),
    (_S.DIAGNOSING, events.Diagnosed): Transition.to(diagnosing.diagnosed, _S.DIAGNOSING, *_AFTER_DIAGNOSIS),
    (_S.DIAGNOSING, events.PassiveEvidenceCollected): Transition.to(
        gang_check.passive_evidence, _S.RECOVERING, _S.SUSPENDED
    ),
    (_S.DIAGNOSING, events.InstancesChecked): Transition.to(
        recovering.checks_complete, _S.DIAGNOSING, *_AFTER_DIAGNOSIS
    ),
    (_S.DIAGNOSING, events.RepairEnded): Transition.to(recovering.repair_ended_early, _S.DIAGNOSING),
    (_S.DIAGNOSING, events.CancelRequested): Transition.to(stopping.cancel_idle, _S.CANCELED),
    (_S.DIAGNOSING, events.JobDeadlineReached): Transition.to(
        recovering.checks_overdue, _S.DIAGNOSING, *_AFTER_DIAGNOSIS
    ),
    (_S.RECOVERING, events.JobPlaced): Transition.to(launching.placed, _S.SUBMITTING),
    (_S.RECOVERING, events.RepairEnded): Transition.to(recovering.repair_ended, _S.RECOVERING, _S.FAILED),
    (_S.RECOVERING, events.CancelRequested): Transition.to(stopping.cancel_idle, _S.CANCELED),
    (_S.RECOVERING, events.SuspendRequested): Transition.to(suspension.suspend_recovering, _S.SUSPENDED),
    (_S.RECOVERING, events.JobLookDue): Transition.to(launching.poll_queued, _S.RECOVERING),
    (_S.RECOVERING, events.JobDeadlineReached): Transition.to(recovering.recovery_overdue, _S.RECOVERING, _S.FAILED),
    **{
        (status, events.RecoveryLimitPassed): Transition.to(recovery_contract.limit_passed, status)
        for status in (_S.PENDING_RESOURCES, *_UNDER_WAY, *_LEAVING, *_CHECKED)
    },
    (_S.FAILED, events.AllRanksStopped): Transition.to(stopping.late_end, _S.FAILED),
    (_S.FAILED, events.CancelRequested): Transition.to(stopping.cancel_failed, _S.FAILED),
    (_S.RUNNING, events.SparesOffered): Transition.to(warm_spares.offered, _S.RUNNING),
    **{
        (status, events.SparesRecalled): Transition.to(warm_spares.recalled, status)
        for status in (*_UNDER_WAY, *_LEAVING, *_CHECKED)
    },
    **{
        (status, event): Transition.to(decide, status)
        for status in JobStatus
        for event, decide in ((events.SpareSeen, warm_spares.seen), (events.SpareEnded, warm_spares.ended))
    },
    **{(status, events.NewerTaskSeen): Transition.to(newer_task, _S.SUBMITTED) for status in _ENDED},
    **{
        (status, events.NamedInstancePassed): Transition.to(named_instances.passed, status)
        for status in JobStatus
        if status is not _S.QUEUED and status not in _ENDED
    },
}
"""Transitions by status and event: the function that decides and the statuses it may lead to."""

_LAUNCH_OVER = (*_IN_QUEUE, *_AFTER_LAUNCH, *_CHECKED, *_ENDED)
_NOT_YET_RUNNING = (_S.SUBMITTING, _S.SUBMITTED)
IGNORED: dict[tuple[JobStatus, type[events.JobEvent]], str] = {
    **ignored("the job is not in line", events.JobPlaced, *_NOT_IN_QUEUE),
    **ignored("the job is not in line", events.ResourcesShort, *_NOT_IN_QUEUE),
    **ignored("it waits for healthy instances already", events.ResourcesShort, _S.RECOVERING),
    **ignored("the launch of this attempt is over", events.AttemptLaunched, *_LAUNCH_OVER),
    **ignored("the launch of this attempt is over", events.LaunchRefused, *_LAUNCH_OVER),
    **ignored("the job is under way", events.NewerTaskSeen, *_IN_QUEUE, *_UNDER_WAY, *_LEAVING, *_CHECKED),
    **ignored("every rank is known to run", events.AllRanksRunning, _S.RUNNING, _S.LOST, _S.SUSPENDING),
    **ignored("the gang is being stopped", events.AllRanksRunning, _S.STOPPING),
    **ignored("the attempt has ended", events.AllRanksRunning, *_NO_RANKS),
    **ignored("the gang is being stopped: ranks are expected to end", events.RankFailed, _S.STOPPING),
    **ignored("the attempt has ended", events.RankFailed, *_NO_RANKS),
    **ignored(
        "the end of every rank is known", events.AllRanksStopped, *_IN_QUEUE, *_CHECKED, _S.SUCCEEDED, _S.CANCELED
    ),
    **ignored("the first failed rank stops the gang", events.AllRanksHeld, *_UNDER_WAY, _S.SUSPENDING),
    **ignored("the attempt has ended", events.AllRanksHeld, *_NO_RANKS),
    **ignored("the attempt is not being diagnosed", events.InstancesChecked, *_IN_QUEUE, *_UNDER_WAY, *_LEAVING),
    **ignored("the diagnosis of this attempt is done", events.InstancesChecked, _S.RECOVERING, *_ENDED),
    **ignored("the attempt waits for no repair", events.RepairEnded, *_IN_QUEUE, *_UNDER_WAY, _S.SUSPENDING, *_ENDED),
    **ignored("no attempt of it has ended", events.NamedInstancePassed, _S.QUEUED),
    **ignored("the job has ended", events.NamedInstancePassed, *_ENDED),
    **ignored("it has no rank on any instance", events.InstanceNeedsRepair, *_NO_RANKS),
    **ignored("it has no rank on any instance", events.InstanceLeaving, *_NO_RANKS),
    **ignored("the gang is leaving already", events.InstanceNeedsRepair, *_LEAVING),
    **ignored("the gang is leaving already", events.InstanceLeaving, *_LEAVING),
    **ignored("the job has ended", events.CancelRequested, _S.SUCCEEDED, _S.CANCELED),
    **ignored("not every rank is known to run: this status has a deadline", events.RankSilent, *_NOT_YET_RUNNING),
    **ignored("the gang is leaving already", events.RankSilent, *_LEAVING),
    **ignored("the attempt has ended", events.RankSilent, *_NO_RANKS),
    **ignored("the gang is being stopped or has ended", events.RankExited, *_LEAVING, *_CHECKED, *_ENDED),
    **ignored("the launch tells how it ends", events.RankExited, *_IN_QUEUE, _S.SUBMITTING),
    **ignored("it is not LOST", events.RankHeard, *_NOT_YET_RUNNING, *_LEAVING),
    **ignored("the attempt has ended", events.RankHeard, *_NO_RANKS),
    **ignored("not every rank of it has ended", events.Diagnosed, *_UNDER_WAY, _S.SUSPENDING),
    **ignored("the next step is decided already", events.Diagnosed, *_IN_QUEUE, _S.RECOVERING, *_ENDED),
    **ignored("not every rank of it has ended", events.PassiveEvidenceCollected, *_UNDER_WAY, _S.SUSPENDING),
    **ignored("the next step is decided already", events.PassiveEvidenceCollected, *_IN_QUEUE, _S.RECOVERING, *_ENDED),
    **ignored("not every rank is known to run: this status has a deadline", events.ProgressStopped, *_NOT_YET_RUNNING),
    **ignored("its missing heartbeat is being examined", events.ProgressStopped, _S.LOST),
    **ignored("the gang is leaving already", events.ProgressStopped, *_LEAVING),
    **ignored("the attempt has ended", events.ProgressStopped, *_NO_RANKS),
    **ignored("not every rank is known to run: this status has a deadline", events.StallReported, *_NOT_YET_RUNNING),
    **ignored("its missing heartbeat is being examined", events.StallReported, _S.LOST),
    **ignored("the gang is leaving already", events.StallReported, *_LEAVING),
    **ignored("the attempt has ended", events.StallReported, *_NO_RANKS),
    **ignored("not every rank is known to run: this status has a deadline", events.HangSuspected, *_NOT_YET_RUNNING),
    **ignored("its missing heartbeat is being examined", events.HangSuspected, _S.LOST),
    **ignored("the gang is leaving already", events.HangSuspected, *_LEAVING),
    **ignored("the attempt has ended", events.HangSuspected, *_NO_RANKS),
    **ignored("not every rank is known to run", events.TrainingContinued, *_NOT_YET_RUNNING),
    **ignored("its missing heartbeat is being examined", events.TrainingContinued, _S.LOST),
    **ignored("the gang is leaving already", events.TrainingContinued, *_LEAVING),
    **ignored("the attempt has ended", events.TrainingContinued, *_NO_RANKS),
    **ignored(
        "the job does not run", events.SparesOffered, *(status for status in JobStatus if status is not _S.RUNNING)
    ),
    **ignored(
        "the job does not run", events.GrowRequested, *(status for status in JobStatus if status is not _S.RUNNING)
    ),
    **ignored("it has no warm spares", events.SparesRecalled, *_IN_QUEUE, *_ENDED),
    **ignored("the job has ended", events.SuspendRequested, *_ENDED),
    **ignored("the job has ended", events.ResumeRequested, *_ENDED),
    **ignored("it is not suspended", events.ResumeRequested, *_QUEUED, *_UNDER_WAY, _S.RECOVERING),
    **ignored("this status has a deadline instead", events.JobLookDue, _S.PENDING_RESOURCES, _S.SUSPENDED),
    **ignored("the job has ended", events.JobLookDue, *_ENDED),
    **ignored("the job was never down", events.RecoveryLimitPassed, _S.QUEUED),
    **ignored("a suspended job has no limit", events.RecoveryLimitPassed, _S.SUSPENDED),
    **ignored("the job has ended", events.RecoveryLimitPassed, *_ENDED),
    **ignored("the job has ended", events.JobDeadlineReached, *_ENDED),
}
"""Reasons why an event changes nothing, by status and event."""
