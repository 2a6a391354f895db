"""Resync (drift detection): compare ECS and EC2 with the tables.

Each difference is delivered as the event that was lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpu_recovery.core import events
from gpu_recovery.core.identifiers import attempt_of, instance_of_check
from gpu_recovery.core.instance.record import PRESENT, EcsStatus, ListedInstance
from gpu_recovery.core.job.record import TERMINAL, Job
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.totals import totals_by_priority
from gpu_recovery.core.task import OUR_STOP, TaskFact
from gpu_recovery.ecs_events import tasks
from gpu_recovery.ecs_events.undelivered_events import undelivered_ec2_events, undelivered_reports
from gpu_recovery.execution.held_tasks import is_used_again
from gpu_recovery.execution.task_ownership import Owner, owner_of_check_task, owner_of_rank_task
from gpu_recovery.fleet_controls import save_gpu_instance_count
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.ports.values import ec2_state_of
from gpu_recovery.reconciler.cycle import Cycle
from gpu_recovery.reconciler.heartbeat_timeouts import check_heartbeats
from gpu_recovery.reconciler.idle_checks import start_idle_checks
from gpu_recovery.recovery import Recovery


def resync_listing(cycle: Cycle) -> None:
    """Add instances that an older release wrote to the listing that the other comparisons read."""
    cycle.recovery.store.complete_listing(cycle.recovery.clock())


# -- ECS ---------------------------------------------------------------------------------------------------------------


def resync_instances(cycle: Cycle) -> None:
    """Deliver each registration and health report that is newer at ECS than in the tables.

    Instances that ECS no longer lists are checked.

    Raises:
        ExceptionGroup: some instances could not be compared. The others were handled.
    """
    failures: list[Exception] = []
    known = {record.instance_id: record for record in cycle.instances_in(PRESENT, failures)}
    shown = dict(cycle.recovery.actions.container_instances(failures))
    if unlisted := [instance_id for instance_id in shown if instance_id not in known]:
        failures += run_each(cycle.recovery.store.add_to_listing, (unlisted,))
    newer = [(i, seen) for i, seen in shown.items() if i not in known or is_newer(seen, known[i])]
    missing = [record for instance_id, record in known.items() if instance_id not in shown]
    failures += [
        *cycle.recovery.run_each(lambda observed: cycle.handle(*observed), newer),
        *cycle.recovery.run_each(lambda record: _check_missing(cycle, record), missing),
    ]
    # The registrations are delivered first, so that a report finds the record of its instance.
    reports = [
        (instance_id, undelivered_reports(record, seen.health))
        for instance_id, seen in shown.items()
        if seen.health and (record := cycle.listed(instance_id)) is not None
    ]
    failures += _deliver(cycle, reports)
    raise_all("not every instance could be compared", failures)


def _deliver(cycle: Cycle, found: Iterable[tuple[str, Iterable[events.InstanceEvent]]]) -> list[Exception]:
    """Deliver the events of each instance while there is time, and return the failures.

    Instances are independent. The events of one instance keep their order, and each of them is tried.
    """

    def deliver(addressed: tuple[str, tuple[events.InstanceEvent, ...]]) -> None:
        instance_id, undelivered = addressed
        failed = run_each(lambda event: cycle.handle(instance_id, event), undelivered)
        raise_all(f"not every event reached {instance_id}", failed)

    listed = [(instance_id, tuple(undelivered)) for instance_id, undelivered in found]
    return cycle.recovery.run_each(deliver, [addressed for addressed in listed if addressed[1]])


def is_newer(seen: events.InstanceObserved, record: ListedInstance) -> bool:
    """Return whether ECS shows another registration than the record, or a later version of the same."""
    return seen.container_instance_id != record.container_instance_id or seen.ecs_version > record.ecs_version


def _check_missing(cycle: Cycle, record: ListedInstance) -> None:
    """Describe an instance that the listing of ECS lacks, and deliver the answer if the registration has ended.

    A listing may lag, and so may a description. So only a description of an ended registration, or EC2, ends an
    instance.
    """
    described = cycle.recovery.actions.describe_instance(record.container_instance_id)
    if described is not None and described[1].ecs_status not in (EcsStatus.ACTIVE, EcsStatus.DRAINING):
        cycle.handle(record.instance_id, replace(described[1], looked=True))


# -- EC2 ---------------------------------------------------------------------------------------------------------------


def resync_ec2(cycle: Cycle) -> None:
    """Deliver what lost events of EC2 would have reported: instances that are off, impaired or about to be retired.

    Raises:
        ExceptionGroup: some instances could not be compared. The others were handled.
    """
    failures: list[Exception] = []
    recovery = cycle.recovery
    known = {record.instance_id: record for record in cycle.instances_in(PRESENT, failures)}
    cycle.fleet = save_gpu_instance_count(recovery, sum(record.gpus_most > 0 for record in known.values()))
    now = recovery.clock()  # taken before the call: changes while EC2 answers are not part of the answer
    statuses = recovery.actions.describe_ec2_status(tuple(known)) if known else {}
    unknown = tuple(instance_id for instance_id in known if instance_id not in statuses)
    described = recovery.actions.describe_ec2(unknown) if unknown else {}
    off = {
        instance_id: ec2_state_of(instance_id, described, known[instance_id].agent_connected) for instance_id in unknown
    }
    undelivered: list[tuple[str, Iterable[events.InstanceEvent]]] = [
        (instance_id, (events.MachineSeen(at=now, state=state),))
        for instance_id, state in off.items()
        if state is not None and state.is_off
    ]
    undelivered += [
        (instance_id, undelivered_ec2_events(known[instance_id], status, now))
        for instance_id, status in statuses.items()
    ]
    failures += _deliver(cycle, undelivered)
    raise_all("not every EC2 instance could be compared", failures)


# -- tasks -------------------------------------------------------------------------------------------------------------


LARGE = 50
"""Ranks from which two reads of a gang cost less than asking ECS about each of its tasks, a hundred to a call."""


def resync_tasks(cycle: Cycle) -> None:
    """Stop tasks of ended attempts and forgotten health checks, and handle users' tasks after their events were lost.

    Raises:
        ExceptionGroup: some tasks could not be compared. The others were handled.
    """
    recovery = cycle.recovery
    jobs: dict[str, Job | None] = {}

    def compare(fact: TaskFact) -> None:
        named = attempt_of(fact.started_by)
        checked = instance_of_check(fact.started_by)
        if checked is not None:
            _stop_forgotten_check(cycle, fact, checked)
            return
        if named is None:
            tasks.task_changed(recovery, fact)
            return
        job_id, attempt = named
        if job_id not in jobs:
            jobs[job_id] = recovery.store.load_job(job_id)
        job = jobs[job_id]
        if job is not None and _is_orphan(job, attempt):
            _stop_orphan(recovery, job, attempt, fact)

    failures: list[Exception] = []
    known: set[str] = set()
    failures += run_each(lambda entry: known.update(_planned(recovery, entry)), _large_gangs(cycle, failures))
    failures += recovery.run_each(compare, recovery.actions.running_tasks(failures, known))
    raise_all("not every task could be compared", failures)


def _large_gangs(cycle: Cycle, failures: list[Exception]) -> list[Entry]:
    """Return the entries of placed gangs with many tasks. `check_queue_entries` reports unreadable entries."""
    entries: list[Entry] = []
    failures += run_each(lambda listing: entries.extend(listing.queue_entries([])), (cycle,))
    return [entry for entry in entries if entry.nodes >= LARGE and not entry.waits]


def _planned(recovery: Recovery, entry: Entry) -> tuple[str, ...]:
    """Return the task ids in the plan of a large gang that runs; empty if each of its tasks must be compared.

    Most running tasks belong to such gangs, and their plan already names them. An adopted gang that its user started is
    always compared, because lost events of its tasks are found nowhere else.
    """
    job = recovery.store.load_job(entry.job_id)
    if job is None or job.started_by_person or _is_orphan(job, job.attempt):
        return ()
    plan = recovery.store.load_plan(job.job_id, job.attempt)
    return plan.task_ids if plan is not None else ()


def _is_orphan(job: Job, attempt: int) -> bool:
    """Return whether a task of the attempt belongs to an attempt that has ended."""
    return attempt < job.attempt or (attempt == job.attempt and job.status in TERMINAL)


def _stop_orphan(recovery: Recovery, job: Job, attempt: int, fact: TaskFact) -> None:
    """Stop a task of an ended attempt, if we started the task and no later attempt runs in it or may start in it."""
    if is_used_again(recovery.store, job, fact.task_id):
        return
    plan = recovery.store.load_plan(job.job_id, attempt)
    if plan is not None and owner_of_rank_task(recovery.store, recovery.actions, plan, job, fact) is Owner.OURS:
        recovery.actions.stop_tasks((fact.task_id,), f"{OUR_STOP}{fact.started_by} is over")


def _stop_forgotten_check(cycle: Cycle, fact: TaskFact, instance_id: str) -> None:
    """Stop a health check that its instance no longer waits for, because it would occupy GPUs for nothing.

    A check of another program, and a task that only carries the name of a check, are left alone. The record is read
    only if the listing differs from the task. So this costs nearly no reads while a large gang is checked.
    """
    recovery = cycle.recovery
    if _waits_for(cycle.listed(instance_id), fact):
        return
    record = recovery.store.load_instance(instance_id)
    if record is None or _waits_for(record, fact):
        return
    number = int(fact.started_by.rsplit("/", 1)[-1])
    owner = owner_of_check_task(recovery.store, recovery.actions, record, fact)
    if number <= record.checks and owner is Owner.OURS:
        recovery.actions.stop_tasks((fact.task_id,), f"{OUR_STOP}no record waits for {fact.started_by}")


def _waits_for(record: ListedInstance | None, fact: TaskFact) -> bool:
    return record is not None and record.check is not None and record.check.check_id == fact.started_by


def check_queue_entries(cycle: Cycle) -> None:
    """Raise for queue entries that cannot be read. Such jobs are never placed, and the scheduler skips them.

    Raises:
        ExceptionGroup: some entries cannot be read.
    """
    unreadable: list[Exception] = []
    cycle.queue_entries(unreadable)
    raise_all("not every waiting job can be read", unreadable)


def measure_queue(cycle: Cycle) -> None:
    """Measure the jobs, instances and GPUs that run and that wait, by priority. Unreadable entries are not counted."""
    recovery = cycle.recovery
    on_ray = recovery.store.load_ray_queue([]) if recovery.ray is not None else ()
    totals = totals_by_priority((*cycle.queue_entries([]), *on_ray), recovery.policy, recovery.clock())
    recovery.decision_log.queue_checked(totals)


RESYNCS = (
    resync_listing,
    resync_instances,
    resync_ec2,
    resync_tasks,
    check_heartbeats,
    check_queue_entries,
    measure_queue,
    start_idle_checks,
)
