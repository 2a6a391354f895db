"""Evidence about instances for a message: health reports, restarts, missing heartbeats, checks and repairs.

The lines are made when a message is sent, from the records at that time. A report of an XID often arrives in the same
second as the end of its rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.notifications.template import clock

if TYPE_CHECKING:
    from gpu_recovery.core.heartbeat import Heartbeat
    from gpu_recovery.core.instance.record import Instance

LINES_MAX = 12
"""Lines about instances in one message."""
DECISIONS_MAX = 5
"""Decisions about one instance in one message, the latest."""
EARLIER = timedelta(minutes=5)
"""Time before the start of a recovery from which decisions about an instance belong to the recovery."""


def health_lines(
    instances: Iterable[Instance],
    heartbeats: Mapping[str, Heartbeat],
    ranks: Mapping[str, int],
    since: datetime | None,
    now: datetime,
    silent_s: int,
) -> list[str]:
    """Return what is known about the instances of a failed attempt now.

    Args:
        instances: the records of the instances.
        heartbeats: the last heartbeat of each instance, by instance id.
        ranks: the rank on each instance, by instance id.
        since: start of the attempt's run. A later boot is a restart under the job. None if it never ran.
        now: time of the message.
        silent_s: seconds without a heartbeat from which a heartbeat is missing.
    """
    lines = [
        f"{instance.instance_id}{_rank_text(ranks.get(instance.instance_id))}: {fact}"
        for instance in instances
        for fact in _facts(
            instance, heartbeats.get(instance.instance_id), ranks.get(instance.instance_id), since, now, silent_s
        )
    ]
    return lines[:LINES_MAX]


def repair_lines(instances: Sequence[Instance], since: datetime) -> list[str]:
    """Return the last decisions about each instance since its job failed: checks, reboot, proof, return."""
    lines = []
    for instance in instances:
        recent = [entry for entry in instance.history if entry.at >= since - EARLIER]
        while recent and recent[0].after == InstanceStatus.AVAILABLE:  # nothing had begun yet
            recent.pop(0)
        entries = recent[-DECISIONS_MAX:]
        lines += [f"{instance.instance_id} {entry.at:%H:%M:%S} {entry.after}: {entry.reason}" for entry in entries]
    return lines[:LINES_MAX]


def last_report_lines(
    last_report_s: Mapping[str, float], ranks: Mapping[str, int], at: datetime, silent_s: int
) -> list[str]:
    """Return the ranks that stopped reporting long before the failure, while other ranks still reported.

    Such a rank is the suspect of a hang. The rank that failed first is often only the first that gave up.

    Args:
        last_report_s: time of the last report of each instance's rank, in seconds since 1970.
        ranks: the rank on each instance, by instance id.
        at: time of the failure.
        silent_s: seconds without a report from which a rank counts as silent.
    """
    ages = {name: at.timestamp() - last_s for name, last_s in last_report_s.items()}
    if not any(age <= silent_s for age in ages.values()):
        return []
    silent = [name for name in ages if ages[name] > silent_s]
    return [
        f"suspect{_rank_text(ranks.get(name))} on {name}: its last report came {ages[name]:.0f} s before the failure, "
        "while other ranks still reported"
        for name in silent[:LINES_MAX]
    ]


def _facts(
    instance: Instance,
    heartbeat: Heartbeat | None,
    rank: int | None,
    since: datetime | None,
    now: datetime,
    silent_s: int,
) -> Iterator[str]:
    for kind, report in sorted(instance.health.items()):
        if report.status is HealthStatus.IMPAIRED:
            yield f"{kind} is {report.status} since {clock(report.since)}" + (
                f": {report.sentence}" if report.sentence else ""
            )
    if since is None:
        return
    if rank is not None and (booted := instance.restarted_after(since)) is not None:
        yield f"the instance restarted at {clock(booted)}, during the attempt; gpu-recovery did not order the restart"
    if heartbeat is None or heartbeat.seen_at < since:  # the agent did not report before the attempt either
        return
    if (age_s := (now - heartbeat.seen_at).total_seconds()) > silent_s:
        yield f"suspect: no heartbeat of its node agent for {age_s:.0f} s"


def _rank_text(rank: int | None) -> str:
    return "" if rank is None else f" (rank {rank})"
