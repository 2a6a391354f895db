"""The end of an attempt or a job: instances released, operators notified, cool-down set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from gpu_recovery.core import commands
from gpu_recovery.core.events import Checked, CheckRequested
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.record import BLAMED_MAX, CloseCause, Job, JobStatus, ListedJob
from gpu_recovery.core.notifications import jobs
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Step
from gpu_recovery.core.task import EndingKind, RankFailure

PAUSE_DOUBLINGS_MAX = 20
"""Upper bound of the doublings of the cool-down, which keeps the power of two small."""
INCIDENT_CLOSED: dict[str, Any] = {"incident_id": None, "recovery_since": None, "blamed": ()}
"""Changes of the record that close the incident of a job."""
_POSSIBLE_INSTANCE_FAULT = (EndingKind.CRASHED, EndingKind.HOST_FAULT)


def suspended(job: Job, context: DecisionContext, failure: RankFailure | None = None) -> Step:
    """Suspend the job after every rank has ended: release its instances, and keep its place in the queue.

    Args:
        failure: the first unsuccessful end. If the instance may have caused it, the claim on that instance is not
            released. The health check of the instance takes the claim over, so that no other job is placed there before
            the check.
    """
    checks = check_of_crash(job, failure, context)
    blamed = {order.instance_id for order in checks}
    free = tuple(instance for instance in job.instances if instance not in blamed)
    orders = (*checks, commands.ReleaseInstances(free, attempt=job.attempt), poke_scheduler(job))
    what_next = "held until it is resumed" if job.held else "it runs again as soon as GPUs are free"
    changes: dict[str, Any] = {"suspended_at": context.now, "in_line_at": context.now, "failure": None}
    if job.stop_cause is CloseCause.SUSPENDED:
        changes |= {
            "attempts_uncounted": with_uncounted_relaunch(job, CloseCause.SUSPENDED),
            **with_cool_down(job, context),
        }
    return Step(JobStatus.SUSPENDED, f"suspended: {job.stop_reason}; {what_next}", changes, orders)


def check_of_crash(
    job: Job, failure: RankFailure | None, context: DecisionContext
) -> tuple[commands.TellInstance, ...]:
    """Return the request to check the instance on which a rank crashed instead of leaving; empty if none did.

    Args:
        job: the job, whose ranks have ended.
        failure: the first unsuccessful end.
        context: the policy and the time.
    """
    blamed = _to_check(job.failure or failure, context)
    if not blamed:
        return ()
    request = CheckRequested(
        at=context.now,
        job_id=job.job_id,
        attempt=job.attempt,
        may_reboot=True,
        since=job.running_at or job.status_at,
        awaited=False,
        first=blamed,
        alone=len(job.instances) == 1,
    )
    return (commands.TellInstance(blamed, request),)


def _to_check(failure: RankFailure | None, context: DecisionContext) -> str:
    """Return the instance on which a rank crashed instead of leaving for the suspension, or "".

    A stop by ECS at our request is no evidence about the instance. An exit code of the program is a regular end.
    """
    if failure is None or context.policy.diagnose_exit_code_1_only:
        return ""
    return failure.instance_id if failure.ending.kind in _POSSIBLE_INSTANCE_FAULT else ""


def unless_suspended(job: Job, step: Step) -> Step:
    """Return `step`, or a step to SUSPENDED if a user has suspended the job meanwhile.

    The instances that `step` would have kept are released. The scheduler is woken after that release, not before.
    """
    if not job.held or step.status not in (JobStatus.RECOVERING, JobStatus.PENDING_RESOURCES):
        return step
    release = commands.ReleaseInstances(job.instances, attempt=job.attempt)
    changes = {**step.changes, "repairing": ()}
    others = (command for command in step.commands if not isinstance(command, commands.PokeScheduler))
    orders = (*others, release, poke_scheduler(job))
    return Step(JobStatus.SUSPENDED, f"{step.reason}; held until it is resumed", changes, orders)


def with_uncounted_relaunch(job: Job, cause: CloseCause) -> dict[str, int]:
    """Return the number of relaunches by uncounted cause, increased by one for `cause`."""
    return {**job.attempts_uncounted, cause: job.attempts_uncounted.get(cause, 0) + 1}


def finished(job: Job, status: JobStatus, reason: str) -> Step:
    """End the job without a failure: release its instances, close its open incident and wake the scheduler."""
    orders: tuple[Any, ...] = (commands.ReleaseInstances(job.instances, attempt=job.attempt), poke_scheduler(job))
    if job.incident_id is not None:
        orders = (*orders, jobs.closed(job, reason))
        if status is JobStatus.SUCCEEDED:
            data = {"job_id": job.job_id, "attempt": job.attempt, "incident_id": job.incident_id, "reason": reason}
            orders = (*orders, commands.PublishEvent("Recovery Succeeded", data))
    return Step(status, reason, {**INCIDENT_CLOSED, "repairing": ()}, orders)


def failed(
    job: Job,
    reason: str,
    unconfirmed: tuple[str, ...],
    changes: Mapping[str, Any] | None = None,
    results: Mapping[str, Checked] | None = None,
) -> Step:
    """End the job as FAILED: release its instances except `unconfirmed`, and notify operators.

    Args:
        unconfirmed: instances on which the end of a rank is not confirmed. They stay claimed.
        changes: further changes of the record.
        results: the check results that led to the failure, by instance id.
    """
    incident = job.incident_id or attempt_id(job.job_id, job.attempt)
    data = {"job_id": job.job_id, "attempt": job.attempt, "incident_id": incident, "reason": reason}
    orders = (
        commands.ReleaseInstances(job.instances, unconfirmed, job.attempt),
        jobs.failed(job, incident, reason, unconfirmed, results or {}, _last_diagnosis(job, changes or {})),
        commands.PublishEvent("Recovery Failed", data),
        poke_scheduler(job),
    )
    base_changes = {"repairing": (), "incident_id": incident, "claims_kept": bool(unconfirmed)}
    return Step(JobStatus.FAILED, reason, {**base_changes, **(changes or {})}, orders)


def _last_diagnosis(job: Job, changes: Mapping[str, Any]) -> DiagnosisResult | None:
    """Return the diagnosis result of the last attempt, which `changes` may hold; None without one."""
    conclusion: DiagnosisResult | None = changes.get("conclusion", job.conclusion)
    return conclusion if conclusion is not None and conclusion.attempt == job.attempt else None


def with_blamed(job: Job, instance_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the instances that were found faulty in the open recovery of the job, with `instance_ids` added."""
    return tuple(dict.fromkeys((*job.blamed, *instance_ids)))[-BLAMED_MAX:]


def is_stable(job: Job, context: DecisionContext) -> bool:
    """Return whether the attempt has run for `stable_run_s` seconds."""
    return _ran(job, context) >= duration(context.policy.stable_run_s)


def _ran(job: Job, context: DecisionContext) -> timedelta:
    """Return how long the attempt has run, to the start of its incident, so that the checks after it do not count."""
    if job.running_at is None:
        return timedelta()
    return (job.incident_at or context.now) - job.running_at


def with_cool_down(job: Job, context: DecisionContext) -> dict[str, Any]:
    """Return the changes that set the cool-down before the next attempt.

    There is no cool-down after a stable run or after the first short run. Then it doubles with each short run in a row.
    It is counted from the time at which the gang was stopped or had ended, so the health checks are part of it. The
    run itself is part of it, too. A launch that failed has no run.
    """
    policy = context.policy
    if is_stable(job, context):
        return {"quick_ends": 0, "not_before": None}
    ends = job.quick_ends + 1
    if ends == 1:
        return {"quick_ends": ends, "not_before": None}
    pause = min(policy.relaunch_cooldown_s * 2 ** min(ends - 2, PAUSE_DOUBLINGS_MAX), policy.relaunch_cooldown_max_s)
    since = job.status_at if job.status in (JobStatus.STOPPING, JobStatus.DIAGNOSING) else context.now
    until = since + duration(pause) - _ran(job, context)
    return {"quick_ends": ends, "not_before": until if until > context.now else None}


def retry_delay(changes: Mapping[str, Any], context: DecisionContext) -> str:
    """Return the delay before the next attempt that `changes` set, as an addition to a reason; "" without a delay."""
    until = changes.get("not_before")
    if until is None or until <= context.now:
        return ""
    seconds = math.ceil((until - context.now).total_seconds())
    return f"; the next attempt starts after a retry delay of {seconds} s, at {until:%H:%M:%S} UTC at the earliest"


def poke_scheduler(job: ListedJob) -> commands.PokeScheduler:
    """Return the command that wakes the scheduler because something changed for queued jobs."""
    return commands.PokeScheduler(f"{job.job_id}/{job.version + 1}")
