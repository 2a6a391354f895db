"""Downtime of a job in its state machine, and the limits of its recovery contract (`downtime.py`).

A failure that opens an incident, or a loss of capacity, begins a downtime. Each decision that changes what the job
waits for begins the next phase. The training that goes on, or the end of the job, ends the downtime.

A job with a contract has a time `limit_at`, at which the first limit passes. It is a deadline like others: the
reconciler turns it into an event, and operators are told once for each downtime.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.diagnosis.taxonomy import Cause
from gpu_recovery.core.job.downtime import (
    DownPhase,
    Downtime,
    LossCause,
    broken_limits,
    contract_limit_at,
    has_contract,
)
from gpu_recovery.core.job.record import RUNS, TERMINAL, CloseCause, Job, JobStatus
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, replace_fields, unless_pending
from gpu_recovery.core.task import EndingKind

REPORT_MARGIN_S = 30
"""Seconds beside `recovered_after_s` for which a limit that passes while the ranks run waits for a report of progress.

A report is read with a poll, so a first training step within the limit may be known only after it."""
_PHASES = {
    JobStatus.STOPPING: DownPhase.STOP,
    JobStatus.DIAGNOSING: DownPhase.CHECK,
    JobStatus.QUEUED: DownPhase.WAIT,
    JobStatus.PENDING_RESOURCES: DownPhase.WAIT,
    JobStatus.SUBMITTING: DownPhase.START,
    JobStatus.SUBMITTED: DownPhase.START,
    JobStatus.SUSPENDED: DownPhase.SUSPENDED,
    **dict.fromkeys(RUNS, DownPhase.FIRST_STEP),
}
_BY_STOP = {
    CloseCause.INTERRUPTED: LossCause.INTERRUPTION,
    CloseCause.REPAIR: LossCause.HARDWARE,
    CloseCause.INSUFFICIENT_RESOURCES: LossCause.CAPACITY,
    CloseCause.PERMISSION: LossCause.CAPACITY,
    CloseCause.SUSPENDED: LossCause.OPERATOR,
}
_BY_ENDING = {
    EndingKind.HOST_FAULT: LossCause.HARDWARE,
    EndingKind.INTERRUPTED: LossCause.INTERRUPTION,
    EndingKind.STOPPED_BY_PERSON: LossCause.OPERATOR,
    EndingKind.SHORT_OF_RESOURCES: LossCause.CAPACITY,
}
_HARDWARE = (Cause.GPU_FAULT, Cause.DRIVER, Cause.NODE_FAULT, Cause.STRAGGLER, Cause.GPU_NOT_RELEASED)
_NETWORK = (Cause.NETWORK, Cause.NETWORK_SLOW, Cause.RDMA)
_OTHER = (Cause.UNKNOWN, Cause.GPU_CONTEXT, Cause.WORKER_CRASH, Cause.WORKER_HANG)
"""Causes that name neither the program nor the hardware."""
_BY_CAUSE = {
    **dict.fromkeys(Cause, LossCause.APPLICATION),
    **dict.fromkeys(_HARDWARE, LossCause.HARDWARE),
    **dict.fromkeys(_NETWORK, LossCause.NETWORK),
    **dict.fromkeys(_OTHER, LossCause.UNKNOWN),
    Cause.RESOURCES: LossCause.CAPACITY,
    Cause.PREEMPTED: LossCause.INTERRUPTION,
}


def phase_of(job: Job) -> DownPhase:
    """Return what a job that is down waits for."""
    if job.status is JobStatus.RECOVERING:
        return DownPhase.REPAIR if job.repairing else DownPhase.WAIT
    return _PHASES[job.status]


def cause_of(job: Job, attempt: int) -> LossCause:
    """Return why a job is down, by the first of these that is known: its stop, a check, a diagnosis, its first failure.

    Args:
        job: the record within the downtime, after the decision.
        attempt: the attempt that failed first. A diagnosis of an earlier attempt is about another downtime.
    """
    if job.stop_cause in _BY_STOP:
        return _BY_STOP[job.stop_cause]
    if job.blamed:
        return LossCause.HARDWARE
    found = job.conclusion
    if found is not None and found.attempt >= attempt and found.decided:
        return _BY_CAUSE[found.cause]
    kind = None if job.failure is None else job.failure.ending.kind
    return _BY_ENDING.get(kind, LossCause.UNKNOWN) if kind is not None else LossCause.UNKNOWN


def downtime_changes(before: Job, after: Job, event: events.JobEvent | str, now: datetime) -> dict[str, Any]:
    """Return the changes of the downtime, its limit and the sums by cause that a decision brings about.

    Args:
        before: the record before the decision.
        after: the record with the changes of the decision. It may have a downtime that the decision ended.
        event: the event.
        now: time of the decision.
    """
    down = before.downtime
    if down is None or not down.is_open:
        begins = before.incident_at is None and after.incident_at is not None
        if not begins:
            return {}
        down = _begun(before, after, event, now)
    elif after.downtime is not down and after.downtime is not None:
        down = after.downtime
    if down.is_open:
        down = _gone_on(down, after, now)
    if down == before.downtime:
        return {}
    changes: dict[str, Any] = {"downtime": down}
    limit_at = contract_limit_at(after.spec, down)
    phase_changed = before.downtime is None or not before.downtime.is_open or before.downtime.phase != down.phase
    if limit_at != before.limit_at and (phase_changed or limit_at is None):
        changes["limit_at"] = limit_at
    if not down.is_open:
        cause = down.cause.value
        changes["lost_s"] = {**before.lost_s, cause: before.lost_s.get(cause, 0) + down.lost_s(now)}
    return changes


def _begun(before: Job, after: Job, event: events.JobEvent | str, now: datetime) -> Downtime:
    """Return the downtime that begins with a decision: since the failure, or the decision if that is not known."""
    failed_at = now
    if isinstance(event, events.ProgressStopped | events.HangSuspected) and event.since is not None:
        failed_at = event.since
    elif after.failure is not None and after.failure is not before.failure:
        failed_at = after.failure.at
    elif before.status is JobStatus.LOST:
        failed_at = before.status_at
    first = before.running_at if before.status in RUNS and before.running_at is not None else before.status_at
    since = min(max(failed_at, first), now)
    incident_id = after.incident_id or ""
    return Downtime(before.attempt, since, DownPhase.NOTICE, since, incident_id=incident_id)


def _gone_on(down: Downtime, after: Job, now: datetime) -> Downtime:
    """Return the open downtime after a decision: with its cause, in its next phase, or at its end."""
    cause = cause_of(after, down.attempt)
    incident_id = after.incident_id or down.incident_id
    if after.status in TERMINAL:
        cause = down.cause if cause is LossCause.UNKNOWN else cause
        down = replace(down, cause=cause, incident_id=incident_id)
        succeeded = after.status is JobStatus.SUCCEEDED
        return down.closed(down.phase_since if succeeded else now, recovered=succeeded)
    if cause not in (LossCause.UNKNOWN, down.cause) or incident_id != down.incident_id:
        down = replace(down, cause=down.cause if cause is LossCause.UNKNOWN else cause, incident_id=incident_id)
    if after.status is JobStatus.RUNNING and not incident_id and not has_contract(after.spec):
        return down.closed(now, recovered=True)
    return down.in_phase(phase_of(after), now)


def training_continued(job: Job, event: events.TrainingContinued) -> Downtime | None:
    """Return the downtime that ends because the training has gone on; None if the job is not down.

    A limit that is not kept counts as told: the decision that ends the downtime tells it.
    """
    down = job.downtime
    if down is None or not down.is_open:
        return None
    repeated_s = None
    if event.kept_until is not None:
        repeated_s = max(0, int((down.since - event.kept_until).total_seconds()))
    down = down.closed(event.trained_at or event.at, recovered=True, repeated_s=repeated_s)
    return replace(down, told=down.told or bool(broken_limits(job.spec, down, event.at)))


def uncounted_recovery(job: Job, event: events.TrainingContinued) -> Step | Ignore:
    """End the downtime of a job that was relaunched without an incident, such as after a Spot interruption."""
    down = training_continued(job, event)
    if job.downtime is None or down is None:
        return Ignore("no incident is open")
    orders: tuple[commands.NotifyOperator, ...] = ()
    if down.told and not job.downtime.told:
        from gpu_recovery.core.notifications.recovery_contract import limit_exceeded  # noqa: PLC0415 - a rare message

        orders = (limit_exceeded(job, down, event.sentence, event.at),)
    return Step(job.status, f"goes on: {event.sentence}", {"downtime": down}, orders)


def limit_passed(job: Job, event: events.RecoveryLimitPassed, context: DecisionContext) -> Step | Ignore:
    """Tell operators that the job is down for longer than its contract allows, and what the job waits for.

    If its ranks run, it may train already: its progress is asked for first, and the message waits for the answer.
    """
    down = job.downtime
    if down is None or not down.is_open or down.told:
        return Ignore("the job is not down, or operators know")
    if job.status in RUNS and event.limit_at == contract_limit_at(job.spec, down):
        later = context.now + duration(context.policy.recovered_after_s + REPORT_MARGIN_S)
        order = commands.ObserveAttempt(job.attempt)
        return Step(job.status, job.reason, {"limit_at": later}, unless_pending(job, order))
    from gpu_recovery.core.notifications import recovery_contract as notifications  # noqa: PLC0415 - a rare message

    told = replace(down, told=True)
    notice = notifications.limit_passed(job, told, context.now)
    reason = notifications.limit_sentence(job, told, context.now)
    return Step(job.status, reason, {"limit_at": None, "downtime": told}, (notice,))


def with_downtime(job: Job, event: events.JobEvent | str, step: Step, now: datetime) -> Step:
    """Return `step` with the changes of the downtime that it brings about."""
    if job.downtime is None and "incident_at" not in step.changes:
        return step
    moved = replace_fields(job, {**step.changes, "status": step.status})
    changes = downtime_changes(job, moved, event, now)
    return replace(step, changes={**step.changes, **changes}) if changes else step
