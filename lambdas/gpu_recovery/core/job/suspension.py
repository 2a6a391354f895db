"""Suspension: a job leaves its instances within the suspend grace and runs again later.

Rank 0 receives the notice first and has `suspend_grace_s` seconds to save its state and leave (SUSPENDING). When it has
left, or the grace is over, every other rank is stopped. An end under the notice is no failure and counts towards no
limit. If the first end was a crash, its instance is checked before another job is placed there. A job can ask for its
own suspension by exit code 75.

A preempted job is queued again at once at its former place. A job that a user suspended is held until a user resumes
it. In both cases the job keeps its place in the queue and runs again from the start.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.job.completion import failed, poke_scheduler, suspended
from gpu_recovery.core.job.growth import grown
from gpu_recovery.core.job.record import Job, JobStatus, StopPurpose
from gpu_recovery.core.job.stopping import ended, stop
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step


def suspend(job: Job, event: events.SuspendRequested, context: DecisionContext) -> Step | Ignore:
    """Send the suspension notice to rank 0 of a running gang."""
    if job.is_observed(context.policy):
        return Ignore("this job is only observed")
    reason = f"{_suspension_reason(event)}: rank 0 has {job.spec.suspend_grace_s} s to save and exit"
    changes = {
        **_changes(job, event, context),
        "stop_purpose": StopPurpose.SUSPEND,
        "stop_cause": None,
        "stop_tries": 0,
        "stop_reason": _suspension_reason(event),
    }
    return Step(JobStatus.SUSPENDING, reason, changes, (commands.SuspendAttempt(job.attempt),))


def suspend_early(job: Job, event: events.SuspendRequested, context: DecisionContext) -> Step | Ignore:
    """Stop the gang at once: it has no state to save yet, or its agents cannot be reached."""
    if job.is_observed(context.policy):
        return Ignore("this job is only observed")
    step = stop(job, StopPurpose.SUSPEND, _suspension_reason(event), context)
    return replace(step, changes={**step.changes, **_changes(job, event, context)})


def suspend_queued(job: Job, event: events.SuspendRequested, context: DecisionContext) -> Step | Ignore:
    """Take a queued job out of the queue until a user resumes it."""
    if job.held:
        return Ignore("it is held already")
    changes = {
        "held": True,
        "wished_at": event.at,
        "deadline_at": context.now + duration(context.policy.user_hold_timeout_s),
    }
    return Step(
        JobStatus.SUSPENDED, f"{_suspension_reason(event)}; held until it is resumed", changes, (poke_scheduler(job),)
    )


def suspend_after_stop(job: Job, event: events.SuspendRequested, context: DecisionContext) -> Step | Ignore:
    """Hold the job after its stop, if a user asked for it. A preemption is met by the stop itself."""
    if event.for_job or job.held:
        return Ignore("it is being stopped already")
    if job.stop_purpose in (StopPurpose.FAIL, StopPurpose.CANCEL):
        return Ignore("it is being ended")
    return Step(
        job.status, f"{job.reason}; it will be held then: {_suspension_reason(event)}", _changes(job, event, context)
    )


def suspend_recovering(job: Job, event: events.SuspendRequested, context: DecisionContext) -> Step | Ignore:
    """Suspend a job that waits for healthy instances, and release the instances reserved for it."""
    release = commands.ReleaseInstances(job.instances, attempt=job.attempt)
    reason = f"{_suspension_reason(event)} while it waited for healthy instances; held until it is resumed"
    changes = {"held": True, "wished_at": event.at, "repairing": ()}
    return Step(JobStatus.SUSPENDED, reason, changes, (release, poke_scheduler(job)))


def resume(job: Job, event: events.ResumeRequested, context: DecisionContext) -> Step | Ignore:
    """Queue the job again at the place of its first submission."""
    if not job.held:
        return Ignore("it is not held: it runs again as soon as GPUs are free")
    changes: dict[str, Any] = {"held": False, "wished_at": event.at}
    if job.status is not JobStatus.SUSPENDED:
        return Step(job.status, f"{job.reason}; resumed by {event.by}, so it will not be held", changes)
    changes |= {"in_line_at": context.now, "deadline_at": context.now + duration(context.policy.queue_timeout_s)}
    return Step(job.status, f"resumed by {event.by}; in line again", changes, (poke_scheduler(job),))


def rank_left(job: Job, event: events.RankFailed, context: DecisionContext) -> Step:
    """Stop the other ranks, because the first rank has left after the notice."""
    step = stop(job, _purpose(job), job.stop_reason, context, job.stop_cause, event.failure)
    return replace(step, reason=f"rank {event.failure.rank} has left: stopping the rest of the gang")


def grace_over(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Stop every rank, because rank 0 has not left within the grace. If the notice is still pending, wait once more.

    The command may be pending because the function that carried it out died.
    """
    notice_pending = any(isinstance(pending.command, commands.SuspendAttempt) for pending in job.commands)
    if notice_pending and job.stop_tries == 0:
        notified_by = context.now + duration(
            context.policy.command_lease_s + context.policy.suspend_margin_s + job.spec.suspend_grace_s
        )
        reason = f"{job.stop_reason}: rank 0 has not been told yet"
        return Step(JobStatus.SUSPENDING, reason, {"stop_tries": 1, "deadline_at": notified_by})
    step = stop(job, _purpose(job), job.stop_reason, context, job.stop_cause)
    return replace(step, reason=f"rank 0 has not left within {job.spec.suspend_grace_s} s: stopping the gang")


def all_ranks_left(job: Job, event: events.AllRanksStopped, context: DecisionContext) -> Step:
    """Suspend or grow the job after every rank has left by itself. A gang that finished its work has succeeded."""
    if event.failure is None:
        return ended(job, event, context)
    is_growing = job.stop_purpose is StopPurpose.GROW
    return grown(job, context, event.failure) if is_growing else suspended(job, context, event.failure)


def suspension_overdue(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Fail a suspended job that was not resumed or placed again in time."""
    waited = context.policy.user_hold_timeout_s if job.held else context.policy.queue_timeout_s
    return failed(job, f"was suspended and not {'resumed' if job.held else 'placed again'} within {waited} s", ())


def _purpose(job: Job) -> StopPurpose:
    """Return what follows when the ranks have left: the suspension, or the next attempt on more instances."""
    return StopPurpose.GROW if job.stop_purpose is StopPurpose.GROW else StopPurpose.SUSPEND


def _suspension_reason(event: events.SuspendRequested) -> str:
    """Return the reason of the suspension: the user who asked for it, or the job that needs the instances."""
    why = f" ({event.because})" if event.because else ""
    return f"suspended to make room for {event.for_job}{why}" if event.for_job else f"suspended by {event.by}{why}"


def _changes(job: Job, event: events.SuspendRequested, context: DecisionContext) -> dict[str, Any]:
    """Return the changes that record the suspension: a hold by a user, or a preemption."""
    if not event.for_job:
        return {"held": True, "wished_at": event.at, "suspended_for": ""}
    since = context.now - duration(context.policy.suspensions_window_s)
    lately = tuple(at for at in job.suspensions if at > since)
    return {"suspended_for": event.for_job, "suspensions": (*lately, context.now)}
