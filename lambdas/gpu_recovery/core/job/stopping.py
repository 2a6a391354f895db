"""Failing, stopping, and the confirmed end of every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.identifiers import attempt_id, listed
from gpu_recovery.core.job import remedy_outcomes, repeat_offender
from gpu_recovery.core.job.assessment import purpose_of
from gpu_recovery.core.job.completion import (
    counted,
    failed,
    finished,
    is_stable,
    poke_scheduler,
    suspended,
    unless_suspended,
    with_cool_down,
)
from gpu_recovery.core.job.record import CloseCause, Job, JobStatus, StopPurpose
from gpu_recovery.core.notifications import jobs
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, unless_pending
from gpu_recovery.core.task import EndingKind, RankFailure


def rank_failed(job: Job, event: events.RankFailed, given: DecisionContext) -> Step | Ignore:
    failure = event.failure
    step = stop_for(job, failure, given)
    if not job.is_observed(given.policy):
        return step
    if job.failure is not None:
        return Ignore("the failure of this attempt is already recorded, and this job is only observed")
    return record_only(job, step, {"failure": failure})


def record_only(job: Job, step: Step, changes: Mapping[str, Any]) -> Step:
    """In place of `step`, which stops a gang that is only to be observed: its record, with what it would have done."""
    orders = [type(one).__name__ for one in step.commands if isinstance(one, commands.StopAttempt)]
    would = f"it would be {step.status}: {step.reason}; the orders would be {', '.join(orders)}"
    purpose = step.changes.get("stop_purpose")
    if purpose is StopPurpose.DIAGNOSE:
        would += f", then the check of {listed(job.instances)}"
    if purpose is StopPurpose.RELAUNCH:
        would += ", then another place for it"
    return Step(
        job.status, f"observe-only: {would}", changes, (jobs.would_have_acted(job, would, changes.get("failure")),)
    )


def stalled(job: Job, event: events.ProgressStopped, given: DecisionContext) -> Step | Ignore:
    """Every rank runs and none gets on: the gang hangs, and is ended as if a rank had failed."""
    step = stop(job, StopPurpose.DIAGNOSE, event.sentence, given)
    if not job.is_observed(given.policy):
        return step
    if job.reason.startswith("observe-only"):
        return Ignore("that is recorded, and this job is only observed")
    return record_only(job, step, {})


def instance_needs_repair(job: Job, event: events.InstanceNeedsRepair, given: DecisionContext) -> Step | Ignore:
    """One of its instances must be repaired for another's sake: it goes on elsewhere, and that does not count."""
    return _moved(job, CloseCause.REPAIR, event, given)


def instance_leaving(job: Job, event: events.InstanceLeaving, given: DecisionContext) -> Step | Ignore:
    """One of its instances is about to be taken away: better to stop now than to be cut off."""
    return _moved(job, CloseCause.INTERRUPTED, event, given)


def _moved(
    job: Job, cause: CloseCause, event: events.InstanceNeedsRepair | events.InstanceLeaving, given: DecisionContext
) -> Step | Ignore:
    step = relaunch_or_fail(job, cause, event.sentence, given)
    if not job.is_observed(given.policy):
        return step
    if event.instance_id in job.to_leave:
        return Ignore("that is recorded, and this job is only observed")
    return record_only(job, step, {"to_leave": (*job.to_leave, event.instance_id)})


def stop_for(job: Job, failure: RankFailure, given: DecisionContext) -> Step:
    """Stop the gang because of `failure`, for the purpose that its kind has under the policy."""
    purpose, cause = purpose_of(failure, given.policy)
    reason = f"rank {failure.rank} on {failure.instance_id} {failure.ending.sentence}"
    if cause is not None:
        return relaunch_or_fail(job, cause, reason, given, failure, purpose)
    return stop(job, purpose, reason, given, failure=failure)


def relaunch_or_fail(
    job: Job,
    cause: CloseCause,
    reason: str,
    given: DecisionContext,
    failure: RankFailure | None = None,
    purpose: StopPurpose = StopPurpose.RELAUNCH,
) -> Step:
    """Stop for an uncounted cause, unless it has happened too often."""
    most = given.policy.uncounted_relaunches_max
    if job.attempts_uncounted.get(cause, 0) >= most:
        too_often = f"{reason}; this was relaunch {most} for this cause"
        return stop(job, StopPurpose.FAIL, too_often, given, failure=failure)
    return stop(job, purpose, reason, given, cause, failure)


def stop(
    job: Job,
    purpose: StopPurpose,
    reason: str,
    given: DecisionContext,
    cause: CloseCause | None = None,
    failure: RankFailure | None = None,
) -> Step:
    """Order the gang to stop; an attempt that will be diagnosed or relaunched opens an incident."""
    changes: dict[str, Any] = {"stop_purpose": purpose, "stop_cause": cause, "stop_tries": 0, "stop_reason": reason}
    orders: tuple[Any, ...] = (commands.StopAttempt(job.attempt),)
    if failure is not None:
        changes["failure"] = failure
    if purpose is StopPurpose.DIAGNOSE:
        incident = job.incident_id or attempt_id(job.job_id, job.attempt)
        changes["incident_id"] = incident
        data = {"job_id": job.job_id, "attempt": job.attempt, "incident_id": incident, "reason": reason}
        stopped_by = given.now + within(given.policy.stop_timeout_s)
        checked_by = stopped_by + within(given.policy.check_timeout_s + given.policy.poll_interval_s)
        told = jobs.opened(job, incident, reason, failure or job.failure, stopped_by, checked_by)
        orders = (*orders, told, commands.PublishEvent("Recovery Started", data))
    return Step(JobStatus.STOPPING, f"stopping the gang: {reason}", changes, orders)


def ended(job: Job, event: events.AllRanksStopped, given: DecisionContext) -> Step:
    """Every rank ended while none was being stopped: success, or a gang that died all at once."""
    if event.failure is None:
        done = finished(job, JobStatus.SUCCEEDED, f"all {job.spec.nnodes} ranks exited with code 0")
        return replace(done, changes={**done.changes, **remedy_outcomes.remedy_held(job)})
    if job.is_observed(given.policy):
        person = event.failure.ending.kind is EndingKind.STOPPED_BY_PERSON
        reason = f"rank {event.failure.rank} {event.failure.ending.sentence}; observed only"
        return finished(job, JobStatus.CANCELED, reason) if person else failed(job, reason, ())
    stop = stop_for(job, event.failure, given)
    stopped = replace(job, **{"incident_at": job.incident_at or given.now, **stop.changes})
    after = all_stopped(stopped, event, given)
    kept = tuple(order for order in stop.commands if not isinstance(order, commands.StopAttempt))
    return Step(
        after.status,
        f"rank {event.failure.rank} {event.failure.ending.sentence}; {after.reason}",
        {**stop.changes, **after.changes},
        (*kept, *after.commands),
    )


def all_stopped(job: Job, event: events.AllRanksStopped, given: DecisionContext) -> Step:
    """The end of every rank is confirmed: do what the gang was stopped for."""
    match job.stop_purpose:
        case StopPurpose.CANCEL:
            return finished(job, JobStatus.CANCELED, "every rank has ended; the job was stopped by a person")
        case StopPurpose.FAIL:
            return failed(job, job.stop_reason, ())
        case StopPurpose.SUSPEND:
            return suspended(job, given, event.failure)
        case StopPurpose.RELAUNCH:
            return unless_suspended(job, relaunch(job, given))
        case _:
            may_reboot = not given.policy.diagnose_exit_code_1_only or job.attempts_left(given.policy)
            may_reboot = may_reboot and job.repairs < given.policy.job_repairs_max
            policy = given.policy
            since = job.running_at or given.now - within(policy.launch_timeout_s + policy.start_timeout_s)
            ends = repeat_offender.with_first_end(job, event.own_ends, policy)
            suspect = repeat_offender.find_suspect(job, ends, policy)
            request = events.CheckRequested(
                at=given.now,
                job_id=job.job_id,
                attempt=job.attempt,
                may_reboot=may_reboot,
                since=since,
                suspect=suspect.instance_id,
                because=suspect.reason,
                again=suspect.again,
                first=repeat_offender.ended_first(job, ends, policy),
                alone=len(job.instances) == 1,
            )
            reason = f"every rank has ended; checking {len(job.instances)} instance(s)"
            if suspect.instance_id:
                reason = f"{reason}, of which {suspect.instance_id} is suspected: {suspect.reason}"
            orders: tuple[Any, ...] = (commands.CheckInstances(job.attempt, request),)
            if policy.diagnose:
                orders = (commands.GatherEvidence(job.attempt), *orders)
            return Step(JobStatus.DIAGNOSING, reason, {"first_ends": ends}, orders)


def relaunch(job: Job, given: DecisionContext) -> Step:
    """In line again, for a cause that is not counted; a job that never lasts waits a little longer each time."""
    cause = job.stop_cause or CloseCause.INTERRUPTED
    orders = (commands.ReleaseInstances(job.instances, attempt=job.attempt), poke_scheduler(job))
    changes: dict[str, Any] = {"attempts_uncounted": counted(job, cause)}
    if cause is CloseCause.INSUFFICIENT_RESOURCES:
        changes |= {"in_line_at": given.now, "not_before": given.now + within(given.policy.pending_retry_s)}
        return Step(JobStatus.PENDING_RESOURCES, "short of resources; looking again soon", changes, orders)
    why = "an instance needed repair" if cause is CloseCause.REPAIR else "capacity was taken away"
    changes |= with_cool_down(job, given)
    return Step(JobStatus.RECOVERING, f"{why}; waiting for another place (not counted)", changes, orders)


def stop_overdue(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step | Ignore:
    """First ask and stop again, then reboot what does not answer, then give up: GPUs never come back on suspicion."""
    tries = job.stop_tries + 1
    silent = listed(event.unconfirmed)
    changes = {"stop_tries": tries, "deadline_at": given.now + within(given.policy.stop_timeout_s)}
    if tries == 1:
        reason = f"ranks on {silent} have not ended in time: asking ECS and stopping them again"
        return Step(
            JobStatus.STOPPING,
            reason,
            changes,
            (commands.StopAttempt(job.attempt), commands.ObserveAttempt(job.attempt)),
        )
    if tries == 2:
        changes["deadline_at"] = given.now + within(given.policy.reboot_timeout_s + given.policy.verify_timeout_s)
        sentence = f"a rank of {attempt_id(job.job_id, job.attempt)} cannot be stopped"
        repair = events.RepairRequested(at=given.now, job_id=job.job_id, attempt=job.attempt, sentence=sentence)
        orders = tuple(commands.TellInstance(instance, repair) for instance in event.unconfirmed)
        return Step(JobStatus.STOPPING, f"ranks on {silent} cannot be stopped: rebooting to end them", changes, orders)
    return failed(
        job, f"the ranks on {silent} were never confirmed to have ended; their GPUs stay claimed", event.unconfirmed
    )


def rank_not_ended(job: Job, event: events.RepairEnded, given: DecisionContext) -> Step | Ignore:
    """The reboot that was to end a rank has failed: nobody will ever confirm that end."""
    if event.healed or event.gone:
        return Ignore("the end of its rank is reported apart")
    reason = f"a rank was never confirmed to have ended ({event.sentence}); its GPUs stay claimed"
    return failed(job, reason, (event.instance_id,))


def late_end(job: Job, event: events.AllRanksStopped, given: DecisionContext) -> Step | Ignore:
    """The last rank has ended after its job had: now its GPUs can be given back."""
    if not job.claims_kept:
        return Ignore("the end of every rank is known")
    release = commands.ReleaseInstances(job.instances, attempt=job.attempt)
    return Step(
        job.status, f"{job.reason}; every rank has ended since", {"claims_kept": False}, (release, poke_scheduler(job))
    )


def cancel_running(job: Job, event: events.CancelRequested, given: DecisionContext) -> Step:
    step = stop(job, StopPurpose.CANCEL, f"canceled by {event.by}", given)
    return replace(step, changes={**step.changes, **_when(event)}, commands=(*step.commands, *_by_force(job, event)))


def cancel_stopping(job: Job, event: events.CancelRequested, given: DecisionContext) -> Step | Ignore:
    """A forced cancel is obeyed each time: whoever gives it sees ranks that live."""
    if job.stop_purpose is StopPurpose.CANCEL and not event.force:
        return Ignore("it is being stopped for that already")
    how = "by force, " if event.force else ""
    orders = (commands.StopAttempt(job.attempt), *_by_force(job, event)) if event.force else ()
    changes = {"stop_purpose": StopPurpose.CANCEL, **_when(event)}
    return Step(JobStatus.STOPPING, f"canceled {how}by {event.by} while stopping", changes, orders)


def cancel_failed(job: Job, event: events.CancelRequested, given: DecisionContext) -> Step | Ignore:
    """It has ended, but perhaps not each of its ranks: a forced cancel has the agents end what is left."""
    if not (event.force and job.claims_kept):
        return Ignore("the job has ended")
    orders = (commands.StopAttempt(job.attempt), *_by_force(job, event))
    said = f"; what is left of it is ended by force by {event.by}"
    return Step(job.status, job.reason.removesuffix(said) + said, _when(event), orders)


def _when(event: events.CancelRequested) -> dict[str, Any]:
    return {"forced_at": event.at} if event.force else {}


def _by_force(job: Job, event: events.CancelRequested) -> tuple[Any, ...]:
    return unless_pending(job, commands.EndRanks(job.attempt)) if event.force else ()


def cancel_idle(job: Job, event: events.CancelRequested, given: DecisionContext) -> Step:
    return finished(job, JobStatus.CANCELED, f"canceled by {event.by}")


def runtime_over(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step | Ignore:
    reason = f"ran longer than its limit of {job.spec.max_runtime_s} s"
    return stop(job, StopPurpose.FAIL, reason, given)


def observe(job: Job, event: events.JobLookDue, given: DecisionContext) -> Step | Ignore:
    """Perhaps the end of a rank was told and lost. Once an attempt has lasted, what came before it is history."""
    lasted = job.status is JobStatus.RUNNING and is_stable(job, given)
    changes: dict[str, Any] = {"attempts_uncounted": {}, "quick_ends": 0} if lasted else {}
    if lasted and job.left_out:
        changes["left_out"] = {}
    if lasted:
        changes |= remedy_outcomes.remedy_held(job)
    if lasted and given.policy.stable_run_resets_attempts:
        changes |= {"attempts_counted": 0, "repairs": 0, **repeat_offender.after_stable_run(job)}
    return Step(job.status, job.reason, changes, unless_pending(job, commands.ObserveAttempt(job.attempt)))
