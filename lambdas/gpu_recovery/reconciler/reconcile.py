"""The reconciler: resync with ECS and EC2, process due records, reclaim expired commands.

Every event may be lost. So each minute the reconciler compares ECS and EC2 with the tables (`resync.py`), and processes
the records that are due. The reconciler decides nothing: each finding becomes the event that was lost.

A cycle ends before its function is killed. The resyncs run first, because no due record may keep a lost event from
being found. Due records that are left over stay due, and the next cycle begins with those that are overdue for longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf

from gpu_recovery.core import events
from gpu_recovery.core.attempt import is_under_way, undelivered_event, why_not_rebooted
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.core.task import LastStatus, TaskFact
from gpu_recovery.ecs_events import tasks
from gpu_recovery.execution.context import COMMAND_S
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.ports.console_snapshots import SnapshotWriter
from gpu_recovery.reconciler import lost_jobs
from gpu_recovery.reconciler.console_snapshots import write_snapshots
from gpu_recovery.reconciler.cycle import Cycle
from gpu_recovery.reconciler.due_checks import describe_due_checks
from gpu_recovery.reconciler.ongoing_work import awaited_instances
from gpu_recovery.reconciler.resync import RESYNCS
from gpu_recovery.recovery import Recovery

RESYNC_S, INSTANCE_S, JOB_S = 70, 55, COMMAND_S
"""Seconds that must be left of the function's timeout for a resync to deliver another event, for a due instance to
begin, and for a due job to begin.

So each of the three has time in each cycle. Jobs come last, because a command of a large gang may take most of the
time.
"""
SNAPSHOT_S = 5
"""Seconds that must be left to write the console snapshots, which takes two."""
INSTANCES_AT_ONCE = 400
"""Upper bound of the due instances that are in memory at once."""


def reconcile(
    recovery: Recovery,
    resyncs: Iterable[Callable[[Cycle], object]] = RESYNCS,
    seconds_left: Callable[[], float] = lambda: inf,
    snapshots: SnapshotWriter | None = None,
) -> None:
    """Run one reconcile cycle. A failing record does not delay the others.

    Args:
        recovery: the loop.
        resyncs: the comparisons with ECS and EC2. Each of them runs, and delivers events while there is time.
        seconds_left: returns the seconds that are left of the function's timeout.
        snapshots: writes what the web console shows of the fleet, after everything else; None to write nothing.

    Raises:
        ExceptionGroup: all failures of the cycle, raised together at its end.
    """
    cycle = Cycle(recovery.until(seconds_left, RESYNC_S))
    failures = run_each(lambda compare: compare(cycle), resyncs)
    failures += process_due_instances(recovery.until(seconds_left, INSTANCE_S))
    failures += process_due_jobs(recovery.until(seconds_left, JOB_S))
    if snapshots is not None and seconds_left() > SNAPSHOT_S:
        write_snapshots(cycle, snapshots)
    raise_all("the reconciler could not finish everything", failures)


def process_due_jobs(recovery: Recovery) -> list[Exception]:
    """Process the due jobs while there is time, the longest overdue first. Return the failures."""
    due = recovery.store.due_jobs(recovery.clock())
    return recovery.run_each(lambda job_id: process_due_job(recovery, job_id), due)


def process_due_instances(recovery: Recovery) -> list[Exception]:
    """Process the due instances while there is time, the longest overdue first. Return the failures."""
    due = tuple(recovery.store.due_instances(recovery.clock()))
    failures: list[Exception] = []
    for start in range(0, len(due), INSTANCES_AT_ONCE):
        if recovery.has_time():
            failures += _process_part(recovery, due[start : start + INSTANCES_AT_ONCE])
    return failures


def _process_part(recovery: Recovery, instance_ids: Sequence[str]) -> list[Exception]:
    """Process some due instances. They are loaded together, and ECS is asked about all their health checks together."""
    listed = recovery.store.load_instances(instance_ids)
    facts: dict[str, TaskFact] = {}
    failures = run_each(lambda records: facts.update(describe_due_checks(recovery, records)), (listed.values(),))

    def process(instance_id: str) -> None:
        # The listing lacks unreadable records. To load such a record raises its error.
        record = listed.get(instance_id) or recovery.store.load_instance(instance_id)
        if record is not None:
            process_due_instance(recovery, record, facts.get(instance_id))

    return failures + recovery.run_each(process, instance_ids)


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
        awaited = awaited_instances(recovery, job, plan, progress)
        not_rebooted = {instance_id: why_not_rebooted(record, job) for instance_id, record in awaited.items()}
        return events.JobDeadlineReached(
            at=now,
            attempt=job.attempt,
            deadline_at=job.deadline_at,
            unconfirmed=progress.unconfirmed(plan) if progress and plan else (),
            results=progress.results(plan) if progress and plan else {},
            dead=dead,
            unsure=unsure,
            deaf=outage,
            under_way=tuple(instance_id for instance_id, record in awaited.items() if is_under_way(record, job, now)),
            withheld={instance_id: why for instance_id, why in not_rebooted.items() if why},
        )
    if job.limit_at is not None and job.limit_at <= now:
        return events.RecoveryLimitPassed(at=now, attempt=job.attempt, limit_at=job.limit_at)
    if job.look_at is not None and job.look_at <= now:
        return events.JobLookDue(at=now, attempt=job.attempt, look_at=job.look_at)
    return None


def process_due_instance(recovery: Recovery, instance: Instance, fact: TaskFact | None = None) -> None:
    """Do what is due for one instance: reclaim expired commands, its deadline or its poll.

    Args:
        recovery: the loop.
        instance: the record. It may have changed since: an event about a deadline or a poll that has moved is outdated.
        fact: what ECS says about the task of its health check; None if ECS was not asked.
    """
    instance_id = instance.instance_id
    recovery.decision_log.record_due(instance, recovery.clock())
    if recovery.reclaim_expired(instance):
        instance = recovery.store.load_instance(instance_id) or instance
    now = recovery.clock()
    if instance.deadline_at is not None and instance.deadline_at <= now:
        recovery.handle(instance_id, events.InstanceDeadlineReached(at=now, deadline_at=instance.deadline_at))
    elif instance.look_at is not None and instance.look_at <= now:
        if fact is not None and fact.last_status == LastStatus.STOPPED:
            tasks.check_changed(recovery, fact)
        else:
            look = events.InstanceLookDue(at=now, look_at=instance.look_at, check_runs=fact is not None)
            recovery.handle(instance_id, look)
    else:
        recovery.store.remove_finished_instance_commands(instance, (), {})
