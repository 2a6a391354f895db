"""The world against the tables: what ECS and EC2 know and no event has told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import Ec2InstanceState, HealthStatus
from gpu_recovery.core.identifiers import attempt_of, instance_of_check
from gpu_recovery.core.instance.interruptions import is_called_off, is_known
from gpu_recovery.core.instance.record import EcsStatus, Instance, InstanceStatus
from gpu_recovery.core.job.record import TERMINAL, Job
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.task import OUR_STOP, TaskFact
from gpu_recovery.ecs_events import tasks
from gpu_recovery.fleet_controls import count
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.ports.values import Ec2InstanceStatus, ec2_state_of
from gpu_recovery.reconciler.cycle import PRESENT, Cycle
from gpu_recovery.reconciler.heartbeat_timeouts import check_heartbeats
from gpu_recovery.recovery import Recovery

# -- what ECS knows ----------------------------------------------------------------------------------------------------


def resync_instances(this: Cycle) -> None:
    """Every registration that ECS knows better than we do, and every one that it knows no more."""
    failures: list[Exception] = []
    known = {record.instance_id: record for record in this.instances_in(PRESENT, failures)}
    shown = dict(this.recovery.actions.container_instances(failures))
    news = [(i, seen) for i, seen in shown.items() if i not in known or is_newer(seen, known[i])]
    missing = [record for instance_id, record in known.items() if instance_id not in shown]
    failures += [
        *run_each(lambda told: this.handle(*told), news),
        *run_each(lambda record: _check_missing(this, record), missing),
    ]
    raise_all("not every instance could be compared", failures)


def is_newer(seen: events.InstanceObserved, record: Instance) -> bool:
    """Whether ECS knows the registration better than the tables do."""
    return seen.container_instance_id != record.container_instance_id or seen.ecs_version > record.ecs_version


def _check_missing(this: Cycle, record: Instance) -> None:
    """A listing may lag, and so may a description: only one that shows it gone, or EC2 itself, ends an instance."""
    described = this.recovery.actions.describe_instance(record.container_instance_id)
    if described is not None and described[1].ecs_status not in (EcsStatus.ACTIVE, EcsStatus.DRAINING):
        this.handle(record.instance_id, replace(described[1], looked=True))


# -- what EC2 knows ----------------------------------------------------------------------------------------------------


def resync_ec2(this: Cycle) -> None:
    """What EC2's own events would have told, which may all be lost: machines off, impaired, or about to be retired."""
    failures: list[Exception] = []
    recovery = this.recovery
    known = {record.instance_id: record for record in this.instances_in(PRESENT, failures)}
    count(recovery, sum(record.gpus_most > 0 for record in known.values()))
    now = recovery.clock()  # before the look: what moves while EC2 answers has not been seen
    statuses = recovery.actions.describe_ec2_status(tuple(known)) if known else {}
    unknown = tuple(instance_id for instance_id in known if instance_id not in statuses)
    machines = recovery.actions.describe_ec2(unknown) if unknown else {}
    off = {one: ec2_state_of(one, machines, known[one].agent_connected) for one in unknown}
    news: list[tuple[str, events.InstanceEvent]] = [
        (instance_id, events.MachineSeen(at=now, state=state))
        for instance_id, state in off.items()
        if state is not None and state.is_off
    ]
    news += [
        (instance_id, event)
        for instance_id, status in statuses.items()
        for event in _undelivered(known[instance_id], status, now)
    ]
    failures += run_each(lambda told: this.handle(*told), news)
    raise_all("not every machine could be compared", failures)


def _undelivered(record: Instance, status: Ec2InstanceStatus, now: datetime) -> Iterator[events.InstanceEvent]:
    if status.state.is_off and not _is_on_its_way(record, status.state):
        yield events.MachineSeen(at=now, state=status.state)
        return
    for word in status.health:
        known = record.health.get(word.kind)
        if word.status is not (known.status if known is not None else HealthStatus.OK) and word.status in _DECISIVE:
            yield word
    for departure in status.interruptions:
        plan = record.departure
        if departure.called_off:
            # An event that was put off is shown twice for a week: canceled, and anew for another time.
            stands = plan is not None and any(
                is_called_off(plan, one) for one in status.interruptions if not one.called_off
            )
            is_news = plan is not None and is_called_off(plan, departure) and not stands
        else:
            is_news = plan is None or not is_known(plan, departure)
        if is_news:
            yield departure


_DECISIVE = (HealthStatus.OK, HealthStatus.IMPAIRED)


def _is_on_its_way(record: Instance, state: Ec2InstanceState) -> bool:
    """Whether we stopped it ourselves and have ordered its start."""
    started = record.reboot is not None and record.reboot.started
    return record.status is InstanceStatus.REPLACING and state is Ec2InstanceState.STOPPED and started


# -- what runs ---------------------------------------------------------------------------------------------------------


LARGE = 50
"""Ranks of a gang from which on two reads are less than asking ECS about each of its tasks, a hundred to a call."""


def resync_tasks(this: Cycle) -> None:
    """Stop tasks of attempts that are over, and take notice of people's tasks whose events were lost."""
    recovery = this.recovery
    jobs: dict[str, Job | None] = {}

    def compare(fact: TaskFact) -> None:
        named = attempt_of(fact.started_by)
        checked = instance_of_check(fact.started_by)
        if checked is not None:
            _stop_forgotten_check(this, fact, checked)
            return
        if named is None:
            tasks.task_changed(recovery, fact)
            return
        job_id, attempt = named
        if job_id not in jobs:
            jobs[job_id] = recovery.store.load_job(job_id)
        if _is_orphan(jobs[job_id], attempt):
            _stop_orphan(recovery, fact)

    failures: list[Exception] = []
    known: set[str] = set()
    failures += run_each(lambda entry: known.update(_planned(recovery, entry)), _large_gangs(this, failures))
    failures += run_each(compare, recovery.actions.running_tasks(failures, known))
    raise_all("not every task could be compared", failures)


def _large_gangs(this: Cycle, failures: list[Exception]) -> list[Entry]:
    """Who has a place and many tasks. Whose entry cannot be read is said by `check_queue_entries`."""
    found: list[Entry] = []
    failures += run_each(lambda one: found.extend(one.queue_entries([])), (this,))
    return [entry for entry in found if entry.nodes >= LARGE and not entry.waits]


def _planned(recovery: Recovery, entry: Entry) -> tuple[str, ...]:
    """The tasks of a large gang under way, as its plan names them: there is nothing to find out about these, and they
    are most of what runs. Of a person's gang each task is looked at: what was lost of it is found nowhere else."""
    job = recovery.store.load_job(entry.job_id)
    if job is None or job.started_by_person or _is_orphan(job, job.attempt):
        return ()
    plan = recovery.store.load_plan(job.job_id, job.attempt)
    return plan.task_ids if plan is not None else ()


def _is_orphan(job: Job | None, attempt: int) -> bool:
    """A task of a known job whose attempt is over; a stranger who uses our way of naming is left alone."""
    return job is not None and (attempt < job.attempt or (attempt == job.attempt and job.status in TERMINAL))


def _stop_orphan(recovery: Recovery, fact: TaskFact) -> None:
    recovery.actions.stop_tasks((fact.task_id,), f"{OUR_STOP}{fact.started_by} is over")


def _stop_forgotten_check(this: Cycle, fact: TaskFact, instance_id: str) -> None:
    """A check that its instance no longer waits for would hold the GPUs for nothing; a stranger's is left alone.

    Only what the listing says otherwise is read: while a large gang is checked that is nearly nothing.
    """
    recovery = this.recovery
    if _waits_for(this.listed(instance_id), fact):
        return
    record = recovery.store.load_instance(instance_id)
    if record is None or _waits_for(record, fact):
        return
    number = int(fact.started_by.rsplit("/", 1)[-1])
    if number <= record.checks:
        recovery.actions.stop_tasks((fact.task_id,), f"{OUR_STOP}nobody waits for {fact.started_by}")


def _waits_for(record: Instance | None, fact: TaskFact) -> bool:
    return record is not None and record.check is not None and record.check.check_id == fact.started_by


def check_queue_entries(this: Cycle) -> None:
    """Whoever cannot be read in line is never placed: the scheduler goes on without them, so it is raised here."""
    unreadable: list[Exception] = []
    this.queue_entries(unreadable)
    raise_all("not everybody in line can be read", unreadable)


RESYNCS = (resync_instances, resync_ec2, resync_tasks, check_heartbeats, check_queue_entries)
