"""Route ECS task state changes to the job or the instance that the task belongs to."""

from __future__ import annotations

from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.identifiers import attempt_of, instance_of_check
from gpu_recovery.core.task import LastStatus, TaskFact
from gpu_recovery.ecs_events import adoption, rank_progress
from gpu_recovery.execution.check_result import check_ended
from gpu_recovery.recovery import Recovery


class RankMissing(RecoveryError):
    """A task carries our `startedBy` but no RANK: another program uses the same names."""


def task_changed(recovery: Recovery, fact: TaskFact, instance_id: str = "") -> None:
    """Record what `fact` reports about a rank. A task without our `startedBy` and without a JOB_ID costs no call.

    Raises:
        RankMissing: a task with our `startedBy` has no RANK.
    """
    named = attempt_of(fact.started_by)
    if named is None:
        adoption.handle_user_task(recovery, fact)
        return
    if fact.rank is None:
        raise RankMissing(f"task {fact.task_id} was started by {fact.started_by} but carries no RANK")
    job_id, attempt = named
    rank_progress.record_rank_event(recovery, fact, job_id, attempt, fact.rank, instance_id or fact.instance_id)


def check_changed(recovery: Recovery, fact: TaskFact) -> None:
    """Deliver the end of a health check to its instance. Checks of other programs are ignored."""
    if fact.last_status != LastStatus.STOPPED or instance_of_check(fact.started_by) is None:
        return
    message = check_ended(recovery.actions, recovery.policy, fact)
    recovery.handle(message.record_id, message.event)
