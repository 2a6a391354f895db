"""Acting on a diagnosis result: end the job, restart it, or wait for the health checks.

When every rank has ended, the evidence is collected before any instance is checked. The health check stays the
authority on instances. A decided diagnosis result skips the check only where no instance is in doubt:

- An error of the program itself ends the job at once. The reason quotes the log line.
- So does a cause that only an operator can fix, such as full shared storage.
- A broken connection, a hung worker or an undelivered event restarts the job. The next attempt leaves out the
  instances that the result names.
- If the result finds instances faulty, only these instances are checked, in the background. A gang of thousands does
  not wait for the check of the others.
- An undecided result leads to the check of all instances. So does exhausted memory or a NaN, which an instance can
  cause. The next attempt runs elsewhere if there is room. If it ends for the same cause and its instances pass their
  checks, the job ends.

Evidence may be late, because an agent or CloudWatch was slow. If the checks found nothing and no other reason lets the
job continue, the evidence is collected a second time before the job ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.job import hang_stops, named_instances, remedy_outcomes
from gpu_recovery.core.job.completion import (
    failed,
    is_stable,
    poke_scheduler,
    retry_delay,
    unless_suspended,
    with_blamed,
    with_cool_down,
)
from gpu_recovery.core.job.diagnosis_result import SHARED_STORAGE, DiagnosisResult
from gpu_recovery.core.job.gang_check import check_to_come, without_check
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step

NO_RANKS: Mapping[str, int] = {}
ENDS = (Cause.APPLICATION, Cause.CONFIGURATION)
"""Causes that a restart does not cure: errors of the program that would come again. Memory errors and NaN are not among
them, because an instance can cause these too; the health check rules that out."""

END_PERCENT = 75
"""Confidence in percent that a diagnosis result needs to end a job permanently. A useless restart costs an attempt; a
wrong end costs the whole run."""


def skips_checks(job: Job) -> bool:
    """Return whether the job skips the checks of its last attempt. A suspected instance is still checked separately."""
    return job.unchecked == job.attempt > 0 or (job.diagnosed is not None and job.diagnosed.spares)


def diagnosed(
    job: Job, event: events.Diagnosed, context: DecisionContext, restarted: str = "started again"
) -> Step | Ignore:
    """Record the diagnosis result and act on it if it is certain; otherwise the commanded checks continue.

    Args:
        job: the job.
        event: the diagnosis result.
        context: the policy and the time.
        restarted: how the reason names a restart.
    """
    if job.diagnosed is not None and (job.diagnosed.decided or job.heard_again != job.attempt):
        return Ignore("this attempt is diagnosed")
    diagnosis = _program_fault_again(job, _full_storage_again(job, event.conclusion), context)
    # An error of the program shows itself soon.
    ends = diagnosis.needs_person or (_ends(diagnosis) and not is_stable(job, context))
    in_background = _background_checks(job, diagnosis, context)
    may_skip = _may_skip_checks(job, diagnosis, in_background, context)
    if not (ends or in_background or diagnosis.allows_restart) or not may_skip:
        changes = {"conclusion": diagnosis, **remedy_outcomes.keep_diagnosis_open(job)}
        return Step(JobStatus.DIAGNOSING, f"{job.reason}; {diagnosis.summary}", changes)
    changes = {
        "conclusion": replace(diagnosis, spares=True),
        "attempts_counted": job.attempts_counted + 1,
        **without_check(job, in_background, context),
        **remedy_outcomes.failed_again(job, diagnosis, (), context),
        **hang_stops.explained(job, in_background),
    }
    if diagnosis.excluded_instances:
        changes["blamed"] = with_blamed(job, diagnosis.excluded_instances)
    if ends:
        why = "an operator must fix the cause first" if diagnosis.needs_person else "it would fail again"
        return failed(job, f"{diagnosis.summary}; {why}", (), changes)
    if not job.attempts_left(context.policy):
        last = f"attempt {job.attempt} was the last of {job.attempts_max(context.policy)}: {job.stop_reason}"
        return failed(job, f"{last}; {diagnosis.summary}", (), changes)
    # A first end on a suspected instance is explained by the diagnosis, so it does not count towards a repetition.
    first_ends = tuple(end for end in job.first_ends if end.instance_id not in in_background)
    changes |= {
        **restart_changes(replace(job, first_ends=first_ends), diagnosis, context),
        "repairing": (),
        "repairs": job.repairs + len(in_background),
        "first_ends": first_ends,
    }
    if in_background and diagnosis.blames_instance:
        changes["suspicions"] = named_instances.with_named(job, in_background, context.policy, _suspect(job))
    how = "no instance is faulty"
    if in_background or "left_out" in changes:
        how = f"elsewhere than on {listed(in_background or diagnosis.instances)} if there is room"
    others = tuple(instance for instance in job.instances if instance not in in_background)
    left_out = tuple(instance for instance in changes.get("left_out", ()) if instance in others)
    # The other instances are not checked, so no check takes their claims over.
    release = commands.ReleaseInstances(others, attempt=job.attempt, left_out=left_out)
    orders = (release, *_checks_of(job, diagnosis, in_background), poke_scheduler(job))
    return unless_suspended(
        job,
        Step(
            JobStatus.RECOVERING,
            f"{diagnosis.summary}; {restarted}, {how}{retry_delay(changes, context)}",
            changes,
            orders,
        ),
    )


def _checks_of(
    job: Job, diagnosis: DiagnosisResult, in_background: tuple[str, ...]
) -> tuple[commands.TellInstance, ...]:
    """Return the commands that check each suspected instance.

    The instance record drops the job's claim before the check starts.
    """
    order = check_to_come(job)
    if order is None:
        return ()
    request = replace(order.request, focus=diagnosis.gpus, named=diagnosis.blames_instance)
    return tuple(commands.TellInstance(instance, request) for instance in in_background)


def restart_changes(
    job: Job, diagnosis: DiagnosisResult | None, context: DecisionContext, besides: Mapping[str, int] = NO_RANKS
) -> dict[str, Any]:
    """Return the changes that delay the next attempt or place it elsewhere: cool-down and excluded instances.

    There is no cool-down after a failure that is certainly the fault of an instance, because the next attempt leaves
    the instance out. It stays if such a fault was named on several instances under one rank: then the program is the
    probable cause.

    Args:
        job: the job after the end of its attempt.
        diagnosis: the diagnosis result; None if there is none.
        context: the policy and the time.
        besides: instances to leave out besides those of the diagnosis, each with its rank.
    """
    changes = with_cool_down(job, context)
    elsewhere: tuple[str, ...] = ()
    if diagnosis is not None:
        doubted = any(one.named and one.elsewhere for one in job.suspicions)
        if changes["not_before"] is not None and diagnosis.blames_instance and not doubted:
            changes = {"quick_ends": job.quick_ends, "not_before": None}
        # After an error of the program, the retry on other instances shows that no instance causes it.
        elsewhere = diagnosis.excluded_instances or (diagnosis.instances if diagnosis.blames_program else ())
        if diagnosis.allows_restart and diagnosis.remedy is Remedy.WAIT:
            pause = context.now + duration(context.policy.pending_retry_s)
            changes["not_before"] = max(pause, changes["not_before"] or pause)
    if elsewhere or besides:
        ranks = {name: job.instances.index(name) for name in elsewhere if name in job.instances}
        changes |= named_instances.left_out(job, {**ranks, **besides}, context.policy)
    return changes


def gather_again(job: Job) -> Step:
    """Collect the evidence a second time before the job ends, because it may have been late.

    The checks found nothing, so the job would end now.
    """
    reason = f"{job.reason}; the checks found nothing; reading the evidence once more"
    return Step(JobStatus.DIAGNOSING, reason, {"heard_again": job.attempt}, (commands.GatherEvidence(job.attempt),))


def _suspect(job: Job) -> str:
    """Return the repeat offender of this attempt; "" if there is none."""
    order = check_to_come(job)
    return order.request.suspect if order is not None else ""


def _may_skip_checks(
    job: Job, diagnosis: DiagnosisResult, in_background: tuple[str, ...], context: DecisionContext
) -> bool:
    """Return whether the checks may be skipped: they have not begun, and the cause is new.

    If the job was restarted for the same cause in the attempt before and failed again soon, its instances are checked.
    A repeat offender is checked and repaired in the background only if the diagnosis names it, too.
    """
    suspected = _suspect(job) not in ("", *in_background)
    begun = check_to_come(job) is None or suspected or job.heard_again == job.attempt
    again = _is_same_fault(job, diagnosis) and not is_stable(job, context)
    return not begun and (diagnosis.needs_person or not again)


def _is_same_fault(job: Job, diagnosis: DiagnosisResult) -> bool:
    """Return whether the attempt before was restarted for this cause, and on suspicion of one of these instances.

    Two instances with a fault of their own are two faults. A cause that suspects no instance is compared alone.
    """
    before = job.conclusion
    if before is None or not before.spares or before.attempt != job.attempt - 1 or before.cause is not diagnosis.cause:
        return False
    if not (before.suspects_instance and diagnosis.suspects_instance):
        return True
    return bool(set(before.instances) & set(diagnosis.instances))


def _background_checks(job: Job, diagnosis: DiagnosisResult, context: DecisionContext) -> tuple[str, ...]:
    """Return the instances to check in the background while the job restarts without them; () if none.

    The instances are certainly faulty, and the job continues with any check result. At most half of a gang
    is checked in the background, because a result that finds most of a gang faulty has not located the fault. The
    repairs allowed for the job are a second limit. After the last attempt there is no restart, and so no background
    check.
    """
    policy = context.policy
    in_vain = policy.relaunch_on_same_instances or not job.attempts_left(policy)
    if not policy.check_in_background or in_vain or not diagnosis.suspects_instance:
        return ()
    gang = dict.fromkeys(job.instances)
    named = tuple(instance for instance in gang if instance in diagnosis.instances)
    few = 2 * len(named) <= len(gang) and job.repairs + len(named) <= policy.job_repairs_max
    return named if few else ()


def _full_storage_again(job: Job, diagnosis: DiagnosisResult) -> DiagnosisResult:
    """Return the result with the remedy PERSON if the attempt before ended for full storage, too.

    One retry on another machine shows whether the storage is the own storage of an instance.
    """
    before = job.conclusion
    is_full = diagnosis.decided and _is_own_storage_full(diagnosis)
    if not is_full or before is None or before.attempt >= job.attempt or not _is_own_storage_full(before):
        return diagnosis
    elsewhere = not set(before.instances) & set(diagnosis.instances)
    told = f"attempt {before.attempt} ended for full storage on {listed(before.instances)}"
    return replace(
        diagnosis,
        remedy=Remedy.PERSON,
        where=SHARED_STORAGE if elsewhere else diagnosis.where,
        instances=() if elsewhere else diagnosis.instances,
        sentence=f"{diagnosis.sentence}; {told}, too",
    )


def _program_fault_again(job: Job, diagnosis: DiagnosisResult, context: DecisionContext) -> DiagnosisResult:
    """Return the result as repeated if this attempt ended soon for the error of the program that ended the last one.

    One restart shows whether chance caused the error. The checks still come first, because an instance may cause it.
    """
    before = job.conclusion
    again = before is not None and before.attempt == job.attempt - 1 and before.cause is diagnosis.cause
    if before is None or not (again and before.blames_program and diagnosis.blames_program) or is_stable(job, context):
        return diagnosis
    told = f"attempt {before.attempt} ended for the same cause"
    return replace(diagnosis, repeated=True, sentence=f"{diagnosis.sentence}; {told}")


def _is_own_storage_full(diagnosis: DiagnosisResult) -> bool:
    return diagnosis.cause is Cause.STORAGE and diagnosis.remedy is Remedy.LEAVE_OUT


def _ends(conclusion: DiagnosisResult) -> bool:
    """Return whether the diagnosis result is certain enough, and its cause final enough, to end the job."""
    sure = conclusion.decided and conclusion.confidence >= END_PERCENT
    return sure and conclusion.remedy is Remedy.FAIL and conclusion.cause in ENDS
