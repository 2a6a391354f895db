"""The reconciler writes console snapshots last, from what it has read, and never fails or waits because of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.console_snapshots import BEGIN_WITHIN, MEMBERS_REFRESH, REFRESH, SnapshotWriter
from gpu_recovery.ports.errors import Unavailable
from gpu_recovery.reconciler.reconcile import SNAPSHOT_S, reconcile
from gpu_recovery.recovery import Recovery

from simulator.memory_store.console_snapshots import MemorySnapshots
from simulator.world import World
from tests.core.test_console_snapshots import column

MAP, MEMBERS, LIMITS = SnapshotName.MAP, SnapshotName.MEMBERS, SnapshotName.LIMITS
OF_A_CYCLE = [LIMITS, MAP, MEMBERS]


class Away(MemorySnapshots):
    """Storage that does not answer."""

    def save(self, name: SnapshotName, text: str) -> None:
        """Raise, as S3 does."""
        raise Unavailable("S3 is away")


class Counted(MemorySnapshots):
    """Storage that tells what is saved, and lets each save take time."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[SnapshotName] = []
        self.takes = timedelta()
        self.now = World().timeline.clock()

    def clock(self) -> Any:
        """The present time."""
        return self.now

    def save(self, name: SnapshotName, text: str) -> None:
        """Save, and let the time pass."""
        super().save(name, text)
        self.saved.append(name)
        self.now += self.takes


def writer(snapshots: MemorySnapshots, world: World, failed: list[Any]) -> SnapshotWriter:
    """A writer on the clock of the world."""
    return SnapshotWriter(snapshots, world.timeline.clock, lambda name, failure: failed.append((name, failure)))


def calls_of(recovery: Recovery, seen: Counter[str]) -> Recovery:
    """The loop, whose calls of the store and of AWS are counted by name."""

    class Counting:
        def __init__(self, other: Any) -> None:
            self._other = other

        def __getattr__(self, name: str) -> Any:
            seen[name] += 1
            return getattr(self._other, name)

    counting: Any = Counting
    return replace(recovery, store=counting(recovery.store), actions=counting(recovery.actions))


def test_a_cycle_writes_the_fleet_as_its_listing_shows_it() -> None:
    """A map of three instances, of which two work, and the limits."""
    world = World(instances=3, agents=True)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    snapshots, failed = MemorySnapshots(), list[Any]()
    reconcile(world.recovery, snapshots=writer(snapshots, world, failed))
    assert not failed and sorted(snapshots.documents) == OF_A_CYCLE
    shown, members = snapshots.documents[MAP], snapshots.documents[MEMBERS]
    working = {one.instance_id for one in world.store.instances_in([InstanceStatus.AVAILABLE]) if one.claims}
    jobs = column(shown["job"], "H")
    assert {name for name, job in zip(members["ids"], jobs, strict=True) if job} == working and len(working) == 2
    assert shown["jobs"] == [job_id] and shown["as_of"] == f"{world.timeline.clock():%Y-%m-%dT%H:%M:%SZ}"
    assert snapshots.documents[LIMITS]["limits"]["gpu_instances"] == 3
    totals = snapshots.documents[LIMITS]["totals"]
    assert (totals["instances_in_use"], totals["gpus_in_use"], totals["gpus_free"]) == (2, 16, 8)
    # The overview shows these numbers beside the map: both of one cycle, with one time.
    on_map = Counter(shown["statuses"][number] for number in column(shown["status"], "B"))
    assert on_map == Counter(totals["by_status"]) and snapshots.documents[LIMITS]["as_of"] == shown["as_of"]


def test_the_snapshots_cost_no_read() -> None:
    """The cycle makes the same calls with and without them."""
    with_them, without = Counter[str](), Counter[str]()
    for seen, snapshots in ((without, None), (with_them, MemorySnapshots())):
        world = World(instances=3, agents=True)
        world.until_status(world.submit(2), JobStatus.RUNNING)
        made = None if snapshots is None else writer(snapshots, world, [])
        reconcile(calls_of(world.recovery, seen), snapshots=made)
    assert with_them == without and with_them["instances_in"] == 1


def healed(snapshots: MemorySnapshots | None, failed: list[Any]) -> str:
    """The transcript of a GPU fault that is healed, with a snapshot in each cycle of the reconciler."""
    world = World(instances=3, agents=True)
    if snapshots is not None:
        world.snapshots = writer(snapshots, world, failed)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.break_gpu(world.model_instance(0))
    world.until(lambda: world.job(job_id).attempt == 2, "the next attempt")
    world.until_status(job_id, JobStatus.RUNNING)
    return "\n".join(world.transcript.lines)


@pytest.mark.parametrize("snapshots", [Away(), MemorySnapshots()])
def test_no_decision_depends_on_the_snapshots(snapshots: MemorySnapshots) -> None:
    """The same fault is healed in the same way, at the same seconds, whether the storage answers or not."""
    failed = list[Any]()
    assert healed(snapshots, failed) == healed(None, [])
    assert bool(failed) == isinstance(snapshots, Away) and bool(snapshots.documents) == (not failed)


def test_an_error_of_the_cycle_is_raised_after_the_snapshots() -> None:
    """The console shows the fleet even while a record cannot be handled."""
    world = World(instances=2)
    snapshots = MemorySnapshots()

    def broken(cycle: Any) -> None:
        cycle.instances_in([InstanceStatus.AVAILABLE], [])
        raise ValueError("no")

    with pytest.raises(ExceptionGroup):
        reconcile(world.recovery, (broken,), snapshots=writer(snapshots, world, []))
    assert sorted(snapshots.documents) == [MAP, MEMBERS]  # no comparison has read the limits


def test_nothing_is_written_where_nothing_was_read_or_no_time_is_left() -> None:
    """An empty map would say that the fleet is gone."""
    world, snapshots = World(instances=2), MemorySnapshots()
    reconcile(world.recovery, (), snapshots=writer(snapshots, world, []))
    reconcile(world.recovery, seconds_left=lambda: SNAPSHOT_S, snapshots=writer(snapshots, world, []))
    assert not snapshots.documents


# -- the writer --------------------------------------------------------------------------------------------------------


def test_an_unchanged_snapshot_is_written_again_when_it_is_old() -> None:
    """Readers see by its age that the writer works; the members keep their age, and with it their entity tag."""
    stored = Counted()
    made = SnapshotWriter(stored, stored.clock, lambda name, failure: None)
    documents: Any = {name: lambda: {"same": 1} for name in OF_A_CYCLE}
    made.write(documents)
    stored.now += REFRESH - timedelta(seconds=1)
    made.write(documents)
    assert sorted(stored.saved) == OF_A_CYCLE
    stored.now += timedelta(seconds=1)
    made.write(documents)
    assert sorted(stored.saved[3:]) == [LIMITS, MAP]
    stored.now += MEMBERS_REFRESH
    made.write(documents)
    assert sorted(stored.saved[5:]) == OF_A_CYCLE


def test_a_changed_snapshot_is_written_at_once() -> None:
    """However young the last is."""
    stored = Counted()
    made = SnapshotWriter(stored, stored.clock, lambda name, failure: None)
    made.write({MAP: lambda: {"n": 1}})
    made.write({MAP: lambda: {"n": 2}})
    assert stored.saved == [MAP, MAP] and stored.documents[MAP]["n"] == 2


def test_a_slow_storage_gets_one_snapshot_a_run_and_each_has_its_turn() -> None:
    """A run spends the time of one call on it, and reports what it left out."""
    stored, failed = Counted(), list[SnapshotName]()
    stored.takes = BEGIN_WITHIN + timedelta(milliseconds=1)
    made = SnapshotWriter(stored, stored.clock, lambda name, failure: failed.append(name))
    documents: Any = {name: lambda: {"same": 1} for name in OF_A_CYCLE}
    for run in range(3):
        made.write(documents)
        assert len(stored.saved) == run + 1 and len(failed) == 2 * (run + 1)
    assert sorted(stored.saved) == OF_A_CYCLE


def test_a_document_that_cannot_be_built_delays_no_other() -> None:
    """A defect of an encoder is reported as a failed write."""
    stored, failed = Counted(), list[SnapshotName]()
    made = SnapshotWriter(stored, stored.clock, lambda name, failure: failed.append(name))
    made.write({LIMITS: lambda: {"value": 1 // 0}, MAP: dict})
    assert (failed, stored.saved) == ([LIMITS], [MAP])
