"""Input and output of a scheduler pass, `Snapshot` and `Placement`: values without records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from gpu_recovery.core.fleet import HoldingLimit
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey, QuotaLimits


class OutOfUse(StrEnum):
    """Why a host of the cluster gets no job."""

    HELD = "held"  # its repair is held back
    QUARANTINED = "quarantined"  # until an operator releases it
    REPAIR = "repair"  # it is checked, repaired or verified
    DRAINING = "draining"  # an operator drained it in ECS
    ORPHANED = "orphaned"  # ranks of an ended registration may still run on it
    IMPAIRED = "impaired"  # by a health source
    LOST = "lost"  # no heartbeat of its node agent within the heartbeat timeout
    LEAVING = "leaving"  # its interruption is announced
    DISCONNECTED = "disconnected"  # its ECS agent is not connected, or it is not ACTIVE in ECS


@frozen_dataclass()
class Host:
    """An instance as the queue sees it.

    free:           GPUs that are confirmed free of claims.
    usable:         AVAILABLE, agent connected, ACTIVE in ECS, without an impaired health report, a missing heartbeat or
                    an announced interruption. Only such hosts get jobs.
    counts:         will be usable again without an operator: neither gone nor quarantined.
    reserved_for:   the only job that may use the host, "" for none. The reservation ends at `reserved_until`, or never
                    if that is None.
    port_offsets:   the port offsets of the claims on the host.
    leaves_at:      when the host is announced to leave the cluster; None if no end is known.
    lemon:          lemon score from the fault history, from 0 (no faults) to 1. Lower scores are used first
                    where a gang needs no further rack or zone for that.
    out_of_use:     why the host is not usable; None if it is. Wait reasons name it.
    healed_at:      when the host last came back from a repair with proof and a passed check; None if it never did.
    free_after_check: GPUs that are free when its idle check has been stopped for a job; 0 without such a check.
    check_id:       the idle check to stop for that; "" if it is being stopped already, or has ended.
    passed_check:   the host has passed an idle check lately, so it is used before other hosts that fit equally well.
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
    out_of_use: OutOfUse | None = None
    healed_at: datetime | None = None
    free_after_check: int = 0
    check_id: str = ""
    passed_check: bool = False


@frozen_dataclass()
class WaitingJob:
    """A queued job.

    priority:     the effective priority; `asked` is the submitted priority, by which its quota is counted.
    nodes, gpus:  the number of instances, and of GPUs on each. Of an elastic job the largest number until the pass
                  has chosen its width.
    widths:       the smallest and the largest width of an elastic job; None for a fixed width.
    narrow_since: since when an elastic job could have started with less than its largest width; None if it never could.
    avoids:       hosts for which an elastic job does not become wider than its smallest width, unless they have been
                  repaired since the time.
    returning:    instances of its last attempt whose GPUs are being released to it.
    queued_at:    time of the first submission. Suspension and recovery do not change it.
    last:         the instances of its last attempt by rank, "" for a rank that keeps none.
    suspects:     instance to the rank under which it was suspected: used last, in this order, and never under that
                  rank.
    own_only:     the job returns only to its own instances, and not while it is `repairing`.
    runs_for_s:   the remaining run time in seconds that nine of ten jobs of its kind did not exceed, at most its limit;
                  without such jobs, its limit; None if unknown.
    median_s:     the same by the median of its kind; None if no jobs of its kind are known.
    limit_s:      the limit of its run time that its user set; None without a limit.
    passed_since: since when it could have started without the jobs that passed it; None if it never could.
    holds_quota:  the job is already counted in `Snapshot.used`, as a recovering gang is.
    suspensions:  preemptions of the job within `policy.suspensions_window_s`.
    denials:      launches of the job in a row that AWS denied for lack of a permission.
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
    task_definition: str = ""
    denials: int = 0
    median_s: int | None = None
    limit_s: int | None = None
    passed_since: datetime | None = None
    widths: tuple[int, int] | None = None
    narrow_since: datetime | None = None
    returning: int = 0
    avoids: Mapping[str, datetime] = field(default_factory=dict)


@frozen_dataclass()
class LaunchHold:
    """Jobs that wait because the deployment lacks a permission for their launch.

    scope:      the task definition of the jobs; "" for every job.
    permission: name of the missing permission.
    blocks:     no job starts. Otherwise one job may start as a probe.
    has_precedence: jobs may be suspended and hosts kept for the probe, because no launch was denied for a day.
    """

    scope: str
    permission: str
    blocks: bool
    has_precedence: bool = False


@frozen_dataclass()
class RunningJob:
    """A job that holds GPUs: placed, running or leaving.

    priority:       the effective priority when the snapshot was read; from `demotes_at` on the job counts as NORMAL.
    hosts:          the hosts on each of which the job holds `gpus` GPUs.
    since:          when the job began to run, or was placed if it does not run yet.
    ends_at:        the latest expected end; None if unknown.
    suspensions:    how often the job was suspended within `policy.suspensions_window_s`.
    checkpoint_at:  time of its last reported checkpoint; None if there is none in this attempt.
    can_suspend:    the job is RUNNING and not observe-only.
    nodes_max:      the largest number of instances of an elastic job.
    grows_at:       from when an elastic job with fewer instances may be relaunched on more; None: it may not.
    growing:        an elastic job is being relaunched with another width, and keeps its claims.
    avoids:         instances onto which the job does not grow, unless they have been repaired since the time.
    spares:         hosts of its warm spares; `ready` are those on which a rank can start.
    leaving:        the job is already ending or being suspended; `for_job` is the job that it leaves for, or "".
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
    nodes_max: int = 0
    grows_at: datetime | None = None
    growing: bool = False
    avoids: Mapping[str, datetime] = field(default_factory=dict)
    spares: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()


@frozen_dataclass()
class Snapshot:
    """One consistent view of the cluster and its queue. The order of its contents has no meaning.

    used:                instances in use by quota key, including those of recovering gangs and nodes of jobs on Ray.
    elsewhere:           number of running jobs by user that another pass places: for a pass over ECS those on Ray.
                         Only limits of the number of running jobs need it.
    waiting_elsewhere:   jobs of the other backend that wait for nothing but a place among the running jobs.
    recent_preemptions:  suspensions of the whole fleet within `policy.suspensions_window_s`.
    repairs_held_by:     the fleet limit that holds repairs now; None if repairs may begin.
    paused:              groups in which a job will need hosts after its cool-down, or its pause after a refused launch.
    """

    waiting: tuple[WaitingJob, ...]
    running: tuple[RunningJob, ...]
    hosts: tuple[Host, ...]
    used: Mapping[QuotaKey, int] = field(default_factory=dict)
    limits: QuotaLimits = field(default_factory=QuotaLimits)
    recent_preemptions: int = 0
    launch_holds: tuple[LaunchHold, ...] = ()
    repairs_held_by: HoldingLimit | None = None
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    waiting_elsewhere: tuple[WaitingJob, ...] = ()
    paused: frozenset[str] = frozenset()


@frozen_dataclass()
class Assignment:
    """The instances of the next attempt of a job, in rank order, each with its epoch at the time of the choice.

    is_probe: the launch is a probe: it tries whether a missing permission has been granted.
    """

    job_id: str
    version: int
    attempt: int
    instances: tuple[str, ...]
    epochs: tuple[int, ...]
    port_offset: int
    is_probe: bool = False


@frozen_dataclass()
class Suspension:
    """A running job that is suspended for `for_job`. `hosts` are its hosts that are kept for that job."""

    job_id: str
    version: int
    attempt: int
    for_job: str
    hosts: tuple[str, ...]
    sentence: str


@frozen_dataclass()
class Growth:
    """A running elastic job that continues on more instances: `width` of them, if nothing takes the free ones."""

    job_id: str
    version: int
    attempt: int
    width: int


@frozen_dataclass()
class SpareRecall:
    """A job whose warm spares are released, so that `for_job` can grow onto their instances in a later pass."""

    job_id: str
    for_job: str


class RejectionKind(StrEnum):
    """What a waiting job lacks."""

    GPUS = "gpus"  # GPUs that are free now; enough exist
    CLUSTER = "cluster"  # GPUs: even the empty cluster has too few
    HELD = "held"  # hosts whose repair is held back: with them it would fit
    TURN = "turn"  # other jobs are before it
    QUOTA = "quota"  # instances of its user at this priority
    JOBS = "jobs"  # the number of jobs that may run at once
    OWN = "own"  # its own instances; it accepts no others
    ROOM = "room"  # hosts that are being vacated for it
    CHECK = "check"  # hosts whose idle check is being stopped for it
    PERMISSION = "permission"  # a permission of the deployment, without which AWS denies its launch


NEEDS_NO_HOSTS = frozenset({RejectionKind.CLUSTER, RejectionKind.QUOTA, RejectionKind.JOBS, RejectionKind.PERMISSION})
"""What a job lacks if no host that comes free now helps it. Any other job has precedence over a growth."""


@frozen_dataclass()
class Rejection:
    """A job that was not placed, and why.

    position:     position in the queue of its group, from 1.
    blockers:     the jobs that it waits for; a few of them if there are many.
    earliest_at:  the earliest start by the present estimates; None without an estimate.
    passed_since: since when the head of a queue could have started without the jobs that passed it; None if it never
                  could.
    narrow_since: since when an elastic job could have started with less than its largest width; None if it could not.
    """

    job_id: str
    group: str
    version: int
    attempt: int
    sentence: str
    short_of: RejectionKind
    position: int
    blockers: tuple[str, ...] = ()
    earliest_at: datetime | None = None
    passed_since: datetime | None = None
    narrow_since: datetime | None = None


@frozen_dataclass()
class Reservation:
    """The hosts that the head of a group's queue is promised, from `at` on; None without an estimate."""

    job_id: str
    group: str
    hosts: tuple[str, ...]
    at: datetime | None


@frozen_dataclass()
class CheckToStop:
    """An idle check that is stopped so that the job can start on its host, or grow onto it."""

    host_id: str
    check_id: str
    job_id: str


@frozen_dataclass()
class Placement:
    """The decision about a snapshot. Every queued job is in exactly one of `assignments` and `rejected`.

    next_at:  next time at which a pass may decide otherwise without any event; None if only an event can change the
              decision.
    growths: running jobs that continue on more instances.
    recalls: jobs whose warm spares give way to a growth.
    leaves_places: a job waits although fewer jobs run than may run, because a job of the other backend is before it.
    stops:    idle checks that are stopped for jobs among `rejected`, or for running jobs that will grow.
    waiting_growths: running jobs that will grow when such checks have ended.
    kept:     of a placement as if the idle checks had ended: the hosts of such checks that it keeps for a job among
              `rejected`, by job id.
    """

    assignments: tuple[Assignment, ...]
    suspensions: tuple[Suspension, ...]
    rejected: tuple[Rejection, ...]
    reservations: tuple[Reservation, ...] = ()
    next_at: datetime | None = None
    leaves_places: bool = False
    growths: tuple[Growth, ...] = ()
    recalls: tuple[SpareRecall, ...] = ()
    stops: tuple[CheckToStop, ...] = ()
    waiting_growths: tuple[str, ...] = ()
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
