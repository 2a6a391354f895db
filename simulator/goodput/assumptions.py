"""Assumptions of the goodput simulation: profiles of runs, mixes of failure causes, and conditions.

The numbers and their sources are in `assumptions.toml`; `assumptions_file` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

LEVELS = (1, 2, 3)
"""DCGM run levels that the table has entries for. Level 4 takes hours, so no policy uses it to check a fault."""


class AssumptionsInvalid(ValueError):
    """The table of assumptions is wrong. The message names the entry."""


class Mark(StrEnum):
    """How well a number is known."""

    DOCUMENTED = "documented"
    MEASURED = "measured"
    DERIVED = "derived"
    ASSUMPTION = "assumption"


class Cure(StrEnum):
    """What removes a fault for good."""

    RESTART = "restart"
    REBOOT = "reboot"
    REPLACE = "replace"
    PERSON = "person"


class Shows(StrEnum):
    """How a fault becomes visible.

    EXIT: a rank exits. HANG: all ranks wait until their collective times out. GONE: the host terminates.
    """

    EXIT = "exit"
    HANG = "hang"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Assumption:
    """One number of the table with its unit and its source.

    `low` and `high` are the ends of the range that the sensitivity report sweeps.
    """

    name: str
    value: float
    unit: str
    mark: Mark
    source: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class CauseOfFailure:
    """One cause of a mix of failures.

    name:   the cause
    weight: frequency relative to the other causes of the mix
    cure:   an entry of `assumptions_file.CAUSE_CURES`
    shows:  an entry of `assumptions_file.CAUSE_SHOWS`
    seen:   whether a health check can find the fault
    """

    name: str
    weight: float
    cure: str
    shows: str
    seen: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """One run: a job on `instances` instances with `gpus` GPUs each, for `days` days.

    `rate` is the number of failures per 1,000 node-days.
    """

    name: str
    about: str
    instances: int
    gpus: int
    days: float
    rate: float
    mix: tuple[CauseOfFailure, ...]

    @property
    def seconds(self) -> float:
        """Length of the run in seconds."""
        return self.days * 86_400

    @property
    def failures_per_s(self) -> float:
        """Expected failures of the whole gang per second."""
        return self.instances * self.rate / 1_000 / 86_400

    def resized(self, instances: int) -> Profile:
        """Return the same run on another number of instances, with the same failure rate per instance."""
        return replace(self, instances=instances)

    def shortened(self, days: float) -> Profile:
        """Return the first `days` of the same run."""
        return replace(self, days=days)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Delays, shares and limits that hold for every policy.

    The fields are the entries `conditions.*` of the table. Names that end in `_s` are seconds.
    """

    reboot_share: float
    verdict_share: float
    hang_share: float
    lemon_share: float
    lemon_factor: float
    relapse_s: float
    seen_1: float
    seen_2: float
    seen_3: float
    told_share: float
    false_alarm: float
    exit_s: float
    hang_s: float
    event_s: float
    wake_s: float
    leave_s: float
    calls_burst: float
    calls_per_s: float
    call_s: float
    call_cpu_s: float
    store_s: float
    check_1_s: float
    check_2_s: float
    check_3_s: float
    reboot_s: float
    replace_s: float
    start_s: float
    rejoin_s: float
    rejoin_per_gpu_s: float
    checkpoint_s: float
    stall_s: float
    persist_s: float
    human_s: float
    human_spread: float
    watch_s: float
    eks_repair_s: float
    pods_per_s: float
    operator_hang_s: float
    progress_s: float
    step_s: float
    respawn_s: float
    evidence_s: float
    warm_share: float

    def check_s(self, level: int) -> float:
        """Seconds that a health check of this level takes."""
        return {1: self.check_1_s, 2: self.check_2_s, 3: self.check_3_s}[level]

    def seen(self, level: int) -> float:
        """Share of the visible instance faults that a check of this level finds."""
        return {1: self.seen_1, 2: self.seen_2, 3: self.seen_3}[level]

    def rejoin(self, gpus: int) -> float:
        """Seconds from the start of all processes of a gang to its first step: set-up, NCCL, checkpoint.

        Args:
            gpus: GPUs of the whole gang.
        """
        return self.rejoin_s + self.rejoin_per_gpu_s * gpus


@dataclass(frozen=True, slots=True)
class Tuned:
    """Value that a condition would have if `by` (the trainer or AWS Support) made the change that `about` describes."""

    value: float
    by: str
    about: str


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The whole table.

    `digest` is a hash of the table's text. Two reports with the same digest use the same numbers.
    """

    digest: str
    facts: Mapping[str, Assumption]
    profiles: Mapping[str, Profile]
    conditions: Conditions
    tuned: Mapping[str, Tuned]

    def profile(self, name: str) -> Profile:
        """Return the profile with this name.

        Raises:
            AssumptionsInvalid: no profile has the name; the message lists the profiles.
        """
        if name not in self.profiles:
            raise AssumptionsInvalid(f"there is no profile {name!r}; there are {', '.join(self.profiles)}")
        return self.profiles[name]

    def tuned_conditions(self) -> Conditions:
        """Return the conditions with every value of the section `tuned` applied."""
        return replace(self.conditions, **{name: tuned.value for name, tuned in self.tuned.items()})
