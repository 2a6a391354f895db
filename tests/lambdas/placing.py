"""A queue for the API's tests: a snapshot that a test chooses, placed by the plainest rule there is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import Any

import pytest
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.snapshot import (
    Assignment,
    Host,
    Placement,
    Reservation,
    Running,
    Short,
    Shortage,
    Snapshot,
    Suspension,
    Waiting,
)

from tests.aws.records import NOW, later


@dataclass
class PlainQueue:
    """First come, first served on whole free hosts; the first that does not fit suspends whatever runs below it."""

    snapshot: Snapshot = field(default_factory=lambda: Snapshot((), (), ()))
    read: int = 0

    def placed(self, snapshot: Snapshot, policy: RecoveryPolicy, now: datetime) -> Placement:
        """The jobs in their order, as long as there are hosts; then nobody."""
        free = [host.host_id for host in snapshot.hosts if host.free == host.gpus]
        assigned: list[Assignment] = []
        short: list[Short] = []
        for job in sorted(snapshot.waiting, key=lambda one: (-one.priority, one.queued_at, one.job_id)):
            if not short and job.nodes <= len(free):
                taken, free = tuple(free[: job.nodes]), free[job.nodes :]
                assigned.append(Assignment(job.job_id, job.version, job.attempt + 1, taken, (0,) * job.nodes, 0))
                continue
            kind, position = (Shortage.TURN if short else Shortage.GPUS), len(short) + 1
            sentence = f"needs {job.nodes} instance(s), {len(free)} are free"
            blockers = tuple(one.job_id for one in snapshot.running)
            short.append(Short(job.job_id, job.version, job.attempt, sentence, kind, position, blockers, later(600)))
        first = next((job for job in snapshot.waiting if short and job.job_id == short[0].job_id), None)
        below = [one for one in snapshot.running if first is not None and one.priority < first.priority]
        suspensions = tuple(
            Suspension(one.job_id, one.version, one.attempt, short[0].job_id, one.hosts, "makes room") for one in below
        )
        reservations = (Reservation(first.job_id, first.group, ("h-0",), later(600)),) if first is not None else ()
        return Placement(tuple(assigned), suspensions, tuple(short), reservations)


def host(name: str, free: int = 8) -> Host:
    """An instance with eight GPUs."""
    return Host(name, "", 8, free)


def waiting(job_id: str, **changes: Any) -> Waiting:
    """A job of two instances in line."""
    blank: dict[str, Any] = {
        "version": 1, "attempt": 0, "user": "ana", "priority": Priority.NORMAL, "asked": Priority.NORMAL, "group": "",
        "nodes": 2, "gpus": 8, "queued_at": NOW,
    }  # fmt: skip
    return Waiting(job_id, **blank | changes)


def running(job_id: str, **changes: Any) -> Running:
    """A job of one instance that runs."""
    blank: dict[str, Any] = {
        "version": 3, "attempt": 1, "user": "bob", "priority": Priority.LOW, "asked": Priority.LOW, "group": "",
        "nodes": 1, "gpus": 8, "hosts": ("h-9",), "since": NOW, "queued_at": NOW, "ends_at": later(600),
    }  # fmt: skip
    return Running(job_id, **blank | changes)


def install(monkeypatch: pytest.MonkeyPatch) -> PlainQueue:
    """Let the API see this queue in place of the scheduler's; to be called when the functions are cold."""
    queue = PlainQueue()
    view: Any = import_module("gpu_recovery.aws.desk").SchedulersView

    def read(self: Any) -> Snapshot:
        queue.read += 1
        return queue.snapshot

    monkeypatch.setattr(view, "read", read)
    monkeypatch.setattr(view, "place", lambda self, *given: queue.placed(*given))
    return queue
