"""After the gang has ended: the checks, the judgement, the wait for healthy instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpu_recovery.core import events
from gpu_recovery.core.job import remedy_outcomes, repeat_offender
from gpu_recovery.core.job.assessment import assess
from gpu_recovery.core.job.completion import failed, poke_scheduler, unless_suspended
from gpu_recovery.core.job.diagnosing import gather_again, restart_changes
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step


def checks_complete(job: Job, event: events.InstancesChecked, given: DecisionContext) -> Step | Ignore:
    """The last check is in. Where it would end now, and only for want of a reason not to, the witnesses come first."""
    if job.heard_again == job.attempt and not event.heard_again:
        return Ignore("its witnesses are being heard again")
    in_doubt = given.policy.diagnose and assess(job, event.results, given.policy).in_doubt
    return gather_again(job) if in_doubt and not event.heard_again else after_checks(job, event.results, given)


def checks_overdue(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step | Ignore:
    return after_checks(job, event.results, given)


def after_checks(job: Job, results: Mapping[str, events.Checked], given: DecisionContext) -> Step:
    """The judgement: on to healthy instances, or the end."""
    assessment = assess(job, results, given.policy)
    changes = {
        "attempts_counted": job.attempts_counted + 1,
        **repeat_offender.updated_suspicions(job, results, given.policy),
    }
    blamed = [one for one, found in results.items() if found.outcome.blames_hardware]
    changes |= remedy_outcomes.failed_again(job, job.diagnosed, blamed, given)
    reason = assessment.reason + repeat_offender.suspicion_note(job, changes["suspicions"])
    if not assessment.continues:
        return failed(job, reason, (), changes, results)
    found = job.diagnosed
    if found is not None and not blamed and (found.allows_restart or found.blames_instance):
        changes["conclusion"] = replace(found, followed=True)
    recovering = {
        **changes,
        **restart_changes(job, job.diagnosed, given),
        "repairing": assessment.repairing,
        "repairs": job.repairs + len(assessment.repairing),
    }
    return unless_suspended(job, Step(JobStatus.RECOVERING, reason, recovering, (poke_scheduler(job),)))


def repair_ended_early(job: Job, event: events.RepairEnded, given: DecisionContext) -> Step | Ignore:
    if event.instance_id in job.repaired:
        return Ignore("this repair is known to have ended")
    changes = {"repaired": {**job.repaired, event.instance_id: event.healed}}
    return Step(JobStatus.DIAGNOSING, f"{event.sentence}; other checks still run", changes)


def repair_ended(job: Job, event: events.RepairEnded, given: DecisionContext) -> Step | Ignore:
    if event.instance_id not in job.repairing:
        return Ignore("the job does not wait for this instance")
    rest = tuple(i for i in job.repairing if i != event.instance_id)
    if not event.healed and given.policy.relaunch_on_same_instances:
        return failed(job, event.sentence, ())
    return Step(JobStatus.RECOVERING, event.sentence, {"repairing": rest}, (poke_scheduler(job),))


def recovery_overdue(job: Job, event: events.JobDeadlineReached, given: DecisionContext) -> Step | Ignore:
    return failed(job, f"no healthy instances were to be had within {given.policy.recover_timeout_s} s", ())
