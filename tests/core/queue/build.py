"""Small clusters and lines for the tests of the queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy
from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey
from gpu_recovery.core.queue.snapshot import Host, Placement, RunningJob, Snapshot, WaitingJob

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = PRESETS[Preset.ADAPTIVE]
HOUR = 3_600


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def host(name: str, gpus: int = 8, free: int | None = None, **fields: Any) -> Host:
    return Host(name, fields.pop("group", ""), gpus, gpus if free is None else free, **fields)


def hosts(*names: str, **fields: Any) -> tuple[Host, ...]:
    return tuple(host(name, **fields) for name in names)


def waiting(
    name: str, nodes: int = 1, gpus: int = 8, since: float = -100, priority: Priority = Priority.NORMAL, **fields: Any
) -> WaitingJob:
    """A job in line since `since` seconds from now."""
    asked, user = fields.pop("asked", priority), fields.pop("user", f"user-of-{name}")
    group = fields.pop("group", "")
    return WaitingJob(name, 1, 0, user, priority, asked, group, nodes, gpus, at(since), **fields)


def recovering(name: str, *last: str, **fields: Any) -> WaitingJob:
    """A gang that is to be launched again, its last instances by rank."""
    nodes = fields.pop("nodes", len(last))
    return waiting(name, nodes, recovering=True, last=last, holds_quota=True, **fields)


def running(
    name: str, *on: str, gpus: int = 8, since: float = -HOUR, priority: Priority = Priority.NORMAL, **fields: Any
) -> RunningJob:
    """A job that runs on the hosts `on`; `ends` seconds from now if that is known."""
    asked, user = fields.pop("asked", priority), fields.pop("user", f"user-of-{name}")
    ends = fields.pop("ends", None)
    group = fields.pop("group", "")
    return RunningJob(
        name,
        1,
        1,
        user,
        priority,
        asked,
        group,
        len(on),
        gpus,
        on,
        at(since),
        at(since),
        ends_at=None if ends is None else at(ends),
        **fields,
    )


def counted(*jobs: RunningJob) -> dict[QuotaKey, int]:
    """The instances in use by quota key."""
    used: dict[QuotaKey, int] = {}
    for job in jobs:
        key = QuotaKey(job.user, job.asked, job.group)
        used[key] = used.get(key, 0) + job.nodes
    return used


def passed(
    line: Iterable[WaitingJob],
    fleet: Iterable[Host],
    busy: Iterable[RunningJob] = (),
    *,
    policy: RecoveryPolicy = POLICY,
    now: datetime = NOW,
    **fields: Any,
) -> Placement:
    """One pass; `busy` are the jobs that run, already missing from what the hosts have free."""
    snapshot = Snapshot(tuple(line), tuple(busy), tuple(fleet), fields.pop("used", counted(*busy)), **fields)
    return place(snapshot, policy, now)


def given(placement: Placement) -> Mapping[str, tuple[str, ...]]:
    return {one.job_id: one.instances for one in placement.assignments}


def why(placement: Placement) -> Mapping[str, str]:
    return {one.job_id: one.sentence for one in placement.rejected}


def suspended(placement: Placement) -> Mapping[str, str]:
    """Who makes room for whom."""
    return {one.job_id: one.for_job for one in placement.suspensions}
