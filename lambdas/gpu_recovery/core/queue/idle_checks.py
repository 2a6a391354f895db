"""Hosts under an idle check: a job that cannot start without them stops their checks, and starts after the stop.

Such a host is not usable. `place` first decides without these hosts. Only if a job waits, or others would be suspended
for a job, it decides again as if the checks had ended. A job that would then start on such a host waits for the
confirmed end of the check, and keeps the other hosts that it would get. So the order of the jobs is the same as without
idle checks, and no GPU is given before its end is confirmed.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gpu_recovery.core.queue.snapshot import (
    Assignment,
    CheckToStop,
    Host,
    Placement,
    Rejection,
    RejectionKind,
    Snapshot,
)

STOP_LOOK = timedelta(seconds=60)
"""Time after which a pass looks again at a check that is being stopped."""
USED_LAST = 1.0
"""Addition to the lemon score of a host under an idle check, so that hosts that are free now are used first."""


def after_checks(snapshot: Snapshot) -> Snapshot | None:
    """Return the snapshot as if the idle checks had ended; None if there are none."""
    if not any(host.free_after_check for host in snapshot.hosts):
        return None
    return replace(snapshot, hosts=tuple(_after_check(host) for host in snapshot.hosts))


def _after_check(host: Host) -> Host:
    if not host.free_after_check:
        return host
    return replace(host, usable=True, free=host.free_after_check, lemon=host.lemon + USED_LAST, out_of_use=None)


def with_stops(snapshot: Snapshot, without: Placement, after: Placement, now: datetime) -> Placement:
    """Return the placement that stops the idle checks which a job waits for.

    Args:
        snapshot: the snapshot of the pass.
        without: the placement on the hosts without a check.
        after: the placement as if the checks had ended.
        now: time of the pass.
    """
    started = {assignment.job_id for assignment in without.assignments}
    gained = any(assignment.job_id not in started for assignment in after.assignments)
    if not gained and not without.suspensions:
        return without
    hosts = {host.host_id: host for host in snapshot.hosts if host.free_after_check}
    positions = {rejection.job_id: rejection.position for rejection in without.rejected}
    groups = {job.job_id: job.group for job in snapshot.waiting}
    waiting: list[Rejection] = []
    stops: list[CheckToStop] = []
    for assignment in after.assignments:
        checked = [host_id for host_id in assignment.instances if host_id in hosts]
        if not checked:
            continue
        group, position = groups[assignment.job_id], positions.get(assignment.job_id, 1)
        waiting.append(_rejection(assignment, group, position, checked))
        stops += [
            CheckToStop(host_id, hosts[host_id].check_id, assignment.job_id)
            for host_id in checked
            if hosts[host_id].check_id
        ]
    if not waiting:
        return after
    waits = {rejection.job_id for rejection in waiting}
    next_at = now + STOP_LOOK if after.next_at is None else min(after.next_at, now + STOP_LOOK)
    return replace(
        after,
        assignments=tuple(assignment for assignment in after.assignments if assignment.job_id not in waits),
        rejected=(*waiting, *after.rejected),
        stops=tuple(stops),
        next_at=next_at,
    )


def _rejection(assignment: Assignment, group: str, position: int, checked: list[str]) -> Rejection:
    sentence = f"waits for the stop of the idle check of {len(checked)} instance(s)"
    return Rejection(
        assignment.job_id, group, assignment.version, assignment.attempt, sentence, RejectionKind.CHECK, position
    )
