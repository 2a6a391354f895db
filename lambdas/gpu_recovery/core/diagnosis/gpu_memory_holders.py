"""GPU memory holders: processes on a GPU and the role that may use it, for event and lock rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import Observation, Occupant, StageReport
from gpu_recovery.core.diagnosis.taxonomy import Scope

ROLES = ("rollout", "train")
"""The two roles that share a GPU if the topology names no others.

Row 47 of the fault catalogue, docs/diagnosis.md.
"""


@dataclass(frozen=True)
class HeldMemory:
    """GPU memory that processes hold although it is the turn of another role, by one observation of a stage.

    role: the role that may use the GPU now.
    occupants: the processes of other roles.
    """

    report: StageReport
    role: str
    occupants: tuple[Occupant, ...]

    @property
    def owners(self) -> str:
        """Roles of the processes, as text."""
        return ", ".join(sorted({occupant.owner for occupant in self.occupants}))

    @property
    def memory_mb(self) -> float:
        """Megabytes that the processes hold together."""
        return total_mb(self.occupants)

    @property
    def pids(self) -> str:
        """Process ids, as text."""
        return ", ".join(str(pid) for pid in sorted({occupant.pid for occupant in self.occupants}))


def memory_mb(occupant: Occupant) -> float:
    """Megabytes that a process holds; 0 for a value that is no positive finite number."""
    return occupant.memory_mb if 0.0 < occupant.memory_mb < float("inf") else 0.0


def total_mb(occupants: Iterable[Occupant]) -> float:
    """Megabytes that the processes hold together."""
    return sum(memory_mb(occupant) for occupant in occupants)


def role_of_name(case: Case, name: str) -> str:
    """Role in the name of a stage, an event or a worker ("rollout_start", "train/3"); "" if it has none."""
    return next((role for role in (*case.topology.roles, *ROLES) if role in name), "")


def role_of(case: Case, report: Observation) -> str:
    """Role that may use the GPU by this observation, or "" if it is unknown.

    The order is: the name of the stage, the role of the worker, the name of the worker.
    """
    by_stage = role_of_name(case, report.stage) if isinstance(report, StageReport) else ""
    worker = case.topology.workers.get(report.worker)
    return by_stage or (worker.role if worker else "") or role_of_name(case, report.worker)


def memory_held_by_others(case: Case, report: StageReport, turn: str) -> HeldMemory | None:
    """Memory that processes of other roles hold, at least `leak_mb` each (row 52, corrected).

    A process that is resident by design holds less, or belongs to the role itself. A process of unknown owner is
    skipped.

    Args:
        report: an observation of a stage that lists the processes of the GPU.
        turn: role that may use the GPU now; "" if it is unknown.

    Returns:
        The processes and their memory. None without such a process, or if `turn` is unknown.
    """
    limit = case.thresholds.leak_mb
    others = [
        occupant
        for occupant in report.occupants or ()
        if occupant.owner and occupant.owner != turn and memory_mb(occupant) >= limit
    ]
    return (
        HeldMemory(report, turn, tuple(sorted(others, key=lambda occupant: occupant.pid))) if others and turn else None
    )


def occupancies(case: Case) -> Mapping[tuple[Scope, str], list[StageReport]]:
    """Observations that list the processes of a GPU, by place and GPU, the oldest first."""
    by_gpu: dict[tuple[Scope, str], list[StageReport]] = {}
    for report in case.all(StageReport):
        if report.occupants is not None:
            by_gpu.setdefault((case.scope_of(report), report.gpu), []).append(report)
    return by_gpu
