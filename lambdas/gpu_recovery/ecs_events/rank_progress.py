"""From what ECS says about a rank to what its job must hear: one addition, and an event only if it is news."""

from __future__ import annotations

from gpu_recovery.core.attempt import running_event, stopped_event
from gpu_recovery.core.task import LastStatus, TaskFact, failure_of
from gpu_recovery.recovery import Recovery


def record_rank_event(
    recovery: Recovery, fact: TaskFact, job_id: str, attempt: int, rank: int, instance_id: str
) -> None:
    """Add the rank's fact to its attempt's progress, and tell the job if this one is news for it."""
    if fact.last_status == LastStatus.RUNNING:
        addition = recovery.store.add_running(job_id, attempt, rank)
        event = running_event(addition.progress, fact.at) if addition else None
    elif fact.last_status == LastStatus.STOPPED:
        failure = failure_of(fact, rank, instance_id)
        addition = recovery.store.add_stopped(job_id, attempt, rank, failure)
        event = stopped_event(addition.progress, addition.first_failure, fact.at) if addition else None
    else:
        return
    if event is not None:
        recovery.handle(job_id, event)
