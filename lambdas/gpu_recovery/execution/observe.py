"""Observe an attempt: ask ECS and EC2 about its ranks, and find events that the job did not receive."""

from __future__ import annotations

from dataclasses import replace

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import AttemptProgress, Plan, undelivered_event
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import Ending, EndingKind, LastStatus, RankFailure, failure_of
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp
from gpu_recovery.execution.hang_detection import describe_hang
from gpu_recovery.ports.values import ec2_state_of


def observe(kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Ask ECS about each rank whose end is not known, enter what it says, and report what the job has not heard."""
    order: commands.ObserveAttempt = pending.command
    plan = kit.store.load_plan(job.job_id, order.attempt)
    progress = kit.store.load_progress(job.job_id, order.attempt)
    if order.attempt != job.attempt or plan is None or progress is None:
        return DONE
    gone: tuple[FollowUp, ...] = ()
    if job.status is not JobStatus.DIAGNOSING:
        plan = _with_tasks(kit, job, plan)
        _record_ranks(kit, job, plan, progress)
        progress = kit.store.load_progress(job.job_id, order.attempt) or progress
        gone = _powered_off_events(kit, list(filter(None, progress.unconfirmed(plan))))
    news = undelivered_event(job, progress, plan, kit.policy, kit.now) or (
        None if gone else _hang_events(kit, job, plan)
    )
    return CommandResult((*gone, FollowUp(job.job_id, news))) if news else CommandResult(gone)


def _hang_events(kit: ExecutionContext, job: Job, plan: Plan) -> events.JobEvent | None:
    """What a gang must hear that runs and does not get on, where its program says how far it is."""
    if not kit.policy.diagnose or job.status is not JobStatus.RUNNING:
        return None
    sentence = describe_hang(kit.store, kit.policy, job, plan, kit.now)
    return events.ProgressStopped(at=kit.now, attempt=plan.attempt, sentence=sentence) if sentence else None


def _powered_off_events(kit: ExecutionContext, instance_ids: list[str]) -> tuple[FollowUp, ...]:
    """What instances must hear that EC2 shows stopped or terminated: ECS itself may never say so of a dead agent."""
    machines = kit.actions.describe_ec2(instance_ids) if instance_ids else {}
    running = Ec2InstanceState.RUNNING
    found: list[FollowUp] = []
    for one in dict.fromkeys([i for i in instance_ids if i not in machines or machines[i].state is not running]):
        state = ec2_state_of(one, machines, one not in machines and _is_alive(kit, one))
        if state is not None and state.is_off:
            found.append(FollowUp(one, events.MachineSeen(at=kit.now, state=state)))
    return tuple(found)


def _is_alive(kit: ExecutionContext, instance_id: str) -> bool:
    record = kit.store.load_instance(instance_id)
    return record is not None and record.agent_connected


def _with_tasks(kit: ExecutionContext, job: Job, plan: Plan) -> Plan:
    """The plan with the tasks that a launcher started and died before it entered them: else no look would find them."""
    if all(plan.task_ids) or job.started_by_person:
        return plan
    facts = kit.actions.describe_tasks(kit.actions.tasks_started_by(attempt_id(job.job_id, plan.attempt)))
    found = {fact.rank: fact.task_id for fact in facts}
    filled = replace(plan, task_ids=tuple(known or found.get(rank, "") for rank, known in enumerate(plan.task_ids)))
    if filled != plan:
        kit.store.record_tasks(filled)
    return filled


def _record_ranks(kit: ExecutionContext, job: Job, plan: Plan, progress: AttemptProgress) -> None:
    """Enter what ECS says of the ranks whose end is not known; a task it neither knows nor lists has ended unseen."""
    asked = progress.unconfirmed_tasks(plan)
    shown = kit.actions.describe_tasks(asked)
    if (
        progress.all_running
        and len(shown) == len(asked)
        and {fact.last_status for fact in shown} == {LastStatus.RUNNING}
    ):
        return  # as at nearly every look at a gang of weeks
    facts = {fact.task_id: fact for fact in shown}
    listed = _tasks_of_attempt(kit, job, plan) if len(facts) < len(asked) else frozenset()
    # What is known is not written again: a gang is looked at for weeks, and a refused write costs as much.
    run = {one for one, fact in facts.items() if fact.last_status == LastStatus.RUNNING}
    ranks = {task_id: rank for rank, task_id in enumerate(plan.task_ids)}
    news = [(one, ranks[one]) for one in asked if one not in run or ranks[one] not in progress.running]
    for task_id, rank in news:
        fact = facts.get(task_id)
        if fact is None and task_id in listed:
            continue  # ECS's answers do not agree yet: the next look asks again, and meanwhile the GPUs stay taken
        if fact is None:
            lost = Ending(EndingKind.CRASHED, None, "ended unseen: ECS no longer knows its task")
            failure = RankFailure(rank, plan.instances[rank], kit.now, lost)
            kit.store.add_stopped(job.job_id, plan.attempt, rank, failure)
        elif fact.last_status == LastStatus.STOPPED:
            kit.store.add_stopped(job.job_id, plan.attempt, rank, failure_of(fact, rank, plan.instances[rank]))
        elif fact.last_status == LastStatus.RUNNING:
            kit.store.add_running(job.job_id, plan.attempt, rank)


def _tasks_of_attempt(kit: ExecutionContext, job: Job, plan: Plan) -> frozenset[str]:
    """The tasks of the attempt that ECS lists. A person's have no name in common: every task that is to run."""
    if job.started_by_person:
        return frozenset(fact.task_id for fact in kit.actions.running_tasks())
    return frozenset(kit.actions.tasks_started_by(attempt_id(job.job_id, plan.attempt)))
