"""The record of one EC2 instance: its statuses and its fields. What moves it is in `instance.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from ..machine import HistoryEntry, Pending


class InstanceStatus(StrEnum):
    """What an instance is good for, or waits for."""

    AVAILABLE = "AVAILABLE"
    CHECKING = "CHECKING"  # its health check
    REBOOTING = "REBOOTING"  # the reboot to take place
    VERIFYING = "VERIFYING"  # the check that must prove the reboot and pass before it works again
    QUARANTINED = "QUARANTINED"  # a person
    GONE = "GONE"


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


@dataclass(frozen=True, slots=True)
class CheckRun:
    """A health check under way. `job_id` is who waits for its result, "" for nobody."""

    check_id: str
    job_id: str = ""
    attempt: int = 0
    may_reboot: bool = True
    proof_needed: bool = False
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class Rank:
    """A job's rank on an instance, by the attempt it belongs to."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Reboot:
    """A reboot under way, and how the instance looked before it.

    proof:   the boot id must differ from `boot_id`, or the boot be later than `asked_at`.
    uncertain: whoever asked for it died, so it may have to be asked for again.
    """

    asked_at: datetime
    boot_id: str | None
    job_id: str = ""
    attempt: int = 0
    ends: Rank | None = None
    """The rank that could not be stopped and that this reboot ends; `job_id` is who waits for the repair."""
    disconnected: bool = False
    looked_at: datetime | None = None
    """When a look last found the old boot: the noise of that look's own check must not start the next one."""
    uncertain: bool = False
    deadline_at: datetime | None = None


@dataclass(frozen=True, slots=True)
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
    epoch: int = 0
    claims: Mapping[str, Claim] = field(default_factory=dict)
    reserved_for: str = ""
    checked_for: tuple[str, ...] = ()
    """The attempts (`<job_id>--a<NN>`) that lately had it checked: none has it checked twice."""
    checks: int = 0
    check: CheckRun | None = None
    reboot: Reboot | None = None
    reboots: tuple[datetime, ...] = ()
    boot_id: str | None = None
    booted_at: datetime | None = None
    deadline_at: datetime | None = None
    look_at: datetime | None = None
    commands: tuple[Pending, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
