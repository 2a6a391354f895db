"""Queueing, placement, launch and start of an attempt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.job import gang_check, recovery_contract, warm_spares
from gpu_recovery.core.job.completion import INCIDENT_CLOSED, failed, finished, poke_scheduler
from gpu_recovery.core.job.denied_launch import notices, with_denial, with_permission
from gpu_recovery.core.job.growth import accepted_by, kept_claims, poke_to_grow, refused_on
from gpu_recovery.core.job.held_ranks import container_hold_s, kept_instances
from gpu_recovery.core.job.record import CloseCause, Job, JobStatus, StopPurpose
from gpu_recovery.core.job.stopping import continue_without, record_only, relaunch_or_fail, stop
from gpu_recovery.core.notifications import jobs
from gpu_recovery.core.policy import duration
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, replace_fields, unless_pending


def placed(job: Job, event: events.JobPlaced, context: DecisionContext) -> Step | Ignore:
    """Start the next attempt on the placed instances, and release the former instances that it does not use."""
    attempt = job.attempt + 1
    kept = set(kept_instances(job)) & set(event.instances)
    keeps_claims = kept or set(kept_claims(job)) & set(event.instances)
    warm = warm_spares.taken(job, attempt, event.instances)
    warm_ranks = sum(spare.taken_by == attempt for spare in warm.get("spares", ()))
    launch = commands.LaunchAttempt(
        attempt,
        event.instances,
        event.epochs,
        event.port_offset,
        event.is_probe,
        hold_s=container_hold_s(job.spec, context.policy),
        in_place_of=job.attempt if keeps_claims else 0,
    )
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
        "passed_since": None,
        "narrow_since": None,
        "check_if_unused": "",
    }
    changes |= warm
    if job.ranks_in_place or kept or warm_ranks:
        changes["ranks_in_place"] = len(kept) + warm_ranks
    if job.let_go:
        changes["let_go"] = ()
    chosen = set(event.instances)
    left = tuple(instance for instance in job.instances if instance not in chosen)
    orders: tuple[Any, ...] = (launch,)
    check = gang_check.check_of_unused(job, chosen, context)
    if any(left):  # other jobs may wait for them
        to_be_checked = _to_be_checked(job, check)
        claimed = tuple(instance for instance in left if instance in to_be_checked)
        orders = (launch, commands.ReleaseInstances(left, claimed, job.attempt), poke_scheduler(job))
    orders = (*orders, *check)
    reason = f"attempt {attempt} placed on {listed(event.instances)}"
    if kept:
        reason = f"{reason}; {len(kept)} of {len(event.instances)} rank(s) are restarted in place"
    if warm_ranks:
        reason = f"{reason}; {warm_ranks} rank(s) start on warm spares"
    return Step(JobStatus.SUBMITTING, reason, changes, orders)


def _to_be_checked(job: Job, orders: Iterable[Any]) -> set[str]:
    """Return the instances with a pending check request, or with one among the new orders.

    The check takes the claim over, so that no other job is placed there before it.
    """
    pending = [*(command.command for command in job.commands), *orders]
    requests = (order for order in pending if isinstance(order, commands.TellInstance))
    told = {request.instance_id for request in requests if isinstance(request.event, events.CheckRequested)}
    releases = (order for order in pending if isinstance(order, commands.ReleaseInstances) and order.check is not None)
    return told.union(*(release.instances for release in releases))


def resources_short(job: Job, event: events.ResourcesShort, context: DecisionContext) -> Step | Ignore:
    """Record the scheduler's rejection reason if it is new."""
    known = event.short_of == job.short_of if event.short_of else event.sentence == job.reason
    passed = job.passed_since is None and event.passed_since is not None
    could_start = job.narrow_since is None and event.narrow_since is not None
    if job.status is not JobStatus.QUEUED and known and not (passed or could_start):
        return Ignore("it is known to be short of that")
    status = job.status if job.status is JobStatus.SUSPENDED else JobStatus.PENDING_RESOURCES
    passed_since = job.passed_since or event.passed_since
    changes = {"short_of": event.short_of, "passed_since": passed_since}
    if could_start:
        changes["narrow_since"] = event.narrow_since
    return Step(status, event.sentence, changes)


def pending_deadline_reached(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Fail the job after its queue timeout. An earlier deadline comes from an older release and is corrected.

    In the older release the deadline of this status was the time of the next try.
    """
    until = (job.in_line_at or job.queued_at) + duration(context.policy.queue_timeout_s)
    if context.now >= until:
        return queued_too_long(job, event, context)
    if job.deadline_at == until:
        return Ignore("the time it may wait for a place is not over")
    return Step(
        JobStatus.PENDING_RESOURCES, job.reason, {"deadline_at": until}, unless_pending(job, poke_scheduler(job))
    )


def poll_queued(job: Job, event: events.JobLookDue, context: DecisionContext) -> Step | Ignore:
    """Wake the scheduler for a queued job."""
    return Step(job.status, job.reason, {}, unless_pending(job, poke_scheduler(job)))


def queued_too_long(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Fail the job because it found no place within its queue timeout."""
    return failed(job, f"found no place within {context.policy.queue_timeout_s} s", ())


def launched(job: Job, event: events.AttemptLaunched, context: DecisionContext) -> Step:
    """Record that every rank has its ECS task."""
    reason = f"all {job.width} ranks of attempt {job.attempt} have their task"
    step = Step(JobStatus.SUBMITTED, reason, {"launched": True, "launch_ended": True})
    step = with_permission(step, job, context)
    if event.ends_hold and not step.commands:
        return replace(step, commands=(poke_scheduler(job),))
    return step


def launched_too_late(
    job: Job, event: events.AttemptLaunched | events.LaunchRefused, context: DecisionContext
) -> Step | Ignore:
    """Stop the tasks of a launch that ended while the gang was being stopped."""
    if job.launch_ended:
        return Ignore("the launch of this attempt is over")
    reason = "the launch ended while the gang was being stopped: stopping what it started"
    told = notices(job, event, context) if isinstance(event, events.LaunchRefused) else ()
    step = Step(JobStatus.STOPPING, reason, {"launch_ended": True}, (commands.StopAttempt(job.attempt), *told))
    is_authorized = event.authorized if isinstance(event, events.LaunchRefused) else True
    return with_permission(step, job, context) if is_authorized else step


def refused(job: Job, event: events.LaunchRefused, context: DecisionContext) -> Step:
    """Stop the gang after a refused launch: fail the job if the refusal is lasting, else launch again.

    An elastic job continues on its other instances if enough are left, even after a lasting refusal: an instance may
    lack an attribute. A refusal that concerns every instance fails the job when too few are left.
    """
    without = continue_without(job, event.instances, event.sentence, context) if event.lacks is None else None
    if without is not None:
        step = without
    elif event.lasting:
        step = stop(job, StopPurpose.FAIL, event.sentence, context)
    elif event.lacks is not None:
        step = stop(job, StopPurpose.RELAUNCH, event.sentence, context, CloseCause.PERMISSION)
        step = with_denial(step, job, event, event.lacks, context)
    else:
        step = relaunch_or_fail(job, CloseCause.INSUFFICIENT_RESOURCES, event.sentence, context)
    step = replace(step, changes={**step.changes, "launch_ended": True})
    if not event.authorized:
        return step
    step = replace(step, changes={**step.changes, **refused_on(job, event.instances, context)})
    return with_permission(step, job, context)


def launch_overdue(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Stop the gang and launch again because the launch exceeded its timeout."""
    return relaunch_or_fail(
        job,
        CloseCause.INSUFFICIENT_RESOURCES,
        f"not every rank was launched within {context.policy.launch_timeout_s} s",
        context,
    )


def start_overdue(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Diagnose a gang that did not start in time; cancel an adopted job of which some ranks were never seen.

    If a rank of an adopted gang was never seen, the system assumes that it misread the user's tasks, and stops watching
    the job. A launched gang that does not start is stopped for a diagnosis.
    """
    reason = f"not every rank was running within {context.policy.start_timeout_s} s"
    unseen = sum(not instance for instance in job.instances)
    if unseen and job.started_by_person:
        reason = f"{unseen} of its {job.spec.nnodes} ranks were never seen"
        step = finished(job, JobStatus.CANCELED, reason)
        return replace(step, commands=(*step.commands, jobs.incompletely_adopted(job, reason)))
    step = stop(job, StopPurpose.DIAGNOSE, reason, context)
    if not job.is_observed(context.policy):
        return step
    recorded = record_only(job, step, {"deadline_at": context.now + duration(context.policy.start_timeout_s)})
    return replace(recorded, commands=()) if recorded.reason == job.reason else recorded


def running(job: Job, event: events.AllRanksRunning, context: DecisionContext) -> Step:
    """Record that every rank runs. An open incident stays open until the training has gone on."""
    reason = f"all {job.width} ranks of attempt {job.attempt} run"
    changes = {"launched": True, "launch_ended": True, "running_at": context.now, **accepted_by(job)}
    if job.incident_id is not None:
        reason = f"relaunched: {reason}"
    runs = replace_fields(job, {"status": JobStatus.RUNNING})
    orders = warm_spares.poke_if_missing(runs, context) or poke_to_grow(runs)
    return with_permission(Step(JobStatus.RUNNING, reason, changes, orders), job, context)


def recovered(job: Job, event: events.TrainingContinued, context: DecisionContext) -> Step | Ignore:
    """Report the recovery and close the incident, because the training of the relaunched attempt has gone on."""
    if job.incident_id is None:
        return recovery_contract.uncounted_recovery(job, event)
    reason = f"recovered: {event.sentence}"
    data: dict[str, Any] = {
        "job_id": job.job_id,
        "attempt": job.attempt,
        "incident_id": job.incident_id,
        "reason": reason,
        "kept_until": None if event.kept_until is None else utc_text(event.kept_until),
    }
    down = recovery_contract.training_continued(job, event)
    bill: tuple[str, ...] = ()
    if down is not None:
        from gpu_recovery.core.notifications.recovery_contract import bill_lines  # noqa: PLC0415 - a rare message

        bill = bill_lines(job.spec, down, event.at)
    orders = (jobs.recovered(job, event.sentence, bill), commands.PublishEvent("Recovery Succeeded", data))
    changes = INCIDENT_CLOSED if down is None else {**INCIDENT_CLOSED, "downtime": down}
    return Step(JobStatus.RUNNING, reason, dict(changes), orders)
