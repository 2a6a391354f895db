"""Checks the invariants after each step: for everything, or only for what the step has changed.

Only a write of a record can break an invariant about that record. An invariant about a process can break in two ways:
a process begins or ends, or a record that must agree with the process is written. So the check of the changes finds
what the check of everything finds.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Origin

from sandbox.cluster.model.records import Task
from simulator.fast.fidelity import Checking
from simulator.invariants import quotas, records
from simulator.memory_store.store import MemoryStore
from simulator.world_view import WorldView


class FullChecker:
    """Checks everything each time."""

    def __init__(self, world: WorldView) -> None:
        self.world = world
        self._seen: dict[str, Instance] = {}

    def broken(self) -> Iterator[str]:
        """Yield one sentence for each invariant that does not hold now."""
        instances = self.world.instances()
        yield from records.broken(self.world, instances)
        for instance in instances:
            before = self._seen.get(instance.instance_id)
            if before is not None and before.revision != instance.revision:
                yield from records.returned_to_work(self.world, before, instance)
            self._seen[instance.instance_id] = instance


class IncrementalChecker:
    """Checks what has changed since its last check; processes only if `checking` is CHANGES."""

    def __init__(self, world: WorldView, store: MemoryStore, checking: Checking, everything_every: int) -> None:
        self.world, self.store = world, store
        self.of_processes, self.everything_every = checking is Checking.CHANGES, everything_every
        self.asked = 0
        self._seen: dict[str, Instance] = {}
        self._repairing: set[str] = set()
        self._adopted: set[str] = set()
        self._moved: dict[str, Task] = {}
        self._jobs: dict[str, None] = dict.fromkeys(store.jobs.records)
        self._instances: dict[str, None] = dict.fromkeys(store.machines.records)
        store.jobs.listeners += (self._jobs,)
        store.machines.listeners += (self._instances,)
        if self.of_processes:
            world.cluster.tasks.news = self._moved

    def broken(self) -> Iterator[str]:
        """Yield one sentence for each invariant that a change has broken."""
        self.asked += 1
        if not self.of_processes and self.asked % self.everything_every == 0:
            yield from records.broken(self.world, self.world.instances())
        if not self._jobs and not self._instances and not self._moved:
            return
        jobs = [self.store.jobs.records[name] for name in self._jobs]
        instances = [self.store.machines.records[name] for name in self._instances]
        self._adopted |= {job.job_id for job in jobs if job.origin is Origin.ADOPTED}
        yield from records.of_records(self.world, jobs, instances, self._adopted)
        for instance in instances:
            yield from self._of_repair(instance)
        if instances:
            yield from records.of_the_budget(self.world, self._repairing, len(self.store.machines.records))
        if jobs:
            yield from quotas.miscounted(self.store, self.store.jobs.records.values())
        if self.of_processes:
            yield from self._of_processes({job.job_id for job in jobs})
        for changes in (self._jobs, self._instances, self._moved):
            changes.clear()

    def _of_repair(self, instance: Instance) -> Iterator[str]:
        before = self._seen.get(instance.instance_id)
        if before is not None and before.revision != instance.revision:
            yield from records.returned_to_work(self.world, before, instance)
        self._seen[instance.instance_id] = instance
        if instance.under_repair:
            self._repairing.add(instance.instance_id)
        else:
            self._repairing.discard(instance.instance_id)

    def _of_processes(self, job_ids: set[str]) -> Iterator[str]:
        """Check all processes on the changed instances, and the attempts of the ranks that began or ended."""
        changed_instances = self._instances.keys() | {task.instance_id for task in self._moved.values()}
        all_running = self.world.fleet.running()
        attempts = {task.started_by for task in self._moved.values()}
        # A gang that an operator started is checked once its job is known; one job may run as several attempts.
        launched = all_running if job_ids or attempts else []
        tasks = {task.task_id: task for task in launched}
        for name in attempts:
            tasks |= {task.task_id: task for task in self.world.cluster.tasks.started_by(name)}
        running = [task for task in all_running if task.instance_id in changed_instances]
        yield from records.of_processes(self.world, running, tasks.values(), self._adopted)
