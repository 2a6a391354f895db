"""Growing: an elastic job that runs on fewer instances than it may have continues on more.

The scheduler asks for it when instances are free and no job waits for them. The job leaves as for a suspension: rank 0
has the suspend grace to save its state and to exit, then the other ranks are stopped. But the job keeps the claims on
its instances, so that no other job is placed there. It is RECOVERING until the scheduler places the next attempt on its
instances and on the free instances. If these are taken meanwhile, the next attempt has the width that fits.

The attempt is not counted. A stable run resets the number of growths.

If ECS refuses ranks of an elastic job on some instances, and enough others are left, the job continues on the others
in the same way: with its claims, at once, and not counted. Growth leaves the refusing instances out for a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.job.completion import check_of_crash, poke_scheduler, unless_suspended, with_uncounted_relaunch
from gpu_recovery.core.job.record import REFUSED_MAX, CloseCause, Job, JobStatus, ListedJob, StopPurpose
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step
from gpu_recovery.core.task import RankFailure

_GROWS = (JobStatus.SUSPENDING, JobStatus.STOPPING, JobStatus.RECOVERING)


def is_growing(job: ListedJob) -> bool:
    """Return whether the job leaves its ranks, or has left them, for an attempt of another width with its claims."""
    return job.stop_purpose is StopPurpose.GROW and job.status in _GROWS


def kept_claims(job: ListedJob) -> tuple[str, ...]:
    """Return the instances on which a growing job keeps its claims for the next attempt."""
    return job.instances if is_growing(job) and job.status is JobStatus.RECOVERING else ()


def is_narrow(job: ListedJob) -> bool:
    """Return whether the job runs on fewer instances than it may have."""
    return job.status is JobStatus.RUNNING and job.width < job.spec.nnodes


def width_limit(job: ListedJob) -> int:
    """Return the largest width of the next attempt of a job that continues without refusing instances; 0: no limit.

    Each such attempt is narrower than the last. So a job that is refused everywhere comes to its smallest width.
    """
    if not kept_claims(job) or job.stop_cause is not CloseCause.INSUFFICIENT_RESOURCES:
        return 0
    return len(others(job, job.let_go))


def others(job: ListedJob, instances: Iterable[str]) -> tuple[str, ...]:
    """Return the instances of the attempt without some of them."""
    without = set(instances)
    return tuple(instance for instance in job.instances if instance not in without)


def refused_on(job: ListedJob, instances: Iterable[str], context: DecisionContext) -> dict[str, Any]:
    """Return the changes after ECS has refused ranks on these instances. Only an elastic job remembers them."""
    if job.spec.nnodes_min is None:
        return {}
    known = {**job.refused, **dict.fromkeys(instances, context.now)}
    return {"refused": dict(sorted(known.items(), key=lambda item: (item[1], item[0]))[-REFUSED_MAX:])}


def accepted_by(job: ListedJob) -> dict[str, Any]:
    """Return the changes after every rank has started: no instance of the attempt refuses the job any more."""
    if not job.refused.keys() & set(job.instances):
        return {}
    return {"refused": {name: at for name, at in job.refused.items() if name not in job.instances}}


def growths(job: ListedJob) -> int:
    """Return how often the job has grown since its last stable run."""
    return job.attempts_uncounted.get(CloseCause.GROWN, 0)


def poke_to_grow(job: ListedJob) -> tuple[commands.PokeScheduler, ...]:
    """Return the command that asks the scheduler for more instances, if the job may grow."""
    return (poke_scheduler(job),) if is_narrow(job) and not job.is_down else ()


def grow(job: Job, event: events.GrowRequested, context: DecisionContext) -> Step | Ignore:
    """Send the suspension notice to rank 0 of a job that will continue on more instances."""
    if not is_narrow(job) or job.is_observed(context.policy):
        return Ignore("the job has its largest number of instances, or is only observed")
    if growths(job) >= context.policy.uncounted_relaunches_max:
        return Ignore("the job has grown too often without a stable run")
    if job.is_down:
        return Ignore("the training has not gone on since the last failure")
    why = f"grows from {job.width} to {event.width} instance(s)"
    changes: dict[str, Any] = {
        "stop_purpose": StopPurpose.GROW,
        "stop_cause": CloseCause.GROWN,
        "stop_tries": 0,
        "stop_reason": why,
    }
    reason = f"{why}: rank 0 has {job.spec.suspend_grace_s} s to save and exit"
    return Step(JobStatus.SUSPENDING, reason, changes, (commands.SuspendAttempt(job.attempt),))


def grown(job: Job, context: DecisionContext, failure: RankFailure | None) -> Step:
    """Queue the job for its next attempt after every rank has ended. Its instances stay claimed.

    Only a growth is counted as such: a job that continues without refusing instances has lost its last attempt to ECS.
    It releases its claims on the refusing instances. So the next attempt can still use one of them if the job loses
    another instance.

    Args:
        job: the job, whose ranks have ended.
        context: the policy and the time.
        failure: the first unsuccessful end. If the instance may have caused it, the instance is checked.
    """
    changes: dict[str, Any] = {"failure": None}
    if job.stop_cause is CloseCause.GROWN:
        changes["attempts_uncounted"] = with_uncounted_relaunch(job, CloseCause.GROWN)
    checks = check_of_crash(job, failure, context)
    checked = {order.instance_id for order in checks}
    refusing = job.let_go if job.stop_cause is CloseCause.INSUFFICIENT_RESOURCES else ()
    left = tuple(name for name in refusing if name not in checked)
    release = (commands.ReleaseInstances(left, attempt=job.attempt),) if left else ()
    orders = (*checks, *release, poke_scheduler(job))
    reason = f"{job.stop_reason}: every rank has ended, and its instances stay claimed (not counted)"
    return unless_suspended(job, Step(JobStatus.RECOVERING, reason, changes, orders))
