"""The queue: who waits for what, who runs where, what users take up of their quotas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import wire
from ..core.job.record import JobStatus
from ..core.queue.entry import Entry
from ..core.queue.priority import Priority, effective
from ..core.queue.quota import ANY, QuotaKey
from ..core.queue.snapshot import Placement, Running, Snapshot
from ..foreseeing import Foresight, look
from .answers import Answer
from .desk import Desk
from .exchange import Request, Route


def read_queue(desk: Desk, request: Request) -> Answer:
    """The line with each job's place in it, what runs, quotas and reservations, as the next pass would see them."""
    view = look(desk.recovery)
    waiting = [
        _waiting(entry, view.of(entry.job_id), effective(entry.asked, entry.ran_s, desk.recovery.policy))
        for entry in view.entries.values() if entry.waits
    ]  # fmt: skip
    waiting.sort(key=_order)
    running = sorted(view.snapshot.running, key=lambda one: (one.since, one.job_id))
    return Answer(
        200,
        {
            "waiting": waiting, "running": [_running(one) for one in running],
            "quotas": [_quota(key, view.snapshot) for key in _keys(view.snapshot)],
            "reservations": _reservations(view.placement), "unreadable": [str(error) for error in view.failures],
        },
    )  # fmt: skip


def _order(job: dict[str, Any]) -> Any:
    """Who starts at once, then who waits by place, then who is not considered; group by group."""
    is_considered = job["position"] is not None or job["sentence"].startswith("would")
    return job["group"], not is_considered, job["position"] or 0, job["queued_at"], job["job_id"]


def _waiting(entry: Entry, told: Foresight | None, priority: Priority) -> dict[str, Any]:
    return {
        "job_id": entry.job_id, "user": entry.user, "priority": priority.name, "asked_priority": entry.asked.name,
        "group": entry.group, "nodes": entry.nodes, "gpus": entry.gpus, "status": _status(entry).value,
        "queued_at": wire.time_text(entry.queued_at), "position": told.position if told else None,
        "short_of": told.short_of.value if told and told.short_of else None, "sentence": told.sentence if told else "",
        "earliest_at": wire.time_text(told.earliest_at if told else None),
    }  # fmt: skip


def _status(entry: Entry) -> JobStatus:
    """The status that the entry was made in, as far as it tells."""
    if entry.recovering:
        return JobStatus.RECOVERING
    if entry.fresh:
        return JobStatus.QUEUED
    has_left = entry.held or entry.suspended_at == entry.placed_at  # that is since when it has its status
    return JobStatus.SUSPENDED if has_left else JobStatus.PENDING_RESOURCES


def _running(job: Running) -> dict[str, Any]:
    return {
        "job_id": job.job_id, "user": job.user, "priority": Priority(job.priority).name, "group": job.group,
        "nodes": job.nodes, "gpus": job.gpus, "since": wire.time_text(job.since),
        "ends_at": wire.time_text(job.ends_at), "can_suspend": job.can_suspend,
    }  # fmt: skip


def _keys(snapshot: Snapshot) -> Iterable[QuotaKey]:
    """Whose use there is something to say about: who uses instances, and who has a limit of its own."""
    named = {
        QuotaKey(user, Priority[priority], group)
        for user, priority, group in snapshot.limits.instances if ANY not in (user, priority, group)
    }  # fmt: skip
    used = {key for key, number in snapshot.used.items() if number}
    return sorted(named | used, key=lambda key: (key.user, -key.priority, key.group))


def _quota(key: QuotaKey, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "user": key.user, "priority": Priority(key.priority).name, "group": key.group,
        "used": snapshot.used.get(key, 0), "limit": snapshot.limits.of(key),
    }  # fmt: skip


def _reservations(placement: Placement) -> list[dict[str, Any]]:
    return [
        {"job_id": one.job_id, "group": one.group, "hosts": list(one.hosts), "at": wire.time_text(one.at)}
        for one in placement.reservations
    ]


ROUTES = (Route("GET", "/api/v2/queue", read_queue, "The queue as the scheduler sees it", {200: "Queue"}),)
