"""Stopping a gang: rank failures, cancellation, and the confirmed end of every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.identifiers import attempt_id, listed
from gpu_recovery.core.job import hang_stops, named_instances, remedy_outcomes, repeat_offender, warm_spares
from gpu_recovery.core.job.assessment import purpose_of
from gpu_recovery.core.job.completion import (
    failed,
    finished,
    is_stable,
    poke_scheduler,
    retry_delay,
    suspended,
    unless_suspended,
    with_cool_down,
    with_uncounted_relaunch,
)
from gpu_recovery.core.job.denied_launch import queued_again, with_permission
from gpu_recovery.core.job.growth import grown, others, poke_to_grow, refused_on
from gpu_recovery.core.job.held_ranks import keeps_containers, stop_containers
from gpu_recovery.core.job.record import CloseCause, Job, JobStatus, StopPurpose
from gpu_recovery.core.job.stop_timeout import stop_step_s
from gpu_recovery.core.notifications import jobs
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, replace_fields, unless_pending
from gpu_recovery.core.task import EndingKind, RankFailure

REBOOTS_FROM_TRY = 2
"""The deadline of STOPPING, counted from 1, at which instances are rebooted to end ranks that cannot be stopped."""


def rank_failed(job: Job, event: events.RankFailed, context: DecisionContext) -> Step | Ignore:
    """Stop the gang because its first rank failed. If the job is only observed, record the failure."""
    failure = event.failure
    step = stop_for(job, failure, context)
    if not job.is_observed(context.policy):
        return step
    if job.failure is not None:
        return Ignore("the failure of this attempt is already recorded, and this job is only observed")
    return record_only(job, step, {"failure": failure})


def record_only(job: Job, step: Step, changes: Mapping[str, Any]) -> Step:
    """Return the step for an observed job in place of `step`: a record of the commands that are withheld.

    Args:
        step: the step that would stop the gang.
        changes: the facts that the record saves.
    """
    orders = [type(command).__name__ for command in step.commands if isinstance(command, commands.StopAttempt)]
    would = f"it would be {step.status}: {step.reason}; the orders would be {', '.join(orders)}"
    purpose = step.changes.get("stop_purpose")
    if purpose is StopPurpose.DIAGNOSE:
        would += f", then the check of {listed(job.instances)}"
    if purpose is StopPurpose.RELAUNCH:
        would += ", then another place for it"
    return Step(
        job.status, f"observe-only: {would}", changes, (jobs.would_have_acted(job, would, changes.get("failure")),)
    )


def stalled(job: Job, event: events.ProgressStopped, context: DecisionContext) -> Step | Ignore:
    """Stop a gang whose ranks all run without progress. The next steps are those of a failed rank."""
    step = stop(job, StopPurpose.DIAGNOSE, event.sentence, context)
    if not job.is_observed(context.policy):
        return replace(step, changes={**step.changes, **hang_stops.counted(job, event, context)})
    if job.reason.startswith("observe-only"):
        return Ignore("that is recorded, and this job is only observed")
    return record_only(job, step, {})


def instance_needs_repair(job: Job, event: events.InstanceNeedsRepair, context: DecisionContext) -> Step | Ignore:
    """Relaunch the job elsewhere, uncounted: an instance must be repaired for a reason that is not this job's."""
    return _relaunch_elsewhere(job, CloseCause.REPAIR, event, context)


def instance_leaving(job: Job, event: events.InstanceLeaving, context: DecisionContext) -> Step | Ignore:
    """Relaunch the job elsewhere before an interruption takes one of its instances away."""
    return _relaunch_elsewhere(job, CloseCause.INTERRUPTED, event, context)


def _relaunch_elsewhere(
    job: Job, cause: CloseCause, event: events.InstanceNeedsRepair | events.InstanceLeaving, context: DecisionContext
) -> Step | Ignore:
    """Relaunch the job for an uncounted cause. If the job is only observed, record the instance to leave once."""
    if event.instance_id not in job.instances and (spares := warm_spares.spare_on(job, event.instance_id)):
        return warm_spares.released(job, spares, event.sentence)
    step = relaunch_or_fail(job, cause, event.sentence, context, leaving=event.instance_id)
    if not job.is_observed(context.policy):
        return step
    if event.instance_id in job.to_leave:
        return Ignore("that is recorded, and this job is only observed")
    return record_only(job, step, {"to_leave": (*job.to_leave, event.instance_id)})


def stop_for(job: Job, failure: RankFailure, context: DecisionContext) -> Step:
    """Stop the gang because of `failure`, for the purpose that the policy gives to this kind of failure."""
    purpose, cause = purpose_of(failure, context.policy)
    reason = f"rank {failure.rank} on {failure.instance_id} {failure.ending.sentence}"
    if cause is CloseCause.INSUFFICIENT_RESOURCES:
        step = continue_without(job, (failure.instance_id,), reason, context, failure) or relaunch_or_fail(
            job, cause, reason, context, failure, purpose
        )
        step = replace(step, changes={**step.changes, **refused_on(job, (failure.instance_id,), context)})
    elif cause is not None:
        gone = failure.instance_id if failure.ending.kind is EndingKind.INTERRUPTED else ""
        step = relaunch_or_fail(job, cause, reason, context, failure, purpose, leaving=gone)
    else:
        step = stop(job, purpose, reason, context, failure=failure)
    if failure.ending.kind is EndingKind.STOPPED_BY_PERSON:
        ends_as = {StopPurpose.CANCEL: JobStatus.CANCELED, StopPurpose.FAIL: JobStatus.FAILED}
        notice = jobs.stopped_by_person(job, failure, ends_as.get(step.changes["stop_purpose"]))
        step = replace(step, commands=(*step.commands, notice))
    return step


def relaunch_or_fail(
    job: Job,
    cause: CloseCause,
    reason: str,
    context: DecisionContext,
    failure: RankFailure | None = None,
    purpose: StopPurpose = StopPurpose.RELAUNCH,
    leaving: str = "",
) -> Step:
    """Stop the gang for an uncounted cause, or fail the job if the cause has occurred too often.

    Args:
        leaving: the instance that the job must leave, if that is the cause.
    """
    most = context.policy.uncounted_relaunches_max
    if job.attempts_uncounted.get(cause, 0) >= most:
        too_often = f"{reason}; this was relaunch {most} for this cause"
        return stop(job, StopPurpose.FAIL, too_often, context, failure=failure)
    return stop(job, purpose, reason, context, cause, failure, leaving)


def continue_without(
    job: Job, refusing: tuple[str, ...], reason: str, context: DecisionContext, failure: RankFailure | None = None
) -> Step | None:
    """Stop the gang of an elastic job so that it continues at once on its other instances, uncounted.

    Args:
        job: the job, whose attempt has claimed its instances.
        refusing: instances on which a rank does not start.

    Returns:
        None if the width is fixed, if no instance is known to refuse, or if too few others are left.
    """
    least = job.spec.nnodes_min
    if least is None or not refusing or len(others(job, refusing)) < least:
        return None
    step = stop(job, StopPurpose.GROW, reason, context, CloseCause.INSUFFICIENT_RESOURCES, failure)
    return replace(step, changes={**step.changes, "let_go": refusing})


def stop(
    job: Job,
    purpose: StopPurpose,
    reason: str,
    context: DecisionContext,
    cause: CloseCause | None = None,
    failure: RankFailure | None = None,
    leaving: str = "",
) -> Step:
    """Order the gang to stop. A stop for a diagnosis opens an incident and notifies operators."""
    holding = keeps_containers(job, purpose, context.policy, leaving)
    changes: dict[str, Any] = {"stop_purpose": purpose, "stop_cause": cause, "stop_tries": 0, "stop_reason": reason}
    if holding != job.holding:
        changes["holding"] = holding
    if holding and leaving:
        changes["let_go"] = (leaving,)
    orders: tuple[Any, ...] = (commands.StopAttempt(job.attempt, hold=holding),)
    if failure is not None:
        changes["failure"] = failure
    if purpose is StopPurpose.DIAGNOSE:
        incident = job.incident_id or attempt_id(job.job_id, job.attempt)
        changes["incident_id"] = incident
        data = {"job_id": job.job_id, "attempt": job.attempt, "incident_id": incident, "reason": reason}
        if job.recovery_since is None:  # else operators know of this recovery, and will hear how it ends
            changes["recovery_since"] = context.now
            stopped_by = context.now + duration(stop_step_s(job.spec, context.policy))
            checked_by = stopped_by + duration(context.policy.check_timeout_s + context.policy.poll_interval_s)
            is_last = not job.attempts_left(context.policy)
            notice = jobs.recovery_started(
                job,
                incident,
                reason,
                failure or job.failure,
                stopped_by,
                checked_by,
                is_last=is_last,
                reads_evidence=context.policy.diagnose,
                spares_healthy=context.policy.check_in_background and not context.policy.relaunch_on_same_instances,
            )
            orders = (*orders, notice)
        orders = (*orders, commands.PublishEvent("Recovery Started", data))
    return Step(JobStatus.STOPPING, f"stopping the gang: {reason}", changes, orders)


def ended(job: Job, event: events.AllRanksStopped, context: DecisionContext) -> Step:
    """Handle the end of every rank without a stop. Every rank had its task, even if the launch was not reported yet."""
    return with_permission(_after_end(job, event, context), job, context)


def _after_end(job: Job, event: events.AllRanksStopped, context: DecisionContext) -> Step:
    """Return the step after the end of every rank: success, or a gang that failed as a whole."""
    if event.failure is None:
        done = finished(job, JobStatus.SUCCEEDED, f"all {job.width} ranks exited with code 0")
        return replace(done, changes={**done.changes, **remedy_outcomes.remedy_held(job)})
    if job.is_observed(context.policy):
        by_user = event.failure.ending.kind is EndingKind.STOPPED_BY_PERSON
        reason = f"rank {event.failure.rank} {event.failure.ending.sentence}; observed only"
        return finished(job, JobStatus.CANCELED, reason) if by_user else failed(job, reason, ())
    stop_step = stop_for(job, event.failure, context)
    stopped = replace_fields(job, {"incident_at": job.incident_at or context.now, **stop_step.changes})
    after = all_stopped(stopped, event, context)
    remaining = tuple(command for command in stop_step.commands if not isinstance(command, commands.StopAttempt))
    changes = {**stop_step.changes, **after.changes}
    changes.pop("holding", None)  # every rank has ended, so no container is kept
    if stop_step.changes.get("holding"):
        changes.pop("let_go", None)
    return Step(
        after.status,
        f"rank {event.failure.rank} {event.failure.ending.sentence}; {after.reason}",
        changes,
        (*remaining, *after.commands),
    )


def all_stopped(job: Job, event: events.AllRanksStopped, context: DecisionContext) -> Step:
    """Carry out the purpose of the stop, now that the end of every rank is confirmed."""
    step = _after_stop(job, event, context)
    return replace(step, changes={"holding": False, "held_attempt": 0, **step.changes}) if job.holding else step


def _after_stop(job: Job, event: events.AllRanksStopped, context: DecisionContext) -> Step:
    match job.stop_purpose:
        case StopPurpose.CANCEL:
            return finished(job, JobStatus.CANCELED, "every rank has ended; the job was stopped by a user")
        case StopPurpose.FAIL:
            return failed(job, job.stop_reason, ())
        case StopPurpose.SUSPEND:
            return suspended(job, context, event.failure)
        case StopPurpose.GROW:
            return grown(job, context, event.failure)
        case StopPurpose.RELAUNCH:
            return unless_suspended(job, relaunch(job, context))
        case _:
            request = check_request(job, event.own_ends, context)
            ends = repeat_offender.with_first_end(job, event.own_ends, context.policy)
            reason = f"every rank has ended; checking {len(job.instances)} instance(s)"
            if request.suspect:
                reason = f"{reason}, of which {request.suspect} is suspected: {request.because}"
            orders: tuple[Any, ...] = (commands.CheckInstances(job.attempt, request),)
            if context.policy.diagnose:
                orders = (commands.GatherEvidence(job.attempt), *orders)
            return Step(JobStatus.DIAGNOSING, reason, {"first_ends": ends}, orders)


def check_request(job: Job, own_ends: int, context: DecisionContext) -> events.CheckRequested:
    """Return the request to check the instances of the ended attempt.

    Args:
        job: the job.
        own_ends: number of ranks that failed without having been stopped.
        context: the policy and the time.
    """
    policy = context.policy
    may_reboot = not policy.diagnose_exit_code_1_only or job.attempts_left(policy)
    ends = repeat_offender.with_first_end(job, own_ends, policy)
    suspect = repeat_offender.find_suspect(job, ends, policy)
    return events.CheckRequested(
        at=context.now,
        job_id=job.job_id,
        attempt=job.attempt,
        may_reboot=may_reboot and job.repairs < policy.job_repairs_max,
        since=job.running_at or context.now - duration(policy.launch_timeout_s + policy.start_timeout_s),
        suspect=suspect.instance_id,
        because=suspect.reason,
        again=suspect.again,
        first=repeat_offender.ended_first(job, ends, policy),
        alone=len(job.instances) == 1,
    )


def relaunch(job: Job, context: DecisionContext) -> Step:
    """Queue the job again for an uncounted cause, with a cool-down that grows while its runs stay short."""
    cause = job.stop_cause or CloseCause.INTERRUPTED
    orders = (commands.ReleaseInstances(job.instances, attempt=job.attempt), poke_scheduler(job))
    changes: dict[str, Any] = {"attempts_uncounted": with_uncounted_relaunch(job, cause)}
    if cause is CloseCause.PERMISSION and job.denied is not None:
        return queued_again(job, job.denied, changes, context)
    if cause is CloseCause.INSUFFICIENT_RESOURCES:
        changes |= {"in_line_at": context.now, "not_before": context.now + duration(context.policy.pending_retry_s)}
        return Step(JobStatus.PENDING_RESOURCES, "resources are missing; another try follows soon", changes, orders)
    why = "an instance needed repair" if cause is CloseCause.REPAIR else "an instance was reclaimed or restarted"
    if job.failure is not None and job.failure.ending.kind is EndingKind.STOPPED_BY_PERSON:
        why = "a user stopped a rank"
    changes |= with_cool_down(job, context)
    delay = retry_delay(changes, context)
    return Step(JobStatus.RECOVERING, f"{why}; waiting for another place (not counted){delay}", changes, orders)


def stop_overdue(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """First stop the ranks again, then reboot their instances, then fail the job and leave the GPUs claimed.

    GPUs are released only when the end of a rank is confirmed, never on an assumption. The job does not fail while the
    reboots go on, or while the repair budget or another limit holds them back: that may take hours in a large gang.
    A reboot that fails is reported by `RepairEnded`.
    """
    if job.holding:
        return stop_containers(job, "the ranks were not held, or their evidence not read, in time", context)
    tries = job.stop_tries + 1
    unconfirmed, note = listed(event.unconfirmed), _why_not_rebooted(event)
    changes = {"stop_tries": tries, "deadline_at": context.now + duration(stop_step_s(job.spec, context.policy))}
    if tries < REBOOTS_FROM_TRY:
        reason = f"ranks on {unconfirmed} have not ended in time: asking ECS and stopping them again{note}"
        return Step(
            JobStatus.STOPPING,
            reason,
            changes,
            (commands.StopAttempt(job.attempt), commands.ObserveAttempt(job.attempt)),
        )
    if tries == REBOOTS_FROM_TRY:
        changes["deadline_at"] = context.now + duration(
            context.policy.reboot_timeout_s + context.policy.verify_timeout_s
        )
        sentence = f"a rank of {attempt_id(job.job_id, job.attempt)} cannot be stopped"
        order = commands.EndUnconfirmed(job.attempt, context.now, {sentence: ()})
        doing = ": rebooting to end them" if set(event.unconfirmed) - event.withheld.keys() else ""
        return Step(JobStatus.STOPPING, f"ranks on {unconfirmed} cannot be stopped{doing}{note}", changes, (order,))
    if event.unconfirmed and set(event.unconfirmed) <= set(event.under_way):
        doing = ": their reboots go on" if set(event.unconfirmed) - event.withheld.keys() else ""
        reason = f"{len(event.unconfirmed)} instance(s) have ranks that cannot be stopped{doing}{note}"
        later = {"deadline_at": context.now + duration(context.policy.reboot_timeout_s)}
        return Step(JobStatus.STOPPING, reason, later)
    return failed(
        job,
        f"the ranks on {unconfirmed} were never confirmed to have ended; their GPUs stay claimed{note}",
        event.unconfirmed,
    )


def _why_not_rebooted(event: events.JobDeadlineReached) -> str:
    """Return why no reboot ends the ranks of some instances now, as an addition to a reason; "" if none is withheld."""
    if not event.withheld:
        return ""
    first, *others = event.withheld.items()
    more = f"; neither is {listed(name for name, _ in others)}" if others else ""
    return f"; {first[0]} is not rebooted: {first[1]}{more}"


def rank_not_ended(job: Job, event: events.RepairEnded, context: DecisionContext) -> Step | Ignore:
    """Fail the job because the reboot that was to end a rank failed: the end of the rank cannot be confirmed.

    If an operator has quarantined the instance meanwhile, the reboot may still take place, and the operator may end the
    rank. So the job waits for the proof until its own deadline.
    """
    if event.healed or event.gone:
        return Ignore("the end of its rank is reported separately")
    if event.by_operator:
        return Ignore("an operator has quarantined the instance, and its reboot may still take place")
    reason = f"a rank was never confirmed to have ended ({event.sentence}); its GPUs stay claimed"
    return failed(job, reason, (event.instance_id,))


def late_end(job: Job, event: events.AllRanksStopped, context: DecisionContext) -> Step | Ignore:
    """Release the claims of a failed job after the late end of its last rank."""
    if not job.claims_kept:
        return Ignore("the end of every rank is known")
    release = commands.ReleaseInstances(job.instances, attempt=job.attempt)
    return Step(
        job.status, f"{job.reason}; every rank has ended since", {"claims_kept": False}, (release, poke_scheduler(job))
    )


def cancel_running(job: Job, event: events.CancelRequested, context: DecisionContext) -> Step:
    """Stop the gang because a user canceled the job."""
    step = stop(job, StopPurpose.CANCEL, f"canceled by {event.by}", context)
    return replace(
        step,
        changes={**step.changes, **_forced_at(event)},
        commands=(*step.commands, *_end_ranks_if_forced(job, event)),
    )


def cancel_stopping(job: Job, event: events.CancelRequested, context: DecisionContext) -> Step | Ignore:
    """Change the purpose of the stop to cancellation. A forced cancellation stops the ranks again each time.

    A user repeats a forced cancellation because ranks are still alive.
    """
    if job.stop_purpose is StopPurpose.CANCEL and not event.force:
        return Ignore("it is being stopped for that already")
    how = "by force, " if event.force else ""
    changes = {"stop_purpose": StopPurpose.CANCEL, **_forced_at(event)}
    orders = (commands.StopAttempt(job.attempt), *_end_ranks_if_forced(job, event)) if event.force else ()
    if job.holding:
        held = stop_containers(job, "", context)
        changes, orders = {**held.changes, **changes}, orders or held.commands
    return Step(JobStatus.STOPPING, f"canceled {how}by {event.by} while stopping", changes, orders)


def cancel_failed(job: Job, event: events.CancelRequested, context: DecisionContext) -> Step | Ignore:
    """End remaining ranks of a failed job through the node agents, on a forced cancellation."""
    if not (event.force and job.claims_kept):
        return Ignore("the job has ended")
    orders = (commands.StopAttempt(job.attempt), *_end_ranks_if_forced(job, event))
    note = f"; its remaining ranks are ended by force by {event.by}"
    return Step(job.status, job.reason.removesuffix(note) + note, _forced_at(event), orders)


def _forced_at(event: events.CancelRequested) -> dict[str, Any]:
    """Return the change that records the time of a forced cancellation."""
    return {"forced_at": event.at} if event.force else {}


def _end_ranks_if_forced(job: Job, event: events.CancelRequested) -> tuple[Any, ...]:
    """Return the command that ends the ranks through the node agents, if the cancellation is forced."""
    return unless_pending(job, commands.EndRanks(job.attempt)) if event.force else ()


def cancel_idle(job: Job, event: events.CancelRequested, context: DecisionContext) -> Step:
    """Cancel a job that has no ranks."""
    return finished(job, JobStatus.CANCELED, f"canceled by {event.by}")


def runtime_over(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Fail a job that exceeded its time limit."""
    reason = f"ran longer than its limit of {job.spec.max_runtime_s} s"
    return stop(job, StopPurpose.FAIL, reason, context)


def observe(job: Job, event: events.JobLookDue, context: DecisionContext) -> Step | Ignore:
    """Poll ECS, because the report of an end may have been lost. After a stable run, reset the counters."""
    lasted = job.status is JobStatus.RUNNING and is_stable(job, context)
    changes: dict[str, Any] = {"attempts_uncounted": {}, "quick_ends": 0} if lasted else {}
    if lasted:
        changes |= named_instances.after_stable_run(job, context.policy)
        changes |= remedy_outcomes.remedy_held(job) | hang_stops.after_stable_run(job, context)
    if lasted and context.policy.stable_run_resets_attempts:
        changes |= {"attempts_counted": 0, "repairs": 0, **repeat_offender.after_stable_run(job)}
    if lasted and (job.unchecked or job.checks_without_fault):
        changes |= {"unchecked": 0, "unexplained": 0, "checks_without_fault": 0}
    orders = (
        *unless_pending(job, commands.ObserveAttempt(job.attempt)),
        *(warm_spares.poke_if_missing(job, context) or poke_to_grow(job)),
    )
    return Step(job.status, job.reason, changes, orders)
