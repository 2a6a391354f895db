"""Getting in line, being placed, launched and started."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.job.completion import failed, finished, poke_scheduler
from gpu_recovery.core.job.record import CloseCause, Job, JobStatus, StopPurpose
from gpu_recovery.core.job.stopping import record_only, relaunch_or_fail, stop
from gpu_recovery.core.notifications import jobs
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, unless_pending


def placed(job: Job, event: events.JobPlaced, given: DecisionContext) -> Step | Ignore:
    attempt = job.attempt + 1
    launch = commands.LaunchAttempt(attempt, event.instances, event.epochs, event.port_offset)
    changes = {
        "attempt": attempt,
        "instances": event.instances,
        "stop_purpose": None,
        "stop_cause": None,
        "stop_tries": 0,
        "stop_reason": "",
        "failure": None,
        "repairing": (),
        "repaired": {},
        "launched": False,
        "launch_ended": False,
        "started_by_person": False,
        "not_before": None,
        "running_at": None,
        "to_leave": (),
        "silent": (),
        "heard": {},
        "found_dead": (),
        "suspended_for": "",
        "short_of": "",
    }
    chosen = set(event.instances)
    left = tuple(one for one in job.instances if one not in chosen)
    orders: tuple[Any, ...] = (launch,)
    if any(left):  # others may have waited for them
        to_be_checked = _to_be_checked(job)
        claimed = tuple(one for one in left if one in to_be_checked)
        orders = (launch, commands.ReleaseInstances(left, claimed, job.attempt), poke_scheduler(job))
    return Step(JobStatus.SUBMITTING, f"attempt {attempt} placed on {listed(event.instances)}", changes, orders)


def _to_be_checked(job: Job) -> set[str]:
    """The instances that may have to hear of their check yet: it takes the claim off them, and nobody comes before."""
    told = (one.command for one in job.commands if isinstance(one.command, commands.TellInstance))
    return {one.instance_id for one in told if isinstance(one.event, events.CheckRequested)}


def resources_short(job: Job, event: events.ResourcesShort, given: DecisionContext) -> Step | Ignore:
    known = event.short_of == job.short_of if event.short_of else event.sentence == job.reason
    if job.status is not JobStatus.QUEUED and known:
        return Ignore("it is known to be short of that")
    status = job.status if job.status is JobStatus.SUSPENDED else JobStatus.PENDING_RESOURCES
    return Step(status, event.sentence, {"short_of": event.short_of})


def retry_due(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step | Ignore:
    """Given up, unless an older release kept the record, whose deadline was the next try."""
    until = (job.in_line_at or job.queued_at) + within(given.policy.queue_timeout_s)
    if given.now >= until:
        return queued_too_long(job, event, given)
    if job.deadline_at == until:
        return Ignore("the time it may wait for a place is not over")
    return Step(
        JobStatus.PENDING_RESOURCES, job.reason, {"deadline_at": until}, unless_pending(job, poke_scheduler(job))
    )


def poll_queued(job: Job, event: events.JobLookDue, given: DecisionContext) -> Step | Ignore:
    return Step(job.status, job.reason, {}, unless_pending(job, poke_scheduler(job)))


def queued_too_long(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step | Ignore:
    return failed(job, f"found no place within {given.policy.queue_timeout_s} s", ())


def launched(job: Job, event: events.AttemptLaunched, given: DecisionContext) -> Step:
    reason = f"all {job.spec.nnodes} ranks of attempt {job.attempt} have their task"
    return Step(JobStatus.SUBMITTED, reason, {"launched": True, "launch_ended": True})


def launched_too_late(
    job: Job, event: events.AttemptLaunched | events.LaunchRefused, given: DecisionContext
) -> Step | Ignore:
    if job.launch_ended:
        return Ignore("the launch of this attempt is over")
    reason = "the launch ended while the gang was being stopped: stopping what it started"
    return Step(JobStatus.STOPPING, reason, {"launch_ended": True}, (commands.StopAttempt(job.attempt),))


def refused(job: Job, event: events.LaunchRefused, given: DecisionContext) -> Step:
    if event.lasting:
        step = stop(job, StopPurpose.FAIL, event.sentence, given)
    else:
        step = relaunch_or_fail(job, CloseCause.INSUFFICIENT_RESOURCES, event.sentence, given)
    return replace(step, changes={**step.changes, "launch_ended": True})


def launch_overdue(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step | Ignore:
    return relaunch_or_fail(
        job,
        CloseCause.INSUFFICIENT_RESOURCES,
        f"not every rank was launched within {given.policy.launch_timeout_s} s",
        given,
    )


def start_overdue(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step | Ignore:
    """A gang of ours that does not start is broken; a person's of which ranks never showed is only misunderstood."""
    reason = f"not every rank was running within {given.policy.start_timeout_s} s"
    unseen = sum(not instance for instance in job.instances)
    if unseen and job.started_by_person:
        reason = f"{unseen} of its {job.spec.nnodes} ranks were never seen"
        step = finished(job, JobStatus.CANCELED, reason)
        return replace(step, commands=(*step.commands, jobs.incompletely_adopted(job, reason)))
    step = stop(job, StopPurpose.DIAGNOSE, reason, given)
    if not job.is_observed(given.policy):
        return step
    told = record_only(job, step, {"deadline_at": given.now + within(given.policy.start_timeout_s)})
    return replace(told, commands=()) if told.reason == job.reason else told


def running(job: Job, event: events.AllRanksRunning, given: DecisionContext) -> Step:
    reason = f"all {job.spec.nnodes} ranks of attempt {job.attempt} run"
    changes = {"launched": True, "launch_ended": True, "running_at": given.now}
    if job.incident_id is None:
        return Step(JobStatus.RUNNING, reason, changes)
    data = {"job_id": job.job_id, "attempt": job.attempt, "incident_id": job.incident_id, "reason": reason}
    orders = (jobs.recovered(job), commands.PublishEvent("Recovery Succeeded", data))
    return Step(JobStatus.RUNNING, f"recovered: {reason}", {**changes, "incident_id": None}, orders)
