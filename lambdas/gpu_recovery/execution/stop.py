"""Stop or suspend an attempt: through ECS first, then through the agents of its instances, then by reboots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Plan, RankTask, stopped_event, with_awaited_flag
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind, Heartbeat, running_log_id
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.record import Claim, Instance
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import OUR_STOP, LastStatus
from gpu_recovery.execution.context import (
    DONE,
    RANKS_AT_ONCE,
    UNFINISHED,
    CommandResult,
    ExecutionContext,
    FollowUp,
)
from gpu_recovery.execution.launch import claim_for_adopted
from gpu_recovery.execution.task_ownership import instance_of, tasks_of_ranks

STOP_GRACE_S = 5
"""Seconds between SIGTERM and SIGKILL when an agent ends a rank."""


def stop(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Stop every task of the attempt. A function that has no time for all tasks leaves the others.

    A rank that never had a task is recorded as ended, unless a launch may still start it.
    """
    command: commands.StopAttempt = pending.command
    if command.attempt != job.attempt:
        return DONE
    plan = context.store.load_plan(job.job_id, command.attempt)
    if command.hold and plan is not None:
        if not job.holding:
            return DONE  # another stop has followed
        return _hold(context, job, plan)
    task_ids = tasks_of_ranks(context, job, plan) if plan is not None else ()
    stopping = f"{OUR_STOP}{attempt_id(job.job_id, command.attempt)} is being stopped"
    if not _stop_in_parts(context, job, task_ids, stopping):
        return UNFINISHED
    launching = any(isinstance(other.command, commands.LaunchAttempt) for other in job.commands)
    if job.launched or launching:
        return DONE
    if plan is not None and job.started_by_person:
        unregistered = _record_unregistered(context, job, plan)
        context.actions.stop_tasks(tuple(unregistered.values()), stopping)
        task_ids = tuple(task_id or unregistered.get(rank, "") for rank, task_id in enumerate(task_ids))
    return _record_never_started(context, job, task_ids)


def _hold(context: ExecutionContext, job: Job, plan: Plan) -> CommandResult:
    """End the process of each rank through its agent. Ranks that cannot be held are stopped in ECS."""
    name, progress = attempt_id(job.job_id, plan.attempt), context.store.load_progress(job.job_id, plan.attempt)
    ended = progress.stopped | progress.held if progress is not None else frozenset()
    ranks = [rank for rank in range(len(plan.instances)) if rank not in ended]
    beats = context.store.load_heartbeats([plan.instances[rank] for rank in ranks])
    hold = AgentCommand(f"hold/{name}", AgentCommandKind.HOLD, job.job_id, plan.attempt, STOP_GRACE_S)
    stay = [rank for rank in ranks if plan.instances[rank] not in job.let_go]
    able = [rank for rank in stay if _can_be_held(context, plan, rank, beats.get(plan.instances[rank]))]
    context.for_each(lambda rank: context.store.add_agent_command(plan.instances[rank], hold), able)
    others = set(ranks) - set(able)
    task_ids = tuple(task_id if rank in others else "" for rank, task_id in enumerate(plan.task_ids))
    if not _stop_in_parts(context, job, task_ids, f"{OUR_STOP}{name} is being stopped"):
        return UNFINISHED
    event = stopped_event(progress, False, context.now) if progress is not None else None
    return CommandResult((FollowUp(job.job_id, event),)) if event is not None else DONE


def _can_be_held(context: ExecutionContext, plan: Plan, rank: int, beat: Heartbeat | None) -> bool:
    """Return whether the agent of the rank's instance has reported lately that the rank can be held."""
    log = str(running_log_id(plan.job_id, plan.attempt, rank))
    recent = duration(context.policy.suspect_s)
    return beat is not None and log in beat.holds and context.now - beat.seen_at < recent


def _stop_in_parts(context: ExecutionContext, job: Job, task_ids: Sequence[str], reason: str) -> bool:
    """Stop the tasks part by part, except those that have ended or are being stopped.

    Args:
        context: the context of the execution.
        job: the job.
        task_ids: the task of each rank; "" for a rank without a task.
        reason: the reason that ECS shows.

    Returns:
        False if the time was over before the last part.
    """
    tasks = {rank: task_id for rank, task_id in enumerate(task_ids) if task_id}
    ranks = list(tasks)
    for start in range(0, len(ranks), RANKS_AT_ONCE):
        if start and not context.has_time():
            return False
        part = {rank: tasks[rank] for rank in ranks[start : start + RANKS_AT_ONCE]}
        context.actions.stop_tasks(_tasks_to_stop(context, job, part), reason)
    return True


def _tasks_to_stop(context: ExecutionContext, job: Job, tasks: Mapping[int, str]) -> tuple[str, ...]:
    """Return the tasks that StopTask must name: those without the desired status STOPPED in ECS.

    All ranks of a gang end together after the timeout of a collective operation. StopTask shares its rate limit with
    RunTask, and DescribeTasks has a limit of its own and describes 100 tasks. A task that ECS does not describe may
    have just been started. Only if the progress of the attempt holds its end, it is left out.

    Args:
        context: the context of the execution.
        job: the job.
        tasks: the tasks by rank.
    """
    described = context.actions.describe_tasks(tuple(tasks.values()), [])
    ended = {fact.task_id for fact in described if fact.desired_status == LastStatus.STOPPED}
    if len(described) < len(tasks):
        progress = context.store.load_progress(job.job_id, job.attempt)
        known = {fact.task_id for fact in described}
        stopped = progress.stopped if progress is not None else frozenset[int]()
        ended |= {task_id for rank, task_id in tasks.items() if rank in stopped and task_id not in known}
    return tuple(task_id for task_id in tasks.values() if task_id not in ended)


def _record_unregistered(context: ExecutionContext, job: Job, plan: Plan) -> dict[int, str]:
    """Record the ranks of an adopted job whose events were lost, and claim their instances. Return tasks by rank."""
    from gpu_recovery.execution.unregistered_tasks import unregistered_ranks  # noqa: PLC0415 - few jobs are adopted

    found: dict[int, str] = {}
    for rank, fact in unregistered_ranks(context.actions, plan):
        task = RankTask(fact.task_id, instance_of(context.store, context.actions, fact))
        found[rank] = context.store.record_task(job.job_id, plan.attempt, rank, task).task_id
        if task.instance_id:
            claim = Claim(plan.attempt, job.spec.gpus_per_node, rank=rank)
            claim_for_adopted(context.store, job, task.instance_id, claim)
    return found


def _record_never_started(context: ExecutionContext, job: Job, task_ids: tuple[str, ...]) -> CommandResult:
    """Record the end of every rank without a task, and return the event that follows."""
    # A launcher that was killed early leaves neither plan nor progress. Both are needed to record the end.
    blank = Plan(job.job_id, job.attempt, job.instances, task_ids=("",) * len(job.instances))
    plan = context.store.begin_attempt(blank)
    known = {rank for rank, task_id in enumerate(task_ids or plan.task_ids) if task_id}
    messages: list[FollowUp] = []

    def enter(rank: int) -> None:
        update = context.store.add_stopped(job.job_id, job.attempt, rank, None)
        event = stopped_event(update.progress, False, context.now) if update else None
        if event is not None:
            messages.append(FollowUp(job.job_id, event))

    context.for_each(enter, sorted(set(range(len(plan.instances))) - known))
    return CommandResult(tuple(messages))


def suspend(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Send the suspend notice to rank 0: ECS sends SIGTERM, which `gpu-recovery-run` takes as the notice.

    If ECS knows no task of the rank, the agent of its instance receives the same command. In every other case the agent
    receives no command, because a second SIGTERM ends the suspend grace.
    """
    command: commands.SuspendAttempt = pending.command
    if command.attempt != job.attempt or job.status is not JobStatus.SUSPENDING:
        return DONE
    plan = context.store.load_plan(job.job_id, command.attempt)
    task_id = plan.task_ids[0] if plan is not None and plan.task_ids else ""
    if plan is not None and not task_id:
        task_id = tasks_of_ranks(context, job, plan)[0]
    name = attempt_id(job.job_id, command.attempt)
    known = bool(task_id) and context.actions.stop_task(task_id, f"{OUR_STOP}{name} is preempted")
    if not known and job.instances and job.instances[0]:
        grace_s = job.spec.suspend_grace_s
        notice = AgentCommand(f"suspend/{name}", AgentCommandKind.SUSPEND, job.job_id, command.attempt, grace_s)
        context.store.add_agent_command(job.instances[0], notice)
    return DONE


def end_ranks(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Save a command to end the attempt's rank for the agent of each instance. Instances without an agent get none.

    The end counts only when ECS or a reboot confirms it.
    """
    command: commands.EndRanks = pending.command
    if command.attempt != job.attempt:
        return DONE
    stop_id = f"stop/{attempt_id(job.job_id, command.attempt)}"
    stop = AgentCommand(stop_id, AgentCommandKind.STOP, job.job_id, command.attempt, STOP_GRACE_S)
    context.for_each(
        lambda instance_id: context.store.add_agent_command(instance_id, stop), filter(None, job.instances)
    )
    return DONE


def end_unconfirmed(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Request the reboot of each instance with a rank that is not known to have ended.

    Instances that received the request before are left out, so a function goes on where the function before it ended.
    """
    command: commands.EndUnconfirmed = pending.command
    plan = context.store.load_plan(job.job_id, command.attempt)
    progress = context.store.load_progress(job.job_id, command.attempt)
    if command.attempt != job.attempt or plan is None or progress is None:
        return DONE
    evidence: dict[str, str] = {}
    for sentence, ranks in command.ranks.items():
        for rank in ranks or range(len(plan.instances)):
            if rank not in progress.stopped and plan.instances[rank]:
                evidence.setdefault(plan.instances[rank], sentence)
    asker = attempt_id(job.job_id, job.attempt)
    messages: list[FollowUp] = []
    for instance_id, record in context.store.load_instances(list(evidence)).items():
        if asker not in record.ended_for and _has_claim(record, job):
            request = events.RepairRequested(
                at=command.at, job_id=job.job_id, attempt=job.attempt, sentence=evidence[instance_id]
            )
            messages.append(FollowUp(instance_id, with_awaited_flag(job, request)))
    return CommandResult(tuple(messages), after=lambda: _release_reservations_if_ended(context, job, list(evidence)))


def _release_reservations_if_ended(context: ExecutionContext, job: Job, instance_ids: list[str]) -> None:
    """Remove the reservations of a job that has ended while its requests were delivered: it waits for no repair.

    The first instance that cannot be repaired ends the job, and the next instances are reserved nevertheless.
    """
    after = context.store.load_job(job.job_id)
    if after is not None and after.status in TERMINAL:
        context.for_each(lambda one: context.store.release_instance(one, job.job_id, True, job.attempt), instance_ids)


def _has_claim(instance: Instance, job: Job) -> bool:
    claim = instance.claims.get(job.job_id)
    return claim is not None and claim.attempt == job.attempt
