"""The scheduler writes the queue for the web console, last of all, and no pass fails or waits because of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.ports.console_snapshots import SnapshotWriter
from gpu_recovery.ports.errors import TermOver, Unavailable
from gpu_recovery.ports.store import Store
from gpu_recovery.scheduler.console_snapshot import FRESH, QueueSnapshots, queue_after
from gpu_recovery.scheduler.schedule import PASS_INTERVAL_MAX, run_pass
from gpu_recovery.wire import queue as queue_wire
from gpu_recovery.wire.json_body import time_text

from simulator.memory_store.console_snapshots import MemorySnapshots
from tests.scheduler.test_schedule import Cluster

TICK = "#tick/1"


class Away(MemorySnapshots):
    """Storage that does not answer."""

    def save(self, name: SnapshotName, text: str) -> None:
        """Raise, as S3 does."""
        raise Unavailable("S3 is away")


class Shown:
    """A cluster of two instances, and the snapshot that its scheduler writes."""

    def __init__(self, store: Store, snapshots: MemorySnapshots) -> None:
        self.cluster, self.snapshots = Cluster(store, 2), snapshots
        self.failed: list[str] = []
        writer = SnapshotWriter(
            snapshots, lambda: self.cluster.now, lambda name, failure: self.failed.append(f"{name}: {failure}")
        )
        self.queue = QueueSnapshots(writer)

    def schedule(self, *keys: str) -> int:
        """A pass and its snapshot."""
        result = run_pass(self.cluster.recovery, keys)
        self.queue.write(self.cluster.recovery, result)
        return result.placed

    def ids(self, name: str) -> list[str]:
        """The ids of the waiting or running jobs in the snapshot."""
        return [one["job_id"] for one in self.snapshots.documents[SnapshotName.QUEUE][name]]

    def running(self, job_id: str) -> Mapping[str, Any]:
        """The running job in the snapshot."""
        (found,) = (one for one in self.snapshots.documents[SnapshotName.QUEUE]["running"] if one["job_id"] == job_id)
        return found


@pytest.fixture
def shown(store: Store) -> Shown:
    """Two instances, and storage that answers."""
    return Shown(store, MemorySnapshots())


def test_the_snapshot_shows_the_queue_as_the_pass_has_left_it(shown: Shown) -> None:
    """The placed job no longer waits; the other has its place, its reason and the job in its way."""
    shown.cluster.submit("a", nodes=2)
    shown.cluster.submit("b", nodes=1)
    assert shown.schedule() == 1
    assert (shown.ids("running"), shown.ids("waiting")) == (["a"], ["b"])
    (waiting,) = shown.snapshots.documents[SnapshotName.QUEUE]["waiting"]
    assert (waiting["position"], waiting["blockers"], waiting["short_of"]) == (1, ["a"], "gpus")
    (quota,) = shown.snapshots.documents[SnapshotName.QUEUE]["quotas"]
    assert quota["used"] == 2


def test_a_job_that_makes_room_is_shown_as_leaving(shown: Shown) -> None:
    """It can no longer be suspended, and the job for which it leaves waits for it."""
    shown.cluster.submit("low", nodes=2, priority=Priority.LOW)
    shown.schedule()
    shown.cluster.runs("low")
    shown.cluster.passes(3_600)
    shown.cluster.submit("high", nodes=2, priority=Priority.EXTREME_HIGH)
    shown.schedule()
    assert shown.cluster.status("low") == [JobStatus.SUSPENDING]
    assert (shown.running("low")["status"], shown.running("low")["can_suspend"]) == ("SUSPENDING", False)
    (high,) = shown.snapshots.documents[SnapshotName.QUEUE]["waiting"]
    assert (high["short_of"], high["blockers"]) == ("room", ["low"])


def test_a_pass_without_waiting_jobs_shows_that_none_waits(shown: Shown) -> None:
    """A canceled job does not stay in the snapshot."""
    shown.cluster.submit("a", nodes=2)
    shown.cluster.submit("b", nodes=2)
    shown.schedule()
    shown.cluster.recovery.handle("b", events.CancelRequested(at=shown.cluster.now, attempt=0, by="bob"))
    shown.cluster.now += FRESH
    shown.schedule("b/1")
    assert (shown.ids("running"), shown.ids("waiting")) == (["a"], [])


def test_a_tick_refreshes_an_old_snapshot_while_no_job_waits(shown: Shown) -> None:
    """A job that began to run after the last pass is shown as running at last; a young snapshot costs no read."""
    shown.cluster.submit("a")
    shown.schedule()
    shown.cluster.runs("a")
    assert shown.running("a")["status"] == "SUBMITTING"
    shown.cluster.passes(60)
    names = _counted(shown)
    shown.schedule(TICK)
    assert names == ["load_last_pass"]
    shown.cluster.now += PASS_INTERVAL_MAX
    shown.schedule(TICK)
    assert shown.running("a")["status"] == "RUNNING"
    assert "begin_term" not in names and "instances_in" not in names


def test_passes_in_quick_succession_build_one_snapshot(shown: Shown) -> None:
    """A pass that follows too soon reads and writes nothing for the console. The next tick writes what it left."""
    for number in range(3):
        shown.cluster.submit(f"j-{number}")
    shown.schedule()
    shown.cluster.submit("late")
    names = _counted(shown)
    shown.schedule("late/1")
    reads_of_a_pass = names.count("quota_used")
    assert "late" not in shown.ids("waiting") + shown.ids("running")
    shown.schedule(TICK)
    assert "late" in shown.ids("waiting")
    names.clear()
    shown.schedule(TICK)
    assert names == ["load_last_pass"]
    shown.cluster.now += FRESH
    shown.cluster.submit("later")
    names.clear()
    shown.schedule("later/1")
    assert "later" in shown.ids("waiting") and names.count("quota_used") == reads_of_a_pass + 1


def test_a_queue_that_is_written_later_has_the_time_of_its_pass(shown: Shown) -> None:
    """An operator who reads "as of 9:00" relies on it. A job that the pass has placed runs since then, too."""
    shown.cluster.submit("a", nodes=1)
    shown.schedule()
    shown.cluster.now += FRESH / 2
    shown.cluster.submit("late")
    shown.schedule("late/1")
    passed = shown.cluster.now
    shown.cluster.now += timedelta(seconds=50)
    shown.cluster.submit("later")  # whose message has not arrived yet
    shown.schedule(TICK)
    document = shown.snapshots.documents[SnapshotName.QUEUE]
    assert (shown.ids("running"), shown.ids("waiting")) == (["a", "late"], [])
    assert document["as_of"] == f"{passed:%Y-%m-%dT%H:%M:%SZ}"
    assert shown.running("late")["since"] == time_text(passed)


def test_storage_that_does_not_answer_is_not_asked_by_every_pass(store: Store) -> None:
    """Each try waits for its timeout, and jobs wait for the passes. A tick tries again, and so does a later pass."""
    shown = Shown(store, Away())
    for number in range(3):
        shown.cluster.submit(f"j-{number}")
        shown.schedule()
    assert len(shown.failed) == 1
    shown.cluster.now += FRESH
    shown.schedule()
    shown.schedule(TICK)
    assert len(shown.failed) == 3


def test_a_pass_places_jobs_although_nothing_can_be_written(store: Store) -> None:
    """The failure is reported by name and not raised."""
    shown = Shown(store, Away())
    shown.cluster.submit("a")
    assert shown.schedule() == 1 and shown.cluster.status("a") == [JobStatus.SUBMITTED]
    assert shown.failed == ["queue: S3 is away"]


def test_a_pass_places_jobs_although_the_snapshot_cannot_be_built(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that only the snapshot needs fails like a write."""
    shown.cluster.submit("a")

    def fails(*given: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr(queue_wire, "totals_by_priority", fails)
    assert shown.schedule() == 1 and shown.failed == ["queue: planted"]


def test_nothing_is_written_without_time_or_by_a_pass_that_is_over(shown: Shown) -> None:
    """A later pass has read more than this pass."""
    shown.cluster.submit("a")
    result = run_pass(shown.cluster.recovery)
    shown.queue.write(replace(shown.cluster.recovery, has_time=lambda: False), result)
    shown.queue.write(shown.cluster.recovery, replace(result, is_whole=False))
    assert not shown.snapshots.documents


def test_a_pass_whose_term_is_over_says_so(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its decisions were refused, so its view is not the queue."""
    shown.cluster.submit("a")

    def refused(*given: Any, **more: Any) -> Any:
        raise TermOver("planted")

    monkeypatch.setattr(type(shown.cluster.store), "save_job", refused)
    assert run_pass(shown.cluster.recovery).is_whole is False


def test_a_snapshot_has_a_bounded_number_of_jobs(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones in the order of the pages; the numbers of the others are told, and totals count all."""
    monkeypatch.setattr(queue_wire, "SNAPSHOT_JOBS_MAX", 2)
    for n in range(5):
        shown.cluster.submit(f"w-{n}", nodes=2)
    shown.schedule()
    document = shown.snapshots.documents[SnapshotName.QUEUE]
    assert (shown.ids("waiting"), document["waiting_more"], document["running_more"]) == (["w-1", "w-2"], 2, 0)
    assert sum(total["queued"]["jobs"] for total in document["totals"]) == 4


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 9])
def test_the_first_jobs_of_a_snapshot_are_those_of_the_pages(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Only jobs that can be among the first are sorted: of each group the first in line, and those out of line."""
    monkeypatch.setattr(queue_wire, "SNAPSHOT_JOBS_MAX", most)
    for n, group in enumerate(["", "b", "", "b", "", "a", ""]):
        shown.cluster.submit(f"w-{n}", nodes=2, group=group)
    store = shown.cluster.store
    store.save_job(replace(shown.cluster.job("w-3"), not_before=shown.cluster.now + timedelta(hours=1)))
    result = run_pass(shown.cluster.recovery)
    view = queue_after(shown.cluster.recovery, result)
    waiting = queue_wire.waiting_entries(view)
    assert len(waiting) == 6 and len({entry.group for entry in waiting}) == 3
    expected = sorted(waiting, key=queue_wire.queue_order(view))[:most]
    assert queue_wire.first_waiting(waiting, view) == expected


def _counted(shown: Shown) -> list[str]:
    """Names of the methods of the store that are called from now on."""
    names: list[str] = []
    inner = shown.cluster.store

    class Counting:
        def __getattr__(self, name: str) -> Any:
            names.append(name)
            return getattr(inner, name)

    shown.cluster.store = Counting()  # type: ignore[assignment]
    return names
