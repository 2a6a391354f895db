"""Record what ECS reports about a rank, and deliver an event to its job if that is new."""

from __future__ import annotations

from gpu_recovery.core.attempt import running_event, stopped_event
from gpu_recovery.core.events import RankFailed
from gpu_recovery.core.task import LastStatus, TaskFact, failure_of
from gpu_recovery.execution.task_ownership import may_run_on
from gpu_recovery.recovery import Recovery


def record_rank_event(
    recovery: Recovery, fact: TaskFact, job_id: str, attempt: int, rank: int, instance_id: str
) -> None:
    """Add the state of the rank to the progress of its attempt, and deliver the event that follows to the job.

    A repeated report of ECS adds nothing, so no event follows. The end of an orphaned task is no end of its rank.
    """
    if fact.last_status == LastStatus.RUNNING:
        addition = recovery.store.add_running(job_id, attempt, rank)
        event = running_event(addition.progress, fact.at) if addition else None
    elif fact.last_status == LastStatus.STOPPED:
        failure = failure_of(fact, rank, instance_id)
        if failure is not None and may_run_on(recovery.store, fact, job_id, attempt, instance_id):
            recovery.handle(job_id, RankFailed(at=fact.at, attempt=attempt, failure=failure))
            return
        addition = recovery.store.add_stopped(job_id, attempt, rank, failure)
        event = stopped_event(addition.progress, addition.first_failure, fact.at) if addition else None
    else:
        return
    if event is not None:
        recovery.handle(job_id, event)
