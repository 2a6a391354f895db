"""The events of the instance state machine: frozen, in the past tense, with the time at which each happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpu_recovery.core.health_check import Verdict
from gpu_recovery.core.health_signals import DepartureKind, Ec2InstanceState, HealthKind, HealthStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEvent:
    """A fact about one EC2 instance."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceObserved(InstanceEvent):
    """What ECS says of the container instance at its `ecs_version`: an event's detail or a fresh Describe."""

    ecs_version: int
    ecs_status: str
    agent_connected: bool
    container_instance_id: str
    gpus: int
    availability_zone: str = ""
    group: str = ""
    rack: str = ""
    gpus_free: int | None = None
    """How many ECS has left to give; None where it does not say."""
    looked: bool = False
    """From a fresh look of ours: worth thinking about even when ECS has nothing newer, because time has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequested(InstanceEvent):
    """A job wants the instance of its ended `attempt` checked; `may_reboot` if a reboot may follow.

    awaited: the job waits for the answer. If not, the instance is checked for whoever works on it next.
    since: when the attempt began; what the machine logged before is about somebody else's work.
    suspect: the instance of the attempt that is repaired even if its check finds nothing, and `because` of what;
    `again`: it was before, and that has not helped.
    focus: the GPUs that a diagnosis suspects, as `<instance>/<index, UUID or PCI address>`.
    first: the instance on which the attempt ended first, "" where nobody can tell; `alone`: it had only one.
    """

    job_id: str
    attempt: int
    may_reboot: bool
    since: datetime | None = None
    suspect: str = ""
    because: str = ""
    again: bool = False
    focus: tuple[str, ...] = ()
    awaited: bool = True
    first: str = ""
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEnded(InstanceEvent):
    """The health check `check_id` ended with `verdict`; `at` is when ECS or, if that is earlier, its machine says."""

    check_id: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequested(InstanceEvent):
    """A rank of `attempt` cannot be stopped on this instance: only a reboot confirms its end.

    awaited: the job waits for that; if not, it is over, and the instance is kept for nobody.
    """

    job_id: str
    attempt: int
    sentence: str
    awaited: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootUncertain(InstanceEvent):
    """Whoever asked for the reboot of `epoch` died: nobody knows whether EC2 heard it."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRefused(InstanceEvent):
    """EC2 will not reboot or replace the instance for the order of `epoch`, and `sentence` says why."""

    epoch: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairHeld(InstanceEvent):
    """Looked at afresh before acting on the order of `epoch`, the repair may not begin now; `sentence` says why."""

    epoch: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSeen(InstanceEvent):
    """A fresh look at EC2 shows the machine in `state`."""

    state: Ec2InstanceState


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReported(InstanceEvent):
    """Somebody who watches the instance says how it is; `since` orders what one `kind` of watcher says."""

    kind: HealthKind
    status: HealthStatus
    since: datetime
    sentence: str = ""
    xid: int | None = None
    """The XID that a GPU is impaired by, where the watcher gives one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSilent(InstanceEvent):
    """The agent of the instance was last heard of at `seen_at`, too long ago.

    heard: the attempt of each job whose rank had been heard of there.
    """

    seen_at: datetime
    heard: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceHeard(InstanceEvent):
    """The agent of an instance that had been silent reports again; `at` is when it did, not when somebody tells of it.

    heard: the attempt of each job whose rank it reports.
    """

    heard: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceBooted(InstanceEvent):
    """Its agent reports another boot than before: it booted at `booted_at`, by the server's clock and its uptime.

    ended: the attempt of each job whose rank was heard of under the boot before, and has ended with it.
    sentence: what the kernel's log had said under the boot before, and nobody had been told; "" for nothing.
    """

    boot_id: str
    booted_at: datetime
    ended: Mapping[str, int] = field(default_factory=dict)
    sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartureAnnounced(InstanceEvent):
    """EC2 says that the instance will be interrupted, retired, maintained or is likely to be; or that it will not.

    `source` tells announcements apart: the ARN of a Health event, the id of a scheduled event, or the kind itself.
    """

    kind: DepartureKind
    source: str
    leaves_at: datetime
    sentence: str
    called_off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRequested(InstanceEvent):
    """A person wants nothing more to be placed on the instance. `by` says who, `because` why."""

    by: str
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequested(InstanceEvent):
    """A person vouches for a quarantined instance. `by` says who."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLookDue(InstanceEvent):
    """It is time to compare the instance with what ECS says."""

    look_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDeadlineReached(InstanceEvent):
    """The status waited until `deadline_at` in vain."""

    deadline_at: datetime


INSTANCE_EVENTS: tuple[type[InstanceEvent], ...] = (
    InstanceObserved,
    MachineSeen,
    HealthReported,
    InstanceSilent,
    InstanceHeard,
    InstanceBooted,
    DepartureAnnounced,
    CheckRequested,
    CheckEnded,
    RepairRequested,
    RebootUncertain,
    RepairRefused,
    RepairHeld,
    QuarantineRequested,
    ReleaseRequested,
    InstanceLookDue,
    InstanceDeadlineReached,
)
"""Every event of an instance."""
