"""Placement preview (dry run): what a pass of the scheduler would decide now.

The preview covers every queued job, and optionally a job that is not submitted yet. It changes nothing.
"""

from __future__ import annotations

from datetime import timedelta

from gpu_recovery.core.instance.record import PRESENT
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.view import QueueView
from gpu_recovery.recovery import Recovery

VIEW_CACHE_TTL = timedelta(seconds=30)
"""Time for which further pages of the queue are taken from the view that its first page was taken from."""


def read_queue_view(recovery: Recovery, extra: Job | None = None) -> QueueView:
    """Return the present view of the queue.

    Args:
        recovery: gives the store, the policy and the clock.
        extra: a job that is not stored, which is treated as queued.
    """
    # Most requests need no placement, and its modules take time at a start.
    from gpu_recovery.core.cluster_snapshot import snapshot_of  # noqa: PLC0415
    from gpu_recovery.core.queue.place import place  # noqa: PLC0415
    from gpu_recovery.scheduler.schedule import limits_of, usual_run_times  # noqa: PLC0415

    now, policy, store = recovery.clock(), recovery.policy, recovery.store
    failures: list[Exception] = []
    entries = {entry.job_id: entry for entry in store.load_queue(failures)}
    entry = entry_of(extra) if extra is not None else None
    if entry is not None:
        entries[entry.job_id] = entry
    on_ray = store.load_ray_queue(failures) if recovery.ray is not None else ()
    keys = {queued.quota_key for queued in (*entries.values(), *on_ray)}
    used = store.quota_used(sorted(key.text for key in keys))
    instances = store.instances_in(PRESENT, failures)
    used_by_key = {key: used[key.text] for key in keys}
    usual = usual_run_times(store, entries.values(), now)
    fleet = store.load_fleet()
    limits = limits_of(recovery)
    snapshot = snapshot_of(entries.values(), instances, policy, now, used_by_key, limits, usual, fleet, on_ray)
    return QueueView(
        now, entries, snapshot, place(snapshot, policy, now), failures, {entry.job_id: entry for entry in on_ray}
    )


class QueueViews:
    """The view of the latest first page of the queue, with a cache that lives as long as the function's process.

    Fifty pages of a long queue then cost one reading of the cluster instead of fifty, and no job is missing from them
    or in two of them because it moved.
    """

    def __init__(self) -> None:
        self._cached: QueueView | None = None

    def read(self, recovery: Recovery, is_first_page: bool) -> QueueView:
        """Return the present view; for a further page a view that is at most `VIEW_CACHE_TTL` old."""
        cached = self._cached
        if is_first_page or cached is None or recovery.clock() - cached.at >= VIEW_CACHE_TTL:
            self._cached = cached = None  # two views of a long queue would need much memory
            self._cached = cached = read_queue_view(recovery)
        return cached

    def forget(self) -> None:
        """Forget the view, after its last page."""
        self._cached = None
