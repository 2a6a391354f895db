"""Downtime of a job: the time from a failure to the next training step, by phase, with its cause.

The phases follow each other without a gap. Each begins and ends at a whole second since the failure, so the seconds of
all phases together are the whole downtime. A suspension within the downtime is a phase of its own and does not count.
Work that is done again is not downtime. It is added to the downtime in `Downtime.lost_s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import duration


class DownPhase(StrEnum):
    """What a job that is down waits for."""

    NOTICE = "notice"  # from the failure to the decision to stop the gang
    STOP = "stop"  # the end of every rank
    CHECK = "check"  # evidence and health checks
    REPAIR = "repair"  # an instance under repair that the job waits for
    WAIT = "wait"  # its turn, and enough free instances
    START = "start"  # every rank to be launched and to run
    FIRST_STEP = "first_step"  # the training to go on
    SUSPENDED = "suspended"  # a suspension, which does not count


PHASES = tuple(DownPhase)
"""All phases, in their usual order."""
COUNTED = tuple(phase for phase in PHASES if phase is not DownPhase.SUSPENDED)
"""Phases that count as downtime."""


class LossCause(StrEnum):
    """Why a job was down, as far as its bill is concerned."""

    HARDWARE = "hardware"  # a GPU, an instance or its repair
    NETWORK = "network"
    APPLICATION = "application"  # the program, its configuration or its storage
    INTERRUPTION = "interruption"  # Spot interruption, retirement, maintenance
    CAPACITY = "capacity"  # too few resources, or a missing permission
    OPERATOR = "operator"  # a person stopped a rank
    UNKNOWN = "unknown"


@frozen_dataclass()
class Downtime:
    """The open downtime of a job, or its last downtime.

    Attributes:
        attempt: the attempt that failed first.
        since: time of the failure.
        phase: the present phase, or the last phase.
        phase_since: start of that phase.
        seconds: length of each phase that is over, in whole seconds. A phase may occur several times.
        incident_id: the incident; "" if the job was relaunched without an incident, such as after a Spot interruption.
        cause: why the job was down, as far as it is known.
        until: end of the downtime; None while the job is down.
        recovered: whether the training has gone on, or the job succeeded. False if the job ended as FAILED or CANCELED.
        repeated_s: seconds of work that is done again; None if it is not known.
        told: whether operators know that the recovery contract is not kept.
    """

    attempt: int
    since: datetime
    phase: DownPhase
    phase_since: datetime
    seconds: Mapping[str, int] = field(default_factory=dict)
    incident_id: str = ""
    cause: LossCause = LossCause.UNKNOWN
    until: datetime | None = None
    recovered: bool = False
    repeated_s: int | None = None
    told: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the job is down."""
        return self.until is None

    def by_phase(self, now: datetime) -> dict[str, int]:
        """Return the seconds of each phase until `now`, or until the end of the downtime, in order."""
        known = dict(self.seconds)
        if self.is_open:
            known[self.phase] = known.get(self.phase, 0) + self._length(now)
        return {phase.value: known[phase] for phase in PHASES if known.get(phase)}

    def down_s(self, now: datetime) -> int:
        """Return the seconds of downtime until `now`, or until its end, without suspensions."""
        return sum(seconds for phase, seconds in self.by_phase(now).items() if phase != DownPhase.SUSPENDED)

    def lost_s(self, now: datetime) -> int:
        """Return the seconds of downtime and of the work that is done again, as far as it is known."""
        return self.down_s(now) + (self.repeated_s or 0)

    def in_phase(self, phase: DownPhase, at: datetime) -> Downtime:
        """Return the downtime after `phase` has begun at a time."""
        if phase is self.phase:
            return self
        seconds = {**self.seconds, self.phase.value: self.seconds.get(self.phase, 0) + self._length(at)}
        return replace(self, seconds=seconds, phase=phase, phase_since=max(at, self.phase_since))

    def closed(self, at: datetime, *, recovered: bool, repeated_s: int | None = None) -> Downtime:
        """Return the downtime after its end. A time before the start of the last phase counts as that start."""
        end = max(at, self.phase_since)
        seconds = {**self.seconds, self.phase.value: self.seconds.get(self.phase, 0) + self._length(end)}
        return replace(self, seconds=seconds, until=end, recovered=recovered, repeated_s=repeated_s)

    def _length(self, at: datetime) -> int:
        """Return the whole seconds of the last phase: the difference of two whole numbers since `since`."""
        return self._whole(max(at, self.phase_since)) - self._whole(self.phase_since)

    def _whole(self, at: datetime) -> int:
        return max(0, int((at - self.since).total_seconds()))


@frozen_dataclass()
class BrokenLimit:
    """A limit of a recovery contract that is not kept: its field, its seconds, and the seconds that were needed."""

    name: str
    limit_s: int
    needed_s: int


def has_contract(spec: JobSpec) -> bool:
    """Return whether the job has a recovery contract."""
    return spec.max_down_minutes is not None or spec.max_lost_minutes is not None


def broken_limits(spec: JobSpec, downtime: Downtime, now: datetime) -> tuple[BrokenLimit, ...]:
    """Return the limits of the contract that a downtime exceeds; () if all are kept so far, or there is none."""
    needed = (
        ("max_down_minutes", spec.max_down_minutes, downtime.down_s(now)),
        ("max_lost_minutes", spec.max_lost_minutes, downtime.lost_s(now)),
    )
    return tuple(
        BrokenLimit(name, minutes * 60, seconds)
        for name, minutes, seconds in needed
        if minutes is not None and seconds > minutes * 60
    )


def contract_limit_at(spec: JobSpec, downtime: Downtime) -> datetime | None:
    """Return when the first limit of the contract passes; None if none can pass, or operators know already.

    The work that is done again is known only after the training has gone on. Until then the downtime alone counts.
    """
    limits = [minutes for minutes in (spec.max_down_minutes, spec.max_lost_minutes) if minutes is not None]
    if not limits or not downtime.is_open or downtime.told or downtime.phase is DownPhase.SUSPENDED:
        return None
    suspended_s = downtime.seconds.get(DownPhase.SUSPENDED, 0)
    return downtime.since + duration(min(limits) * 60 + suspended_s)


def bill_facts(downtime: Downtime | None, spec: JobSpec) -> dict[str, Any]:
    """Return the bill of a downtime that a decision ends, as its events carry it; {} if it ends none.

    Args:
        downtime: the downtime after the decision; None if the decision does not change it.
        spec: the specification of the job.
    """
    if downtime is None or downtime.until is None:
        return {}
    return {
        "bill": {
            "down_s": downtime.down_s(downtime.until),
            "phases": downtime.by_phase(downtime.until),
            "repeated_s": downtime.repeated_s,
            "cause": downtime.cause.value,
            "recovered": downtime.recovered,
            "kept": not broken_limits(spec, downtime, downtime.until) if has_contract(spec) else None,
        }
    }
