"""Properties that must hold in each state of the small world, and on each transition into the state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.state_machine import due_at, next_deadline
from gpu_recovery.execution.command_results import NOTIFICATIONS

from simulator.explore.small_world import SmallWorld
from simulator.explore.state_capture import Core, StateCapture
from simulator.invariants import records

SHELVES = ("jobs", "machines")
"""Shelves of the store that have records: the records of jobs and the records of instances."""
_UNREPAIRED = (InstanceStatus.AVAILABLE, InstanceStatus.QUARANTINED, InstanceStatus.GONE)


class PropertyViolated(Exception):
    """A property is violated. `sentences` has a sentence for each violation."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences


class PropertyChecker:
    """Checks the properties of states. Unless stated otherwise, `world` must be in the checked state."""

    def __init__(self, world: SmallWorld, copier: StateCapture) -> None:
        self.world, self.copier = world, copier

    def check_step(self, before: Core, core: Core) -> None:
        """Check the transition from `before` to `core`.

        Raises:
            PropertyViolated: the transcript has a violation, or an instance returned to work without proof.
        """
        sentences = list(self.world.transcript.broken)
        before_by_name: Mapping[str, Any] = self.copier.records(before, "machines")
        for name, record in self.copier.records(core, "machines").items():
            if name in before_by_name and before_by_name[name].revision != record.revision:
                sentences += records.returned_to_work(self.world, before_by_name[name], record)
        if sentences:
            raise PropertyViolated(sentences)

    def check(self, core: Core) -> None:
        """Check the invariants of the state `core`.

        Raises:
            PropertyViolated: an invariant does not hold.
        """
        sentences = [*records.broken(self.world, self.world.instances()), *self._overlooked(core)]
        if sentences:
            raise PropertyViolated(sentences)

    def _overlooked(self, core: Core) -> Iterator[str]:
        """Yield the violations of I2: the index has a record due later than the record says, or never."""
        for shelf in SHELVES:
            due = self.copier.due(core, shelf)
            for name, record in self.copier.records(core, shelf).items():
                record_due = due_at(next_deadline(record), record.look_at, record.commands)
                indexed_due = due[name]
                if record_due is not None and (indexed_due is None or indexed_due > record_due):
                    yield f"I2: {name} is due at {record_due:%H:%M:%S}, and the index does not say so"

    def is_final(self, core: Core) -> bool:
        """Whether the job has ended and no step, command or repair remains. The world may be in any state."""
        jobs = self.copier.records(core, "jobs").values()
        instances = self.copier.records(core, "machines").values()
        if self.copier.steps_of(core) or any(record.commands for record in (*jobs, *instances)):
            return False
        return all(job.status in TERMINAL for job in jobs) and all(
            instance.status in _UNREPAIRED for instance in instances
        )

    def unsettled(self, *, must_succeed: bool) -> list[str]:
        """Return the violated properties of a final state. `must_succeed`: whether the job must have succeeded."""
        world = self.world
        sentences = list(records.left_behind(world))
        for job in world.jobs():
            if job.status is JobStatus.FAILED and not world.announced:
                sentences.append(f"I7: nobody was told that {job.job_id} failed")
            if must_succeed and job.status is not JobStatus.SUCCEEDED:
                sentences.append(f"I8: {job.job_id} ends {job.status}, and SUCCEEDED without faults: {job.reason}")
        return sentences

    def ending(self) -> str:
        """Return the status of the job and the statuses of the instances as text."""
        job = self.world.job(self.world.job_id)
        statuses = sorted(str(instance.status) for instance in self.world.instances())
        return f"{job.status} in attempt {job.attempt}, machines {', '.join(statuses)}"


def without_notifications(core: Core, copier: StateCapture) -> Core:
    """Return the state without the pending notifications that a killed invocation left.

    No decision waits for these notifications. The notification of a failed job stays, because it must be sent.
    """
    for shelf in SHELVES:
        changes: dict[str, tuple[Any, datetime | None]] = {}
        for name, record in copier.records(core, shelf).items():
            remaining = tuple(pending for pending in record.commands if not _is_notification(pending.command, record))
            if len(remaining) < len(record.commands):
                due = due_at(next_deadline(record), record.look_at, remaining)
                changes[name] = replace(record, commands=remaining), due
        if changes:
            core = copier.altered(core, shelf, changes)
    return core


def _is_notification(command: Any, record: Any) -> bool:
    is_asked_for = isinstance(record, Job) and record.status is JobStatus.FAILED
    return isinstance(command, NOTIFICATIONS) and not (is_asked_for and isinstance(command, NotifyOperator))
