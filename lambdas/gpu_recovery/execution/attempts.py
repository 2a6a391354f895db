"""Check and release the instances of an attempt."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import with_awaited_flag
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.diagnosing import skips_checks
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import OUR_STOP
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp
from gpu_recovery.execution.held_tasks import end_held_tasks
from gpu_recovery.execution.warm_spares import end_spares

REBOOT_AFTER_TRIES = 10
"""Tries to end the containers of a release after which their instances are rebooted. Most tries are a minute apart."""
HELD_END_RETRY = timedelta(seconds=10)
"""Time after which ECS is asked again about the end of held tasks. Usually the event of the end comes first."""


def check_instances(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Request a health check from every instance of the attempt.

    A rank with an unknown instance gets the result INCONCLUSIVE. Instances that have the request are left out, so a
    function goes on where the function before it ended.
    """
    command: commands.CheckInstances = pending.command
    if command.attempt != job.attempt or job.status not in (JobStatus.DIAGNOSING, JobStatus.RECOVERING):
        return DONE  # `job.instances` belong to another attempt by now, or the job no longer waits for results
    if skips_checks(job):
        return DONE
    messages: list[FollowUp] = []
    diagnosis_result = job.diagnosed
    request = replace(command.request, focus=diagnosis_result.gpus) if diagnosis_result is not None else command.request
    asker = attempt_id(job.job_id, command.attempt)
    records = context.store.load_instances(list(filter(None, job.instances))) if pending.tries > 1 else {}
    for rank, instance_id in enumerate(job.instances):
        if instance_id and (instance_id not in records or asker not in records[instance_id].checked_for):
            messages.append(FollowUp(instance_id, request))
        if instance_id:
            continue
        unknown = events.Checked(CheckOutcome.INCONCLUSIVE, "the instance of the rank is unknown")
        context.store.add_checked(job.job_id, command.attempt, rank, unknown)
    return CommandResult(tuple(messages))


def release(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Release the instances of the attempt. A claim stays if the end of a rank on the instance is not confirmed.

    The command waits for the end of each held task, unless the job keeps the claim of the instance in any case.
    """
    command: commands.ReleaseInstances = pending.command
    instances = dict.fromkeys(filter(None, command.instances))
    if command.attempt is not None and job.started_by_person:
        # A rank may have been recorded after the decision read the plan.
        plan = context.store.load_plan(job.job_id, command.attempt)
        seen_late = set(plan.instances if plan is not None else ()) - {"", *job.instances}
        instances |= dict.fromkeys(sorted(seen_late))
    claims_kept_on = set(command.keep_claims_of) | set(_unconfirmed_instances(context, job) if job.claims_kept else ())
    reason = f"{OUR_STOP}{attempt_id(job.job_id, command.attempt or job.attempt)} does not use this container again"
    warm, told = end_spares(context, job, command, reason)
    held = end_held_tasks(context, job, command, reason) | warm
    awaited = held - claims_kept_on
    told = (*told, *(_reboots(context, job, awaited) if pending.tries > REBOOT_AFTER_TRIES else ()))
    if command.check is not None:
        checked = tuple(FollowUp(name, with_awaited_flag(job, command.check)) for name in instances if name not in held)
        later = context.now + HELD_END_RETRY
        return CommandResult((*told, *checked)) if not held else CommandResult(told, not_before=later)
    claims_kept_on |= held

    def release_one(instance_id: str) -> None:
        left_out_at = context.now if instance_id in command.left_out else None
        context.store.release_instance(
            instance_id, job.job_id, instance_id in claims_kept_on, command.attempt, left_out_at
        )

    context.for_each(release_one, instances)
    return CommandResult(told, not_before=context.now + HELD_END_RETRY if awaited else None)


def _reboots(context: ExecutionContext, job: Job, instance_ids: Collection[str]) -> tuple[FollowUp, ...]:
    """Return the request to reboot each instance whose container cannot be ended. An instance accepts it once.

    The job does not wait for the repair: it runs elsewhere, or has ended.
    """
    requests: list[FollowUp] = []
    for name, record in context.store.load_instances(sorted(instance_ids)).items():
        claim = record.claims.get(job.job_id)
        if claim is not None and attempt_id(job.job_id, claim.attempt) not in record.ended_for:
            sentence = f"a container of {attempt_id(job.job_id, claim.attempt)} cannot be stopped"
            request = events.RepairRequested(
                at=context.now, job_id=job.job_id, attempt=claim.attempt, sentence=sentence, awaited=False
            )
            requests.append(FollowUp(name, request))
    return tuple(requests)


def _unconfirmed_instances(context: ExecutionContext, job: Job) -> tuple[str, ...]:
    """Return the instances on which the end of a rank is not confirmed: their GPUs are not free."""
    plan = context.store.load_plan(job.job_id, job.attempt)
    progress = context.store.load_progress(job.job_id, job.attempt)
    return progress.unconfirmed(plan) if plan is not None and progress is not None else ()
