"""Start warm spares, ask ECS about them, and end those that are released.

The task of a warm spare carries the attempt that was current at its start, and a rank above all ranks of the gang. It
is no rank of the plan of that attempt. Its claim is that of the job. So its GPUs are free only after its confirmed end.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.record import Claim
from gpu_recovery.core.job import warm_spares
from gpu_recovery.core.job.held_ranks import container_hold_s
from gpu_recovery.core.job.record import Job, WarmSpare
from gpu_recovery.core.job.spec import runs_preflight
from gpu_recovery.core.launch_signature import has_signature, launch_signature
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import LastStatus, TaskFact
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp, previous_try_died
from gpu_recovery.execution.held_tasks import HeldTask, is_over, is_stopped, listed_tasks
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.store import Store
from gpu_recovery.ports.values import Refusal


def start_spare(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Claim the instance of a warm spare and start its task. A repeated request returns the same task.

    Raises:
        TryAgainSoon: AWS throttled the request.
    """
    command: commands.StartSpare = pending.command
    spare = warm_spares.spare_of(job, command.number)
    if spare is None or spare.task_id:
        return DONE
    if spare.leaves:
        # A function that died may have started the task.
        found = _find(context, job, spare) if previous_try_died(pending) else ""
        return _result_of(context, job, spare, found or Refusal("it was released before its start", False))
    claim = Claim(spare.attempt, job.spec.gpus_per_node, rank=spare.number, epoch=spare.epoch)
    if not context.store.claim_instance(spare.instance_id, job.job_id, claim, spare.epoch):
        return _result_of(context, job, spare, Refusal("its instance was no longer free", False))
    plan, key = _plan_of(context, job, spare), context.store.launch_key()
    answer = context.actions.run_ranks(job, plan, (spare.number,), "", key)[0]
    if isinstance(answer, TryAgainSoon):
        raise answer
    return _result_of(context, job, spare, answer)


def _plan_of(context: ExecutionContext, job: Job, spare: WarmSpare) -> Plan:
    """Return a plan in which the warm spare is a rank. It is not stored."""
    others = ("",) * spare.number
    return Plan(
        job.job_id,
        spare.attempt,
        (*others, spare.instance_id),
        (*(0 for _ in others), spare.epoch),
        task_ids=(*others, ""),
        signed=True,
        hold_s=container_hold_s(job.spec, context.policy),
        is_warm=True,
        preflight=runs_preflight(job.spec, context.policy),
    )


def _result_of(context: ExecutionContext, job: Job, spare: WarmSpare, answer: str | Refusal) -> CommandResult:
    """Return the result of a start: the event of the task, or of the end if there is none."""
    event: events.JobEvent = (
        ended_event(context, job, spare, answer.reason)
        if isinstance(answer, Refusal)
        else events.SpareSeen(at=context.now, attempt=job.attempt, number=spare.number, task_id=answer)
    )
    return CommandResult((FollowUp(job.job_id, event),))


def ended_event(context: ExecutionContext, job: Job, spare: WarmSpare, sentence: str) -> events.SpareEnded:
    """Return the event that the container of the warm spare has ended."""
    return events.SpareEnded(at=context.now, attempt=job.attempt, number=spare.number, sentence=sentence)


def _find(context: ExecutionContext, job: Job, spare: WarmSpare) -> str:
    """Return the task of the warm spare from the listing of ECS; "" if there is none."""
    listed = context.actions.describe_tasks(context.actions.tasks_started_by(attempt_id(job.job_id, spare.attempt)))
    return next((fact.task_id for fact in listed if is_task_of(context.store, job, spare, fact)), "")


def is_task_of(store: Store, job: Job, spare: WarmSpare, fact: TaskFact) -> bool:
    """Return whether the task is that of the warm spare: by its recorded id, else by its launch signature."""
    if spare.task_id:
        return fact.task_id == spare.task_id
    name = attempt_id(job.job_id, spare.attempt)
    return fact.rank == spare.number and has_signature(fact, launch_signature(store.launch_key(), name, spare.number))


def observe_spares(context: ExecutionContext, job: Job) -> tuple[FollowUp, ...]:
    """Ask ECS about the warm spares of a job, and return what its record lacks.

    ECS forgets a stopped task after about an hour. So a container that ECS neither describes nor lists has ended. A
    description that cannot be read says nothing.
    """
    known, unreadable = [spare for spare in job.spares if spare.task_id], list[Exception]()
    described = context.actions.describe_tasks([spare.task_id for spare in known], unreadable)
    facts = {fact.task_id: fact for fact in described}
    if unreadable:
        known = [spare for spare in known if spare.task_id in facts]
    unknown = {spare.attempt for spare in known if spare.task_id not in facts}
    listed = listed_tasks(context, job, sorted(unknown))
    told: list[FollowUp] = []
    for spare in known:
        fact = facts.get(spare.task_id)
        if is_over(context.store, job.job_id, spare, facts, listed):
            told.append(FollowUp(job.job_id, ended_event(context, job, spare, "its container has ended")))
        elif fact is not None and fact.last_status == LastStatus.RUNNING and not spare.runs:
            seen = events.SpareSeen(
                at=context.now, attempt=job.attempt, number=spare.number, task_id=spare.task_id, runs=True
            )
            told.append(FollowUp(job.job_id, seen))
    return tuple(told)


def end_spares(
    context: ExecutionContext, job: Job, command: commands.ReleaseInstances, reason: str
) -> tuple[frozenset[str], tuple[FollowUp, ...]]:
    """Stop the warm spares on the instances of the command, also those that a later attempt never used.

    A container that ECS does not describe has ended only if ECS does not list it either: trap L10 of docs/traps.md.

    Returns:
        The instances on which one has not ended yet, and the events about those that have ended.
    """
    last = command.attempt if command.attempt is not None else job.attempt
    ours = [
        spare
        for spare in job.spares
        if spare.instance_id in command.instances and max(spare.attempt, spare.taken_by) <= last
    ]
    if not ours:
        return frozenset(), ()
    facts = {
        fact.task_id: fact for fact in context.actions.describe_tasks([one.task_id for one in ours if one.task_id])
    }
    unknown = {spare.attempt for spare in ours if spare.task_id and spare.task_id not in facts}
    listed = listed_tasks(context, job, sorted(unknown))
    left = [
        spare for spare in ours if not spare.task_id or not is_over(context.store, job.job_id, spare, facts, listed)
    ]
    left_ids = [spare.task_id for spare in left if spare.task_id]
    to_stop = [name for name in left_ids if (not is_stopped(facts[name]) if name in facts else name in listed)]
    if to_stop:
        context.actions.stop_tasks(to_stop, reason)
    told = [
        FollowUp(job.job_id, ended_event(context, job, spare, "it was ended")) for spare in ours if spare not in left
    ]
    return frozenset(spare.instance_id for spare in left), tuple(told)


def tasks_to_use(job: Job, attempt: int) -> dict[str, HeldTask]:
    """Return the containers of the warm spares that the attempt has taken, by instance."""
    return {
        spare.instance_id: HeldTask(spare.task_id, spare.attempt, spare.number, spare.instance_id)
        for spare in job.spares
        if spare.taken_by == attempt and spare.task_id
    }


def ended_since(store: Store, job: Job, tasks: Iterable[HeldTask]) -> frozenset[str]:
    """Return the ids of those tasks of warm spares that have ended since the job was loaded."""
    warm = {spare.task_id for spare in job.spares}
    used = {task.task_id for task in tasks} & warm
    if not used:
        return frozenset()
    now = store.load_job(job.job_id)
    return frozenset(used - {spare.task_id for spare in now.spares} if now is not None else used)
