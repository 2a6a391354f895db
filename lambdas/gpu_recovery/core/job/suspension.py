"""Making room and coming back: a job gives its instances up, keeps its place in line, and runs again from the start.

Rank 0 is told first, and has `suspend_grace_s` to save what it needs and leave (SUSPENDING); when it has left, or the
grace is over, every other rank is stopped. Whatever ends under that notice is no failure and counts against nothing;
but where the first end was a crash, its machine is checked before anybody else works there. A job that leaves by
itself, with exit code 75, asks for the same.

Who wanted it decides when it goes on. Made to give way to another, it is in line again at once, where it stood before.
Suspended by a person it is held, and only a person resumes it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.job.completion import failed, poke_scheduler, suspended
from gpu_recovery.core.job.record import Job, JobStatus, StopPurpose
from gpu_recovery.core.job.stopping import ended, stop
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step


def suspend(job: Job, event: events.SuspendRequested, given: DecisionContext) -> Step | Ignore:
    """Tell rank 0 of a running gang to save and leave."""
    if job.is_observed(given.policy):
        return Ignore("this job is only observed")
    reason = f"{_wanted_by_operator(event)}: rank 0 has {job.spec.suspend_grace_s} s to save and leave"
    changes = {
        **_changes(job, event, given),
        "stop_purpose": StopPurpose.SUSPEND,
        "stop_cause": None,
        "stop_tries": 0,
        "stop_reason": _wanted_by_operator(event),
    }
    return Step(JobStatus.SUSPENDING, reason, changes, (commands.SuspendAttempt(job.attempt),))


def suspend_early(job: Job, event: events.SuspendRequested, given: DecisionContext) -> Step | Ignore:
    """Nothing to save, or nobody there to hear of it: the gang is stopped at once."""
    if job.is_observed(given.policy):
        return Ignore("this job is only observed")
    step = stop(job, StopPurpose.SUSPEND, _wanted_by_operator(event), given)
    return replace(step, changes={**step.changes, **_changes(job, event, given)})


def suspend_queued(job: Job, event: events.SuspendRequested, given: DecisionContext) -> Step | Ignore:
    """A job in line steps out of it."""
    if job.held:
        return Ignore("it is held already")
    changes = {"held": True, "wished_at": event.at, "deadline_at": given.now + within(given.policy.user_hold_timeout_s)}
    return Step(
        JobStatus.SUSPENDED, f"{_wanted_by_operator(event)}; held until it is resumed", changes, (poke_scheduler(job),)
    )


def suspend_after_stop(job: Job, event: events.SuspendRequested, given: DecisionContext) -> Step | Ignore:
    """It is on its way out anyway: a person's wish makes it stay there; another job's is already being met."""
    if event.for_job or job.held:
        return Ignore("it is being stopped already")
    if job.stop_purpose in (StopPurpose.FAIL, StopPurpose.CANCEL):
        return Ignore("it is being ended")
    return Step(job.status, f"{job.reason}; to be held then: {_wanted_by_operator(event)}", _changes(job, event, given))


def suspend_recovering(job: Job, event: events.SuspendRequested, given: DecisionContext) -> Step | Ignore:
    """It waits for healthy instances: what is kept for it is given back."""
    release = commands.ReleaseInstances(job.instances, attempt=job.attempt)
    reason = f"{_wanted_by_operator(event)} while it waited for healthy instances; held until it is resumed"
    changes = {"held": True, "wished_at": event.at, "repairing": ()}
    return Step(JobStatus.SUSPENDED, reason, changes, (release, poke_scheduler(job)))


def resume(job: Job, event: events.ResumeRequested, given: DecisionContext) -> Step | Ignore:
    """In line again, where it stood when it was first submitted."""
    if not job.held:
        return Ignore("it is not held: it runs again as soon as there is room")
    changes: dict[str, Any] = {"held": False, "wished_at": event.at}
    if job.status is not JobStatus.SUSPENDED:
        return Step(job.status, f"{job.reason}; not to be held: resumed by {event.by}", changes)
    changes |= {"in_line_at": given.now, "deadline_at": given.now + within(given.policy.queue_timeout_s)}
    return Step(job.status, f"resumed by {event.by}; in line again", changes, (poke_scheduler(job),))


def rank_left(job: Job, event: events.RankFailed, given: DecisionContext) -> Step:
    """The first rank has left under the notice: now the others are stopped."""
    step = stop(job, StopPurpose.SUSPEND, job.stop_reason, given, failure=event.failure)
    return replace(step, reason=f"rank {event.failure.rank} has left: stopping the rest of the gang")


def grace_over(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step | Ignore:
    """Rank 0 has not left in time: everybody is stopped, unless whoever was to tell it has died before."""
    untold = any(isinstance(one.command, commands.SuspendAttempt) for one in job.commands)
    if untold and job.stop_tries == 0:
        told_by = given.now + within(
            given.policy.command_lease_s + given.policy.suspend_margin_s + job.spec.suspend_grace_s
        )
        reason = f"{job.stop_reason}: rank 0 has not been told yet"
        return Step(JobStatus.SUSPENDING, reason, {"stop_tries": 1, "deadline_at": told_by})
    step = stop(job, StopPurpose.SUSPEND, job.stop_reason, given)
    return replace(step, reason=f"rank 0 has not left within {job.spec.suspend_grace_s} s: stopping the gang")


def all_ranks_left(job: Job, event: events.AllRanksStopped, given: DecisionContext) -> Step:
    """Every rank has ended before any other was stopped; a gang that finished its work under the notice is done."""
    return ended(job, event, given) if event.failure is None else suspended(job, given, event.failure)


def suspension_overdue(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step | Ignore:
    """Nothing waits for ever, not even for a person."""
    waited = given.policy.user_hold_timeout_s if job.held else given.policy.queue_timeout_s
    return failed(job, f"was suspended and not {'resumed' if job.held else 'placed again'} within {waited} s", ())


def _wanted_by_operator(event: events.SuspendRequested) -> str:
    why = f" ({event.because})" if event.because else ""
    return f"suspended to make room for {event.for_job}{why}" if event.for_job else f"suspended by {event.by}{why}"


def _changes(job: Job, event: events.SuspendRequested, given: DecisionContext) -> dict[str, Any]:
    if not event.for_job:
        return {"held": True, "wished_at": event.at, "suspended_for": ""}
    since = given.now - within(given.policy.suspensions_window_s)
    lately = tuple(at for at in job.suspensions if at > since)
    return {"suspended_for": event.for_job, "suspensions": (*lately, given.now)}
