"""The reconciler: process due records, reclaim expired commands, resync with ECS and EC2.

Every event may be lost. So each minute the reconciler processes the records that are due, and compares ECS and EC2 with
the tables (`resync.py`). The reconciler decides nothing: each finding becomes the event that was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpu_recovery.core import events
from gpu_recovery.core.attempt import undelivered_event
from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.reconciler import lost_jobs
from gpu_recovery.reconciler.cycle import Cycle
from gpu_recovery.reconciler.ongoing_work import instances_under_way
from gpu_recovery.reconciler.resync import RESYNCS
from gpu_recovery.recovery import Recovery


def reconcile(recovery: Recovery, resyncs: Iterable[Callable[[Cycle], object]] = RESYNCS) -> None:
    """Run one reconcile cycle. A failing record does not delay the others.

    Raises:
        ExceptionGroup: all failures of the cycle, raised together at its end.
    """
    now, cycle = recovery.clock(), Cycle(recovery)
    failures = [
        *run_each(lambda job_id: process_due_job(recovery, job_id), recovery.store.due_jobs(now)),
        *run_each(lambda instance_id: process_due_instance(recovery, instance_id), recovery.store.due_instances(now)),
        *run_each(lambda compare: compare(cycle), resyncs),
    ]
    raise_all("the reconciler could not finish everything", failures)


def process_due_job(recovery: Recovery, job_id: str) -> None:
    """Do what is due for one job: reclaim expired commands, deliver lost events, its deadline or its poll."""
    job = recovery.store.load_job(job_id)
    if job is None:
        return
    recovery.decision_log.record_due(job, recovery.clock())
    if recovery.reclaim_expired(job):
        job = recovery.store.load_job(job_id) or job
    event = _due_event(recovery, job)
    if event is not None:
        recovery.handle(job_id, event)
    else:
        recovery.store.remove_finished_job_commands(job, (), {})


def _due_event(recovery: Recovery, job: Job) -> events.JobEvent | None:
    """Return the event that is due for the job, or None. Lost events precede the deadline and the poll."""
    now = recovery.clock()
    plan = progress = None
    if job.status in LIVE or job.status is JobStatus.DIAGNOSING:
        plan = recovery.store.load_plan(job.job_id, job.attempt)
        progress = recovery.store.load_progress(job.job_id, job.attempt)
    if plan is not None and progress is not None:
        lost_event = undelivered_event(job, progress, plan, recovery.policy, now)
        if lost_event is not None:
            return lost_event
    if (
        job.status is JobStatus.LOST
        and (restored := lost_jobs.contact_restored_event(recovery, job, progress)) is not None
    ):
        return restored
    if job.deadline_at is not None and job.deadline_at <= now:
        is_lost = job.status is JobStatus.LOST
        dead, unsure, outage = lost_jobs.evidence_of_death(recovery, job) if is_lost else ({}, (), "")
        return events.JobDeadlineReached(
            at=now,
            attempt=job.attempt,
            deadline_at=job.deadline_at,
            unconfirmed=progress.unconfirmed(plan) if progress and plan else (),
            results=progress.results(plan) if progress and plan else {},
            dead=dead,
            unsure=unsure,
            deaf=outage,
            under_way=instances_under_way(recovery, job, plan, progress),
        )
    if job.look_at is not None and job.look_at <= now:
        return events.JobLookDue(at=now, attempt=job.attempt, look_at=job.look_at)
    return None


def process_due_instance(recovery: Recovery, instance_id: str) -> None:
    """Do what is due for one instance: reclaim expired commands, its deadline or its poll."""
    instance = recovery.store.load_instance(instance_id)
    if instance is None:
        return
    recovery.decision_log.record_due(instance, recovery.clock())
    if recovery.reclaim_expired(instance):
        instance = recovery.store.load_instance(instance_id) or instance
    now = recovery.clock()
    if instance.deadline_at is not None and instance.deadline_at <= now:
        recovery.handle(instance_id, events.InstanceDeadlineReached(at=now, deadline_at=instance.deadline_at))
    elif instance.look_at is not None and instance.look_at <= now:
        recovery.handle(instance_id, events.InstanceLookDue(at=now, look_at=instance.look_at))
    else:
        recovery.store.remove_finished_instance_commands(instance, (), {})
