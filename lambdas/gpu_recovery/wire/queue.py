"""The queue as API clients see it: waiting jobs, running jobs, totals by priority, quota use and reservations.

The job API answers with it, and the scheduler writes it as the console snapshot `queue`. Field names are public and do
not change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Any

from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.entry import Entry, quota_keys, running_job
from gpu_recovery.core.queue.priority import Priority, effective
from gpu_recovery.core.queue.quota import ANY, QuotaKey
from gpu_recovery.core.queue.snapshot import RunningJob
from gpu_recovery.core.queue.totals import totals_by_priority
from gpu_recovery.core.queue.view import PlacementPreview, QueueView
from gpu_recovery.wire.json_body import time_text

SNAPSHOT_JOBS_MAX = 5_000
"""Waiting jobs, and running jobs, that a snapshot has at most. Its JSON then has at most 5 MB."""
_WAITS_ON_RAY = "waits for the Ray cluster; the status reason of the job gives the details"
"""Sentence of a job on Ray, whose reason is in its record only."""


def queue_document(view: QueueView, policy: RecoveryPolicy) -> dict[str, Any]:
    """Return the console snapshot of the queue.

    Returns:
        `waiting` and `running`, each in the order of the pages of the API, at most `SNAPSHOT_JOBS_MAX`; `waiting_more`
        and `running_more`, the numbers of the others; `groups`, the names of all groups with a job; `totals`, `quotas`,
        `reservations` and `unreadable`.
    """
    waiting = waiting_entries(view)
    running = running_jobs(view, policy)
    entries = {**view.entries, **view.on_ray}
    return {
        "groups": sorted({entry.group for entry in waiting} | {job.group for job in running}),
        "waiting": [_snapshot_row(entry, view, policy) for entry in first_waiting(waiting, view)],
        "waiting_more": max(0, len(waiting) - SNAPSHOT_JOBS_MAX),
        "running": [running_view(job, entries[job.job_id], view) for job in running[:SNAPSHOT_JOBS_MAX]],
        "running_more": max(0, len(running) - SNAPSHOT_JOBS_MAX),
        **summary_of(view, policy),
    }


def summary_of(view: QueueView, policy: RecoveryPolicy) -> dict[str, Any]:
    """Return what the first page of the queue has beside the jobs: totals, quotas, reservations, unreadable records."""
    entries = (*view.entries.values(), *view.on_ray.values())
    return {
        "totals": [
            {"priority": total.priority.name, "running": asdict(total.running), "queued": asdict(total.queued)}
            for total in totals_by_priority(entries, policy, view.at)
        ],
        "quotas": quota_views(view),
        "reservations": [
            {
                "job_id": reservation.job_id,
                "group": reservation.group,
                "hosts": list(reservation.hosts),
                "at": time_text(reservation.at),
            }
            for reservation in view.placement.reservations
        ],
        "unreadable": [str(error) for error in view.failures],
    }


def waiting_entries(view: QueueView) -> list[Entry]:
    """Return the entries of all waiting jobs, in any order."""
    return [entry for entry in ({**view.entries, **view.on_ray}).values() if entry.waits]


def first_waiting(waiting: Collection[Entry], view: QueueView) -> list[Entry]:
    """Return the first `SNAPSHOT_JOBS_MAX` waiting jobs in the order of `queue_order`.

    Only jobs that can be among them are sorted. In each group these are the jobs with the lowest positions, and the
    jobs that would start or are not considered.
    """
    rejected, most = view.placement.rejected, SNAPSHOT_JOBS_MAX
    positions = dict[str, list[int]]()
    for rejection in rejected:
        positions.setdefault(rejection.group, []).append(rejection.position)
    last = {group: sorted(numbers)[:most][-1] for group, numbers in positions.items()}
    first = [view.entries[each.job_id] for each in rejected if each.position <= last[each.group]]
    if len(waiting) > len(rejected):
        first += [entry for entry in waiting if entry.job_id not in view.rejections]
    return sorted(first, key=queue_order(view))[:most]


def running_jobs(view: QueueView, policy: RecoveryPolicy) -> list[RunningJob]:
    """Return all running jobs, the longest running first."""
    on_ray = [running_job(entry, policy, view.at) for entry in view.on_ray.values() if not entry.waits]
    return sorted((*view.snapshot.running, *on_ray), key=lambda job: (job.since, job.job_id))


def queue_order(view: QueueView) -> Callable[[Entry | RunningJob], tuple[Any, ...]]:
    """Return the function that gives the sort key of a job: waiting jobs first, then running jobs by their start.

    Waiting jobs are sorted by group. In a group the jobs that would start at once are first, then the other jobs by
    position, then the jobs that the scheduler does not consider.
    """

    rejections = view.rejections

    def order(job: Entry | RunningJob) -> tuple[Any, ...]:
        if isinstance(job, RunningJob):
            return 1, time_text(job.since), job.job_id
        rejection = rejections.get(job.job_id)
        position = rejection.position if rejection is not None else None
        is_considered = position is not None or view.starts(job.job_id)
        queued_at = time_text(job.queued_at) if position is None else ""  # no two jobs of a group have one position
        return 0, job.group, not is_considered, position or 0, queued_at, job.job_id

    return order


def waiting_view(entry: Entry, view: QueueView, policy: RecoveryPolicy) -> dict[str, Any]:
    """Return a waiting job with its position and the reason why it waits."""
    return _waiting(entry, view.of(entry.job_id), view, policy)


def _waiting(entry: Entry, preview: PlacementPreview | None, view: QueueView, policy: RecoveryPolicy) -> dict[str, Any]:
    return {
        "job_id": entry.job_id,
        "name": entry.name or None,
        "user": entry.user,
        "priority": effective(entry.asked, entry.ran_s, policy).name,
        "asked_priority": entry.asked.name,
        "group": entry.group,
        "nodes": entry.nodes,
        "nodes_min": entry.nodes_min or None,
        "gpus": entry.gpus,
        "status": status_of(entry).value,
        "queued_at": time_text(entry.queued_at),
        "position": preview.position if preview else None,
        "short_of": preview.short_of.value if preview and preview.short_of else None,
        "sentence": preview.sentence if preview else _WAITS_ON_RAY,
        "earliest_at": time_text(preview.earliest_at if preview else None),
        "backend": _backend(entry.job_id, view),
    }


def _snapshot_row(entry: Entry, view: QueueView, policy: RecoveryPolicy) -> dict[str, Any]:
    """Return a waiting job of a snapshot, also with the jobs in its way and the jobs that leave for it."""
    preview = view.of(entry.job_id)
    return {
        **_waiting(entry, preview, view, policy),
        "blockers": list(preview.blockers) if preview else [],
        "would_suspend": list(preview.would_suspend) if preview else [],
    }


def running_view(job: RunningJob, entry: Entry, view: QueueView) -> dict[str, Any]:
    """Return a running job with its expected end."""
    return {
        "job_id": job.job_id,
        "name": entry.name or None,
        "status": status_of(entry).value,
        "user": job.user,
        "priority": Priority(job.priority).name,
        "group": job.group,
        "nodes": job.nodes,
        "nodes_max": job.nodes_max if entry.nodes_min else None,
        "gpus": job.gpus,
        "since": time_text(job.since),
        "ends_at": time_text(job.ends_at),
        "can_suspend": job.can_suspend and job.job_id not in view.on_ray,
        "backend": _backend(job.job_id, view),
    }


def _backend(job_id: str, view: QueueView) -> str:
    return (Backend.RAY if job_id in view.on_ray else Backend.ECS).value


def status_of(entry: Entry) -> JobStatus:
    """Return the status of the job. An entry of an older release only allows a conclusion."""
    if entry.status:
        return JobStatus(entry.status)
    if not entry.waits:
        return JobStatus.RUNNING if entry.works else JobStatus.STOPPING if entry.leaves else JobStatus.SUBMITTING
    if entry.recovering:
        return JobStatus.RECOVERING
    if entry.fresh:
        return JobStatus.QUEUED
    # `placed_at` is the time since which the job has its status.
    has_left = entry.held or entry.suspended_at == entry.placed_at
    return JobStatus.SUSPENDED if has_left else JobStatus.PENDING_RESOURCES


def quota_views(view: QueueView) -> list[dict[str, Any]]:
    """Return use and limit of quotas.

    The list begins with each user, priority and group that uses instances, waits for some, or has its own limit. Then
    follow limits with a `*` that apply to no entry of the list so far, each with a use of 0.
    """
    limits, used = view.snapshot.limits, view.snapshot.used
    limited_keys = {
        QuotaKey(user, Priority[priority], group)
        for user, priority, group in limits.instances
        if ANY not in (user, priority, group)
    }
    keys = limited_keys | {key for key, instances in used.items() if instances}
    keys |= quota_keys(entry for entry in (*view.entries.values(), *view.on_ray.values()) if entry.waits)
    unused = set(limits.instances) - {limits.entry_of(key) for key in keys}
    ordered = sorted(keys, key=lambda key: (key.user, -key.priority, key.group))
    return [
        *(
            _quota(key.user, Priority(key.priority).name, key.group, used.get(key, 0), limits.of(key))
            for key in ordered
        ),
        *(_quota(*entry, 0, limits.instances[entry]) for entry in sorted(unused)),
    ]


def _quota(user: str, priority: str, group: str, used: int, limit: int | None) -> dict[str, Any]:
    return {"user": user, "priority": priority, "group": group, "used": used, "limit": limit}
