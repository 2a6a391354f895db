"""Recovery after the gang has ended: checks, assessment, wait for healthy instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpu_recovery.core import events
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.job import hang_stops, remedy_outcomes, repeat_offender
from gpu_recovery.core.job.assessment import assess
from gpu_recovery.core.job.completion import failed, poke_scheduler, retry_delay, unless_suspended, with_blamed
from gpu_recovery.core.job.diagnosing import gather_again, restart_changes
from gpu_recovery.core.job.diagnosis_result import INSTANCES_MAX, DiagnosisResult
from gpu_recovery.core.job.gang_check import checked_gang
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step

CHECK_PERCENT = 92
"""Confidence in percent in a fault that a health check found: what the rules give to a failed check and a crash."""


def checks_complete(job: Job, event: events.InstancesChecked, context: DecisionContext) -> Step | Ignore:
    """Assess the complete checks. If the job would end in doubt, collect the evidence a second time first."""
    if job.heard_again == job.attempt and not event.heard_again:
        return Ignore("its evidence is being read again")
    in_doubt = context.policy.diagnose and assess(job, event.results, context.policy).in_doubt
    return gather_again(job) if in_doubt and not event.heard_again else after_checks(job, event.results, context)


def checks_overdue(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Assess the checks that have answered until the deadline. Checks that began late have their own deadlines."""
    if event.under_way:
        later = {"deadline_at": context.now + duration(context.policy.poll_interval_s)}
        return Step(JobStatus.DIAGNOSING, f"{len(event.under_way)} check(s) began late and go on", later)
    return after_checks(job, event.results, context)


def after_checks(job: Job, results: Mapping[str, events.Checked], context: DecisionContext) -> Step:
    """Assess the checks: the job continues on healthy instances, or it fails."""
    assessment = assess(job, results, context.policy)
    changes = {
        "attempts_counted": job.attempts_counted + 1,
        **repeat_offender.updated_suspicions(job, results, context.policy),
    }
    blamed = [instance for instance, result in results.items() if result.outcome.blames_hardware]
    suspected = [instance for instance, result in results.items() if result.outcome is CheckOutcome.SUSPECTED]
    changes["blamed"] = with_blamed(job, (*blamed, *suspected))
    changes |= checked_gang(job, results)
    changes |= remedy_outcomes.failed_again(job, job.diagnosed, blamed, context) | hang_stops.explained(job, blamed)
    found = _found_by_checks(job, results) if context.policy.diagnose else None
    if found is not None:
        changes["conclusion"] = found
    note = repeat_offender.suspicion_note(job, changes["suspicions"])
    if not assessment.continues:
        return failed(job, assessment.reason + note, (), changes, results)
    diagnosis = job.diagnosed
    if diagnosis is not None and not blamed and (diagnosis.allows_restart or diagnosis.suspects_instance):
        changes["conclusion"] = replace(diagnosis, followed=True)
    failure, without_cause = job.failure, dict[str, int]()
    if failure is not None and failure.ending.is_preflight and failure.instance_id not in blamed:
        without_cause[failure.instance_id] = failure.rank
    elsewhere = restart_changes(job, job.diagnosed, context, without_cause)
    delay = retry_delay(elsewhere, context)
    # During a delay the job waits for healthy instances only while its own are repaired.
    reason = assessment.reason + (assessment.waits if assessment.repairing or not delay else "") + delay + note
    if diagnosis is not None and diagnosis.suspects_instance and not blamed and elsewhere.get("left_out"):
        left_out = listed(tuple(elsewhere["left_out"]))
        reason += f"; {left_out}: suspected, and used last until a stable run with it"
    recovering = {
        **changes,
        **elsewhere,
        "repairing": assessment.repairing,
        "repairs": job.repairs + len(assessment.repairing),
    }
    return unless_suspended(job, Step(JobStatus.RECOVERING, reason, recovering, (poke_scheduler(job),)))


def _found_by_checks(job: Job, results: Mapping[str, events.Checked]) -> DiagnosisResult | None:
    """Return the fault that the checks found as the diagnosis result of the attempt.

    None if they found none, or if the evidence had decided the cause before.
    """
    kinds = (CheckOutcome.REBOOT, CheckOutcome.REPLACE)
    faulty = tuple(name for name in dict.fromkeys(job.instances) if name in results and results[name].outcome in kinds)
    if not faulty or (job.diagnosed is not None and job.diagnosed.decided):
        return None
    quoted = job.diagnosed.quoted if job.diagnosed is not None else ""
    where = f"instance {listed(faulty)}"[:200]
    sentence = results[faulty[0]].summary[:500]
    return DiagnosisResult(
        job.attempt,
        Cause.GPU_FAULT,
        where,
        faulty[:INSTANCES_MAX],
        Remedy.CHECK,
        CHECK_PERCENT,
        decided=True,
        sentence=sentence,
        quoted=quoted,
    )


def repair_ended_early(job: Job, event: events.RepairEnded, context: DecisionContext) -> Step | Ignore:
    """Record a repair that ended while other checks still run."""
    if event.instance_id in job.repaired:
        return Ignore("this repair is known to have ended")
    changes = {"repaired": {**job.repaired, event.instance_id: event.healed}}
    return Step(JobStatus.DIAGNOSING, f"{event.sentence}; other checks still run", changes)


def repair_ended(job: Job, event: events.RepairEnded, context: DecisionContext) -> Step | Ignore:
    """Wait no longer for the instance. If it is not healed and the job may use no other instance, fail the job."""
    if event.instance_id not in job.repairing:
        return Ignore("the job does not wait for this instance")
    rest = tuple(i for i in job.repairing if i != event.instance_id)
    if not event.healed and context.policy.relaunch_on_same_instances:
        return failed(job, event.sentence, ())
    return Step(JobStatus.RECOVERING, event.sentence, {"repairing": rest}, (poke_scheduler(job),))


def recovery_overdue(job: Job, event: events.JobDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Fail the job because it got no healthy instances within the recovery timeout, and none of its own is repaired."""
    if event.under_way:
        later = {"deadline_at": context.now + duration(context.policy.reboot_timeout_s)}
        return Step(JobStatus.RECOVERING, f"the repair of {len(event.under_way)} instance(s) goes on", later)
    return failed(job, f"no healthy instances were available within {context.policy.recover_timeout_s} s", ())
