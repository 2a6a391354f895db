"""The record of one EC2 instance: its statuses and its fields. What moves it is in the other rooms of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gpu_recovery.core.health_signals import DepartureKind, HealthStatus
from gpu_recovery.core.instance.lemons import LemonSignal, Signal
from gpu_recovery.core.state_machine import HistoryEntry, PendingCommand


class InstanceStatus(StrEnum):
    """What an instance is good for, or waits for."""

    AVAILABLE = "AVAILABLE"
    CHECKING = "CHECKING"  # its health check
    REBOOTING = "REBOOTING"  # the reboot to take place
    REPLACING = "REPLACING"  # another machine in its place, or another host under it
    VERIFYING = "VERIFYING"  # the check that must prove the repair and pass before it works again
    QUARANTINED = "QUARANTINED"  # a person, or the brakes to let its repair begin
    GONE = "GONE"


IN_USE = (InstanceStatus.AVAILABLE, InstanceStatus.CHECKING)
"""The statuses of an instance that nothing has been proved against."""
_BEING_REPAIRED = (InstanceStatus.REBOOTING, InstanceStatus.REPLACING)


class EcsStatus(StrEnum):
    """The container instance statuses of ECS that matter to us."""

    ACTIVE = "ACTIVE"
    DRAINING = "DRAINING"


@dataclass(frozen=True, slots=True)
class Claim:
    """A job's right to GPUs of an instance, kept until the end of its rank is confirmed."""

    attempt: int
    gpus: int
    port_offset: int = 0
    rank: int = -1
    """Its rank there; -1 where it was claimed by a release that did not keep it."""
    epoch: int | None = None
    """The instance's epoch that it was launched under, and that its rank was told; None where it was told none."""


@dataclass(frozen=True, slots=True)
class RankOnInstance:
    """A job's rank on an instance, by the attempt it belongs to."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CheckRun:
    """A health check under way. `job_id` is who waits for its result, "" for nobody.

    passive: others work on the instance, so the check takes no GPU from them and only reads what is logged.
    """

    check_id: str
    job_id: str = ""
    attempt: int = 0
    may_reboot: bool = True
    proof_needed: bool = False
    repeats: int = 0
    passive: bool = False
    since: datetime | None = None
    """When the failed attempt began: what the machine logged before is about somebody else's work."""
    because: str = ""
    """Why the instance is repaired even if the check finds nothing; "" if it is not."""
    again: bool = False
    """It was repaired for that before, and it has not helped."""
    focus: tuple[str, ...] = ()
    """The GPUs that somebody suspects, as they were named: those that the check can read are looked at first."""
    superseded: str = ""
    """The check that this one took the place of: if that one blames the machine, its verdict still counts."""
    waiting: RankOnInstance | None = None
    """Who waits for the repair that this check looks into once more, its evidence having grown old."""
    put_down: LemonSignal | None = None
    """What is remembered if this check blames the instance; None if nothing, or if it is remembered already."""
    agent_back_at: datetime | None = None
    """When the agent of ECS last came back while the instance was verified by this check; None if it never left."""


@dataclass(frozen=True, slots=True)
class Reboot:
    """A reboot under way, and how the instance looked before it; stopping and starting a machine is one, too.

    proof:   the boot id must differ from `boot_id`, and the boot be later than `asked_at` by the machine's own clock.
    uncertain: whoever asked for it died, so it may have to be asked for again.
    """

    asked_at: datetime
    boot_id: str | None
    job_id: str = ""
    attempt: int = 0
    ends: RankOnInstance | None = None
    """The rank that could not be stopped and that this reboot ends; `job_id` is who waits for the repair."""
    disconnected: bool = False
    looked_at: datetime | None = None
    """When a look last found the old boot: the noise of that look's own check must not start the next one."""
    uncertain: bool = False
    started: bool = False
    """The machine was stopped and is being started: only then is an agent that connects a sign of the new boot."""
    deadline_at: datetime | None = None


class RepairLevel(StrEnum):
    """The rungs of the ladder. Above the last there is only a person."""

    CHECK = "CHECK"
    REBOOT = "REBOOT"
    REPLACE = "REPLACE"


@dataclass(frozen=True, slots=True)
class RepairNeed:
    """What an instance needs, on whose word, and for whom.

    evidence:  what was seen, as a sentence.
    seen_at:   when; old evidence is looked at afresh before anything is repaired for it.
    source:    the watcher whose word it is (a `HealthKind`), "" for a health check or a job: when that watcher says
               that all is well again, the need is over.
    job_id, attempt: who waits for the repair, "" for nobody.
    """

    rung: RepairLevel
    evidence: str
    seen_at: datetime
    source: str = ""
    job_id: str = ""
    attempt: int = 0
    ends: RankOnInstance | None = None
    boot_id: str | None = None


@dataclass(frozen=True, slots=True)
class RepairHold:
    """Why a need is not being met yet, and since when; `told` are the claimants who know that they must leave.

    It stays while the repair is tried or its evidence looked at afresh: held back again, it has waited all that time.
    """

    since: datetime
    sentence: str
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """An error of a machine that a watcher has reported and that only a repair cures: the rung it asks for."""

    rung: RepairLevel
    since: datetime
    sentence: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The last word of one watcher."""

    status: HealthStatus
    since: datetime
    sentence: str = ""
    answered: bool = True
    """False while it was said of an instance that was busy, and nobody has acted on it."""
    fault: Fault | None = None
    """The gravest error that it has named since it last found the machine well."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """An announcement that the instance will be taken away, or may be."""

    kind: DepartureKind
    source: str
    leaves_at: datetime
    sentence: str


def free_gpus(unclaimed: int, gpus_free: int | None) -> int:
    """How many of an instance's GPUs nobody holds, by our claims and by what ECS said (None where it did not)."""
    return max(0, unclaimed if gpus_free is None else min(unclaimed, gpus_free))


@dataclass(frozen=True)  # without slots, so that it is copied fast, see `core/state_machine.py`
class Instance:
    """The record of one instance, keyed by its EC2 id: the one name that survives a new registration with ECS."""

    instance_id: str
    status_at: datetime
    status: InstanceStatus = InstanceStatus.AVAILABLE
    reason: str = ""
    version: int = 1
    """Counts decisions: command ids are made of it."""
    revision: int = 0
    """Counts writes, and belongs to the store: a writer who read an older one is refused."""
    container_instance_id: str = ""
    past_registrations: tuple[str, ...] = ()
    """Container instance ids it had before, the latest last: what is still said of them is about the past."""
    ecs_status: str = EcsStatus.ACTIVE
    ecs_version: int = 0
    agent_connected: bool = True
    gpus: int = 0
    gpus_free: int | None = None
    """How many ECS has left to give, whoever holds the rest; None where it did not say."""
    gpus_most: int = 0
    """The most it ever registered: a check that finds fewer has lost one, however few ECS registers now."""
    availability_zone: str = ""
    group: str = ""
    """The group it belongs to, by its ECS attribute; "" for none. Jobs name the group they run in."""
    rack: str = ""
    """What it shares with its neighbours (a rack, a placement group, a spine), by its ECS attribute."""
    epoch: int = 0
    claims: Mapping[str, Claim] = field(default_factory=dict)
    reserved_for: str = ""
    checked_for: tuple[str, ...] = ()
    """The attempts (`<job_id>--a<NN>`) that lately had it checked: none has it checked twice."""
    ended_for: tuple[str, ...] = ()
    """The attempts that lately asked it to end a rank of theirs: once is enough."""
    checks: int = 0
    check: CheckRun | None = None
    health: Mapping[str, HealthReport] = field(default_factory=dict)
    """The last word of each watcher, by `HealthKind`."""
    silent_since: datetime | None = None
    """When its agent was last heard of, if it is not heard of any more."""
    heard_at: datetime | None = None
    """When it was last heard of after a silence: a silence that began before is over."""
    boot_heard_at: datetime | None = None
    """The latest boot that its agent told of, by our clock: `booted_at` may be by the machine's own."""
    departure: Interruption | None = None
    announced: Mapping[str, datetime] = field(default_factory=dict)
    """When each source of announcements last said something new: what it said before that, and comes late, is over."""
    drained: bool = False
    """ECS places nothing on it because we said so; what a person has drained is the person's to activate."""
    withdrawn: bool = False
    """A person took it out of use while nothing spoke against it: given back, it just works on."""
    need: RepairNeed | None = None
    """What it needs, while that is held back or being met."""
    held: RepairHold | None = None
    also_waiting: tuple[RankOnInstance, ...] = ()
    """Who waits for its repair besides the job that the need, the reboot or the check names."""
    reboot: Reboot | None = None
    reboots: tuple[datetime, ...] = ()
    blamed_at: datetime | None = None
    """When evidence last blamed its hardware."""
    healed_at: datetime | None = None
    """When it last came back from a repair, proved and passing its check."""
    replaced_at: datetime | None = None
    """When it last came back from a stop and start, proved: on another host, whatever its check said."""
    past: tuple[Signal, ...] = ()
    """What speaks against it of the last 28 days: its lemon score is made of that."""
    boot_id: str | None = None
    booted_at: datetime | None = None
    incident_id: str = ""
    """The incident about it that operators have heard of, until they hear that it is over."""
    deadline_at: datetime | None = None
    look_at: datetime | None = None
    commands: tuple[PendingCommand, ...] = ()
    history: tuple[HistoryEntry, ...] = ()

    @property
    def gpus_unclaimed(self) -> int:
        """How many of its GPUs no job has a claim on; less than none where people have started too much on it."""
        return self.gpus - sum(claim.gpus for claim in self.claims.values())

    def gpus_to_give(self, promised: int = 0) -> int:
        """How many GPUs nobody holds: no claim of ours, and, as ECS last said, no task of anybody.

        promised: those that are given to jobs whose claims are still to come.
        """
        return free_gpus(self.gpus_unclaimed - promised, self.gpus_free)

    @property
    def under_repair(self) -> bool:
        """Whether it counts against the fleet's budget: being rebooted or replaced, until proof and a passing check."""
        return self.status in _BEING_REPAIRED or (self.status is InstanceStatus.VERIFYING and self.reboot is not None)

    @property
    def needs_operator(self) -> bool:
        """Whether nothing but a person brings it back: quarantined, and not only because its repair is held back."""
        return self.status is InstanceStatus.QUARANTINED and self.held is None

    @property
    def avoid_reason(self) -> str:
        """Why nothing new should be placed on it although it works; "" if nothing speaks against it."""
        for kind, health in sorted(self.health.items()):
            if health.status is HealthStatus.IMPAIRED:
                return f"{kind} is {health.status}" + (f": {health.sentence}" if health.sentence else "")
        if self.silent_since is not None:
            return f"its agent was last heard of at {self.silent_since:%H:%M:%S} UTC"
        return self.departure.sentence if self.departure is not None else ""
