"""The width of a waiting job: on how many instances its next attempt starts.

A job has a fixed width, or is elastic: it accepts any width from a smallest to a largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from gpu_recovery.core.queue.snapshot import Host, WaitingJob


class Room(NamedTuple):
    """What limits the width of a job in a pass, in instances.

    free:    hosts that fit the job now. Hosts that it avoids count only up to its smallest width.
    cluster: hosts of the cluster that are large enough, used or free.
    quota:   instances that the quota allows the job.
    """

    free: int
    cluster: int
    quota: int


class Width(NamedTuple):
    """The width with which a job takes part in a pass.

    nodes: the number of instances.
    until: the job could start with `nodes` instances, and waits for more until this time; None: it does not wait.
    """

    nodes: int
    until: datetime | None = None


def choose_width(job: WaitingJob, room: Room, wait: timedelta, now: datetime) -> Width:
    """Return the largest width of the job that fits now, or its smallest width if none fits.

    A gang that continues starts at once with the width that fits, unless some of its own instances are just being
    released. Any other job waits for a larger width, because GPUs may be about to come free. The wait is counted from
    the time at which the job could first have started.

    Args:
        job: the job.
        room: what limits its width.
        wait: how long a job that does not continue waits for a larger width.
        now: the time of the pass.
    """
    if job.widths is None:
        return Width(job.nodes)
    if job.own_only:
        return Width(len(job.last))
    least, largest = job.widths
    most = max(least, min(largest, room.cluster, room.quota))
    fits = min(room.free, most)
    if fits < least:
        return Width(least)
    if fits == most or (job.recovering and not job.returning):
        return Width(fits)
    until = now + RELEASE if job.recovering else (job.narrow_since or now) + wait
    return Width(fits, until if until > now else None)


def is_avoided(host: Host, avoids: Mapping[str, datetime]) -> bool:
    """Return whether a job does not become wider for this host, because it has not been repaired since."""
    since = avoids.get(host.host_id)
    return since is not None and not (host.healed_at is not None and host.healed_at > since)


RELEASE = timedelta(minutes=1)
"""Time until the next pass looks whether the instances of a gang that continues have been released."""
