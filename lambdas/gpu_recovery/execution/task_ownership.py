"""Which ECS tasks are ours: by the task id that was recorded at the launch, and by evidence until it is recorded.

`startedBy` and the environment of a task are chosen by the caller of RunTask, so they only say which record to compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from gpu_recovery.core import commands
from gpu_recovery.core.attempt import Plan, RankTask
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.record import Instance, RankOnInstance
from gpu_recovery.core.job.record import LIVE, Job
from gpu_recovery.core.launch_signature import ExpectedTask, has_signature, is_of_family, launch_signature
from gpu_recovery.core.task import TaskFact
from gpu_recovery.execution.context import ExecutionContext
from gpu_recovery.ports.actions import Actions
from gpu_recovery.ports.store import Store


class Owner(StrEnum):
    """Who started a task that carries one of our names.

    UNKNOWN: no task id is recorded yet, and evidence is missing.
    """

    OURS = "OURS"
    FOREIGN = "FOREIGN"
    UNKNOWN = "UNKNOWN"


def owner_of(store: Store, actions: Actions, fact: TaskFact, expected: ExpectedTask) -> Owner:
    """Return who started the task. A recorded task id decides; no call is made then.

    Without a recorded id the task must carry the launch signature, be of the same family, and be on the instance.
    """
    if expected.task_id:
        return Owner.OURS if fact.task_id == expected.task_id else Owner.FOREIGN
    if not has_signature(fact, expected.signature) or not is_of_family(fact, expected.task_definition):
        return Owner.UNKNOWN
    return Owner.OURS if instance_of(store, actions, fact) == expected.instance_id else Owner.UNKNOWN


def instance_of(store: Store, actions: Actions, fact: TaskFact) -> str:
    """Return the EC2 instance of a task; "" if it is unknown.

    ECS names only the container instance. The store is asked first, then ECS.
    """
    if not fact.container_instance_id:
        return ""
    known = store.instance_of(fact.container_instance_id)
    if known:
        return known
    described = actions.describe_instance(fact.container_instance_id)
    return described[0] if described else ""


def may_run_on(store: Store, fact: TaskFact | None, job_id: str, attempt: int, instance_id: str) -> bool:
    """Return whether a rank may still run although ECS shows its task as ended, or does not know it any more.

    This is so after a forced deregistration, until the claim of the rank is removed: only a boot or the end of the
    instance removes it.

    Args:
        fact: the STOPPED task; None if ECS no longer knows it.
        attempt: the attempt of the rank. A later attempt may have taken over the claim of a container that was held.
    """
    if fact is not None and not fact.is_orphaned:
        return False
    record = store.load_instance(instance_id) if instance_id else None
    claim = record.claims.get(job_id) if record is not None else None
    if record is None or claim is None or claim.attempt < attempt:
        return False
    return fact is not None or RankOnInstance(job_id, claim.attempt) in record.orphaned_ranks


# -- ranks -------------------------------------------------------------------------------------------------------------


def owner_of_rank_event(
    store: Store, actions: Actions, job_id: str, attempt: int, known: RankTask, fact: TaskFact
) -> Owner:
    """Return who started a task that carries the `startedBy` of an attempt, as `owner_of_rank_task` does.

    A recorded task id decides. Only without an id is the whole plan read, which all ranks of a gang share.

    Args:
        known: what the plan has for the rank of the task.
    """
    if fact.rank is None:
        return Owner.FOREIGN
    if known.task_id:
        return Owner.OURS if fact.task_id == known.task_id else Owner.FOREIGN
    plan = store.load_plan(job_id, attempt)
    return owner_of_rank_task(store, actions, plan, None, fact) if plan is not None else Owner.UNKNOWN


def owner_of_rank_task(store: Store, actions: Actions, plan: Plan, job: Job | None, fact: TaskFact) -> Owner:
    """Return who started a task that carries the `startedBy` of the plan's attempt.

    Args:
        job: the job, if the caller has it. Otherwise it is loaded if the task id of the rank is not recorded.
    """
    rank = fact.rank
    if rank is None or rank >= len(plan.instances):
        return Owner.FOREIGN
    task_id = plan.task_ids[rank] if plan.task_ids else ""
    definition, signature = "", ""
    if not task_id:
        job = job or store.load_job(plan.job_id)
        if job is None:
            return Owner.UNKNOWN
        name = attempt_id(plan.job_id, plan.attempt)
        definition = job.spec.task_definition
        signature = launch_signature(store.launch_key(), name, rank) if plan.signed else ""
    owner = owner_of(store, actions, fact, ExpectedTask(task_id, plan.instances[rank], definition, signature))
    if owner is Owner.UNKNOWN and job is not None and _is_launch_over(job, plan):
        return Owner.FOREIGN
    return owner


def _is_launch_over(job: Job, plan: Plan) -> bool:
    """Return whether no launcher will record a task of the plan any more.

    A rank that ECS refused stays without a task. A launcher that was killed leaves its command in the record, and
    without any recorded task its tasks may still be found while the gang may exist.
    """
    if plan.attempt < job.attempt or job.status not in LIVE:
        return True
    launching = any(isinstance(pending.command, commands.LaunchAttempt) for pending in job.commands)
    return any(plan.task_ids) and not launching


def tasks_of_ranks(context: ExecutionContext, job: Job, plan: Plan) -> tuple[str, ...]:
    """Return the task id of each rank, in rank order; "" for a rank without a task.

    A launcher that was killed has not recorded its tasks. They are found in ECS's listing. If several tasks show
    evidence of one rank, the oldest is ours: a copy can only be made of a task that exists.
    """
    task_ids = plan.task_ids or ("",) * len(plan.instances)
    if all(task_ids) or job.started_by_person:
        return task_ids
    listed = context.actions.describe_tasks(context.actions.tasks_started_by(attempt_id(job.job_id, plan.attempt)))
    ours: list[TaskFact] = []

    def compare(fact: TaskFact) -> None:
        if owner_of_rank_task(context.store, context.actions, plan, job, fact) is Owner.OURS:
            ours.append(fact)

    unrecorded = [fact for fact in listed if fact.rank is not None and fact.task_id not in task_ids]
    context.for_each(compare, unrecorded)
    found: dict[int | None, str] = {}
    for fact in _oldest_first(ours):
        found.setdefault(fact.rank, fact.task_id)
    return tuple(task_id or found.get(rank, "") for rank, task_id in enumerate(task_ids))


def with_unrecorded_tasks(context: ExecutionContext, job: Job, plan: Plan) -> Plan:
    """Return the plan with the tasks that a launcher started but did not record before it was killed.

    No later poll could find these tasks.
    """
    known = plan.task_ids or ("",) * len(plan.instances)
    filled = replace(plan, task_ids=tasks_of_ranks(context, job, plan))
    found = [rank for rank, task_id in enumerate(filled.task_ids) if task_id != known[rank]]
    if found:
        context.store.record_tasks(filled, found)
    return filled


def _oldest_first(facts: Sequence[TaskFact]) -> list[TaskFact]:
    return sorted(facts, key=lambda fact: (fact.created_at or fact.at, fact.task_id))


# -- health checks -----------------------------------------------------------------------------------------------------


def owner_of_check_task(
    store: Store, actions: Actions, instance: Instance, fact: TaskFact, signed: bool = True
) -> Owner:
    """Return who started a task that carries the name of a health check of the instance.

    The check is the current check, the check that it superseded, or an earlier check that the record has forgotten.

    Args:
        signed: whether the task of a forgotten check carries a launch signature.
    """
    run, check_id = instance.check, fact.started_by
    task_id = ""
    if run is not None and check_id == run.check_id:
        task_id, signed = run.task_id, run.signed
    elif run is not None and check_id == run.superseded:
        task_id, signed = run.superseded_task_id, run.superseded_signed
    signature = launch_signature(store.launch_key(), check_id) if signed and not task_id else ""
    expected = ExpectedTask(task_id, instance.instance_id, actions.check_task_definition, signature)
    return owner_of(store, actions, fact, expected)


def tasks_of_check(
    context: ExecutionContext, instance: Instance, check_id: str, signed: bool = True
) -> tuple[TaskFact, ...]:
    """Return what ECS says about our tasks of a health check without a recorded task id, the oldest first.

    Args:
        signed: see `owner_of_check_task`.
    """
    facts = context.actions.describe_tasks(context.actions.tasks_started_by(check_id))
    return tuple(
        fact
        for fact in _oldest_first(facts)
        if owner_of_check_task(context.store, context.actions, instance, fact, signed) is Owner.OURS
    )
