"""A gang that may hang: the poll that asks about it, and a hang that the node agents show.

Such a hang is first told to operators. With `act` in the policy the gang is stopped later, if it still hangs then.
"""

from __future__ import annotations

from datetime import timedelta

from gpu_recovery.core import commands, events
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.stopping import stalled
from gpu_recovery.core.notifications import jobs
from gpu_recovery.core.policy import HangAction, duration
from gpu_recovery.core.progress_timeout import QUIET_S, is_judged
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, unless_pending

STALL_AGAIN = timedelta(seconds=30)
"""Time after a poll in which a stall that a rank reports leads to no other poll."""
ACT_AFTER = timedelta(seconds=QUIET_S)
"""Time between the notice of a hang and the stop for it: every rank must be quiet once more for as long."""


def stall_reported(job: Job, event: events.StallReported, context: DecisionContext) -> Step | Ignore:
    """Ask now whether the whole gang hangs, because one rank reports no progress, or is quiet, for too long.

    The answer may be that other ranks make progress. The same process reports again, so the question is not repeated
    within `STALL_AGAIN`. After an early question it is repeated after a third of that, with the next report of the
    agent: the gang may have stood still for the whole timeout by then.
    """
    if event.instance_id not in job.instances:
        return Ignore("no rank of this attempt is there")
    if event.is_quiet and not asks_again(job, event, context):
        return Ignore("operators know of this hang")
    if job.spec.progress_timeout_s is not None and event.unchanged_s < job.spec.progress_timeout_s:
        return Ignore(f"the job allows {job.spec.progress_timeout_s} s without progress")
    if event.is_early and not job.attempts_left(context.policy):
        return Ignore("the last attempt has the whole timeout")
    interval = duration(context.policy.poll_interval_s)
    next_poll = context.now + interval
    again = min(STALL_AGAIN, interval / 4)
    if job.look_at is not None and job.look_at > next_poll - again:
        return Ignore("the ranks were polled just now")
    look_at = next_poll - 2 * again / 3 if event.is_early else next_poll
    return Step(job.status, job.reason, {"look_at": look_at}, unless_pending(job, commands.ObserveAttempt(job.attempt)))


def hang_suspected(job: Job, event: events.HangSuspected, context: DecisionContext) -> Step | Ignore:
    """Notify operators of a hang once. With `act`, stop the gang if it still hangs after `ACT_AFTER`."""
    if not is_judged(context.policy):
        return Ignore("ranks are not judged by their activity")
    acts = context.policy.hang_without_progress is HangAction.ACT
    told_at = job.hang_told_at
    if told_at is None or told_at < event.since:
        reason = f"may hang: {event.sentence}"
        stops_at = context.now + ACT_AFTER if acts else None
        notice = jobs.may_hang(job, event, stops_at, job.is_observed(context.policy))
        return Step(job.status, reason, {"hang_told_at": context.now}, (notice,))
    if not acts:
        return Ignore("operators know of this hang")
    if context.now < told_at + ACT_AFTER:
        return Ignore("operators were notified just now")
    stopped = events.ProgressStopped(at=event.at, attempt=event.attempt, sentence=event.sentence, since=event.since)
    return stalled(job, stopped, context)


def asks_again(job: Job, event: events.StallReported, context: DecisionContext) -> bool:
    """Return whether a quiet rank is still a reason to poll: its hang was not told yet, or it is time to stop it."""
    told_at = job.hang_told_at
    if told_at is None or told_at < event.at - timedelta(seconds=event.unchanged_s):
        return True
    return context.policy.hang_without_progress is HangAction.ACT and context.now >= told_at + ACT_AFTER
