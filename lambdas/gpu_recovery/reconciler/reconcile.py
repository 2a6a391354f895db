"""What nobody told us: deadlines, looks, and commands left by the dead.

Every event may be lost, so each minute the reconciler opens the records that are due and compares the world with
the tables (`comparing.py`). It decides nothing: what it finds becomes the events that would have told it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpu_recovery.core import events
from gpu_recovery.core.attempt import undelivered_event
from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.reconciler import lost_jobs
from gpu_recovery.reconciler.cycle import Cycle
from gpu_recovery.reconciler.resync import RESYNCS
from gpu_recovery.recovery import Recovery


def reconcile(recovery: Recovery, resyncs: Iterable[Callable[[Cycle], object]] = RESYNCS) -> None:
    """One round. A record that fails does not keep the others waiting; all failures are raised together at the end."""
    now, this = recovery.clock(), Cycle(recovery)
    failures = [
        *run_each(lambda job_id: process_due_job(recovery, job_id), recovery.store.due_jobs(now)),
        *run_each(lambda instance_id: process_due_instance(recovery, instance_id), recovery.store.due_instances(now)),
        *run_each(lambda compare: compare(this), resyncs),
    ]
    raise_all("the reconciler could not finish everything", failures)


def process_due_job(recovery: Recovery, job_id: str) -> None:
    """Do what is due for one job: commands of the dead, facts it was never told, its deadline, its look."""
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
    now = recovery.clock()
    plan = progress = None
    if job.status in LIVE or job.status is JobStatus.DIAGNOSING:
        plan = recovery.store.load_plan(job.job_id, job.attempt)
        progress = recovery.store.load_progress(job.job_id, job.attempt)
    if plan is not None and progress is not None:
        news = undelivered_event(job, progress, plan, recovery.policy, now)
        if news is not None:
            return news
    if (
        job.status is JobStatus.LOST
        and (heard := lost_jobs.contact_restored_events(recovery, job, progress)) is not None
    ):
        return heard
    if job.deadline_at is not None and job.deadline_at <= now:
        is_lost = job.status is JobStatus.LOST
        dead, unsure, deaf = lost_jobs.evidence_of_death(recovery, job) if is_lost else ({}, (), "")
        return events.JobDeadlineReached(
            at=now,
            attempt=job.attempt,
            deadline_at=job.deadline_at,
            unconfirmed=progress.unconfirmed(plan) if progress and plan else (),
            results=progress.results(plan) if progress and plan else {},
            dead=dead,
            unsure=unsure,
            deaf=deaf,
        )
    if job.look_at is not None and job.look_at <= now:
        return events.JobLookDue(at=now, attempt=job.attempt, look_at=job.look_at)
    return None


def process_due_instance(recovery: Recovery, instance_id: str) -> None:
    """Do what is due for one instance: commands of the dead, its deadline, its look."""
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
