"""Hosts under an idle check: a job that needs such a host stops its check, and uses the host after the stop.

Such a host is not usable. `place` first decides without these hosts. Then it decides again as if the checks had ended,
if a job waits or could have more hosts. The second decision holds if it gives a job more:

- A job that would then start on such a host, or on more hosts, waits for the confirmed end of the check. It keeps the
  other hosts that it would get.
- A job for which others leave, or that waits for a larger width, keeps such hosts, and their checks are stopped
  meanwhile.

So the order of the jobs is the same as without idle checks, and no GPU is given before its end is confirmed. A running
job that could grow onto such a host is told to grow after the end of the check.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpu_recovery.core.queue.growth import may_grow, may_take
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


def may_need_stops(snapshot: Snapshot, without: Placement, now: datetime) -> bool:
    """Return whether a job waits, starts with less than its largest width, or may grow."""
    if without.rejected or may_grow(snapshot.running, now):
        return True
    largest = {job.job_id: job.widths[1] for job in snapshot.waiting if job.widths is not None}
    return any(len(one.instances) < largest.get(one.job_id, 0) for one in without.assignments)


def with_stops(snapshot: Snapshot, without: Placement, after: Placement, now: datetime) -> Placement:
    """Return the placement that stops the idle checks which a job waits for.

    Args:
        snapshot: the snapshot of the pass.
        without: the placement on the hosts without a check.
        after: the placement as if the checks had ended.
        now: time of the pass.
    """
    hosts = {host.host_id: host for host in snapshot.hosts if host.free_after_check}
    placement, needs = without, dict[str, Sequence[str]]()
    kept = _kept(after)
    if without.suspensions or _gains(without, after, kept):
        starting = ((one.job_id, [name for name in one.instances if name in hosts]) for one in after.assignments)
        needs = {job_id: checked for job_id, checked in (*starting, *kept.items()) if checked}
        placement = _waiting_for_stops(snapshot, without, after, needs)
    groups = {job.group for job in snapshot.waiting if job.job_id in needs}
    needs_of_growths = _needs_of_growths(snapshot, without, after, groups)
    needs |= needs_of_growths
    group_of = {job.job_id: job.group for job in snapshot.running}
    groups |= {group_of[job_id] for job_id in needs_of_growths}
    stops = tuple(
        CheckToStop(name, hosts[name].check_id, job_id)
        for job_id, checked in needs.items()
        for name in checked
        if hosts[name].check_id
    )
    times = [at for at in (placement.next_at, now + STOP_LOOK if needs else None) if at is not None]
    return replace(
        placement,
        growths=tuple(one for one in without.growths if group_of[one.job_id] not in groups),
        recalls=tuple(one for one in without.recalls if group_of[one.for_job] not in groups),
        stops=stops,
        waiting_growths=tuple(needs_of_growths),
        next_at=min(times, default=None),
        kept={},
    )


def _kept(after: Placement) -> Mapping[str, Sequence[str]]:
    """Return the hosts under a check that a job keeps until others have left, or until its wait for more is over.

    A job that keeps hosts in another way cannot start on them soon.
    """
    soon = {one.job_id for one in after.rejected if one.short_of is RejectionKind.ROOM or one.narrow_since is not None}
    return {job_id: checked for job_id, checked in after.kept.items() if job_id in soon}


def _gains(without: Placement, after: Placement, kept: Collection[str]) -> bool:
    """Return whether the end of the checks gives a job more: a start, more hosts, or a part of its room.

    If enough other jobs leave for a job anyway, the job needs no host under a check.
    """
    widths = {one.job_id: len(one.instances) for one in without.assignments}
    has_room = {one.job_id for one in without.rejected if one.short_of is RejectionKind.ROOM}
    wider = any(len(one.instances) > widths.get(one.job_id, 0) for one in after.assignments)
    return wider or any(job_id not in widths and job_id not in has_room for job_id in kept)


def _waiting_for_stops(
    snapshot: Snapshot, without: Placement, after: Placement, needs: Mapping[str, Sequence[str]]
) -> Placement:
    """Return the placement after the checks, in which the jobs that need a host under a check wait.

    Args:
        snapshot: the snapshot of the pass.
        without: the placement on the hosts without a check.
        after: the placement as if the checks had ended.
        needs: the hosts under a check that a job needs, by job id.
    """
    positions = {rejection.job_id: rejection.position for rejection in without.rejected}
    groups = {job.job_id: job.group for job in snapshot.waiting}
    starting = [one for one in after.assignments if one.job_id in needs]
    waiting = [_rejection(one, groups[one.job_id], positions.get(one.job_id, 1), needs[one.job_id]) for one in starting]
    return replace(
        after,
        assignments=tuple(one for one in after.assignments if one.job_id not in needs),
        rejected=(
            *waiting,
            *(_and_for_stops(one, needs[one.job_id]) if one.job_id in needs else one for one in after.rejected),
        ),
    )


def _rejection(assignment: Assignment, group: str, position: int, checked: Collection[str]) -> Rejection:
    sentence = f"waits for {_stops(checked)}"
    return Rejection(
        assignment.job_id, group, assignment.version, assignment.attempt, sentence, RejectionKind.CHECK, position
    )


def _and_for_stops(rejection: Rejection, checked: Collection[str]) -> Rejection:
    return replace(rejection, sentence=f"{rejection.sentence}, and for {_stops(checked)}")


def _stops(checked: Collection[str]) -> str:
    return f"the stop of the idle check of {len(checked)} instance(s)"


# -- growth ------------------------------------------------------------------------------------------------------------


def _needs_of_growths(
    snapshot: Snapshot, without: Placement, after: Placement, closed: Collection[str]
) -> dict[str, Sequence[str]]:
    """Return the hosts under a check onto which a running job will grow, by job id.

    A job that could grow further onto such hosts is told to grow when they are free: two growths are two restarts.

    Args:
        snapshot: the snapshot of the pass.
        without: the placement on the hosts without a check.
        after: the placement as if the checks had ended.
        closed: groups in which a job waits for the stop of a check. No job grows there.
    """
    running = {job.job_id: job for job in snapshot.running}
    widths = {growth.job_id: growth.width for growth in without.growths}
    taken = {name for one in after.assignments for name in one.instances}.union(*after.kept.values())
    needs: dict[str, Sequence[str]] = {}
    for growth in after.growths:
        job = running[growth.job_id]
        more = growth.width - widths.get(job.job_id, job.nodes)
        if job.group not in closed and more > 0:
            others = (host for host in snapshot.hosts if host.group == job.group and host.host_id not in taken)
            fitting = (host for host in others if host.free_after_check >= job.gpus and may_take(host, job))
            # A host whose check is being stopped comes first, so that no further check is stopped.
            chosen = sorted(fitting, key=lambda host: (host.check_id != "", host.lemon, host.host_id))[:more]
            needs |= {job.job_id: [host.host_id for host in chosen]} if chosen else {}
    return needs
