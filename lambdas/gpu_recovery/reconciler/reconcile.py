"""What nobody told us: deadlines, looks, and commands left by the dead.

Every event may be lost, so each minute the reconciler opens the records that are due and compares the world with
the tables (`comparing.py`). It decides nothing: what it finds becomes the events that would have told it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpu_recovery.core import events
from gpu_recovery.core.attempt import undelivered_event
from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.partial_failures import raise_all, try_each
from gpu_recovery.reconciler import lost_jobs
from gpu_recovery.reconciler.cycle import Round
from gpu_recovery.reconciler.resync import COMPARISONS
from gpu_recovery.recovery import Recovery


def reconcile(recovery: Recovery, comparisons: Iterable[Callable[[Round], object]] = COMPARISONS) -> None:
    """One round. A record that fails does not keep the others waiting; all failures are raised together at the end."""
    now, this = recovery.clock(), Round(recovery)
    failures = [
        *try_each(lambda job_id: open_job(recovery, job_id), recovery.store.due_jobs(now)),
        *try_each(lambda instance_id: open_instance(recovery, instance_id), recovery.store.due_instances(now)),
        *try_each(lambda compare: compare(this), comparisons),
    ]
    raise_all("the reconciler could not finish everything", failures)


def open_job(recovery: Recovery, job_id: str) -> None:
    """Do what is due for one job: commands of the dead, facts it was never told, its deadline, its look."""
    job = recovery.store.load_job(job_id)
    if job is None:
        return
    recovery.journal.opened(job, recovery.clock())
    if recovery.take_over(job):
        job = recovery.store.load_job(job_id) or job
    event = _due_event(recovery, job)
    if event is not None:
        recovery.tell(job_id, event)
    else:
        recovery.store.settle_job(job, (), {})


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
    if job.status is JobStatus.LOST and (heard := lost_jobs.heard_again(recovery, job, progress)) is not None:
        return heard
    if job.deadline_at is not None and job.deadline_at <= now:
        is_lost = job.status is JobStatus.LOST
        dead, unsure, deaf = lost_jobs.what_others_say(recovery, job) if is_lost else ({}, (), "")
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


def open_instance(recovery: Recovery, instance_id: str) -> None:
    """Do what is due for one instance: commands of the dead, its deadline, its look."""
    instance = recovery.store.load_instance(instance_id)
    if instance is None:
        return
    recovery.journal.opened(instance, recovery.clock())
    if recovery.take_over(instance):
        instance = recovery.store.load_instance(instance_id) or instance
    now = recovery.clock()
    if instance.deadline_at is not None and instance.deadline_at <= now:
        recovery.tell(instance_id, events.InstanceDeadlineReached(at=now, deadline_at=instance.deadline_at))
    elif instance.look_at is not None and instance.look_at <= now:
        recovery.tell(instance_id, events.InstanceLookDue(at=now, look_at=instance.look_at))
    else:
        recovery.store.settle_instance(instance, (), {})
