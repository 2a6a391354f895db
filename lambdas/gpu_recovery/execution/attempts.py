"""Check and release the instances of an attempt."""

from __future__ import annotations

from dataclasses import replace

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job.diagnosing import skips_checks
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp


def check_instances(kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Ask every instance of the attempt; a rank whose instance was never learnt counts as one that could not tell."""
    order: commands.CheckInstances = pending.command
    if order.attempt != job.attempt or job.status not in (JobStatus.DIAGNOSING, JobStatus.RECOVERING):
        return DONE  # `job.instances` are another attempt's by now, or nobody waits for an answer
    if skips_checks(job):
        return DONE
    messages: list[FollowUp] = []
    conclusion = job.diagnosed
    request = replace(order.request, focus=conclusion.gpus) if conclusion is not None else order.request
    for rank, instance_id in enumerate(job.instances):
        if instance_id:
            messages.append(FollowUp(instance_id, request))
            continue
        unknown = events.Checked(CheckOutcome.INCONCLUSIVE, "the rank never showed on which instance it was")
        kit.store.add_checked(job.job_id, order.attempt, rank, unknown)
    return CommandResult(tuple(messages))


def release(kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Give the instances of the attempt back; a claim stays where the end of a rank is not confirmed."""
    order: commands.ReleaseInstances = pending.command
    kept = set(order.keep_claims_of) | set(_unconfirmed_instances(kit, job) if job.claims_kept else ())

    def give_back(instance_id: str) -> None:
        left_out_at = kit.now if instance_id in order.left_out else None
        kit.store.release_instance(instance_id, job.job_id, instance_id in kept, order.attempt, left_out_at)

    kit.for_each(give_back, filter(None, order.instances))
    return DONE


def _unconfirmed_instances(kit: ExecutionContext, job: Job) -> tuple[str, ...]:
    """The instances of the attempt on which a rank's end is not confirmed: their GPUs are not free."""
    plan = kit.store.load_plan(job.job_id, job.attempt)
    progress = kit.store.load_progress(job.job_id, job.attempt)
    return progress.unconfirmed(plan) if plan is not None and progress is not None else ()
