"""Route ECS task state changes to the job or the instance that the task belongs to.

`startedBy` and the environment of a task only say which record to compare. An event counts if the task is the one that
the record names (`execution.task_ownership`). Every other task changes nothing.
"""

from __future__ import annotations

from gpu_recovery.core.identifiers import attempt_of, instance_of_check
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.task import LastStatus, TaskFact
from gpu_recovery.ecs_events import adoption, rank_progress
from gpu_recovery.ecs_events.held_tasks import held_task_ended
from gpu_recovery.ecs_events.notify_once import notify_once
from gpu_recovery.ecs_events.warm_spares import spare_changed
from gpu_recovery.execution.check_result import check_ended
from gpu_recovery.execution.task_ownership import Owner, owner_of_check_task, owner_of_rank_event
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.recovery import Recovery


def task_changed(recovery: Recovery, fact: TaskFact) -> None:
    """Record what `fact` reports about a rank. A task without our `startedBy` and without a JOB_ID costs no call.

    Raises:
        TryAgainSoon: the launch has not recorded the task of the rank yet, and the task shows no evidence.
    """
    named = attempt_of(fact.started_by)
    if named is None:
        adoption.handle_user_task(recovery, fact)
        return
    if fact.last_status not in set(LastStatus):
        return  # a status between: it says nothing about the rank
    job_id, attempt = named
    known = recovery.store.load_planned_task(job_id, attempt, fact.rank or 0)
    if known is None:
        return  # the plan is stored before the first task is started: another program uses the same names
    if fact.rank is not None and not known.instance_id and spare_changed(recovery, fact, job_id, attempt, fact.rank):
        return
    owner = owner_of_rank_event(recovery.store, recovery.actions, job_id, attempt, known, fact)
    if owner is Owner.UNKNOWN:
        raise TryAgainSoon(_not_recorded(fact))
    if owner is Owner.FOREIGN or fact.rank is None:
        from gpu_recovery.core.notifications.foreign_tasks import foreign_task  # noqa: PLC0415 - a rare message

        notify_once(recovery, foreign_task(job_id, attempt, fact.rank, fact.task_id))
        return
    rank_progress.record_rank_event(recovery, fact, job_id, attempt, fact.rank, known.instance_id)
    if known.can_be_held and fact.last_status == LastStatus.STOPPED:
        held_task_ended(recovery, fact, job_id, attempt, known.instance_id)


def check_changed(recovery: Recovery, fact: TaskFact) -> None:
    """Deliver the end of a health check to its instance. Checks of other programs are ignored.

    Raises:
        TryAgainSoon: the task of the check is not recorded yet, and the task shows no evidence.
    """
    instance_id = instance_of_check(fact.started_by)
    if fact.last_status != LastStatus.STOPPED or instance_id is None:
        return
    record = recovery.store.load_instance(instance_id)
    if record is None or not _is_awaited(record, fact.started_by):
        return
    owner = owner_of_check_task(recovery.store, recovery.actions, record, fact)
    if owner is Owner.UNKNOWN:
        raise TryAgainSoon(_not_recorded(fact))
    if owner is Owner.FOREIGN:
        from gpu_recovery.core.notifications.foreign_tasks import foreign_check  # noqa: PLC0415 - a rare message

        notify_once(recovery, foreign_check(record, fact.started_by, fact.task_id))
        return
    message = check_ended(recovery.actions, recovery.policy, fact)
    if message is None:
        return  # its process may run on; the instance polls for its verdict document
    recovery.handle(message.record_id, message.event)


def _not_recorded(fact: TaskFact) -> str:
    launch = f"the launch of {fact.started_by} has not recorded its tasks yet"
    return f"{launch}; the event of task {fact.task_id} is tried again"


def _is_awaited(record: Instance, check_id: str) -> bool:
    """Return whether the check is under way, or was superseded by the check under way."""
    return record.check is not None and check_id in (record.check.check_id, record.check.superseded)
