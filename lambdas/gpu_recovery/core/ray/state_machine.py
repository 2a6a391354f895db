"""The machine of a job on Ray: the record of every job, and fewer ways through it.

A job on Ray is a gang of one rank, the driver, on no instance of ours. So nothing is checked, repaired or suspended, a
diagnosis is only told, and one failure is retried: too few GPUs (seed 004, section 6.3). What is written here is only
where that makes a difference; the fence, the deadlines and the accounts are those of every job.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from gpu_recovery.core import commands, events
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job import launching, stopping
from gpu_recovery.core.job.completion import failed, finished
from gpu_recovery.core.job.record import Job, JobStatus, StopPurpose
from gpu_recovery.core.job.state_machine import decide_by
from gpu_recovery.core.policy import RecoveryPolicy, within
from gpu_recovery.core.state_machine import Decision, DecisionContext, Ignore, Step, Transition, ignored
from gpu_recovery.core.task import EndingKind

STOPS_MAX = 5
"""How often a driver is told to stop before it is given up. One that Ray cannot start stays PENDING whatever it is
told, until Ray's own start timeout (900 s by default) fails it: all stops together take longer than that."""


def decide(job: Job, event: events.JobEvent, policy: RecoveryPolicy, now: datetime) -> Decision[Job]:
    """What `event` makes of a job on Ray. Pure: the same arguments give the same decision."""
    return decide_by(TRANSITIONS, IGNORED, job, event, policy, now)


def placed(job: Job, event: events.JobPlaced, given: DecisionContext) -> Step | Ignore:
    step = launching.placed(job, event, given)
    if isinstance(step, Ignore):
        return step
    return replace(step, reason=f"attempt {job.attempt + 1} goes to the Ray cluster")


def submission_accepted(job: Job, event: events.AttemptLaunched, given: DecisionContext) -> Step:
    reason = f"the Ray cluster has taken {attempt_id(job.job_id, job.attempt)}"
    return Step(JobStatus.SUBMITTED, reason, {"launched": True, "launch_ended": True})


def submission_accepted_too_late(job: Job, event: events.AttemptLaunched, given: DecisionContext) -> Step | Ignore:
    """Ray took it while it was being given up: whatever else is known, that driver must not live."""
    if job.launch_ended:
        return Ignore("the launch of this attempt is over")
    reason = f"{job.reason}; the Ray cluster has taken it meanwhile: stopping it there"
    return Step(job.status, reason, {"launch_ended": True}, (commands.StopAttempt(job.attempt),))


def refused(job: Job, event: events.LaunchRefused, given: DecisionContext) -> Step:
    return failed(job, event.sentence, (), {"launch_ended": True})


def running(job: Job, event: events.AllRanksRunning, given: DecisionContext) -> Step:
    return replace(launching.running(job, event, given), reason=f"the driver of attempt {job.attempt} runs")


def diagnosed(job: Job, event: events.Diagnosed, given: DecisionContext) -> Step | Ignore:
    """Told right before the end that it is about, whose reason it goes into."""
    if job.diagnosed is not None:
        return Ignore("this attempt is diagnosed")
    return Step(job.status, job.reason, {"conclusion": event.conclusion})


def ended(job: Job, event: events.AllRanksStopped, given: DecisionContext) -> Step:
    """The driver has ended unasked. Too few GPUs, and it is in line again; all other failures are final."""
    if event.failure is None:
        return finished(job, JobStatus.SUCCEEDED, f"the driver of attempt {job.attempt} exited with code 0")
    what = f"the driver of attempt {job.attempt} {event.failure.ending.sentence}"
    if event.failure.ending.kind is EndingKind.STOPPED_BY_PERSON:
        return finished(job, JobStatus.CANCELED, what)
    if event.failure.ending.kind is not EndingKind.SHORT_OF_RESOURCES:
        found = f"; {job.diagnosed.summary}" if job.diagnosed is not None and job.diagnosed.decided else ""
        return failed(job, f"{what}{found}", (), {"failure": event.failure})
    after = stopping.ended(job, event, given)
    return replace(after, reason=f"{what}; {after.reason.split('; ', 1)[-1]}")


def launch_overdue(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step:
    reason = f"the Ray cluster did not say within {given.policy.launch_timeout_s} s whether it takes it"
    return stopping.stop(job, StopPurpose.FAIL, reason, given)


def start_overdue(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step:
    wanted = ", ".join(f"{name}: {n}" for name, n in job.spec.entrypoint_resources.items()) or "the default"
    reason = f"the driver did not start within {given.policy.start_timeout_s} s (entrypoint_resources: {wanted})"
    return stopping.stop(job, StopPurpose.FAIL, reason, given)


def stop_overdue(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step:
    """Told again a few times; there is no machine of ours to reboot."""
    name, tries = attempt_id(job.job_id, job.attempt), job.stop_tries + 1
    if tries >= STOPS_MAX:
        return failed(job, f"the Ray cluster never confirmed that {name} has ended: look for it there", ())
    changes = {"stop_tries": tries, "deadline_at": given.now + within(given.policy.stop_timeout_s)}
    reason = f"{name} has not ended in time: telling the Ray cluster again"
    return Step(JobStatus.STOPPING, reason, changes, (commands.StopAttempt(job.attempt),))


_S = JobStatus
_IN_QUEUE = (_S.QUEUED, _S.PENDING_RESOURCES)
_UNDER_WAY = (_S.SUBMITTING, _S.SUBMITTED, _S.RUNNING)
_ENDED = (_S.SUCCEEDED, _S.FAILED, _S.CANCELED)
STATUSES = (*_IN_QUEUE, *_UNDER_WAY, _S.STOPPING, *_ENDED)
"""What a job on Ray may wait for; it is never LOST, SUSPENDING, SUSPENDED, DIAGNOSING or RECOVERING."""
TRANSITIONS: dict[tuple[JobStatus, type[events.JobEvent]], Transition] = {
    **{(status, events.JobPlaced): Transition.to(placed, _S.SUBMITTING) for status in _IN_QUEUE},
    **{
        (status, events.ResourcesShort): Transition.to(launching.resources_short, _S.PENDING_RESOURCES)
        for status in _IN_QUEUE
    },
    **{(status, events.CancelRequested): Transition.to(stopping.cancel_idle, _S.CANCELED) for status in _IN_QUEUE},
    (_S.QUEUED, events.JobDeadlineReached): Transition.to(launching.queued_too_long, _S.FAILED),
    (_S.PENDING_RESOURCES, events.JobDeadlineReached): Transition.to(
        launching.retry_due, _S.PENDING_RESOURCES, _S.FAILED
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
_OF_MACHINES = (
    events.RankSeen,
    events.NewerTaskSeen,
    events.RankFailed,
    events.InstancesChecked,
    events.RepairEnded,
    events.InstanceNeedsRepair,
    events.InstanceLeaving,
    events.RankSilent,
    events.RankHeard,
    events.RankExited,
    events.ProgressStopped,
)
IGNORED: dict[tuple[JobStatus, type[events.JobEvent]], str] = {
    **{(status, event): "it has no rank of ours" for event in _OF_MACHINES for status in STATUSES},
    **ignored("no driver of it has ended by itself", events.Diagnosed, *_IN_QUEUE, _S.STOPPING, *_ENDED),
    **ignored("a job on Ray is not suspended", events.SuspendRequested, *STATUSES),
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
    **ignored("the end of its driver is known", events.AllRanksStopped, *_IN_QUEUE, *_ENDED),
    **ignored("this status has a deadline instead", events.JobLookDue, *_IN_QUEUE),
    **ignored("the job has ended", events.JobLookDue, *_ENDED),
    **ignored("the job has ended", events.JobDeadlineReached, *_ENDED),
    **ignored("the job has ended", events.CancelRequested, *_ENDED),
}
