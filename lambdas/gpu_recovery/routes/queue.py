"""The queue: who waits for what, who runs where, what users take up of their quotas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import wire
from ..core.job.record import WAITING
from ..core.queue.priority import Priority
from ..core.queue.quota import ANY, QuotaKey
from ..core.queue.snapshot import Placement, Running, Snapshot, Waiting
from ..foreseeing import Foresight, of_job
from .desk import Desk
from .exchange import Answer, Request, Route

STATUSES_READ_MAX = 1_000


def read_queue(desk: Desk, request: Request) -> Answer:
    """The line with each job's place in it, what runs, quotas and reservations, as the next pass would see them."""
    snapshot = desk.queue.read()
    placement = desk.queue.place(snapshot, desk.recovery.policy, desk.recovery.clock())
    bad: list[Exception] = []
    statuses = {job.job_id: job.status.value for job in desk.recovery.store.jobs_in(WAITING, STATUSES_READ_MAX, bad)}
    waiting = [_waiting(one, of_job(placement, one.job_id), statuses.get(one.job_id)) for one in snapshot.waiting]
    waiting.sort(key=lambda one: (one["group"], one["position"] or 0, one["queued_at"], one["job_id"]))
    return Answer(
        200,
        {
            "waiting": waiting,
            "running": [_running(one) for one in sorted(snapshot.running, key=lambda one: (one.since, one.job_id))],
            "quotas": [_quota(key, snapshot) for key in _keys(snapshot)],
            "reservations": _reservations(placement),
            "unreadable": [str(error) for error in bad],
        },
    )


def _waiting(job: Waiting, told: Foresight | None, status: str | None) -> dict[str, Any]:
    return {
        "job_id": job.job_id, "user": job.user, "priority": Priority(job.priority).name,
        "asked_priority": Priority(job.asked).name, "group": job.group, "nodes": job.nodes, "gpus": job.gpus,
        "status": status, "queued_at": wire.time_text(job.queued_at), "position": told.position if told else None,
        "short_of": told.short_of.value if told and told.short_of else None, "sentence": told.sentence if told else "",
        "earliest_at": wire.time_text(told.earliest_at if told else None),
    }  # fmt: skip


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
