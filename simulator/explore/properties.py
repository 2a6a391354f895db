"""What must hold of a state of the small world, and of the way into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.state_machine import due_at
from gpu_recovery.execution import NOTIFICATIONS

from simulator.explore.small_world import SmallWorld
from simulator.explore.state_capture import Core, StateCapture
from simulator.invariants import records

SHELVES = ("jobs", "machines")
_UNREPAIRED = (InstanceStatus.AVAILABLE, InstanceStatus.QUARANTINED, InstanceStatus.GONE)


class PropertyViolated(Exception):
    """Something that never may be: one sentence each."""

    def __init__(self, told: list[str]) -> None:
        super().__init__("\n".join(told))
        self.sentences = told


class PropertyChecker:
    """Judges states of `world`, which must be in the state that is judged unless it says otherwise."""

    def __init__(self, world: SmallWorld, copier: StateCapture) -> None:
        self.world, self.copier = world, copier

    def check_step(self, before: Core, core: Core) -> None:
        """Broken, if something has happened on the way from `before` to `core` that never may."""
        found = list(self.world.transcript.broken)
        known: Mapping[str, Any] = self.copier.records(before, "machines")
        for name, record in self.copier.records(core, "machines").items():
            if name in known and known[name].revision != record.revision:
                found += records.returned_to_work(self.world, known[name], record)
        if found:
            raise PropertyViolated(found)

    def check(self, core: Core) -> None:
        """Broken, if an invariant does not hold."""
        found = [*records.broken(self.world, self.world.instances()), *self._overlooked(core)]
        if found:
            raise PropertyViolated(found)

    def _overlooked(self, core: Core) -> Iterator[str]:
        """I2: what the index says is due later than it is would be looked at too late, or never."""
        for shelf in SHELVES:
            due = self.copier.due(core, shelf)
            for name, record in self.copier.records(core, shelf).items():
                at = due_at(record.deadline_at, record.look_at, record.commands)
                known = due[name]
                if at is not None and (known is None or known > at):
                    yield f"I2: {name} is due at {at:%H:%M:%S}, and the index does not say so"

    def is_final(self, core: Core) -> bool:
        """Whether the job has ended and nothing is left to be done. The world may be in any state."""
        jobs = self.copier.records(core, "jobs").values()
        instances = self.copier.records(core, "machines").values()
        if self.copier.steps_of(core) or any(record.commands for record in (*jobs, *instances)):
            return False
        return all(job.status in TERMINAL for job in jobs) and all(one.status in _UNREPAIRED for one in instances)

    def unsettled(self, *, must_succeed: bool) -> list[str]:
        """What must be so in a final state and is not."""
        world = self.world
        found = list(records.left_behind(world))
        for job in world.jobs():
            if job.status is JobStatus.FAILED and not world.announced:
                found.append(f"I7: nobody was told that {job.job_id} failed")
            if must_succeed and job.status is not JobStatus.SUCCEEDED:
                found.append(f"I8: {job.job_id} ends {job.status}, and SUCCEEDED without faults: {job.reason}")
        return found

    def ending(self) -> str:
        """How the job and the machines are."""
        job = self.world.job(self.world.job_id)
        machines = sorted(str(one.status) for one in self.world.instances())
        return f"{job.status} in attempt {job.attempt}, machines {', '.join(machines)}"


def without_notifications(core: Core, copier: StateCapture) -> Core:
    """The state without the words that a dead invocation has left to be said: nothing waits for them. That a job has
    failed must be said all the same."""
    for shelf in SHELVES:
        changes: dict[str, tuple[Any, datetime | None]] = {}
        for name, record in copier.records(core, shelf).items():
            left = tuple(one for one in record.commands if not _is_notification(one.command, record))
            if len(left) < len(record.commands):
                due = due_at(record.deadline_at, record.look_at, left)
                changes[name] = replace(record, commands=left), due
        if changes:
            core = copier.altered(core, shelf, changes)
    return core


def _is_notification(command: Any, record: Any) -> bool:
    is_asked_for = isinstance(record, Job) and record.status is JobStatus.FAILED
    return isinstance(command, NOTIFICATIONS) and not (is_asked_for and isinstance(command, NotifyOperator))
