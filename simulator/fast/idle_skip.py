"""Passing over looks that would certainly find nothing: weeks of training are mostly minutes in which nothing is new.

A tick of the clock on which the reconciler or the scheduler is woken is passed over, if the last one that was not did
nothing, and nothing that it has looked at can be otherwise since:

- nothing was written to the store and no machine or task has moved (`Invocations`, `VirtualFleet.changes`);
- no record is due: deadlines, looks and claims of the dead are all in the store's due times;
- time alone changes nothing of what it sees. That is so of everything but these, each of which is waited for: EC2 shows
  a failing status check only as a word about the machine after five minutes (so nothing is passed over while one
  fails), EC2 forgets a terminated machine after an hour, and the scheduler places a job when its cool-down is over.

While a job runs its look is due every other minute and writes the time of the next. Such a round is made, but without
comparing the whole cluster with the tables, if that found nothing the last time and no instance's record, no brake, no
job's status or attempt and no machine or task has changed since: the comparisons read nothing else.

A tick of the scheduler reads what the last pass has left, and nothing else unless something waits for time, or has
changed.

After an hour everything is looked at in any case. What alters a machine behind the fleet's back must count it in
`VirtualFleet.changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Protocol

from gpu_recovery.core.job.record import WAITING
from gpu_recovery.reconciler.cycle import Cycle
from gpu_recovery.reconciler.resync import RESYNCS

from sandbox.cluster.model.cluster import TERMINATED_INSTANCES_MAX
from simulator.lambda_runtime import SCHEDULER, LambdaRuntime
from simulator.memory_store.store import MemoryStore
from simulator.world_view import WorldView

LONGEST = timedelta(hours=1)
State = tuple[Any, ...]


class IdlingWorld(WorldView, Protocol):
    """A world with its Lambda functions."""

    functions: LambdaRuntime


class IdleSkip:
    """Says of each tick of a function whether it may be passed over, and of each round what it may leave out."""

    def __init__(self, world: IdlingWorld, store: MemoryStore) -> None:
        self.world, self.store = world, store
        self.skipped = self.resyncs_skipped = 0
        """How many ticks were passed over, and how many further rounds were made without a comparison."""
        self._began: dict[str, State] = {}
        self._idle: dict[str, tuple[State, datetime]] = {}
        """The state in which a function found nothing to do, and until when that stands."""
        self._written: dict[str, None] = {}
        store.machines.listeners += (self._written,)
        self._same: tuple[State, datetime] | None = None
        """What the comparisons read when they last found nothing, and until when that stands."""
        self._compared = 0
        self._machines: tuple[int, bool, tuple[datetime, ...]] | None = None

    # -- whole ticks ---------------------------------------------------------------------------------------------------

    def may_skip(self, name: str) -> bool:
        """Whether the function would find nothing to do now, as when it was last woken."""
        state, until = self._idle.get(name, (None, None))
        skips = state == self._state() and until is not None and self.world.timeline.now < until
        if name == SCHEDULER:
            skips = self._reads_no_more_than_the_last_pass()
        self.skipped += skips
        return skips

    def _reads_no_more_than_the_last_pass(self) -> bool:
        """Whether a tick of the scheduler is alone in its queue and the last pass saw nothing that waits for time."""
        last = self.store.load_last_pass()
        return last.at is not None and not last.waiting and last.next_at is None and not self.world.functions.asked

    def begins(self, name: str) -> None:
        """The function is woken."""
        self._began[name] = self._state()

    def ended(self, name: str) -> None:
        """The function has come to its end, or died."""
        self._idle.pop(name, None)
        if self._began.pop(name) == self._state() and not self._something_fails():
            self._idle[name] = (self._state(), self._until())

    def _state(self) -> State:
        lives, world = self.world.invocations, self.world
        return lives.taken + lives.asked, world.fleet.changes, len(world.failures) + len(lives.killed)

    def _something_fails(self) -> bool:
        return self._of_machines()[0]

    def _of_machines(self) -> tuple[bool, tuple[datetime, ...]]:
        """Whether EC2 finds something wrong with a machine, and when it forgets those that are gone: read once for each
        change of the fleet."""
        changes = self.world.fleet.changes
        if self._machines is None or self._machines[0] != changes:
            every = self.world.cluster.instances.values()
            gone = [one.terminated_at + TERMINATED_INSTANCES_MAX for one in every if one.terminated_at is not None]
            self._machines = changes, any(one.impaired for one in every), tuple(gone)
        return self._machines[1:]

    def _until(self) -> datetime:
        """When time alone may give the function something to do."""
        now = self.world.timeline.now
        due = self.store.next_due()
        if due is not None and due <= now:
            return now
        times: list[datetime] = [self._until_forgotten(), *([due] if due is not None else ())]
        times += [job.not_before for job in self.store.jobs_in(WAITING, len(self.store.jobs.records)) if job.not_before]
        return min(at for at in times if at > now)

    def _until_forgotten(self) -> datetime:
        now = self.world.timeline.now
        times = [now + LONGEST, *self._of_machines()[1]]
        return min(at for at in times if at > now)

    # -- comparisons ---------------------------------------------------------------------------------------------------

    def resyncs(self) -> Iterator[Callable[[Cycle], object]]:
        """What the reconciler's round is to compare: nothing, if that would find nothing. Asked for when its turn has
        come, for what the round has done by then may have changed the world."""
        if self._same is not None and self._same[0] == self._read() and self.world.timeline.now < self._same[1]:
            self.resyncs_skipped += 1
            return
        self._same, self._compared = None, 0
        self._written.clear()
        before = self._state()
        for compare in RESYNCS:
            yield self._counted(compare)
        if before == self._state() and self._compared == len(RESYNCS) and not self._something_fails():
            self._same = (self._read(), self._until_forgotten())

    def _counted(self, compare: Callable[[Cycle], object]) -> Callable[[Cycle], object]:
        def counting(this: Cycle) -> None:
            compare(this)
            self._compared += 1

        return counting

    def _read(self) -> State:
        """What the comparisons read, as far as it tells whether they would find the same."""
        jobs = tuple(
            (job.job_id, job.status, job.attempt, job.origin, job.started_by_person)
            for job in self.store.jobs.records.values()
        )
        return not self._written, self.store.fleet, jobs, self.world.fleet.changes
