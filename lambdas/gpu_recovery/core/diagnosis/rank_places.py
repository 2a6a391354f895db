"""Places of PyTorch's ranks: the instance of each process of a job.

PyTorch counts processes over the whole job, one for each GPU. The plan of an attempt counts instances. A record of a
process comes from the agent of its instance, so its place is known. The place of a process without a record follows
from the number of processes on each instance, if that fits the known places.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpu_recovery.core.diagnosis.case import Case, Topology
from gpu_recovery.core.diagnosis.observations import FlightReport
from gpu_recovery.core.diagnosis.taxonomy import JOB, Scope, ScopeKind

LOCAL_WORLD_MAX = 64
"""Largest number of processes on an instance that is tried if no record names the number."""


class RankPlaces:
    """Instances of the processes of a job, by the rank of the process.

    Args:
        reports: the flight records of the attempt.
        topology: its workers by rank are the instances of the plan, or processes, as a case file has them.
    """

    def __init__(self, reports: Iterable[FlightReport], topology: Topology) -> None:
        self._instances = {rank: worker.instance_id for rank, worker in topology.by_rank.items()}
        known: dict[int, set[str]] = {}
        declared = set()
        for report in reports:
            if report.rank is not None and report.instance_id:
                known.setdefault(report.rank, set()).add(report.instance_id)
            if report.local_world is not None and report.local_world > 0:
                declared.add(report.local_world)
        self._known = known
        self._declared = next(iter(declared)) if len(declared) == 1 else None
        several = range(1, LOCAL_WORLD_MAX + 1) if known and not declared else (1,) if not declared else ()
        sizes = (self._declared,) if self._declared is not None else several
        self._sizes = [size for size in sizes if self._fits(size)]

    @property
    def one_each(self) -> bool:
        """Whether each worker of the topology is one process, so that both are counted alike."""
        return self._sizes == [1]

    def instance_of(self, rank: int) -> str:
        """Id of the instance of a process; "" if it is unknown or two instances claim it."""
        if rank in self._known:
            return next(iter(self._known[rank])) if len(self._known[rank]) == 1 else ""
        places = {self._instances.get(rank // size, "") for size in self._sizes}
        if not self._sizes and self._declared is not None:  # the instances are in another order than in the plan
            own = rank // self._declared
            places = {name for other, names in self._known.items() if other // self._declared == own for name in names}
        return next(iter(places)) if len(places) == 1 else ""

    def _fits(self, size: int) -> bool:
        return all(names == {self._instances.get(rank // size)} for rank, names in self._known.items())


def scope_of_ranks(case: Case, places: RankPlaces, ranks: Iterable[int]) -> Scope:
    """Scope of the processes with these ranks: their workers, else their instances.

    The whole job if the instance of any of them is unknown: then no instance is named as faulty. Without any
    topology the ranks themselves.
    """
    named = tuple(ranks)
    workers = [case.topology.by_rank.get(rank) for rank in named] if places.one_each else []
    if workers and all(workers):
        return Scope.of(ScopeKind.WORKER, *(worker.name for worker in workers if worker))
    instances = [places.instance_of(rank) for rank in named]
    if instances and all(instances):
        return Scope.of(ScopeKind.INSTANCE, *instances)
    return JOB if case.topology.by_rank else Scope.of(ScopeKind.RANK, *map(str, named))
