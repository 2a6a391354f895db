"""Idle skip: skips ticks of the clock on which a function has certainly no work.

Most minutes of a long training run bring no change. A tick of the reconciler is skipped if its latest tick that was not
skipped did nothing, and if since then these conditions hold:

- Store, instances and tasks are unchanged (`Invocations`, `VirtualFleet.changes`).
- No record is due. Deadlines, polls and command leases of killed invocations are all in the due times of the store.
- The passing of time has not changed what the function reads.

Time alone changes three things. A failing EC2 status check becomes a health report only after five minutes, and so does
a disconnected ECS agent. So no tick is skipped meanwhile. EC2 forgets a terminated instance after an hour. The
scheduler places a job when its cool-down is over. For the last two the skip ends at that time.

While a job runs, its poll is due every other minute and writes the time of the next poll. Such a reconcile cycle runs,
but without the resyncs, if the latest resyncs found no difference and their inputs are unchanged. The inputs are the
records of instances, the fleet record, status and attempt of the jobs, and the state of instances and tasks.

A tick of the scheduler is skipped if its queue is empty and if the latest pass left no job that waits for a time.

At least once an hour a tick of the reconciler runs in any case. Code that changes an instance without the methods of
`VirtualFleet` must count the change in `VirtualFleet.changes`.
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
"""Longest time for which ticks of the reconciler, or resyncs, are skipped."""
State = tuple[Any, ...]
"""Counters and values that are equal as long as a function reads the same."""


class IdlingWorld(WorldView, Protocol):
    """A world with its Lambda functions."""

    functions: LambdaRuntime


class IdleSkip:
    """Filter of ticks and resyncs: decides which ticks of a function and which resyncs of a cycle are skipped."""

    def __init__(self, world: IdlingWorld, store: MemoryStore) -> None:
        self.world, self.store = world, store
        self.skipped = self.resyncs_skipped = 0
        """Number of skipped ticks, and number of further reconcile cycles without resyncs."""
        self._began: dict[str, State] = {}
        """State at the begin of the present tick, by function."""
        self._idle: dict[str, tuple[State, datetime]] = {}
        """State in which a function had no work, and the time until which the state is valid, by function."""
        self._written: dict[str, None] = {}
        """Ids of the instances with a record written since the latest resyncs."""
        store.machines.listeners += (self._written,)
        self._clean_resync: tuple[State, datetime] | None = None
        """Inputs of the latest resyncs without a difference, and the time until which they are valid."""
        self._completed = 0
        """Number of resyncs that the present cycle has completed."""
        self._conditions: tuple[int, bool, tuple[datetime, ...]] | None = None
        """Result of `_instance_conditions`, after the value of `VirtualFleet.changes` at which it was computed."""

    # -- whole ticks ---------------------------------------------------------------------------------------------------

    def may_skip(self, name: str) -> bool:
        """Whether the tick of the function `name` is skipped, because the function has certainly no work now."""
        state, until = self._idle.get(name, (None, None))
        skips = state == self._state() and until is not None and self.world.timeline.now < until
        if name == SCHEDULER:
            skips = self._is_scheduler_idle()
        self.skipped += skips
        return skips

    def _is_scheduler_idle(self) -> bool:
        """Whether the scheduler's queue is empty and its latest pass left no job that waits for a time."""
        last = self.store.load_last_pass()
        return last.at is not None and not last.waiting and last.next_at is None and not self.world.functions.asked

    def begins(self, name: str) -> None:
        """Called when a tick wakes the function `name`."""
        self._began[name] = self._state()

    def ended(self, name: str) -> None:
        """Called when the function `name` has returned or was killed."""
        self._idle.pop(name, None)
        if self._began.pop(name) == self._state() and not self._is_any_impaired():
            self._idle[name] = (self._state(), self._idle_until())

    def _state(self) -> State:
        invocations, world = self.world.invocations, self.world
        return invocations.taken + invocations.asked, world.fleet.changes, len(world.failures) + len(invocations.killed)

    def _is_any_impaired(self) -> bool:
        return self._instance_conditions()[0]

    def _instance_conditions(self) -> tuple[bool, tuple[datetime, ...]]:
        """Return whether an instance is impaired, and the times at which EC2 forgets terminated instances.

        The result is computed once for each change of the fleet.
        """
        changes = self.world.fleet.changes
        if self._conditions is None or self._conditions[0] != changes:
            instances = self.world.cluster.instances.values()
            forgotten_at = [
                instance.terminated_at + TERMINATED_INSTANCES_MAX
                for instance in instances
                if instance.terminated_at is not None
            ]
            impaired = any(
                instance.impaired or any(check.status == "IMPAIRED" for check in instance.ecs_health.values())
                for instance in instances
            )
            self._conditions = changes, impaired, tuple(forgotten_at)
        return self._conditions[1:]

    def _idle_until(self) -> datetime:
        """Return the next time at which a function may have work without any change. `now` if a record is due."""
        now = self.world.timeline.now
        due = self.store.next_due()
        if due is not None and due <= now:
            return now
        times: list[datetime] = [self._next_forgetting(), *([due] if due is not None else ())]
        times += [job.not_before for job in self.store.jobs_in(WAITING, len(self.store.jobs.records)) if job.not_before]
        return min(at for at in times if at > now)

    def _next_forgetting(self) -> datetime:
        now = self.world.timeline.now
        times = [now + LONGEST, *self._instance_conditions()[1]]
        return min(at for at in times if at > now)

    # -- resyncs -------------------------------------------------------------------------------------------------------

    def resyncs(self) -> Iterator[Callable[[Cycle], object]]:
        """Yield the resyncs of the present reconcile cycle, or none if they would certainly find no difference.

        The inputs are read when the cycle takes the first resync. Its later steps may change the world again.
        """
        if (
            self._clean_resync is not None
            and self._clean_resync[0] == self._resync_inputs()
            and self.world.timeline.now < self._clean_resync[1]
        ):
            self.resyncs_skipped += 1
            return
        self._clean_resync, self._completed = None, 0
        self._written.clear()
        before = self._state()
        for resync in RESYNCS:
            yield self._counting(resync)
        if before == self._state() and self._completed == len(RESYNCS) and not self._is_any_impaired():
            self._clean_resync = (self._resync_inputs(), self._next_forgetting())

    def _counting(self, resync: Callable[[Cycle], object]) -> Callable[[Cycle], object]:
        def run(cycle: Cycle) -> None:
            resync(cycle)
            self._completed += 1

        return run

    def _resync_inputs(self) -> State:
        """Return the inputs of the resyncs. Equal inputs give equal results."""
        jobs = tuple(
            (job.job_id, job.status, job.attempt, job.origin, job.started_by_person)
            for job in self.store.jobs.records.values()
        )
        return not self._written, self.store.fleet, jobs, self.world.fleet.changes
