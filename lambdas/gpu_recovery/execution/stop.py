"""Stop or suspend an attempt: ECS tasks first, then commands for the agents of its instances."""

from __future__ import annotations

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Plan, stopped_event
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import OUR_STOP
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp
from gpu_recovery.execution.unregistered_tasks import instance_of, unregistered_ranks

STOP_GRACE_S = 5
"""Between the signal to leave and the one that nobody survives, where an agent ends a rank (seed 003: five seconds)."""


def stop(kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Stop every task of the attempt; a rank that never had one is entered as ended, unless one may still start."""
    order: commands.StopAttempt = pending.command
    if order.attempt != job.attempt:
        return DONE
    plan = kit.store.load_plan(job.job_id, order.attempt) if job.started_by_person else None
    if plan is not None:
        tasks = tuple(task_id for task_id in plan.task_ids if task_id)
    else:
        tasks = kit.actions.tasks_started_by(attempt_id(job.job_id, order.attempt))
        if not job.launched and (begun := kit.store.load_plan(job.job_id, order.attempt)) is not None:
            # The listing lags behind a launch that has only just been broken off; the plan knows what it started.
            tasks = tuple(dict.fromkeys((*tasks, *(task_id for task_id in begun.task_ids if task_id))))
    kit.actions.stop_tasks(tasks, f"{OUR_STOP}{attempt_id(job.job_id, order.attempt)} is being stopped")
    launching = any(isinstance(other.command, commands.LaunchAttempt) for other in job.commands)
    if job.launched or launching:
        return DONE
    found = _report_unregistered(kit, job, plan) if plan is not None else ()
    return CommandResult(found) if found else _record_never_started(kit, job, tasks)


def _report_unregistered(kit: ExecutionContext, job: Job, plan: Plan) -> tuple[FollowUp, ...]:
    """Ranks of a person's gang whose events were lost: shown to the job, which has them stopped too."""
    messages: list[FollowUp] = []
    for rank, fact in unregistered_ranks(kit.actions, plan):
        instance_id = instance_of(kit.store, kit.actions, fact)
        kit.store.record_task(plan, rank, instance_id, fact.task_id)
        seen = events.RankSeen(
            at=fact.at, attempt=plan.attempt, rank=rank, instance_id=instance_id, gpus=job.spec.gpus_per_node
        )
        messages.append(FollowUp(job.job_id, seen))
    return tuple(messages)


def _record_never_started(kit: ExecutionContext, job: Job, task_ids: tuple[str, ...]) -> CommandResult:
    # An attempt whose launcher died before it began has neither plan nor progress: begun here, it can end.
    blank = Plan(job.job_id, job.attempt, job.instances, task_ids=("",) * len(job.instances))
    plan = kit.store.begin_attempt(blank)
    seen = {fact.rank for fact in kit.actions.describe_tasks(task_ids)}
    known = {rank for rank, task_id in enumerate(plan.task_ids) if task_id}
    messages: list[FollowUp] = []

    def enter(rank: int) -> None:
        addition = kit.store.add_stopped(job.job_id, job.attempt, rank, None)
        news = stopped_event(addition.progress, False, kit.now) if addition else None
        if news is not None:
            messages.append(FollowUp(job.job_id, news))

    kit.for_each(enter, sorted(set(range(len(plan.instances))) - seen - known))
    return CommandResult(tuple(messages))


def suspend(kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Tell rank 0 that it must leave: ECS sends SIGTERM, which `gpu-recovery-run` takes for a notice.

    Where ECS knows no task of it the agent of its instance is asked for the same. Only there: a second SIGTERM ends the
    grace.
    """
    order: commands.SuspendAttempt = pending.command
    if order.attempt != job.attempt or job.status is not JobStatus.SUSPENDING:
        return DONE
    plan = kit.store.load_plan(job.job_id, order.attempt)
    task_id = plan.task_ids[0] if plan is not None and plan.task_ids else ""
    if not task_id:
        started = kit.actions.describe_tasks(kit.actions.tasks_started_by(attempt_id(job.job_id, order.attempt)))
        task_id = next((fact.task_id for fact in started if fact.rank == 0), "")
    name = attempt_id(job.job_id, order.attempt)
    known = bool(task_id) and kit.actions.stop_task(task_id, f"{OUR_STOP}{name} is to make room")
    if not known and job.instances and job.instances[0]:
        grace_s = job.spec.suspend_grace_s
        notice = AgentCommand(f"suspend/{name}", AgentCommandKind.SUSPEND, job.job_id, order.attempt, grace_s)
        kit.store.add_agent_command(job.instances[0], notice)
    return DONE


def end_ranks(kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Leave the order to end the attempt's rank with the agent of each instance; where none was heard of, nobody can.

    The end itself is believed when ECS or a reboot confirms it.
    """
    order: commands.EndRanks = pending.command
    if order.attempt != job.attempt:
        return DONE
    stop_id = f"stop/{attempt_id(job.job_id, order.attempt)}"
    stop = AgentCommand(stop_id, AgentCommandKind.STOP, job.job_id, order.attempt, STOP_GRACE_S)
    kit.for_each(lambda instance_id: kit.store.add_agent_command(instance_id, stop), filter(None, job.instances))
    return DONE
