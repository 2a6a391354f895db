"""Growing: an elastic job that runs on fewer instances than it may have continues on more.

The scheduler asks for it when instances are free and no job waits for them. The job leaves as for a suspension: rank 0
has the suspend grace to save its state and to exit, then the other ranks are stopped. But the job keeps the claims on
its instances, so that no other job is placed there. It is RECOVERING until the scheduler places the next attempt on its
instances and on the free instances. If these are taken meanwhile, the next attempt has the width that fits.

The attempt is not counted. A stable run resets the number of growths.
"""

from __future__ import annotations

from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.job.completion import check_of_crash, poke_scheduler, unless_suspended, with_uncounted_relaunch
from gpu_recovery.core.job.record import CloseCause, Job, JobStatus, ListedJob, StopPurpose
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step
from gpu_recovery.core.task import RankFailure

_GROWS = (JobStatus.SUSPENDING, JobStatus.STOPPING, JobStatus.RECOVERING)


def is_growing(job: ListedJob) -> bool:
    """Return whether the job leaves its ranks, or has left them, to continue on more instances."""
    return job.stop_purpose is StopPurpose.GROW and job.status in _GROWS


def kept_claims(job: ListedJob) -> tuple[str, ...]:
    """Return the instances on which a growing job keeps its claims for the next attempt."""
    return job.instances if is_growing(job) and job.status is JobStatus.RECOVERING else ()


def is_narrow(job: ListedJob) -> bool:
    """Return whether the job runs on fewer instances than it may have."""
    return job.status is JobStatus.RUNNING and job.width < job.spec.nnodes


def growths(job: ListedJob) -> int:
    """Return how often the job has grown since its last stable run."""
    return job.attempts_uncounted.get(CloseCause.GROWN, 0)


def poke_if_narrow(job: ListedJob) -> tuple[commands.PokeScheduler, ...]:
    """Return the command that asks the scheduler for more instances, if the job runs on fewer than it may have."""
    return (poke_scheduler(job),) if is_narrow(job) else ()


def grow(job: Job, event: events.GrowRequested, context: DecisionContext) -> Step | Ignore:
    """Send the suspension notice to rank 0 of a job that will continue on more instances."""
    if not is_narrow(job) or job.is_observed(context.policy):
        return Ignore("the job has its largest number of instances, or is only observed")
    if growths(job) >= context.policy.uncounted_relaunches_max:
        return Ignore("the job has grown too often without a stable run")
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

    Args:
        job: the job, whose ranks have ended.
        context: the policy and the time.
        failure: the first unsuccessful end. If the instance may have caused it, the instance is checked.
    """
    changes: dict[str, Any] = {
        "attempts_uncounted": with_uncounted_relaunch(job, CloseCause.GROWN),
        "failure": None,
    }
    orders = (*check_of_crash(job, failure, context), poke_scheduler(job))
    reason = f"{job.stop_reason}: every rank has ended, and its instances stay claimed (not counted)"
    return unless_suspended(job, Step(JobStatus.RECOVERING, reason, changes, orders))
