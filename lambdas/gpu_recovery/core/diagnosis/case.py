"""All that one diagnosis looks at: the reports by kind, where everybody is, and what is remembered of the machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar

from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.diagnosis.taxonomy import JOB, Scope, ScopeKind
from gpu_recovery.core.diagnosis.thresholds import Thresholds

R = TypeVar("R", bound=Observation)
T = TypeVar("T")


@dataclass(frozen=True)
class Worker:
    """Where a worker is (row 18). `role`: "train", "rollout" or what the program calls it."""

    name: str
    instance_id: str
    rack: str = ""
    rank: int | None = None
    role: str = ""


@dataclass(frozen=True)
class Topology:
    """Every registered worker by its name."""

    workers: Mapping[str, Worker] = field(default_factory=dict)

    @classmethod
    def of(cls, workers: Iterable[Worker]) -> Topology:
        """The topology of these workers."""
        return cls({worker.name: worker for worker in workers})

    def instance_of(self, report: Observation) -> str:
        """The instance that a report is about: what it says itself, else where its worker or rank is; else ""."""
        if report.instance_id:
            return report.instance_id
        if report.worker in self.workers:
            return self.workers[report.worker].instance_id
        at = self.by_rank.get(report.rank) if report.rank is not None else None
        return at.instance_id if at else ""

    @cached_property
    def by_rank(self) -> Mapping[int, Worker]:
        """Each worker whose rank is known, the first of two with the same one."""
        found: dict[int, Worker] = {}
        for one in self.workers.values():
            if one.rank is not None:
                found.setdefault(one.rank, one)
        return found

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The roles that the workers have, the longest name first."""
        return tuple(
            sorted({one.role for one in self.workers.values() if one.role}, key=lambda role: (-len(role), role))
        )

    def instances_of(self, scope: Scope) -> frozenset[str]:
        """The instances that a scope is about; none for the job as a whole, or for what is not known."""
        found: set[str] = set()
        for name in scope.names:
            match scope.kind:
                case ScopeKind.INSTANCE:
                    found.add(name)
                case ScopeKind.RACK:
                    found |= {self.workers[worker].instance_id for worker in self.racks.get(name, ())}
                case ScopeKind.WORKER | ScopeKind.RANK:
                    found |= self._instance_of_name(name)
                case ScopeKind.GPU:
                    found.add(name.partition("/")[0])
                case ScopeKind.JOB:
                    pass
        return frozenset(found)

    def _instance_of_name(self, name: str) -> set[str]:
        if name in self.workers:
            return {self.workers[name].instance_id}
        number = name.removeprefix("rank ")
        worker = self.by_rank.get(int(number)) if number.isascii() and number.isdecimal() else None
        return {worker.instance_id} if worker is not None else set()

    @cached_property
    def instances(self) -> Mapping[str, tuple[str, ...]]:
        """The workers of each instance."""
        return _grouped((one.instance_id, one.name) for one in self.workers.values())

    @cached_property
    def racks(self) -> Mapping[str, tuple[str, ...]]:
        """The workers of each rack that is known."""
        return _grouped((one.rack, one.name) for one in self.workers.values() if one.rack)


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for key, name in sorted(pairs):
        found.setdefault(key, []).append(name)
    return {key: tuple(names) for key, names in found.items()}


@dataclass(frozen=True)
class History:
    """What is remembered of each machine: its lemon score, 0 (nothing) to 1 (`core.instance.lemons`)."""

    lemons: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """The reports of the window in one order, whatever order they came in. `at_s`: when it is judged."""

    reports: tuple[Observation, ...]
    topology: Topology
    history: History
    at_s: float
    thresholds: Thresholds

    @classmethod
    def of(
        cls, reports: Iterable[Observation], topology: Topology, history: History, at_s: float, thresholds: Thresholds
    ) -> Case:
        """The case of these reports: each once by its id, the oldest first, and what is no number left out."""
        kept = {one.report_id: finite(one) for one in sorted(reports, key=repr)}
        order = sorted(kept.values(), key=lambda one: (one.at_s, one.report_id))
        return cls(tuple(order), topology, history, at_s, thresholds)

    def all(self, kind: type[R]) -> tuple[R, ...]:
        """The reports of one kind, the oldest first."""
        found: Any = self._by_kind.get(kind, ())
        return tuple(found)

    def scope_of(self, report: Observation) -> Scope:
        """Where a report is: its instance, else its worker, else its rank; the job where nobody said."""
        instance_id = self.topology.instance_of(report)
        if instance_id:
            return Scope.of(ScopeKind.INSTANCE, instance_id)
        if report.worker:
            return Scope.of(ScopeKind.WORKER, report.worker)
        return JOB if report.rank is None else Scope.of(ScopeKind.RANK, str(report.rank))

    def computed_once(self, what: Callable[[Case], T]) -> T:
        """What a pure function makes of this case. It is asked once, however many rules want to know."""
        if what not in self._made:
            self._made[what] = what(self)
        made: T = self._made[what]
        return made

    @cached_property
    def _made(self) -> dict[Callable[[Case], Any], Any]:
        return {}

    @cached_property
    def computed(self) -> dict[str, object]:
        """What families have worked out of this case and need again, each under a name of its own."""
        return {}

    @cached_property
    def _by_kind(self) -> Mapping[type[Observation], list[Observation]]:
        found: dict[type[Observation], list[Observation]] = {}
        for one in self.reports:
            found.setdefault(type(one), []).append(one)
        return found


def finite(report: R) -> R:
    """The report without numbers that are none: NaN and infinity are None where that may be, else 0."""
    wrong = {
        one.name: None if _may_be_none(one.type) else 0.0
        for one in fields(report)
        if isinstance(value := getattr(report, one.name), float) and not math.isfinite(value)
    }
    if not wrong:
        return report
    given: dict[str, Any] = {one.name: getattr(report, one.name) for one in fields(report)}
    return type(report)(**{**given, **wrong})


def _may_be_none(annotation: Any) -> bool:
    return "None" in str(annotation)
