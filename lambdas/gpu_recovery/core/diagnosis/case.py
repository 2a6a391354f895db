"""Input of one diagnosis: observations by type, the topology of the run, and lemon scores of instances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from functools import cached_property
from typing import Any, TypeVar

from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.diagnosis.taxonomy import JOB, Scope, ScopeKind
from gpu_recovery.core.diagnosis.thresholds import Thresholds
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

R = TypeVar("R", bound=Observation)
T = TypeVar("T")


@frozen_dataclass()
class Worker:
    """Place of a worker (row 18 of the fault catalogue, docs/diagnosis.md).

    role: "train", "rollout" or a name that the program chose.
    """

    name: str
    instance_id: str
    rack: str = ""
    rank: int | None = None
    role: str = ""


@frozen_dataclass()
class Topology:
    """Registered workers, by name."""

    workers: Mapping[str, Worker] = field(default_factory=dict)

    @classmethod
    def of(cls, workers: Iterable[Worker]) -> Topology:
        """The topology of these workers."""
        return cls({worker.name: worker for worker in workers})

    def instance_of(self, report: Observation) -> str:
        """Id of the instance that the observation is about, or "" if it is unknown.

        The order is: the observation's own instance id, the instance of its worker, the instance of its rank.
        """
        if report.instance_id:
            return report.instance_id
        if report.worker in self.workers:
            return self.workers[report.worker].instance_id
        at = self.by_rank.get(report.rank) if report.rank is not None else None
        return at.instance_id if at else ""

    @cached_property
    def by_rank(self) -> Mapping[int, Worker]:
        """Workers by rank. Of two workers with the same rank the first counts."""
        workers: dict[int, Worker] = {}
        for worker in self.workers.values():
            if worker.rank is not None:
                workers.setdefault(worker.rank, worker)
        return workers

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """Roles of the workers, the longest name first."""
        return tuple(
            sorted(
                {worker.role for worker in self.workers.values() if worker.role}, key=lambda role: (-len(role), role)
            )
        )

    def instances_of(self, scope: Scope) -> frozenset[str]:
        """Ids of the instances in a scope. Empty for the whole job and for unknown names."""
        instance_ids: set[str] = set()
        for name in scope.names:
            match scope.kind:
                case ScopeKind.INSTANCE:
                    instance_ids.add(name)
                case ScopeKind.RACK:
                    instance_ids |= {self.workers[worker].instance_id for worker in self.racks.get(name, ())}
                case ScopeKind.WORKER | ScopeKind.RANK:
                    instance_ids |= self._instance_of_name(name)
                case ScopeKind.GPU:
                    instance_ids.add(name.partition("/")[0])
                case ScopeKind.JOB:
                    pass
        return frozenset(instance_ids)

    def _instance_of_name(self, name: str) -> set[str]:
        if name in self.workers:
            return {self.workers[name].instance_id}
        number = name.removeprefix("rank ")
        worker = self.by_rank.get(int(number)) if number.isascii() and number.isdecimal() else None
        return {worker.instance_id} if worker is not None else set()

    @cached_property
    def instances(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the workers on each instance, by instance id."""
        return _grouped((worker.instance_id, worker.name) for worker in self.workers.values())

    @cached_property
    def racks(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the workers in each known rack, by rack."""
        return _grouped((worker.rack, worker.name) for worker in self.workers.values() if worker.rack)


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, list[str]] = {}
    for key, name in sorted(pairs):
        groups.setdefault(key, []).append(name)
    return {key: tuple(names) for key, names in groups.items()}


@frozen_dataclass()
class History:
    """Lemon score of each instance, by instance id: 0 (no sign of a lemon) to 1 (`core.instance.lemons`)."""

    lemons: Mapping[str, float] = field(default_factory=dict)


@frozen_dataclass()
class Case:
    """Observations of the window in a fixed order, with the topology, the history and the thresholds.

    at_s: time of the diagnosis, Unix seconds.
    """

    reports: tuple[Observation, ...]
    topology: Topology
    history: History
    at_s: float
    thresholds: Thresholds

    @classmethod
    def of(
        cls, reports: Iterable[Observation], topology: Topology, history: History, at_s: float, thresholds: Thresholds
    ) -> Case:
        """Build the case of these observations.

        The observations are sorted by time, the oldest first. Each report id stays once. NaN and infinity are
        removed.
        """
        by_id = {report.report_id: finite(report) for report in sorted(reports, key=repr)}
        order = sorted(by_id.values(), key=lambda report: (report.at_s, report.report_id))
        return cls(tuple(order), topology, history, at_s, thresholds)

    def all(self, kind: type[R]) -> tuple[R, ...]:
        """Observations of exactly this type, the oldest first."""
        reports: Any = self._by_kind.get(kind, ())
        return tuple(reports)

    def scope_of(self, report: Observation) -> Scope:
        """Place of an observation: its instance, else its worker, else its rank, else the whole job."""
        instance_id = self.topology.instance_of(report)
        if instance_id:
            return Scope.of(ScopeKind.INSTANCE, instance_id)
        if report.worker:
            return Scope.of(ScopeKind.WORKER, report.worker)
        return JOB if report.rank is None else Scope.of(ScopeKind.RANK, str(report.rank))

    def computed_once(self, function: Callable[[Case], T]) -> T:
        """Result of a pure function of this case. The function runs once, however many rules ask for its result."""
        if function not in self._made:
            self._made[function] = function(self)
        result: T = self._made[function]
        return result

    @cached_property
    def _made(self) -> dict[Callable[[Case], Any], Any]:
        return {}

    @cached_property
    def computed(self) -> dict[str, object]:
        """Values that rule families computed for this case and use again, by name."""
        return {}

    @cached_property
    def _by_kind(self) -> Mapping[type[Observation], list[Observation]]:
        by_kind: dict[type[Observation], list[Observation]] = {}
        for report in self.reports:
            by_kind.setdefault(type(report), []).append(report)
        return by_kind


def finite(report: R) -> R:
    """Copy of the observation without NaN and infinity. Such a value becomes None if the field allows it, else 0."""
    wrong = {
        attribute.name: None if _may_be_none(attribute.type) else 0.0
        for attribute in fields(report)
        if isinstance(value := getattr(report, attribute.name), float) and not math.isfinite(value)
    }
    if not wrong:
        return report
    values: dict[str, Any] = {attribute.name: getattr(report, attribute.name) for attribute in fields(report)}
    return type(report)(**{**values, **wrong})


def _may_be_none(annotation: Any) -> bool:
    return "None" in str(annotation)
