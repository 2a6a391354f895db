"""The state machine of a job on Ray: the record of every job, with fewer transitions.

A job on Ray is a gang of a single rank, the driver, on no instance of ours. So it is not checked, repaired or
suspended. A diagnosis result is only reported, and a single failure is retried: too few GPUs.
This module holds only the transitions that differ. Fence, deadlines and quota are those of every job.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from gpu_recovery.core import commands, events
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job import launching, stopping
from gpu_recovery.core.job.completion import failed, finished
from gpu_recovery.core.job.record import CloseCause, Job, JobStatus, StopPurpose
from gpu_recovery.core.job.state_machine import decide_by
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.state_machine import Decision, DecisionContext, Ignore, Step, Transition, ignored
from gpu_recovery.core.task import EndingKind

STOPS_MAX = 5
"""Number of stop requests before a driver is given up. A driver that Ray cannot start stays PENDING in spite of stop
requests, until Ray's own start timeout (900 s by default) fails it. All stop requests together take longer than
that."""

LOST_RACE_PAUSE_MAX_S = 600
"""Longest pause in seconds between two lost races, unless `pending_retry_s` is longer."""
PAUSE_DOUBLINGS_MAX = 20
"""Doublings after which the pause is at its maximum for every `pending_retry_s`."""


def decide(job: Job, event: events.JobEvent, policy: RecoveryPolicy, now: datetime) -> Decision[Job]:
    """Return the decision about `event` for a job on Ray. Pure: equal arguments give an equal decision."""
    return decide_by(TRANSITIONS, IGNORED, job, event, policy, now)


def placed(job: Job, event: events.JobPlaced, context: DecisionContext) -> Step | Ignore:
    """Start the next attempt on the Ray cluster."""
    step = launching.placed(job, event, context)
    if isinstance(step, Ignore):
        return step
    return replace(step, reason=f"attempt {job.attempt + 1} is sent to the Ray cluster")


def submission_accepted(job: Job, event: events.AttemptLaunched, context: DecisionContext) -> Step:
    """Record that the Ray cluster accepted the driver."""
    reason = f"the Ray cluster has accepted {attempt_id(job.job_id, job.attempt)}"
    return Step(JobStatus.SUBMITTED, reason, {"launched": True, "launch_ended": True})


def submission_accepted_too_late(job: Job, event: events.AttemptLaunched, context: DecisionContext) -> Step | Ignore:
    """Stop a driver that Ray accepted after its job was being stopped or had ended."""
    if job.launch_ended:
        return Ignore("the launch of this attempt is over")
    reason = f"{job.reason}; the Ray cluster has accepted it since: stopping it there"
    return Step(job.status, reason, {"launch_ended": True}, (commands.StopAttempt(job.attempt),))


def refused(job: Job, event: events.LaunchRefused, context: DecisionContext) -> Step:
    """Fail the job because the Ray cluster refused the driver."""
    return failed(job, event.sentence, (), {"launch_ended": True})


def running(job: Job, event: events.AllRanksRunning, context: DecisionContext) -> Step:
    """Record that the driver runs."""
    return replace(launching.running(job, event, context), reason=f"the driver of attempt {job.attempt} runs")


def diagnosed(job: Job, event: events.Diagnosed, context: DecisionContext) -> Step | Ignore:
    """Record the diagnosis result, which becomes part of the reason of the end that follows."""
    if job.diagnosed is not None:
        return Ignore("this attempt is diagnosed")
    return Step(job.status, job.reason, {"conclusion": event.conclusion})


def ended(job: Job, event: events.AllRanksStopped, context: DecisionContext) -> Step:
    """Handle the end of the driver without a stop. Too few GPUs queue the job again; every other failure is final.

    The number of lost races has no limit. The job keeps its place in line and the time since which it waits, so
    `queue_timeout_s` ends the retries. The pause before the next try doubles with each lost race since the last stable
    run, because a cluster that others keep busy would cost an attempt a minute for days.
    """
    if event.failure is None:
        return finished(job, JobStatus.SUCCEEDED, f"the driver of attempt {job.attempt} exited with code 0")
    what = f"the driver of attempt {job.attempt} {event.failure.ending.sentence}"
    if event.failure.ending.kind is EndingKind.STOPPED_BY_PERSON:
        return finished(job, JobStatus.CANCELED, what)
    if event.failure.ending.kind is not EndingKind.SHORT_OF_RESOURCES:
        diagnosis = f"; {job.diagnosed.summary}" if job.diagnosed is not None and job.diagnosed.decided else ""
        return failed(job, f"{what}{diagnosis}", (), {"failure": event.failure})
    if job.is_observed(context.policy):
        return failed(job, f"{what}; observed only", (), {"failure": event.failure})
    lost = replace(job, stop_cause=CloseCause.INSUFFICIENT_RESOURCES, failure=event.failure)
    step = stopping.relaunch(lost, context)
    changes = {
        **step.changes,
        "stop_cause": lost.stop_cause,
        "failure": lost.failure,
        "in_line_at": job.in_line_at,
        "not_before": context.now + duration(_pause_s(job, context.policy)),
    }
    return replace(step, reason=f"{what}; {step.reason}", changes=changes)


def _pause_s(job: Job, policy: RecoveryPolicy) -> int:
    """Return the seconds until the next try after a lost race, of which `job` counts the earlier ones."""
    earlier = job.attempts_uncounted.get(CloseCause.INSUFFICIENT_RESOURCES, 0)
    doubled: int = policy.pending_retry_s * 2 ** min(earlier, PAUSE_DOUBLINGS_MAX)
    return min(doubled, max(policy.pending_retry_s, LOST_RACE_PAUSE_MAX_S))


def launch_overdue(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step:
    """Fail the job because the Ray cluster did not answer the submission in time."""
    reason = f"the Ray cluster did not answer within {context.policy.launch_timeout_s} s whether it accepts the job"
    return stopping.stop(job, StopPurpose.FAIL, reason, context)


def start_overdue(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step:
    """Fail the job because its driver did not start in time."""
    wanted = ", ".join(f"{name}: {n}" for name, n in job.spec.entrypoint_resources.items()) or "the default"
    reason = f"the driver did not start within {context.policy.start_timeout_s} s (entrypoint_resources: {wanted})"
    return stopping.stop(job, StopPurpose.FAIL, reason, context)


def stop_overdue(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step:
    """Repeat the stop request up to STOPS_MAX times, then fail the job. There is no instance of ours to reboot."""
    name, tries = attempt_id(job.job_id, job.attempt), job.stop_tries + 1
    if tries >= STOPS_MAX:
        return failed(job, f"the Ray cluster never confirmed that {name} has ended: look for it there", ())
    changes = {"stop_tries": tries, "deadline_at": context.now + duration(context.policy.stop_timeout_s)}
    reason = f"{name} has not ended in time: telling the Ray cluster again"
    return Step(JobStatus.STOPPING, reason, changes, (commands.StopAttempt(job.attempt),))


_S = JobStatus
_IN_QUEUE = (_S.QUEUED, _S.PENDING_RESOURCES)
_UNDER_WAY = (_S.SUBMITTING, _S.SUBMITTED, _S.RUNNING)
_ENDED = (_S.SUCCEEDED, _S.FAILED, _S.CANCELED)
STATUSES = (*_IN_QUEUE, *_UNDER_WAY, _S.STOPPING, *_ENDED)
"""The statuses of a job on Ray. It is never LOST, SUSPENDING, SUSPENDED, DIAGNOSING or RECOVERING."""
TRANSITIONS: dict[tuple[JobStatus, type[events.JobEvent]], Transition] = {
    **{(status, events.JobPlaced): Transition.to(placed, _S.SUBMITTING) for status in _IN_QUEUE},
    **{
        (status, events.ResourcesShort): Transition.to(launching.resources_short, _S.PENDING_RESOURCES)
        for status in _IN_QUEUE
    },
    **{(status, events.CancelRequested): Transition.to(stopping.cancel_idle, _S.CANCELED) for status in _IN_QUEUE},
    (_S.QUEUED, events.JobDeadlineReached): Transition.to(launching.queued_too_long, _S.FAILED),
    (_S.PENDING_RESOURCES, events.JobDeadlineReached): Transition.to(
        launching.pending_deadline_reached, _S.PENDING_RESOURCES, _S.FAILED
    ),
    (_S.SUBMITTING, events.AttemptLaunched): Transition.to(submission_accepted, _S.SUBMITTED),
    (_S.SUBMITTING, events.LaunchRefused): Transition.to(refused, _S.FAILED),
    **{
        (status, events.AllRanksRunning): Transition.to(running, _S.RUNNING) for status in (_S.SUBMITTING, _S.SUBMITTED)
    },
    **{
        (status, events.AllRanksStopped): Transition.to(
            ended, _S.SUCCEEDED, _S.FAILED, _S.CANCELED, _S.PENDING_RESOURCES
        )
        for status in _UNDER_WAY
    },
    **{(status, events.Diagnosed): Transition.to(diagnosed, status) for status in _UNDER_WAY},
    **{(status, events.CancelRequested): Transition.to(stopping.cancel_running, _S.STOPPING) for status in _UNDER_WAY},
    **{(status, events.JobLookDue): Transition.to(stopping.observe, status) for status in (*_UNDER_WAY, _S.STOPPING)},
    (_S.SUBMITTING, events.JobDeadlineReached): Transition.to(launch_overdue, _S.STOPPING),
    (_S.SUBMITTED, events.JobDeadlineReached): Transition.to(start_overdue, _S.STOPPING),
    (_S.RUNNING, events.JobDeadlineReached): Transition.to(stopping.runtime_over, _S.STOPPING),
    (_S.STOPPING, events.AllRanksStopped): Transition.to(stopping.all_stopped, _S.FAILED, _S.CANCELED),
    (_S.STOPPING, events.CancelRequested): Transition.to(stopping.cancel_stopping, _S.STOPPING),
    (_S.STOPPING, events.JobDeadlineReached): Transition.to(stop_overdue, _S.STOPPING, _S.FAILED),
    **{
        (status, events.AttemptLaunched): Transition.to(submission_accepted_too_late, status)
        for status in (_S.STOPPING, _S.FAILED, _S.CANCELED)
    },
}
"""Transitions by status and event: the function that decides and the statuses it may lead to."""
_OF_INSTANCES = (
    events.NewerTaskSeen,
    events.RankFailed,
    events.InstancesChecked,
    events.PassiveEvidenceCollected,
    events.RepairEnded,
    events.NamedInstancePassed,
    events.InstanceNeedsRepair,
    events.InstanceLeaving,
    events.RankSilent,
    events.RankHeard,
    events.RankExited,
    events.StallReported,
    events.HangSuspected,
    events.ProgressStopped,
    events.TrainingContinued,
    events.RecoveryLimitPassed,
    events.SparesOffered,
    events.SparesRecalled,
    events.SpareSeen,
    events.SpareEnded,
)
"""Events about ranks and instances of ours."""
IGNORED: dict[tuple[JobStatus, type[events.JobEvent]], str] = {
    **{(status, event): "it has no rank of ours" for event in _OF_INSTANCES for status in STATUSES},
    **ignored("no driver of it has ended by itself", events.Diagnosed, *_IN_QUEUE, _S.STOPPING, *_ENDED),
    **ignored("a job on Ray is not suspended", events.SuspendRequested, *STATUSES),
    **ignored("a job on Ray has a fixed number of nodes", events.GrowRequested, *STATUSES),
    **ignored("a job on Ray is not suspended", events.ResumeRequested, *STATUSES),
    **ignored("the job is not in line", events.JobPlaced, *_UNDER_WAY, _S.STOPPING, *_ENDED),
    **ignored("the job is not in line", events.ResourcesShort, *_UNDER_WAY, _S.STOPPING, *_ENDED),
    **ignored(
        "the launch of this attempt is over", events.AttemptLaunched, *_IN_QUEUE, _S.SUBMITTED, _S.RUNNING, _S.SUCCEEDED
    ),
    **ignored(
        "the launch of this attempt is over",
        events.LaunchRefused,
        *_IN_QUEUE,
        _S.SUBMITTED,
        _S.RUNNING,
        _S.STOPPING,
        *_ENDED,
    ),
    **ignored("its driver is known to run", events.AllRanksRunning, _S.RUNNING),
    **ignored("its driver is being stopped", events.AllRanksRunning, _S.STOPPING),
    **ignored("the attempt has ended", events.AllRanksRunning, *_IN_QUEUE, *_ENDED),
    **ignored("a driver on Ray is never held", events.AllRanksHeld, *STATUSES),
    **ignored("the end of its driver is known", events.AllRanksStopped, *_IN_QUEUE, *_ENDED),
    **ignored("this status has a deadline instead", events.JobLookDue, *_IN_QUEUE),
    **ignored("the job has ended", events.JobLookDue, *_ENDED),
    **ignored("the job has ended", events.JobDeadlineReached, *_ENDED),
    **ignored("the job has ended", events.CancelRequested, *_ENDED),
}
"""Reasons why an event changes nothing, by status and event."""
