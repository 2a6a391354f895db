"""What a diagnosis changes: an error that would come again is not tried again, a machine is not blamed for the network.

Once every rank has ended, the witnesses are heard before any machine is checked. The health check stays the judge of
machines; a decided conclusion only spares it where nothing of a machine is in doubt: the program's own error ends the
job at once, with its line; a broken connection, a hung worker or a notice that was lost is started again, without those
instances that are named. Where a machine is named, it alone is checked, beside the job: the others are in no doubt, and
a gang of thousands does not wait for them. Whatever is undecided goes to the check of all.

A witness may be late: its agent was slow, or CloudWatch was. Where the checks have found nothing and nothing else lets
the job go on, everybody is heard once more before it ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.job import remedy_outcomes
from gpu_recovery.core.job.completion import failed, is_stable, poke_scheduler, unless_suspended, with_cool_down
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step

ENDS = (Cause.APPLICATION, Cause.CONFIGURATION)
"""Errors of the program that would come again. Memory and NaN have machines for rivals, which the check rules out."""

END_PERCENT = 75
"""How sure a diagnosis must be to end a job for good: a start in vain costs an attempt, an end in error the run."""


def skips_checks(job: Job) -> bool:
    """Whether the job waits for no check of the last attempt's machines; one that is named has its own order."""
    return job.diagnosed is not None and job.diagnosed.spares


def diagnosed(job: Job, event: events.Diagnosed, given: DecisionContext) -> Step | Ignore:
    """Keep the conclusion, and act on it where it is sure; else the checks, ordered already, take their course."""
    if job.diagnosed is not None and (job.diagnosed.decided or job.heard_again != job.attempt):
        return Ignore("this attempt is diagnosed")
    found = event.conclusion
    ends = _ends(found) and not is_stable(job, given)  # an error of the program shows itself soon
    aside = _background_checks(job, found, given)
    if not (ends or aside or found.allows_restart) or not _may_skip_checks(job, found, given):
        changes = {"conclusion": found, **remedy_outcomes.keep_diagnosis_open(job)}
        return Step(JobStatus.DIAGNOSING, f"{job.reason}; {found.summary}", changes)
    changes = {
        "conclusion": replace(found, spares=True),
        "attempts_counted": job.attempts_counted + 1,
        **remedy_outcomes.failed_again(job, found, (), given),
    }
    if ends:
        return failed(job, f"{found.summary}; it would fail again", (), changes)
    if not job.attempts_left(given.policy):
        last = f"attempt {job.attempt} was the last of {job.attempts_max(given.policy)}: {job.stop_reason}"
        return failed(job, f"{last}; {found.summary}", (), changes)
    # That the gang ended first on a machine that is named is explained by what that is named for.
    first_ends = tuple(one for one in job.first_ends if one.instance_id not in aside)
    changes |= {**restart_changes(job, found, given), "repairing": (), "repairs": job.repairs + len(aside)}
    changes["first_ends"] = first_ends
    how = "no machine is to blame"
    if aside or "left_out" in changes:
        how = f"elsewhere than on {listed(aside or found.instances)} if there is room"
    others = tuple(one for one in job.instances if one not in aside)
    left_out = tuple(one for one in changes.get("left_out", ()) if one in others)
    # No check takes the claims off the others, as it would before it begins.
    release = commands.ReleaseInstances(others, attempt=job.attempt, left_out=left_out)
    orders = (release, *_checks_of(job, found, aside), poke_scheduler(job))
    return unless_suspended(job, Step(JobStatus.RECOVERING, f"{found.summary}; started again, {how}", changes, orders))


def _checks_of(job: Job, found: DiagnosisResult, in_background: tuple[str, ...]) -> tuple[commands.TellInstance, ...]:
    """The check of each that is named, which takes the job's claim off it before it begins."""
    order = _check_to_come(job)
    if order is None:
        return ()
    request = replace(order.request, focus=found.gpus)
    return tuple(commands.TellInstance(one, request) for one in in_background)


def _check_to_come(job: Job) -> commands.CheckInstances | None:
    """The order to check the instances of this attempt; None once it is carried out."""
    every = (one.command for one in job.commands if isinstance(one.command, commands.CheckInstances))
    return next((one for one in every if one.attempt == job.attempt), None)


def restart_changes(job: Job, found: DiagnosisResult | None, given: DecisionContext) -> dict[str, Any]:
    """The changes by which the next attempt comes later, or elsewhere, than the job's own pace would have it."""
    changes = with_cool_down(job, given)
    if found is None:
        return changes
    if found.excluded_instances:
        changes["left_out"] = {
            one: job.instances.index(one) for one in found.excluded_instances if one in job.instances
        }
    if found.allows_restart and found.remedy is Remedy.WAIT:
        pause = given.now + within(given.policy.pending_retry_s)
        changes["not_before"] = max(pause, changes["not_before"] or pause)
    return changes


def gather_again(job: Job) -> Step:
    """The checks have found nothing, and it would end now: whoever was late may still say what it was."""
    reason = f"{job.reason}; the checks found nothing, hearing the witnesses once more"
    return Step(JobStatus.DIAGNOSING, reason, {"heard_again": job.attempt}, (commands.GatherEvidence(job.attempt),))


def _may_skip_checks(job: Job, found: DiagnosisResult, given: DecisionContext) -> bool:
    """Whether the checks may be left out: they have not begun, no machine is suspected, and it is not the second time.

    What was started again for the same cause and has failed again soon is looked into.
    """
    order = _check_to_come(job)
    begun = order is None or bool(order.request.suspect) or job.heard_again == job.attempt
    before = job.conclusion
    again = before is not None and before.spares and before.attempt == job.attempt - 1 and before.cause is found.cause
    return not begun and not (again and not is_stable(job, given))


def _background_checks(job: Job, found: DiagnosisResult, given: DecisionContext) -> tuple[str, ...]:
    """The machines that are to blame for sure, which are checked beside the job: it goes on whatever that finds.

    No more than half of a gang: who blames most of it does not know where it is; and no more than may be repaired for
    the job. After a last attempt nobody is in a hurry, and the machines go to others.
    """
    policy = given.policy
    in_vain = policy.relaunch_on_same_instances or not job.attempts_left(policy)
    if not policy.check_in_background or in_vain or not found.blames_instance:
        return ()
    gang = dict.fromkeys(job.instances)
    named = tuple(one for one in gang if one in found.instances)
    few = 2 * len(named) <= len(gang) and job.repairs + len(named) <= policy.job_repairs_max
    return named if few else ()


def _ends(conclusion: DiagnosisResult) -> bool:
    sure = conclusion.decided and conclusion.confidence >= END_PERCENT
    return sure and conclusion.remedy is Remedy.FAIL and conclusion.cause in ENDS
