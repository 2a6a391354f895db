"""GPU memory holders: processes on a GPU and the role that may use it, for event and lock rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import Observation, Occupant, StageReport
from gpu_recovery.core.diagnosis.taxonomy import Scope
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

ROLES = ("rollout", "train")
"""The two roles that share a GPU if the topology names no others.

Row 47 of the fault catalogue, docs/diagnosis.md.
"""
RESIDENT_SLACK = 1.1
"""Ratio to the resident memory of a role up to which its memory counts as resident: caches grow a little."""


@frozen_dataclass()
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


def process_owners(case: Case) -> Mapping[tuple[str, int], str]:
    """Role of each process, by instance id and pid, from the observations of all processes of the instance.

    A process knows the role of no other process, so a single observation names at most one owner. The agent tells the
    pid of a reporter. Without it, the owner that a process names for its own memory counts.
    """
    owners: dict[tuple[str, int], str] = {}
    for report in case.reports:
        instance_id = case.topology.instance_of(report)
        role = _role_of_reporter(case, report) if report.pid is not None else ""
        if report.pid is not None and role:
            owners[instance_id, report.pid] = role
        for occupant in report.occupants or () if isinstance(report, StageReport) else ():
            if occupant.owner:
                owners.setdefault((instance_id, occupant.pid), occupant.owner)
    return owners


def _role_of_reporter(case: Case, report: Observation) -> str:
    worker = case.topology.workers.get(report.worker)
    return report.worker_role or (worker.role if worker else "") or role_of_name(case, report.worker)


def resident_mb(case: Case) -> Mapping[tuple[Scope, str, str, str], float]:
    """Most megabytes that a role has held during a stage of another role that ended without an error.

    Memory that did not hinder such a stage stays on the GPU by design. The key is the place, the GPU, the role whose
    stage it was, and the role that held the memory.
    """
    failed = {(report.reporter, report.stage, report.step) for report in case.all(StageReport) if report.error}
    resident: dict[tuple[Scope, str, str, str], float] = {}
    for (place, gpu), reports in case.computed_once(occupancies).items():
        begun: dict[str, StageReport] = {}
        for report in reports:
            if report.moment != "after":
                begun[report.stage] = report
            elif report.stage in begun and (report.reporter, report.stage, report.step) not in failed:
                turn = role_of(case, report)
                for owner, megabytes in _held_mb(case, begun[report.stage]).items():
                    key = (place, gpu, turn, owner)
                    resident[key] = max(resident.get(key, 0.0), megabytes)
    return resident


def _held_mb(case: Case, report: StageReport) -> dict[str, float]:
    """Megabytes of each role on the GPU of the observation."""
    held: dict[str, float] = {}
    for occupant in owned_occupants(case, report):
        held[occupant.owner] = held.get(occupant.owner, 0.0) + memory_mb(occupant)
    return held


def owned_occupants(case: Case, report: StageReport) -> tuple[Occupant, ...]:
    """Processes on the GPU of the observation, each with its owner as far as any observation tells it."""
    owners, instance_id = case.computed_once(process_owners), case.topology.instance_of(report)
    return tuple(
        replace(occupant, owner=owners.get((instance_id, occupant.pid), occupant.owner))
        for occupant in report.occupants or ()
    )


def memory_held_by_others(case: Case, report: StageReport, turn: str) -> HeldMemory | None:
    """Memory that processes of other roles hold, at least `leak_mb` each (row 52, corrected).

    A process that is resident by design holds less, or belongs to the role itself, or its role held as much in a stage
    that ended well (`resident_mb`). A process of unknown owner is skipped. The owner is known from any observation of
    the instance (`process_owners`).

    Args:
        report: an observation of a stage that lists the processes of the GPU.
        turn: role that may use the GPU now; "" if it is unknown.

    Returns:
        The processes and their memory. None without such a process, or if `turn` is unknown.
    """
    if not turn:
        return None
    resident, place = case.computed_once(resident_mb), case.scope_of(report)
    by_design = {
        owner
        for owner, megabytes in _held_mb(case, report).items()
        if megabytes <= RESIDENT_SLACK * resident.get((place, report.gpu, turn, owner), 0.0)
    }
    others = [
        occupant
        for occupant in owned_occupants(case, report)
        if occupant.owner and occupant.owner not in (turn, *by_design)
        if memory_mb(occupant) >= case.thresholds.leak_mb
    ]
    return HeldMemory(report, turn, tuple(sorted(others, key=lambda occupant: occupant.pid))) if others else None


def occupancies(case: Case) -> Mapping[tuple[Scope, str], list[StageReport]]:
    """Observations that list the processes of a GPU, by place and GPU, the oldest first."""
    by_gpu: dict[tuple[Scope, str], list[StageReport]] = {}
    for report in case.all(StageReport):
        if report.occupants is not None:
            by_gpu.setdefault((case.scope_of(report), report.gpu), []).append(report)
    return by_gpu
