"""Asking the invariants after each step: of everything there is, or only of what the step has changed.

An invariant about one record can only be broken by a write of that record, one about a process only by a process that
begins or ends, or by a write of what it must agree with. So the small question finds what the large one would.
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
    """Asks of all there is, each time."""

    def __init__(self, world: WorldView) -> None:
        self.world = world
        self._seen: dict[str, Instance] = {}

    def broken(self) -> Iterator[str]:
        """What does not hold, one sentence each."""
        instances = self.world.instances()
        yield from records.broken(self.world, instances)
        for one in instances:
            before = self._seen.get(one.instance_id)
            if before is not None and before.revision != one.revision:
                yield from records.returned_to_work(self.world, before, one)
            self._seen[one.instance_id] = one


class IncrementalChecker:
    """Asks of what has changed since it was last asked; of processes only if `checking` is CHANGES."""

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
        """What does not hold, one sentence each."""
        self.asked += 1
        if not self.of_processes and self.asked % self.everything_every == 0:
            yield from records.broken(self.world, self.world.instances())
        if not self._jobs and not self._instances and not self._moved:
            return
        jobs = [self.store.jobs.records[name] for name in self._jobs]
        instances = [self.store.machines.records[name] for name in self._instances]
        self._adopted |= {job.job_id for job in jobs if job.origin is Origin.ADOPTED}
        yield from records.of_records(self.world, jobs, instances, self._adopted)
        for one in instances:
            yield from self._of_repair(one)
        if instances:
            yield from records.of_the_budget(self.world, self._repairing, len(self.store.machines.records))
        if jobs:
            yield from quotas.miscounted(self.store, self.store.jobs.records.values())
        if self.of_processes:
            yield from self._of_processes({job.job_id for job in jobs})
        for news in (self._jobs, self._instances, self._moved):
            news.clear()

    def _of_repair(self, one: Instance) -> Iterator[str]:
        before = self._seen.get(one.instance_id)
        if before is not None and before.revision != one.revision:
            yield from records.returned_to_work(self.world, before, one)
        self._seen[one.instance_id] = one
        if one.under_repair:
            self._repairing.add(one.instance_id)
        else:
            self._repairing.discard(one.instance_id)

    def _of_processes(self, job_ids: set[str]) -> Iterator[str]:
        """Everything that runs on the instances that were touched, and the attempts whose ranks have moved."""
        places = self._instances.keys() | {task.instance_id for task in self._moved.values()}
        every = self.world.fleet.running()
        launches = {task.started_by for task in self._moved.values()}
        # A gang that people started counts from when its job is known, and one job may run as several attempts.
        launched = every if job_ids or launches else []
        tasks = {task.task_id: task for task in launched}
        for name in launches:
            tasks |= {task.task_id: task for task in self.world.cluster.tasks.started_by(name)}
        running = [task for task in every if task.instance_id in places]
        yield from records.of_processes(self.world, running, tasks.values(), self._adopted)
