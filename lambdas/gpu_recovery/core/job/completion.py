"""How a job ends, and what every ending owes: instances given back, operators told, the scheduler woken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery.core import commands
from gpu_recovery.core.events import Checked, CheckRequested
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import CloseCause, Job, JobStatus
from gpu_recovery.core.notifications import jobs
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext, Step
from gpu_recovery.core.task import EndingKind, RankFailure

PAUSE_DOUBLINGS_MAX = 20
_PERHAPS_THE_MACHINE = (EndingKind.CRASHED, EndingKind.HOST_FAULT)


def suspended(job: Job, given: DecisionContext, failure: RankFailure | None = None) -> Step:
    """Every rank has ended and the job goes on later: its instances are free for others, and it keeps its place.

    failure: the first end that was no success. Where it may have been the machine's, the claim there is not given back
    but handed to the machine's check, so that nobody is placed on it in between.
    """
    blamed = _to_check(job.failure or failure, given)
    free = tuple(one for one in job.instances if one != blamed)
    orders: tuple[Any, ...] = (commands.ReleaseInstances(free, attempt=job.attempt), poke_scheduler(job))
    if blamed:
        since = job.running_at or job.status_at
        request = CheckRequested(
            at=given.now,
            job_id=job.job_id,
            attempt=job.attempt,
            may_reboot=True,
            since=since,
            awaited=False,
            first=blamed,
            alone=len(job.instances) == 1,
        )
        orders = (commands.TellInstance(blamed, request), *orders)
    what_next = "held until it is resumed" if job.held else "it runs again as soon as there is room"
    changes: dict[str, Any] = {"suspended_at": given.now, "in_line_at": given.now, "failure": None}
    if job.stop_cause is CloseCause.SUSPENDED:
        changes |= {"attempts_uncounted": counted(job, CloseCause.SUSPENDED), **with_cool_down(job, given)}
    return Step(JobStatus.SUSPENDED, f"suspended: {job.stop_reason}; {what_next}", changes, orders)


def _to_check(failure: RankFailure | None, given: DecisionContext) -> str:
    """The instance whose rank did not leave under the notice but died of something; "" if none did.

    What ECS ended at our request says nothing of the machine, and a code of the program's own is its way to leave.
    """
    if failure is None or given.policy.diagnose_exit_code_1_only:
        return ""
    return failure.instance_id if failure.ending.kind in _PERHAPS_THE_MACHINE else ""


def unless_suspended(job: Job, step: Step) -> Step:
    """`step`, but a job that a person has suspended meanwhile goes out of line instead of on.

    What it would have kept is given back, and the scheduler woken after that and not before.
    """
    if not job.held or step.status not in (JobStatus.RECOVERING, JobStatus.PENDING_RESOURCES):
        return step
    release = commands.ReleaseInstances(job.instances, attempt=job.attempt)
    changes = {**step.changes, "repairing": ()}
    others = (one for one in step.commands if not isinstance(one, commands.PokeScheduler))
    orders = (*others, release, poke_scheduler(job))
    return Step(JobStatus.SUSPENDED, f"{step.reason}; held until it is resumed", changes, orders)


def counted(job: Job, cause: CloseCause) -> dict[str, int]:
    """How often it was relaunched for each uncounted cause, once more for `cause`."""
    return {**job.attempts_uncounted, cause: job.attempts_uncounted.get(cause, 0) + 1}


def finished(job: Job, status: JobStatus, reason: str) -> Step:
    """An end that needs nobody: whatever is still claimed is given back, and an incident that is open is closed."""
    orders: tuple[Any, ...] = (commands.ReleaseInstances(job.instances, attempt=job.attempt), poke_scheduler(job))
    if job.incident_id is not None:
        orders = (*orders, jobs.closed(job, reason))
        if status is JobStatus.SUCCEEDED:
            data = {"job_id": job.job_id, "attempt": job.attempt, "incident_id": job.incident_id, "reason": reason}
            orders = (*orders, commands.PublishEvent("Recovery Succeeded", data))
    return Step(status, reason, {"incident_id": None, "repairing": ()}, orders)


def failed(
    job: Job,
    reason: str,
    unconfirmed: tuple[str, ...],
    changes: Mapping[str, Any] | None = None,
    results: Mapping[str, Checked] | None = None,
) -> Step:
    """A terminal failure: whatever is still claimed is given back but for `unconfirmed`, and operators are told.

    results: what the checks that led to it said, by instance.
    """
    incident = job.incident_id or attempt_id(job.job_id, job.attempt)
    data = {"job_id": job.job_id, "attempt": job.attempt, "incident_id": incident, "reason": reason}
    orders = (
        commands.ReleaseInstances(job.instances, unconfirmed, job.attempt),
        jobs.failed(job, incident, reason, unconfirmed, results or {}),
        commands.PublishEvent("Recovery Failed", data),
        poke_scheduler(job),
    )
    kept = {"repairing": (), "incident_id": incident, "claims_kept": bool(unconfirmed)}
    return Step(JobStatus.FAILED, reason, {**kept, **(changes or {})}, orders)


def is_stable(job: Job, given: DecisionContext) -> bool:
    """Whether the attempt has run for `stable_run_s`; its incident ends the run, not the checks that follow."""
    until = job.incident_at or given.now
    return job.running_at is not None and until - job.running_at >= within(given.policy.stable_run_s)


def with_cool_down(job: Job, given: DecisionContext) -> dict[str, Any]:
    """The pause before the next attempt: none after one that lasted or for the first that did not, then doubling."""
    policy = given.policy
    if is_stable(job, given):
        return {"quick_ends": 0, "not_before": None}
    ends = job.quick_ends + 1
    if ends == 1:
        return {"quick_ends": ends, "not_before": None}
    pause = min(policy.relaunch_cooldown_s * 2 ** min(ends - 2, PAUSE_DOUBLINGS_MAX), policy.relaunch_cooldown_max_s)
    return {"quick_ends": ends, "not_before": given.now + within(pause)}


def poke_scheduler(job: Job) -> commands.PokeScheduler:
    """The order that makes the scheduler look: something changed for those in line."""
    return commands.PokeScheduler(f"{job.job_id}/{job.version + 1}")
