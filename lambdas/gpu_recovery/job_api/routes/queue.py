"""The queue: who waits for what, who runs where, what users take up of their quotas."""

from __future__ import annotations

from typing import Any

from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.priority import Priority, effective
from gpu_recovery.core.queue.quota import ANY, QuotaKey
from gpu_recovery.core.queue.snapshot import Placement, RunningJob
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import PAGING, page_of
from gpu_recovery.job_api.placement_preview import PlacementPreview, QueueView, read_queue_view
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.wire.json_body import time_text


def read_queue(desk: Dependencies, request: Request) -> ApiResponse:
    """The line with each job's place in it, what runs, quotas and reservations, as the next pass would see them.

    A page is one of the line; all else is on the first.
    """
    view = read_queue_view(desk.recovery)
    waiting = [
        _waiting(entry, view.of(entry.job_id), effective(entry.asked, entry.ran_s, desk.recovery.policy))
        for entry in view.entries.values()
        if entry.waits
    ]
    page, cursor = page_of(desk, request, "queue", waiting, lambda one: str(one["job_id"]), _order)
    told: dict[str, Any] = {"waiting": page, "running": [], "quotas": [], "reservations": [], "unreadable": []}
    if "cursor" not in request.query:
        running = sorted(view.snapshot.running, key=lambda one: (one.since, one.job_id))
        told |= {"running": [_running(one) for one in running], "quotas": _quotas(view)}
        told |= {"reservations": _reservations(view.placement), "unreadable": [str(error) for error in view.failures]}
    return ApiResponse(200, {**told, "next_cursor": cursor})


def _order(job: dict[str, Any]) -> tuple[Any, ...]:
    """Who starts at once, then who waits by place, then who is not considered; group by group."""
    is_considered = job["position"] is not None or job["sentence"].startswith("would")
    return job["group"], not is_considered, job["position"] or 0, job["queued_at"], job["job_id"]


def _waiting(entry: Entry, told: PlacementPreview | None, priority: Priority) -> dict[str, Any]:
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
        "position": told.position if told else None,
        "short_of": told.short_of.value if told and told.short_of else None,
        "sentence": told.sentence if told else "",
        "earliest_at": time_text(told.earliest_at if told else None),
    }


def _status(entry: Entry) -> JobStatus:
    """The status that the entry was made in, as far as it tells."""
    if entry.recovering:
        return JobStatus.RECOVERING
    if entry.fresh:
        return JobStatus.QUEUED
    has_left = entry.held or entry.suspended_at == entry.placed_at  # that is since when it has its status
    return JobStatus.SUSPENDED if has_left else JobStatus.PENDING_RESOURCES


def _running(job: RunningJob) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "user": job.user,
        "priority": Priority(job.priority).name,
        "group": job.group,
        "nodes": job.nodes,
        "gpus": job.gpus,
        "since": time_text(job.since),
        "ends_at": time_text(job.ends_at),
        "can_suspend": job.can_suspend,
    }


def _quotas(view: QueueView) -> list[dict[str, Any]]:
    """Used and limit of whoever uses instances, wants some, or has a limit of its own; then the limits with a `*` that
    nobody falls under yet, each with nothing used."""
    limits, used = view.snapshot.limits, view.snapshot.used
    named = {
        QuotaKey(user, Priority[priority], group)
        for user, priority, group in limits.instances
        if ANY not in (user, priority, group)
    }
    keys = named | {key for key, number in used.items() if number}
    keys |= {entry.quota_key for entry in view.entries.values() if entry.waits}
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
        {"job_id": one.job_id, "group": one.group, "hosts": list(one.hosts), "at": time_text(one.at)}
        for one in placement.reservations
    ]


ROUTES = (
    Route("GET", "/api/v2/queue", read_queue, "The queue as the scheduler sees it", {200: "Queue"}, query=PAGING),
)
