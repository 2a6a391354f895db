"""Launch an attempt: claim every instance, then start every rank."""

from __future__ import annotations

from dataclasses import replace

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.instance.record import Claim
from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp
from gpu_recovery.ports.values import Refusal


def launch(kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Claim every instance, then start every rank. Checked against the record first: it may no longer be wanted.

    One instance that is taken ends the launch, and by then others are claimed: the job gives them all back.
    """
    order: commands.LaunchAttempt = pending.command
    if job.status is not JobStatus.SUBMITTING or job.attempt != order.attempt:
        return CommandResult((_refused(kit, job, order.attempt, "the launch was given up"),))
    plan = kit.store.begin_attempt(
        Plan(job.job_id, order.attempt, order.instances, order.epochs, order.port_offset, ("",) * len(order.instances))
    )
    taken = _unclaimed_ranks(kit, job, plan, order.port_offset)
    if taken:
        first = plan.instances[min(taken)]
        return CommandResult((_refused(kit, job, order.attempt, f"{first} was no longer free"),))
    answers = kit.actions.run_ranks(job, plan)
    started = tuple("" if isinstance(answer, Refusal) else answer for answer in answers)
    kit.store.record_tasks(replace(plan, task_ids=started))
    refusals = [(rank, answer) for rank, answer in enumerate(answers) if isinstance(answer, Refusal)]
    if refusals:
        rank, refusal = refusals[0]
        sentence = f"ECS refused rank {rank} on {plan.instances[rank]}: {refusal.reason}"
        return CommandResult((_refused(kit, job, order.attempt, sentence, any(r.lasting for _, r in refusals)),))
    return CommandResult((FollowUp(job.job_id, events.AttemptLaunched(at=kit.now, attempt=order.attempt)),))


def _unclaimed_ranks(kit: ExecutionContext, job: Job, plan: Plan, port_offset: int) -> list[int]:
    """Claim the instance of every rank; the ranks, in any order, whose instance is not free any more."""
    taken: list[int] = []

    def claim(wanted: tuple[int, str, int]) -> None:
        rank, instance_id, epoch = wanted
        one = Claim(plan.attempt, job.spec.gpus_per_node, port_offset, rank, epoch)
        if not kit.store.claim_instance(instance_id, job.job_id, one, epoch):
            taken.append(rank)

    kit.for_each(claim, list(zip(range(len(plan.instances)), plan.instances, plan.epochs, strict=True)))
    return taken


def _refused(kit: ExecutionContext, job: Job, attempt: int, sentence: str, lasting: bool = False) -> FollowUp:
    event = events.LaunchRefused(at=kit.now, attempt=attempt, sentence=sentence, lasting=lasting)
    return FollowUp(job.job_id, event)


def claim_adopted_instance(kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Claim the instance of a person's rank, unless the gang has ended: nobody would take such a claim off again."""
    order: commands.ClaimInstance = pending.command
    if not _may_run(job, order.attempt):
        return DONE
    kit.store.claim_instance(order.instance_id, job.job_id, Claim(order.attempt, order.gpus, rank=order.rank), None)
    after = kit.store.load_job(job.job_id)
    if after is None or not _may_run(after, order.attempt):
        kit.store.release_instance(order.instance_id, job.job_id, False, order.attempt)
    return DONE


def _may_run(job: Job, attempt: int) -> bool:
    return job.attempt == attempt and job.status in LIVE
