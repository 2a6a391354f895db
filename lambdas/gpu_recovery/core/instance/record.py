"""The record of an instance: statuses, fields. Its transitions are in `state_machine.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from gpu_recovery.core.health_signals import DepartureKind, HealthStatus
from gpu_recovery.core.identifiers import attempt_id, listed
from gpu_recovery.core.instance.lemons import LemonSignal, Signal
from gpu_recovery.core.instance.record_parts import (
    OF_EARLIER_RELEASE,
    IdleCheck,
    IdleCheckResult,
    Quarantine,
    free_gpus,
)
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.missing_permission import MissingPermission
from gpu_recovery.core.repair_record import RepairRecord
from gpu_recovery.core.state_machine import HistoryEntry, PendingCommand


class InstanceStatus(StrEnum):
    """The statuses of an instance. The comment beside a status says what the instance waits for."""

    AVAILABLE = "AVAILABLE"
    CHECKING = "CHECKING"  # its health check
    RESETTING = "RESETTING"  # its node agent to reset the GPUs
    REBOOTING = "REBOOTING"  # the reboot to take place
    REPLACING = "REPLACING"  # another instance in its place, or another host under it
    VERIFYING = "VERIFYING"  # the check that must prove the repair and pass before it works again
    QUARANTINED = "QUARANTINED"  # an operator, or the fleet limits to allow its repair
    GONE = "GONE"  # a new registration; it is QUARANTINED again if no operator has released it


PRESENT = tuple(status for status in InstanceStatus if status is not InstanceStatus.GONE)
"""Every status of an instance that is part of the cluster."""


IN_USE = (InstanceStatus.AVAILABLE, InstanceStatus.CHECKING)
"""The statuses of an instance without proved evidence against it."""
BEING_REPAIRED = (InstanceStatus.RESETTING, InstanceStatus.REBOOTING, InstanceStatus.REPLACING)
"""The statuses of a repair that is being carried out."""
IN_REPAIR = (*BEING_REPAIRED, InstanceStatus.VERIFYING)
"""The statuses from the start of a repair to the end of its check."""


class EcsStatus(StrEnum):
    """The container instance statuses of ECS that the system distinguishes."""

    ACTIVE = "ACTIVE"
    DRAINING = "DRAINING"


ENDED_REGISTRATION = ("REGISTRATION_FAILED", "DEREGISTERING", "INACTIVE")
"""The container instance statuses of ECS that end a registration."""


@frozen_dataclass()
class Claim:
    """The right of a job's attempt to GPUs of an instance, until the end of its rank is confirmed."""

    attempt: int
    gpus: int
    port_offset: int = 0
    rank: int = -1
    """The job's rank on the instance; -1 if an older release made the claim without it."""
    epoch: int | None = None
    """The instance's epoch at launch, which its rank received; None if it received none."""


@frozen_dataclass()
class RankOnInstance:
    """A job's rank on an instance, by its attempt."""

    job_id: str
    attempt: int


@frozen_dataclass()
class Orphans:
    """Ranks that may run on after ECS ended the registration under them (forced deregistration, new registration).

    ECS shows their tasks as STOPPED, which proves nothing. Only a boot or the end of the instance ends them.

    since: time at which the end of the registration was seen. A later boot ends the ranks.
    """

    since: datetime
    ranks: tuple[RankOnInstance, ...]


@frozen_dataclass()
class CheckRefusal:
    """Why ECS refused to start a health check: its answer, and the missing permission if the deployment lacks one."""

    reason: str
    lacks: MissingPermission | None = None


@frozen_dataclass()
class CheckRun:
    """A health check under way. `job_id` is the job that waits for its result, "" for none.

    Attributes:
        may_reboot: a reboot may follow. False: the job may have no more repairs, so an operator gets the instance.
        proof_needed: the check must also prove a reboot or a replacement.
        repeats: number of inconclusive checks before this check.
        passive: other jobs work on the instance, so the check takes no GPU from them and only reads logs.
    """

    check_id: str
    job_id: str = ""
    attempt: int = 0
    may_reboot: bool = True
    proof_needed: bool = False
    repeats: int = 0
    passive: bool = False
    since: datetime | None = None
    """Start of the period whose log lines the check reads: the start of the failed attempt, or the time of the release.
    None: the boot."""
    because: str = ""
    """Reason to repair the instance even if the check finds nothing; "" if there is none."""
    again: bool = False
    """Whether an earlier repair for the same reason has not helped."""
    focus: tuple[str, ...] = ()
    """The suspected GPUs, as they were named. The check examines those that it can identify first."""
    superseded: str = ""
    """The check that this check replaced. If it finds the instance faulty, its verdict still counts."""
    superseded_task_id: str = ""
    """The ECS task of the superseded check; "" if it is not recorded."""
    superseded_signed: bool = False
    """Whether the task of the superseded check carries a launch signature, as `signed`."""
    waiting: RankOnInstance | None = None
    """The rank that waits for a repair with outdated evidence, which this check re-validates."""
    put_down: LemonSignal | None = None
    """The signal that the fault history gets if this check finds the instance faulty; None if it gets none or has it
    already."""
    named: RankOnInstance | None = None
    """The rank whose failure named the instance. Its job is told if the check finds no fault; it does not wait."""
    agent_back_at: datetime | None = None
    """Time at which the ECS agent last came back while this check verified the instance; None if it never left."""
    task_id: str = ""
    """The ECS task of this check; "" until the answer of RunTask is recorded."""
    signed: bool = False
    """Whether the task carries a launch signature. False: an older release started the check."""
    refusal: CheckRefusal | None = None
    """The last refusal of ECS to start this check; None if there was none."""
    orphaned_at: datetime | None = None
    """Time at which ECS ended the registration under the task of this check. Its process runs on until it gives up, and
    its verdict document is the only sign of its end. None: ECS accounts for the task."""
    level: int = 0
    """DCGM run level of the check; 0: that of the deployment."""
    idle: IdleCheck | None = None
    """What makes the check an idle check, which gives way to a job; None for every other check."""

    @property
    def why_not_started(self) -> CheckRefusal | None:
        """The last refusal of a check that has not started; None if the check has started or was never refused."""
        return None if self.task_id else self.refusal


@frozen_dataclass()
class Reboot:
    """A repair under way: a reset of the GPUs, a reboot, or a stop and start; and the state of the instance before it.

    The proof of a reset is the check that passes after it. The proof of every other repair is a boot id other than
    `boot_id` and a boot later than `asked_at` by the instance's own clock.

    Attributes:
        uncertain: the function that requested the reboot died, so the request may have to be repeated.
    """

    asked_at: datetime
    boot_id: str | None
    job_id: str = ""
    attempt: int = 0
    ends: RankOnInstance | None = None
    """The rank that could not be stopped and that this reboot ends; `job_id` is the job that waits for the repair."""
    disconnected: bool = False
    looked_at: datetime | None = None
    """Time of the last check that found the old boot. ECS events caused by that check must not start the next check."""
    uncertain: bool = False
    started: bool = False
    """Whether the stopped instance is being started. Only then a connecting agent is a sign of the new boot."""
    deadline_at: datetime | None = None


class RepairLevel(StrEnum):
    """The repair levels, the lowest first. Above the last, only an operator can act."""

    CHECK = "CHECK"
    RESET = "RESET"
    REBOOT = "REBOOT"
    REPLACE = "REPLACE"


@frozen_dataclass()
class RepairNeed:
    """The repair that an instance needs, its evidence, and the job that waits for it.

    Attributes:
        evidence: the observation as a sentence.
        seen_at: time of the observation; old evidence is re-validated before a repair.
        source: the health source of the evidence (a `HealthKind`), or that of an announcement; "" for a health check or
            a job. When the source withdraws its report, the need is over.
        job_id: the job that waits for the repair, "" for none.
        attempt: the attempt that waits for the repair.
    """

    rung: RepairLevel
    evidence: str
    seen_at: datetime
    source: str = ""
    job_id: str = ""
    attempt: int = 0
    ends: RankOnInstance | None = None
    boot_id: str | None = None


@frozen_dataclass()
class RepairHold:
    """Why a needed repair is blocked, and since when; `told` are the jobs that were asked to leave.

    The hold stays while the repair is tried or its evidence is re-validated. If the repair is held again, the whole
    time counts.
    """

    since: datetime
    sentence: str
    told: tuple[str, ...] = ()
    counted_from: datetime | None = None
    """Time of the last repair of the fleet that began while this repair waited for its turn; None if there is none."""

    @property
    def timeout_from(self) -> datetime:
        """The time from which `repair_hold_timeout_s` counts. A repair that waits for its turn does not time out."""
        return max(self.since, self.counted_from or self.since)


@frozen_dataclass()
class Fault:
    """A fault that a health source reported and only a repair cures, with the repair level that it asks for."""

    rung: RepairLevel
    since: datetime
    sentence: str


@frozen_dataclass()
class HealthReport:
    """The last report of a health source."""

    status: HealthStatus
    since: datetime
    sentence: str = ""
    answered: bool = True
    """Whether the report was handled; False if it arrived while the instance was busy and was not acted on."""
    fault: Fault | None = None
    """The gravest fault that the health source has named since its last report OK, or since the last proved repair."""
    updated_at: datetime | None = None
    """Time of the source's last update, which orders reports with the same `since`; None if it gives none."""
    cleared: bool = False
    """Whether the report keeps no work away: it names only an error of a user's program or the MPS daemon, or a check
    has passed since."""

    @property
    def impairs(self) -> bool:
        """Whether the report is a reason to place nothing on the instance."""
        return self.status is HealthStatus.IMPAIRED and not self.cleared

    def clause(self, kind: str) -> str:
        """Return what the health source `kind` reports, as a clause."""
        return f"{kind} is {self.status}" + (f": {self.sentence}" if self.sentence else "")

    def is_older_than(self, since: datetime, updated_at: datetime | None) -> bool:
        """Return whether a report with these times is news after this report."""
        if since != self.since:
            return since > self.since
        return updated_at is not None and updated_at > (self.updated_at or self.since)


@frozen_dataclass()
class Interruption:
    """An announcement that the instance will, or may, be taken away.

    Attributes:
        source: identity of the announcement: ARN of a Health event, id of a scheduled event, or the kind itself.
        leaves_at: time of the interruption.
    """

    kind: DepartureKind
    source: str
    leaves_at: datetime
    sentence: str


@frozen_dataclass()  # without slots, so that it is copied fast, see `core/state_machine.py`
class ListedInstance:
    """The part of an instance's record that lists of the whole fleet hold.

    It has the fields that placement, comparisons and lists of instances read. `Instance` has those that only a decision
    about the instance reads, its history among them.
    """

    instance_id: str
    status_at: datetime
    status: InstanceStatus = InstanceStatus.AVAILABLE
    reason: str = ""
    container_instance_id: str = ""
    ecs_status: str = EcsStatus.ACTIVE
    ecs_version: int = 0
    agent_connected: bool = True
    gpus: int = 0
    gpus_free: int | None = None
    """Number of whole GPUs that ECS can still place; None if ECS did not report it."""
    gpus_most: int = 0
    """The largest number of GPUs ever registered. A check that finds fewer has found a lost GPU, even if ECS registers
    fewer now."""
    availability_zone: str = ""
    group: str = ""
    """The group of the instance, by its ECS attribute; "" for none. Jobs name the group that they run in."""
    rack: str = ""
    """Name of the rack, placement group or spine switch that the instance shares with others, by its ECS attribute."""
    epoch: int = 0
    claims: Mapping[str, Claim] = field(default_factory=dict)
    reserved_for: str = ""
    check: CheckRun | None = None
    health: Mapping[str, HealthReport] = field(default_factory=dict)
    """The last report of each health source, by `HealthKind`."""
    silent_since: datetime | None = None
    """Time at which the node agent was last seen, if its heartbeat is missing now."""
    heard_at: datetime | None = None
    """Time of the last heartbeat after a heartbeat timeout. A timeout that began earlier is over."""
    boot_heard_at: datetime | None = None
    """The latest boot that the node agent reported, by our clock; `booted_at` may be by the instance's own clock."""
    departure: Interruption | None = None
    orphans: Orphans | None = None
    """The ranks of an ended registration; `orphaned_ranks` are those of them that still hold their claims."""
    drained: bool = False
    """Whether the system drained the instance in ECS. An instance that a user drained is activated by the user."""
    withdrawn: bool = False
    """Whether an operator took the instance out of use without evidence against it. If it is released while a job works
    on it, no check is run."""
    quarantine: Quarantine | None = None
    """The quarantine that only an operator ends. It is kept while the instance is GONE, in case that it comes back."""
    need: RepairNeed | None = None
    """The repair that the instance needs, while that is blocked or under way."""
    held: RepairHold | None = None
    reboot: Reboot | None = None
    blamed_at: datetime | None = None
    """Time at which evidence last found the hardware faulty."""
    healed_at: datetime | None = None
    """Time at which the instance last came back from a repair with proof and a passed check."""
    reset_at: datetime | None = None
    """Time at which a reset of its GPUs last began. A fault soon after it leads to a reboot."""
    replaced_at: datetime | None = None
    """Time at which the instance last came back from a proved stop and start, which moved it to another host. The check
    result does not matter."""
    idle_check: IdleCheckResult | None = None
    """The last idle check, and the last that the instance passed; None if it had none."""
    past: tuple[Signal, ...] = ()
    """The fault history of the last 28 days, from which the lemon score is computed."""
    boot_id: str | None = None
    booted_at: datetime | None = None
    incident_id: str = ""
    """The open incident that operators were notified of, until they are notified of its end."""
    deadline_at: datetime | None = None
    """Time at which the present status times out; None: never."""

    @property
    def gpus_unclaimed(self) -> int:
        """The number of GPUs without a claim; negative if users have started too many tasks on the instance."""
        return self.gpus - sum(claim.gpus for claim in self.claims.values())

    def gpus_to_give(self, promised: int = 0) -> int:
        """Return the number of GPUs without a claim of ours and, as ECS last reported, without a task.

        Args:
            promised: number of GPUs that are assigned to jobs before their claims are written.
        """
        return free_gpus(self.gpus_unclaimed - promised, self.gpus_free)

    @property
    def failed_level(self) -> int:
        """The level of an idle check that found a fault, until a check at this level passes; 0 without such a fault."""
        return self.idle_check.failed_level if self.idle_check is not None else 0

    @property
    def drained_by_others(self) -> bool:
        """Whether a caller outside gpu-recovery drained the instance in ECS, so that ECS starts no task on it."""
        return self.ecs_status == EcsStatus.DRAINING and not self.drained

    @property
    def registration_over(self) -> bool:
        """Whether ECS has ended the recorded registration. An unknown status does not end it."""
        return self.ecs_status in ENDED_REGISTRATION

    @property
    def has_left(self) -> bool:
        """Whether its registration is over and no rank can run on it, so that the end of its check makes it GONE."""
        return self.registration_over and not self.claims

    @property
    def orphaned_ranks(self) -> tuple[RankOnInstance, ...]:
        """The ranks that may run on unknown to ECS; each keeps its claim until its end is confirmed."""
        if self.orphans is None:
            return ()
        claims = self.claims
        return tuple(
            rank for rank in self.orphans.ranks if rank.job_id in claims and claims[rank.job_id].attempt == rank.attempt
        )

    @property
    def under_repair(self) -> bool:
        """Whether the instance counts against the repair budget.

        It counts from the start of a reboot or replacement until the proof and a passed check.
        """
        return self.status in BEING_REPAIRED or (self.status is InstanceStatus.VERIFYING and self.reboot is not None)

    @property
    def needs_operator(self) -> bool:
        """Whether only an operator returns the instance to work: it is quarantined, and not for a held repair."""
        return self.status is InstanceStatus.QUARANTINED and self.held is None

    @property
    def standing_quarantine(self) -> Quarantine | None:
        """The quarantine that only an operator ends; also that of a record without the field `quarantine`."""
        if self.quarantine is None and self.needs_operator:
            return Quarantine(self.status_at, self.reason, OF_EARLIER_RELEASE)
        return self.quarantine

    @property
    def avoid_reason(self) -> str:
        """The reason to place nothing new on the instance although it works; "" if there is none."""
        if orphans := self.orphaned_ranks:
            ranks = listed(attempt_id(rank.job_id, rank.attempt) for rank in orphans)
            return f"{ranks} may still run on it, unknown to ECS: its registration was ended under them"
        for kind, health in sorted(self.health.items()):
            if health.impairs:
                return health.clause(kind)
        if self.silent_since is not None:
            return f"the last report of its agent was at {self.silent_since:%H:%M:%S} UTC"
        return self.departure.sentence if self.departure is not None else ""


@frozen_dataclass()  # without slots, as its base
class Instance(ListedInstance):
    """The record of an instance. Its key is the EC2 id, which stays the same after a new registration with ECS."""

    version: int = 1
    """Number of decisions, a part of command ids."""
    revision: int = 0
    """Number of writes, maintained by the store. A write based on an older revision is rejected."""
    past_registrations: tuple[str, ...] = ()
    """Earlier container instance ids, the latest last. Events about them are outdated."""
    checked_for: tuple[str, ...] = ()
    """The latest attempts (`<job_id>--a<NN>`) that had the instance checked: none has it checked twice."""
    ended_for: tuple[str, ...] = ()
    """The latest attempts that asked the instance to end a rank, so that a repeated request has no effect."""
    checks: int = 0
    incident_since: datetime | None = None
    """Time at which the open incident began; None without one, or if an older release opened it."""
    announced: Mapping[str, datetime] = field(default_factory=dict)
    """Time of the last new message of each announcement source. Earlier messages that arrive later are outdated."""
    also_waiting: tuple[RankOnInstance, ...] = ()
    """Jobs that wait for the repair besides the job named by the need, the reboot or the check."""
    reboots: tuple[datetime, ...] = ()
    gpus_shared: int = 0
    """Number of GPUs that containers share by MPS, as ECS last reported it."""
    repair_record: RepairRecord | None = None
    reads_gpu_events: bool = False
    """Whether its agent reads GPU Operational Events."""
    look_at: datetime | None = None
    """Time of the next poll; None: never."""
    commands: tuple[PendingCommand, ...] = ()
    history: tuple[HistoryEntry, ...] = ()

    def restarted_after(self, began: datetime) -> datetime | None:
        """Return the last boot if it is later than `began` and gpu-recovery had not ordered it since; else None."""
        booted = self.boot_heard_at
        if booted is None or booted <= began or any(began <= at <= booted for at in self.reboots):
            return None
        return booted

    @property
    def ranks_to_end(self) -> tuple[RankOnInstance, ...]:
        """The ranks with a claim that no stop has ended: their attempts have asked the instance to end them."""
        claimed = (RankOnInstance(job_id, claim.attempt) for job_id, claim in self.claims.items())
        return tuple(rank for rank in claimed if attempt_id(rank.job_id, rank.attempt) in self.ended_for)
