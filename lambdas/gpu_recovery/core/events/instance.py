"""Events of the instance state machine: frozen facts, with the time at which each happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime

from gpu_recovery.core.gpu_events import GpuEvent
from gpu_recovery.core.health_check import Verdict
from gpu_recovery.core.health_signals import DepartureKind, Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.core.lazy_dataclass import frozen_dataclass


@frozen_dataclass(kw_only=True)
class InstanceEvent:
    """A fact about one EC2 instance."""

    at: datetime


@frozen_dataclass(kw_only=True)
class InstanceObserved(InstanceEvent):
    """ECS reported the container instance at version `ecs_version`, by an event or by DescribeContainerInstances."""

    ecs_version: int
    ecs_status: str
    agent_connected: bool
    container_instance_id: str
    gpus: int
    availability_zone: str = ""
    group: str = ""
    rack: str = ""
    gpus_free: int | None = None
    """GPUs that ECS can still assign as a whole. None if ECS does not report it."""
    gpus_shared: int | None = None
    """GPUs that containers share by MPS. None if the observation has no sharing modes."""
    looked: bool = False
    """Whether the event comes from a poll. Such an event counts without a newer version, because time has passed."""
    ranks: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Attempts by job id, for the ranks whose tasks ECS shows here. Only an observation of orphans names ranks."""
    health: tuple[HealthReported, ...] = ()
    """ECS health checks of the instance, in a description only. Each new report is delivered as its own event."""


@frozen_dataclass(kw_only=True)
class CheckRequested(InstanceEvent):
    """A job requested a health check of the instance after `attempt` ended; `may_reboot` if a reboot may follow.

    since:   start of the attempt. Earlier log lines of the instance belong to other jobs.
    suspect: repeat offender of the attempt: the instance that is repaired even if its check finds no fault.
    because: why `suspect` is a repeat offender.
    again:   whether `suspect` was repaired for this before, without success.
    focus:   GPUs that a diagnosis names, as `<instance>/<index, UUID or PCI address>`.
    awaited: whether the job waits for the result. If not, the check is for the next job on the instance.
    first:   instance on which the attempt ended first, "" if unknown.
    alone:   whether the attempt had only one instance.
    named:   whether a certain diagnosis or a sign of a fault names the instance, and the job continues without it. The
        job is told if the check finds no fault.
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
    named: bool = False


@frozen_dataclass(kw_only=True)
class CheckEnded(InstanceEvent):
    """The health check `check_id` ended with `verdict`; `at` is the earlier end time of ECS and the instance."""

    check_id: str
    verdict: Verdict


@frozen_dataclass(kw_only=True)
class IdleCheckDue(InstanceEvent):
    """The instance has had no check for the period of idle checks, and no job uses it or waits for it."""


@frozen_dataclass(kw_only=True)
class IdleCheckPreempted(InstanceEvent):
    """The scheduler wants the instance for `job_id`, so the idle check `check_id` has to stop."""

    check_id: str
    job_id: str


@frozen_dataclass(kw_only=True)
class RepairRequested(InstanceEvent):
    """A rank of `attempt` cannot be stopped on this instance, so only a reboot confirms its end.

    awaited: whether the job waits for the repair. If not, the job has ended and the instance is not reserved.
    """

    job_id: str
    attempt: int
    sentence: str
    awaited: bool = True


@frozen_dataclass(kw_only=True)
class RebootUncertain(InstanceEvent):
    """The function that requested the reboot of `epoch` died, so it is unknown whether EC2 received the request."""

    epoch: int


@frozen_dataclass(kw_only=True)
class ResetEnded(InstanceEvent):
    """The reset of the GPUs of `epoch` has ended, as the node agent reports, or could not be ordered.

    done:     whether the GPUs were reset.
    sentence: what the agent reports, or why the reset could not be ordered.
    """

    epoch: int
    done: bool
    sentence: str


@frozen_dataclass(kw_only=True)
class RepairRefused(InstanceEvent):
    """EC2 refused the reboot or replacement of `epoch`; `sentence` says why."""

    epoch: int
    sentence: str


@frozen_dataclass(kw_only=True)
class RepairHeld(InstanceEvent):
    """Re-validation before the repair of `epoch` showed that it may not begin now; `sentence` says why."""

    epoch: int
    sentence: str


@frozen_dataclass(kw_only=True)
class GpuEventsReported(InstanceEvent):
    """The agent reported GPU Operational Events (preview). They are recorded, and nothing is decided by them."""

    events: tuple[GpuEvent, ...] = ()
    are_read: bool = True
    """Whether the agent reads such events. Without `events` the report says only that."""


@frozen_dataclass(kw_only=True)
class MachineSeen(InstanceEvent):
    """A poll of EC2 showed the instance in `state`."""

    state: Ec2InstanceState


@frozen_dataclass(kw_only=True)
class HealthReported(InstanceEvent):
    """A health source reported the status of the instance.

    The reports of one `kind` of source are ordered by `since`, and by `updated_at` among equal times. A source that
    stays IMPAIRED may name another error without a new `since`.
    """

    kind: HealthKind
    status: HealthStatus
    since: datetime
    sentence: str = ""
    xid: int | None = None
    """The XID that impairs a GPU, if the health source gives one."""
    updated_at: datetime | None = None
    """Time of the source's last update; None if it gives none."""


@frozen_dataclass(kw_only=True)
class InstanceSilent(InstanceEvent):
    """The heartbeat of the instance timed out; its agent was last seen at `seen_at`.

    heard: attempts by job id, for the ranks that had been seen there.
    """

    seen_at: datetime
    heard: Mapping[str, int] = field(default_factory=dict)


@frozen_dataclass(kw_only=True)
class InstanceHeard(InstanceEvent):
    """The agent of an instance with a missing heartbeat reported again; `at` is the time of that report.

    heard: attempts by job id, for the ranks that the agent reports.
    """

    heard: Mapping[str, int] = field(default_factory=dict)


@frozen_dataclass(kw_only=True)
class InstanceBooted(InstanceEvent):
    """The agent reported another boot: the instance booted at `booted_at`, by the server's clock and the uptime.

    ended:    attempts by job id, for the ranks that were seen under the previous boot and ended with it.
    sentence: errors in the kernel log of the previous boot that were not reported yet, "" for none.
    """

    boot_id: str
    booted_at: datetime
    ended: Mapping[str, int] = field(default_factory=dict)
    sentence: str = ""


@frozen_dataclass(kw_only=True)
class RepairAnnounced(InstanceEvent):
    """A repair was ordered, and the machine was told who ordered it and why (`core/repair_record.py`).

    epoch: the epoch of the instance since the decision.
    line:  the line for the machine.
    asked: the agent of the instance was asked to write the line.
    tag:   "" if no tag was wanted, "written", or why the tag could not be written.
    error: why the order to the agent could not be saved; "" if it was saved, or if the instance has no agent.
    """

    epoch: int
    line: str
    asked: bool
    tag: str = ""
    error: str = ""


@frozen_dataclass(kw_only=True)
class RepairRecordFound(InstanceEvent):
    """The agent reported the line about a repair: it has written the line, or has found it again after a boot.

    epoch:   the repair.
    line:    the line, as it is on the machine.
    written: boot under which the line was written.
    boot_id: present boot.
    """

    epoch: int
    line: str
    written: str
    boot_id: str


@frozen_dataclass(kw_only=True)
class DepartureAnnounced(InstanceEvent):
    """EC2 announced an interruption, retirement, maintenance or rebalance of the instance, or called it off.

    source:     identity of the announcement: ARN of a Health event, id of a scheduled event, or the kind itself.
    leaves_at:  time of the interruption.
    called_off: whether EC2 withdrew the announcement.
    """

    kind: DepartureKind
    source: str
    leaves_at: datetime
    sentence: str
    called_off: bool = False


@frozen_dataclass(kw_only=True)
class QuarantineRequested(InstanceEvent):
    """An operator requested that no work is placed on the instance: `by` is the operator, `because` the reason."""

    by: str
    because: str = ""


@frozen_dataclass(kw_only=True)
class ReleaseRequested(InstanceEvent):
    """An operator released a quarantined instance: `by` is the operator."""

    by: str


@frozen_dataclass(kw_only=True)
class InstanceLookDue(InstanceEvent):
    """The poll of the instance in ECS is due (`look_at`).

    check_runs: ECS was asked just now, and the task of the health check has not stopped.
    """

    look_at: datetime
    check_runs: bool = False


@frozen_dataclass(kw_only=True)
class InstanceDeadlineReached(InstanceEvent):
    """The status reached its deadline `deadline_at`."""

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
    IdleCheckDue,
    IdleCheckPreempted,
    RepairRequested,
    ResetEnded,
    RebootUncertain,
    RepairRefused,
    RepairHeld,
    RepairAnnounced,
    RepairRecordFound,
    GpuEventsReported,
    QuarantineRequested,
    ReleaseRequested,
    InstanceLookDue,
    InstanceDeadlineReached,
)
"""All events of an instance."""
