"""Held tasks of a job: containers whose process has ended, and that wait for the next attempt.

A held task keeps its GPUs. The instance keeps the claim of the job until ECS confirms the end of the task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import stopped_event
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.held_ranks import container_hold_s
from gpu_recovery.core.job.record import TERMINAL, Job, WarmSpare
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.task import Ending, EndingKind, LastStatus, RankFailure, TaskFact
from gpu_recovery.execution.context import ExecutionContext, FollowUp
from gpu_recovery.execution.task_ownership import may_run_on
from gpu_recovery.ports.store import Store

UNSTARTED = "its container ended before the attempt had started there"
"""Why a rank ended whose container was held by the attempt before."""


@frozen_dataclass()
class HeldTask:
    """A task that is held: the attempt that ended in it, the rank there, and the instance."""

    task_id: str
    attempt: int
    rank: int
    instance_id: str


def may_have_held_tasks(job: Job, policy: RecoveryPolicy) -> bool:
    """Return whether tasks of the job may be held. No item needs to be read for any other job."""
    return job.held_attempt > 0 or container_hold_s(job.spec, policy) > 0


def held_tasks(store: Store, job_id: str, attempts: Iterable[int]) -> dict[str, HeldTask]:
    """Return the held tasks of these attempts whose end is not confirmed, by instance."""
    found: dict[str, HeldTask] = {}
    for attempt in sorted({number for number in attempts if number > 0}):
        plan, progress = store.load_plan(job_id, attempt), store.load_progress(job_id, attempt)
        if plan is None or progress is None:
            continue
        for rank in progress.held - progress.stopped:
            task = HeldTask(plan.task_ids[rank], attempt, rank, plan.instances[rank])
            found[task.instance_id] = task
        for rank in progress.stopped:  # a later attempt had the task of an earlier attempt, and it has ended there
            earlier = found.get(plan.instances[rank])
            if earlier is not None and earlier.task_id == plan.task_ids[rank]:
                del found[plan.instances[rank]]
    return found


def is_used_again(store: Store, job: Job, task_id: str) -> bool:
    """Return whether the present attempt of the job runs in a task of an earlier attempt, or may still start there."""
    if any(spare.task_id == task_id for spare in job.spares):
        return True  # its own commands end it
    if not (job.held_attempt or job.spares_started) or job.status in TERMINAL:
        return False
    if any(isinstance(pending.command, commands.LaunchAttempt) for pending in job.commands):
        return True
    plan = store.load_plan(job.job_id, job.attempt)
    return plan is not None and task_id in plan.task_ids


def end_held_tasks(
    context: ExecutionContext, job: Job, command: commands.ReleaseInstances, reason: str
) -> frozenset[str]:
    """Stop the held tasks on the instances of the command. Return the instances on which one has not ended yet.

    ECS is asked first: the event of an end may have been lost. A task that ECS does not describe has ended only if ECS
    does not list it either. A forced deregistration ends no task (`may_run_on`), also when ECS has forgotten the task.
    """
    if not may_have_held_tasks(job, context.policy):
        return frozenset()
    last = command.attempt if command.attempt is not None else job.attempt
    attempts = {last - 1, last, job.attempt, job.held_attempt if job.held_attempt <= last else 0}
    held = held_tasks(context.store, job.job_id, attempts)
    ours = {task.task_id: task for name, task in held.items() if name in command.instances and task.attempt <= last}
    facts = {fact.task_id: fact for fact in context.actions.describe_tasks(list(ours))} if ours else {}
    # The container of a held task was started by this or by any earlier attempt.
    listed = listed_tasks(context, job, range(1, last + 1)) if ours.keys() - facts.keys() else frozenset()
    ended = [task for task in ours.values() if is_over(context.store, job.job_id, task, facts, listed)]
    for task in ended:
        context.store.add_stopped(job.job_id, task.attempt, task.rank, None)
    left = {name: task for name, task in ours.items() if task not in ended}
    to_stop = [name for name in left if (not is_stopped(facts[name]) if name in facts else name in listed)]
    if to_stop:
        context.actions.stop_tasks(to_stop, reason)
    return frozenset(task.instance_id for task in left.values())


def listed_tasks(context: ExecutionContext, job: Job, attempts: Iterable[int]) -> frozenset[str]:
    """Return the tasks of these attempts that ECS lists: DescribeTasks may say MISSING of one (trap L10)."""
    names = [attempt_id(job.job_id, attempt) for attempt in attempts]
    return frozenset(task_id for name in names for task_id in context.actions.tasks_started_by(name))


def is_stopped(fact: TaskFact) -> bool:
    """Return whether ECS is already asked to stop the task."""
    return fact.desired_status == LastStatus.STOPPED


def is_over(
    store: Store, job_id: str, container: HeldTask | WarmSpare, facts: Mapping[str, TaskFact], listed: Collection[str]
) -> bool:
    """Return whether the container has ended, so that its GPUs are free.

    Args:
        store: the store.
        job_id: the job of the container.
        container: the held task or the warm spare.
        facts: the tasks that ECS describes, by task id.
        listed: the ids of the tasks that ECS lists, at least if ECS does not describe the container.
    """
    fact = facts.get(container.task_id)
    runs = container.task_id in listed if fact is None else fact.last_status != LastStatus.STOPPED
    return not runs and not may_run_on(store, fact, job_id, container.attempt, container.instance_id)


def has_ended(fact: TaskFact) -> bool:
    """Return whether ECS confirms the end of the task's containers."""
    return fact.last_status == LastStatus.STOPPED and not fact.is_orphaned


def is_of_attempt(fact: TaskFact, job: Job, attempt: int) -> bool:
    """Return whether the attempt itself started the task, so that a running task is a running rank.

    A task that was held carries the name of an earlier attempt. The node agent reports the start in such a task.
    """
    return job.started_by_person or fact.started_by in ("", attempt_id(job.job_id, attempt))


def end_in_place(failure: RankFailure | None, is_started: bool) -> RankFailure | None:
    """Return how a rank in a container of an earlier attempt ended.

    Before the start, the exit code is that of the earlier attempt, and no fault of this attempt.
    """
    if failure is None or is_started or failure.ending.kind is EndingKind.STOPPED_BY_US:
        return failure
    return replace(failure, ending=Ending(EndingKind.INTERRUPTED, failure.ending.exit_code, UNSTARTED))


def unstarted(rank: int, task: HeldTask, context: ExecutionContext) -> RankFailure:
    """Return the failure of a rank whose held task ended before the attempt had started there."""
    return RankFailure(rank, task.instance_id, context.now, Ending(EndingKind.INTERRUPTED, None, UNSTARTED))


def ended_meanwhile(
    context: ExecutionContext,
    job_id: str,
    attempt: int,
    used: Mapping[int, HeldTask],
    ended: Collection[str] = (),
) -> tuple[FollowUp, ...]:
    """Record the ranks whose held task ended while the plan did not name the task yet. Return the events.

    The event of such an end found no rank in the plan of this attempt. An end after this look finds it.

    Args:
        ended: the ids of tasks of warm spares that have ended.
    """
    follow_ups: list[FollowUp] = []
    progress = {number: context.store.load_progress(job_id, number) for number in {t.attempt for t in used.values()}}
    for rank, task in used.items():
        before = progress[task.attempt]
        if task.task_id in ended or (before is not None and task.rank in before.stopped):
            update = context.store.add_stopped(job_id, attempt, rank, unstarted(rank, task, context))
            event: events.JobEvent | None = (
                stopped_event(update.progress, update.first_failure, context.now) if update else None
            )
            follow_ups += [FollowUp(job_id, event)] if event is not None else []
    return tuple(follow_ups)
