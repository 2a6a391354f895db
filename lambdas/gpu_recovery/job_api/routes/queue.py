"""Route of the queue: waiting jobs, running jobs, totals by priority, quota use and reservations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.queue.entry import Entry, running_job
from gpu_recovery.core.queue.priority import Priority, effective
from gpu_recovery.core.queue.quota import ANY, QuotaKey
from gpu_recovery.core.queue.snapshot import Placement, RunningJob
from gpu_recovery.core.queue.totals import PriorityTotals, totals_by_priority
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import PAGING, page_of
from gpu_recovery.job_api.placement_preview import QueueView
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.wire.json_body import time_text

PURPOSE = "queue/2"
"""Name of the list, which its cursors belong to. Its number rises with the form of the cursors."""
RUNNING_FIRST_MAX = 5_000
"""Running jobs of the first page, which stays below 6 MB: an entry has about 350 bytes."""
_WAITS_ON_RAY = "waits for the Ray cluster; the job's own reason says for what"
"""Sentence of a job on Ray, whose reason is in its record only."""


def read_queue(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the queue as the next pass sees it: waiting and running jobs, totals by priority, quotas, reservations.

    The waiting jobs are paged. The first page also contains everything else, and at most `RUNNING_FIRST_MAX` running
    jobs. The others are on the pages after the last waiting job. Jobs on Ray have no position, because another pass
    places them.
    """
    is_first = "cursor" not in request.query
    view, policy = dependencies.queue_views.read(dependencies.recovery, is_first), dependencies.recovery.policy
    entries = {**view.entries, **view.on_ray}
    on_ray = [running_job(entry, policy, view.at) for entry in view.on_ray.values() if not entry.waits]
    running = sorted((*view.snapshot.running, *on_ray), key=lambda job: (job.since, job.job_id))
    items: list[Entry | RunningJob] = [
        *(entry for entry in entries.values() if entry.waits),
        *running[RUNNING_FIRST_MAX:],
    ]
    page, cursor = page_of(dependencies, request, PURPOSE, items, lambda item: item.job_id, _order(view))
    shown = running[:RUNNING_FIRST_MAX] if is_first else [item for item in page if isinstance(item, RunningJob)]
    answer: dict[str, Any] = {
        "waiting": [
            _waiting(entry, view, effective(entry.asked, entry.ran_s, policy))
            for entry in page
            if isinstance(entry, Entry)
        ],
        "running": [_running(job, _status(entries[job.job_id]), view) for job in shown],
    }
    if is_first:
        answer |= {"quotas": _quotas(view), "reservations": _reservations(view.placement)}
        answer["totals"] = [_totals(totals) for totals in totals_by_priority(entries.values(), policy, view.at)]
        answer["unreadable"] = [str(error) for error in view.failures]
    else:
        answer |= {"quotas": [], "reservations": [], "totals": [], "unreadable": []}
    if cursor is None:
        dependencies.queue_views.forget()
    return ApiResponse(200, {**answer, "next_cursor": cursor})


def _order(view: QueueView) -> Callable[[Entry | RunningJob], tuple[Any, ...]]:
    """Return the function that gives the sort key of a job: waiting jobs first, then running jobs by their start.

    Waiting jobs are sorted by group. In a group the jobs that would start at once are first, then the other jobs by
    position, then the jobs that the scheduler does not consider.
    """

    def order(job: Entry | RunningJob) -> tuple[Any, ...]:
        if isinstance(job, RunningJob):
            return 1, time_text(job.since), job.job_id
        rejection = view.rejections.get(job.job_id)
        position = rejection.position if rejection is not None else None
        is_considered = position is not None or view.starts(job.job_id)
        return 0, job.group, not is_considered, position or 0, time_text(job.queued_at), job.job_id

    return order


def _waiting(entry: Entry, view: QueueView, priority: Priority) -> dict[str, Any]:
    preview = view.of(entry.job_id)
    return {
        "job_id": entry.job_id,
        "user": entry.user,
        "priority": priority.name,
        "asked_priority": entry.asked.name,
        "group": entry.group,
        "nodes": entry.nodes,
        "gpus": entry.gpus,
        "status": _status(entry).value,
        "queued_at": time_text(entry.queued_at),
        "position": preview.position if preview else None,
        "short_of": preview.short_of.value if preview and preview.short_of else None,
        "sentence": preview.sentence if preview else _WAITS_ON_RAY,
        "earliest_at": time_text(preview.earliest_at if preview else None),
        "backend": _backend(entry.job_id, view),
    }


def _backend(job_id: str, view: QueueView) -> str:
    return (Backend.RAY if job_id in view.on_ray else Backend.ECS).value


def _totals(totals: PriorityTotals) -> dict[str, Any]:
    return {"priority": totals.priority.name, "running": asdict(totals.running), "queued": asdict(totals.queued)}


def _status(entry: Entry) -> JobStatus:
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


def _running(job: RunningJob, status: JobStatus, view: QueueView) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "status": status.value,
        "user": job.user,
        "priority": Priority(job.priority).name,
        "group": job.group,
        "nodes": job.nodes,
        "gpus": job.gpus,
        "since": time_text(job.since),
        "ends_at": time_text(job.ends_at),
        "can_suspend": job.can_suspend and job.job_id not in view.on_ray,
        "backend": _backend(job.job_id, view),
    }


def _quotas(view: QueueView) -> list[dict[str, Any]]:
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
    keys |= {entry.quota_key for entry in (*view.entries.values(), *view.on_ray.values()) if entry.waits}
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


def _reservations(placement: Placement) -> list[dict[str, Any]]:
    return [
        {
            "job_id": reservation.job_id,
            "group": reservation.group,
            "hosts": list(reservation.hosts),
            "at": time_text(reservation.at),
        }
        for reservation in placement.reservations
    ]


ROUTES = (
    Route("GET", "/api/v2/queue", read_queue, "The queue as the scheduler sees it", {200: "Queue"}, query=PAGING),
)
