"""Who holds a GPU's memory, and whose turn it is: what the rows of event delivery and of the locks have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import Observation, Occupant, StageReport
from gpu_recovery.core.diagnosis.taxonomy import Scope

ROLES = ("rollout", "train")
"""The two who share a GPU (row 47), where the topology names no others."""


@dataclass(frozen=True)
class HeldMemory:
    """Memory that somebody holds whose turn it is not, as one report of a stage says."""

    report: StageReport
    turn: str
    occupants: tuple[Occupant, ...]

    @property
    def owners(self) -> str:
        """Whose the processes are."""
        return ", ".join(sorted({one.owner for one in self.occupants}))

    @property
    def memory_mb(self) -> float:
        """What they hold together."""
        return total_mb(self.occupants)

    @property
    def pids(self) -> str:
        """Their process ids."""
        return ", ".join(str(pid) for pid in sorted({one.pid for one in self.occupants}))


def memory_mb(occupant: Occupant) -> float:
    """What a process holds; what is no number is nothing."""
    return occupant.memory_mb if 0.0 < occupant.memory_mb < float("inf") else 0.0


def total_mb(occupants: Iterable[Occupant]) -> float:
    """What processes hold together, in megabytes."""
    return sum(memory_mb(one) for one in occupants)


def role_of_name(case: Case, name: str) -> str:
    """Whose a stage, an event or a worker is, by its name ("rollout_start", "train/3"); "" if it names nobody."""
    return next((role for role in (*case.topology.roles, *ROLES) if role in name), "")


def role_of(case: Case, report: Observation) -> str:
    """Whose turn a report is about: its stage's name, else what its worker is; "" if nobody can tell."""
    by_stage = role_of_name(case, report.stage) if isinstance(report, StageReport) else ""
    worker = case.topology.workers.get(report.worker)
    return by_stage or (worker.role if worker else "") or role_of_name(case, report.worker)


def memory_held_by_others(case: Case, report: StageReport, turn: str) -> HeldMemory | None:
    """What processes hold whose turn it is not, each `leak_mb` at least (row 52, repaired).

    A process that is resident by design holds less, or is the owner's own. One whose owner nobody named blames nobody.
    """
    limit = case.thresholds.leak_mb
    others = [one for one in report.occupants or () if one.owner and one.owner != turn and memory_mb(one) >= limit]
    return HeldMemory(report, turn, tuple(sorted(others, key=lambda one: one.pid))) if others and turn else None


def occupancies(case: Case) -> Mapping[tuple[Scope, str], list[StageReport]]:
    """The reports that say who is on a GPU, by place and GPU, the oldest first."""
    found: dict[tuple[Scope, str], list[StageReport]] = {}
    for one in case.all(StageReport):
        if one.occupants is not None:
            found.setdefault((case.scope_of(one), one.gpu), []).append(one)
    return found
