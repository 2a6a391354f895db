"""What the simulation knows from outside: profiles, mixes of causes, and what is so whatever the policy.

The numbers and their sources are in `assumptions.toml`; `facts_table` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

LEVELS = (1, 2, 3)
"""DCGM run levels that the table knows; level 4 takes hours and is no answer to a fault."""


class AssumptionsInvalid(ValueError):
    """The table is wrong; the message names the entry."""


class Mark(StrEnum):
    """How well a number is known."""

    DOCUMENTED = "documented"
    MEASURED = "measured"
    DERIVED = "derived"
    ASSUMPTION = "assumption"


class Cure(StrEnum):
    """What ends a fault for good."""

    RESTART = "restart"
    REBOOT = "reboot"
    REPLACE = "replace"
    PERSON = "person"


class Shows(StrEnum):
    """What the world sees of a fault: a rank that ends, a gang that waits for its time-out, a host that ends."""

    EXIT = "exit"
    HANG = "hang"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Assumption:
    """One number, its unit and where it is from; `low` and `high` are the range that is swept."""

    name: str
    value: float
    unit: str
    mark: Mark
    source: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class CauseOfFailure:
    """One line of a mix: how often (relative to the others), what cures it, how it shows, whether checks can see it."""

    name: str
    weight: float
    cure: str
    shows: str
    seen: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """One run: a job on `instances` machines of `gpus` GPUs for `days`; `rate` is failures per 1,000 node-days."""

    name: str
    about: str
    instances: int
    gpus: int
    days: float
    rate: float
    mix: tuple[CauseOfFailure, ...]

    @property
    def seconds(self) -> float:
        """How long the run is."""
        return self.days * 86_400

    @property
    def failures_per_s(self) -> float:
        """How many failures the whole gang has in a second, on average."""
        return self.instances * self.rate / 1_000 / 86_400

    def resized(self, instances: int) -> Profile:
        """The same run on another number of machines that fail as often."""
        return replace(self, instances=instances)

    def shortened(self, days: float) -> Profile:
        """The first `days` of the same run."""
        return replace(self, days=days)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is so whatever the policy; the fields are the entries `conditions.*` of the table, times in seconds."""

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
    leave_s: float
    calls_burst: float
    calls_per_s: float
    call_s: float
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

    def check_s(self, level: int) -> float:
        """How long a health check of this level takes."""
        return {1: self.check_1_s, 2: self.check_2_s, 3: self.check_3_s}[level]

    def seen(self, level: int) -> float:
        """The share of the faults of nodes that a check of this level sees."""
        return {1: self.seen_1, 2: self.seen_2, 3: self.seen_3}[level]

    def rejoin(self, gpus: int) -> float:
        """Seconds from the processes of a gang having started to its first step: set-up, NCCL, checkpoint."""
        return self.rejoin_s + self.rejoin_per_gpu_s * gpus


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a condition would be if `by` had done what `about` says."""

    value: float
    by: str
    about: str


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The whole table. `digest` is of its text: two reports with the same one come from the same numbers."""

    digest: str
    facts: Mapping[str, Assumption]
    profiles: Mapping[str, Profile]
    conditions: Conditions
    tuned: Mapping[str, Tuned]

    def profile(self, name: str) -> Profile:
        """A profile by its name; AssumptionsInvalid says which there are."""
        if name not in self.profiles:
            raise AssumptionsInvalid(f"there is no profile {name!r}; there are {', '.join(self.profiles)}")
        return self.profiles[name]

    def tuned_conditions(self) -> Conditions:
        """The conditions with everything tuned that the table says how to."""
        return replace(self.conditions, **{name: one.value for name, one in self.tuned.items()})
