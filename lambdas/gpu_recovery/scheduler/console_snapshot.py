"""Console snapshot of the queue, which the scheduler writes after a pass, last of all.

The snapshot shows the queue as the pass has left it: a placed job is among the running jobs. It costs a read of the
quota counts. While no job waits there may be no pass for hours, but jobs begin to run and are repaired. Then a tick
reads the queue entries again when the snapshot is five minutes old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core.cluster_snapshot import snapshot_of
from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.queue.entry import Entry, quota_keys, running_job
from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.snapshot import Snapshot
from gpu_recovery.core.queue.view import QueueView
from gpu_recovery.ports.console_snapshots import SnapshotWriter
from gpu_recovery.recovery import Recovery
from gpu_recovery.scheduler.schedule import PASS_INTERVAL_MAX, PassResult, limits_of, read, usual_run_times
from gpu_recovery.wire.queue import queue_document

FRESH = timedelta(seconds=5)
"""Time after a try to write the snapshot within which no pass tries again. Readers keep a snapshot as long."""
PLACED_AGAIN_MAX = 10_000
"""Waiting jobs up to which the view is placed once more after a pass that has moved jobs. It takes some 0.1 s."""


class QueueSnapshots:
    """Writes the snapshot of the queue after passes. It lives as long as its function is warm.

    Args:
        writer: writes the snapshot and reports failures.
    """

    def __init__(self, writer: SnapshotWriter) -> None:
        self._writer = writer
        self._left: PassResult | None = None
        """The last pass, if it was not written. Its snapshot has the time of the pass, when it is written at last."""

    def write(self, recovery: Recovery, result: PassResult) -> None:
        """Write the queue as the pass has left it, if there is time. Never raise.

        While jobs come and end, a pass follows a pass. The queue of a pass that follows the last try too soon is not
        even built; it is written by the next pass or tick.

        Args:
            recovery: the loop of the pass.
            result: what the pass did. Without a pass the last pass is written, if it was not; otherwise the queue is
                read again if the snapshot is old and no job waits.
        """
        if not result.is_whole or not recovery.has_time():
            return
        if result.reading is None:
            if self._left is None and (
                result.waiting or not self._writer.is_old(SnapshotName.QUEUE, PASS_INTERVAL_MAX)
            ):
                return
            result = self._left or result
        elif not self._writer.is_old(SnapshotName.QUEUE, FRESH):
            self._left = result
            return
        failed = self._writer.write({SnapshotName.QUEUE: lambda: _document(recovery, result)}, result.at)
        self._left = result if failed else None


def _document(recovery: Recovery, result: PassResult) -> dict[str, Any]:
    return queue_document(queue_after(recovery, result), recovery.policy)


def queue_after(recovery: Recovery, result: PassResult) -> QueueView:
    """Return the queue as the pass has left it, at the time of the pass. Counts of quotas are read now."""
    now, policy, store = result.at or recovery.clock(), recovery.policy, recovery.store
    reading = result.reading or read(recovery)
    entries, snapshot = dict(reading.entries), reading.snapshot
    failures = list(reading.unreadable)
    on_ray = store.load_ray_queue(failures) if recovery.ray is not None else ()
    if not snapshot.waiting:
        usual = usual_run_times(store, entries.values(), now)
        snapshot = snapshot_of(entries.values(), (), policy, now, {}, limits_of(recovery), usual)
    moved = _moved(entries, result, now)
    entries |= moved
    keys = quota_keys((*entries.values(), *on_ray))
    used = store.quota_used(sorted(key.text for key in keys))
    placement, before = result.placement, len(snapshot.waiting)
    snapshot = replace(snapshot, used={key: used[key.text] for key in keys})
    if moved:
        snapshot = _after(snapshot, moved, recovery, now)
        kept = tuple(each for each in placement.assignments if each.job_id not in moved)
        # Places in line and reasons of the pass are those before its own placements.
        placement = place(snapshot, policy, now) if before <= PLACED_AGAIN_MAX else replace(placement, assignments=kept)
    return QueueView(now, entries, snapshot, placement, failures, {entry.job_id: entry for entry in on_ray})


def _moved(entries: Mapping[str, Entry], result: PassResult, now: datetime) -> dict[str, Entry]:
    """Return the entries of the jobs that the pass has placed or suspended, as they are now."""
    moved: dict[str, Entry] = {}
    for assignment in result.placement.assignments:
        if assignment.job_id in result.moved:
            moved[assignment.job_id] = replace(
                entries[assignment.job_id],
                waits=False,
                fresh=False,
                recovering=False,
                status=JobStatus.SUBMITTING.value,
                placed_at=now,
                instances=assignment.instances,
            )
    for suspension in result.placement.suspensions:
        if suspension.job_id in result.moved:
            moved[suspension.job_id] = replace(
                entries[suspension.job_id],
                works=False,
                leaves=True,
                status=JobStatus.SUSPENDING.value,
                placed_at=now,
                suspended_for=suspension.for_job,
            )
    return moved


def _after(snapshot: Snapshot, moved: Mapping[str, Entry], recovery: Recovery, now: datetime) -> Snapshot:
    """Return the snapshot with the jobs that the pass has placed or suspended as they are now."""
    expected_s = {job.job_id: job.runs_for_s for job in snapshot.waiting}
    running = {job.job_id: job for job in snapshot.running}
    taken = Counter[str]()
    for job_id, entry in moved.items():
        job = running_job(entry, recovery.policy, now)
        seconds = expected_s.get(job_id)
        running[job_id] = replace(job, ends_at=now + timedelta(seconds=seconds)) if seconds is not None else job
        if job_id in expected_s:
            taken.update(dict.fromkeys(entry.instances, entry.gpus))
    return replace(
        snapshot,
        waiting=tuple(job for job in snapshot.waiting if job.job_id not in moved),
        running=tuple(running.values()),
        hosts=tuple(
            replace(host, free=max(0, host.free - taken[host.host_id])) if host.host_id in taken else host
            for host in snapshot.hosts
        ),
    )
