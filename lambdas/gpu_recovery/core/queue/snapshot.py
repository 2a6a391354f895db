"""What a pass of the scheduler reads, `Snapshot`, and what it answers, `Placement`: values without any records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey, QuotaLimits


@dataclass(frozen=True, slots=True)
class Host:
    """One instance as the queue sees it.

    free:           GPUs that no claim holds, confirmed.
    usable:         healthy, connected, heard of, ACTIVE in ECS, under nobody's suspicion: only these are given away.
    counts:         will be usable again without a person: neither gone nor quarantined.
    reserved_for:   the only job that may have it, "" for none; `reserved_until` ends that, None never.
    port_offsets:   those of the claims on it.
    leaves_at:      when it is announced to leave the cluster; None where nothing is known.
    lemon:          what is remembered against it, from 0 (nothing) to 1: of equals those with less are taken first.
    """

    host_id: str
    group: str
    gpus: int
    free: int
    usable: bool = True
    counts: bool = True
    epoch: int = 0
    rack: str = ""
    zone: str = ""
    reserved_for: str = ""
    reserved_until: datetime | None = None
    port_offsets: tuple[int, ...] = ()
    leaves_at: datetime | None = None
    lemon: float = 0.0


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job in line.

    priority:     the effective one; `asked` is the one it was submitted with, which its quota goes by.
    nodes, gpus:  so many instances, so many GPUs on each.
    queued_at:    when it was first submitted: kept over suspension and recovery.
    last:         the instances of its last attempt by rank, "" for a rank that has none to keep.
    suspects:     instance to the rank under which it was suspected: used last, and never under that rank.
    own_only:     it goes back to its own instances and to no others; not while it is `repairing`.
    runs_for_s:   how long it will still run at most, as far as is known; None if unknown.
    holds_quota:  it is counted in `Snapshot.used` already, as a recovering gang is.
    suspensions:  how often it was suspended for others.
    """

    job_id: str
    version: int
    attempt: int
    user: str
    priority: Priority
    asked: Priority
    group: str
    nodes: int
    gpus: int
    queued_at: datetime
    recovering: bool = False
    last: tuple[str, ...] = ()
    suspects: Mapping[str, int] = field(default_factory=dict)
    own_only: bool = False
    repairing: bool = False
    runs_for_s: int | None = None
    holds_quota: bool = False
    suspensions: int = 0
    suspended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that holds GPUs: placed, running or on its way out.

    priority:       the effective one when this was read; from `demotes_at` on it counts as NORMAL.
    hosts:          where it holds `gpus` GPUs each.
    since:          when it began to run, or was placed if it does not run yet.
    ends_at:        when it will have ended at the latest, as far as is known.
    suspensions:    how often it was suspended within `policy.suspensions_window_s`.
    checkpoint_at:  its last checkpoint that was reported; None for none in this attempt.
    can_suspend:    RUNNING, ours, and not only observed.
    leaving:        ending or being suspended already; `for_job` is whom it makes room for, "" for nobody.
    """

    job_id: str
    version: int
    attempt: int
    user: str
    priority: Priority
    asked: Priority
    group: str
    nodes: int
    gpus: int
    hosts: tuple[str, ...]
    since: datetime
    queued_at: datetime
    ends_at: datetime | None = None
    demotes_at: datetime | None = None
    suspensions: int = 0
    checkpoint_at: datetime | None = None
    can_suspend: bool = True
    leaving: bool = False
    for_job: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent view of the cluster and its queue; in which order things are listed means nothing.

    used:              instances in use by quota key, those of recovering gangs included.
    recent_preemptions:  suspensions of the whole fleet within `policy.suspensions_window_s`.
    """

    waiting: tuple[WaitingJob, ...]
    running: tuple[RunningJob, ...]
    hosts: tuple[Host, ...]
    used: Mapping[QuotaKey, int] = field(default_factory=dict)
    limits: QuotaLimits = field(default_factory=QuotaLimits)
    recent_preemptions: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """The instances of one job's next attempt, in rank order, with the epoch each had when it was chosen."""

    job_id: str
    version: int
    attempt: int
    instances: tuple[str, ...]
    epochs: tuple[int, ...]
    port_offset: int


@dataclass(frozen=True, slots=True)
class Suspension:
    """A running job that has to make room for `for_job`; `hosts` are those of its instances that are kept for it."""

    job_id: str
    version: int
    attempt: int
    for_job: str
    hosts: tuple[str, ...]
    sentence: str


class RejectionKind(StrEnum):
    """What a job that waits is short of."""

    GPUS = "gpus"  # free now; enough exist
    CLUSTER = "cluster"  # not even the empty cluster has enough
    TURN = "turn"  # others are before it
    QUOTA = "quota"  # its user's instances at this priority
    JOBS = "jobs"  # the number of jobs that may run at once
    OWN = "own"  # its own instances, and it takes no others
    ROOM = "room"  # what is being vacated for it


@dataclass(frozen=True, slots=True)
class Rejection:
    """A job that found no place, and why.

    position:     its place in the line of its group, from 1.
    blockers:     the jobs it waits for, a few of them where there are many.
    earliest_at:  the earliest start, by the estimates at hand; None where nobody can tell.
    """

    job_id: str
    version: int
    attempt: int
    sentence: str
    short_of: RejectionKind
    position: int
    blockers: tuple[str, ...] = ()
    earliest_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """What the head of a group's line is promised: these hosts, from `at` on; None where nobody can tell when."""

    job_id: str
    group: str
    hosts: tuple[str, ...]
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Placement:
    """The answer. Every job in line is in exactly one of `assignments` and `short`.

    next_at:  the earliest time at which the same snapshot may be decided otherwise by the clock alone. Until then
              only an event changes the answer; None: nothing else ever does.
    """

    assignments: tuple[Assignment, ...]
    suspensions: tuple[Suspension, ...]
    rejected: tuple[Rejection, ...]
    reservations: tuple[Reservation, ...] = ()
    next_at: datetime | None = None
