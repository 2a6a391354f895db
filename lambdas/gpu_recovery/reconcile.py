"""What nobody told us: deadlines, looks, commands left by the dead, and whatever ECS knows and our tables do not.

Every event may be lost, so each minute the reconciler opens the records that are due and compares the cluster with
the tables. It decides nothing: what it finds becomes the same events that EventBridge would have brought.
"""

from __future__ import annotations

from dataclasses import replace

from . import acts, tasks
from .acts import untold_to
from .core import events
from .core.instance.record import EcsStatus, Instance, InstanceStatus
from .core.job.record import LIVE, TERMINAL, Job, JobStatus
from .core.names import attempt_of
from .core.task import OUR_STOP, TaskFact
from .isolation import raise_all, try_each
from .recovery import Recovery


def reconcile(recovery: Recovery) -> None:
    """One round. A record that fails does not keep the others waiting; all failures are raised together at the end."""
    now = recovery.clock()
    failures = [
        *try_each(lambda job_id: open_job(recovery, job_id), recovery.store.due_jobs(now)),
        *try_each(lambda instance_id: open_instance(recovery, instance_id), recovery.store.due_instances(now)),
        *try_each(lambda compare: compare(recovery), (compare_instances, compare_tasks)),
    ]
    raise_all("the reconciler could not finish everything", failures)


def open_job(recovery: Recovery, job_id: str) -> None:
    """Do what is due for one job: commands of the dead, facts it was never told, its deadline, its look."""
    job = recovery.store.load_job(job_id)
    if job is None:
        return
    recovery.take_over(job)
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
        news = untold_to(job, progress, plan, now)
        if news is not None:
            return news
    if job.deadline_at is not None and job.deadline_at <= now:
        return events.JobDeadlineReached(
            at=now, attempt=job.attempt, deadline_at=job.deadline_at,
            unconfirmed=progress.unconfirmed(plan) if progress and plan else (),
            results=progress.results(plan) if progress and plan else {},
        )  # fmt: skip
    if job.look_at is not None and job.look_at <= now:
        return events.JobLookDue(at=now, attempt=job.attempt, look_at=job.look_at)
    return None


def open_instance(recovery: Recovery, instance_id: str) -> None:
    """Do what is due for one instance: commands of the dead, its deadline, its look."""
    instance = recovery.store.load_instance(instance_id)
    if instance is None:
        return
    recovery.take_over(instance)
    instance = recovery.store.load_instance(instance_id) or instance
    now = recovery.clock()
    if instance.deadline_at is not None and instance.deadline_at <= now:
        recovery.tell(instance_id, events.InstanceDeadlineReached(at=now, deadline_at=instance.deadline_at))
    elif instance.look_at is not None and instance.look_at <= now:
        recovery.tell(instance_id, events.InstanceLookDue(at=now, look_at=instance.look_at))
    else:
        recovery.store.settle_instance(instance, (), {})


def compare_instances(recovery: Recovery) -> None:
    """Every registration that ECS knows better than we do, and every one that it knows no more."""
    present = [status for status in InstanceStatus if status is not InstanceStatus.GONE]
    known = {instance.instance_id: instance for instance in recovery.store.instances_in(present)}
    shown = dict(recovery.actions.container_instances())
    news = [(i, seen) for i, seen in shown.items() if i not in known or _says_more(seen, known[i])]
    missing = [record for instance_id, record in known.items() if instance_id not in shown]
    failures = [
        *try_each(lambda told: recovery.tell(*told), news),
        *try_each(lambda record: _ask_about_missing(recovery, record), missing),
    ]
    raise_all("not every instance could be compared", failures)


def _says_more(seen: events.InstanceObserved, record: Instance) -> bool:
    return seen.container_instance_id != record.container_instance_id or seen.ecs_version > record.ecs_version


def _ask_about_missing(recovery: Recovery, record: Instance) -> None:
    """A listing may lag, and so may a description: only one that shows it gone, or EC2 itself, ends an instance."""
    described = recovery.actions.describe_instance(record.container_instance_id)
    if described is not None:
        if described[1].ecs_status not in (EcsStatus.ACTIVE, EcsStatus.DRAINING):
            recovery.tell(record.instance_id, replace(described[1], looked=True))
    elif recovery.actions.ended_instances((record.instance_id,)):
        recovery.tell(record.instance_id, acts.seen_gone(record, recovery.clock()))


def compare_tasks(recovery: Recovery) -> None:
    """Stop tasks of attempts that are over, and take notice of people's tasks whose events were lost."""
    jobs: dict[str, Job | None] = {}

    def compare(fact: TaskFact) -> None:
        named = attempt_of(fact.started_by)
        if named is None:
            tasks.task_changed(recovery, fact)
            return
        job_id, attempt = named
        if job_id not in jobs:
            jobs[job_id] = recovery.store.load_job(job_id)
        if _is_orphan(jobs[job_id], attempt):
            _stop_orphan(recovery, fact)

    raise_all("not every task could be compared", try_each(compare, recovery.actions.running_tasks()))


def _is_orphan(job: Job | None, attempt: int) -> bool:
    """A task of a known job whose attempt is over; a stranger who uses our way of naming is left alone."""
    return job is not None and (attempt < job.attempt or (attempt == job.attempt and job.status in TERMINAL))


def _stop_orphan(recovery: Recovery, fact: TaskFact) -> None:
    recovery.actions.stop_tasks((fact.task_id,), f"{OUR_STOP}{fact.started_by} is over")
