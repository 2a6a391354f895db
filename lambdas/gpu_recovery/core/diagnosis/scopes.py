"""Where a report is about, as a scope: its worker, or the machine that the worker is on."""

from __future__ import annotations

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.failure_pattern import common_place
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind

NOBODY = "unknown"


def worker_of(case: Case, report: Observation) -> str:
    """The worker's name: the report's, else that of its rank in the topology, else whoever it names; "" for nobody."""
    if report.worker:
        return report.worker
    known = case.topology.by_rank.get(report.rank) if report.rank is not None else None
    return known.name if known else report.reporter


def name_of(case: Case, report: Observation) -> str:
    """The worker as sentences name it."""
    return worker_of(case, report) or NOBODY


def at_worker(case: Case, report: Observation) -> Scope:
    """The worker of the report; the job as a whole if nobody is named."""
    name = worker_of(case, report)
    return Scope.of(ScopeKind.WORKER, name) if name else JOB


def worker_scope(name: str) -> Scope:
    """A worker by its name."""
    return Scope.of(ScopeKind.WORKER, name) if name else JOB


def at_place(case: Case, report: Observation) -> Scope:
    """The place that failed as a whole with the worker in it, if one did (`pattern`); else the worker of the report."""
    return common_place(case).get(worker_of(case, report)) or at_worker(case, report)


def once(cause: Cause | None, at: Scope) -> Cause | None:
    """The cause that a worker's own row speaks for, at its place.

    Where everybody hangs, each of them says the same and none says why: row 19 says so once for all, and whatever names
    a reason outweighs it.
    """
    return None if cause is Cause.WORKER_HANG and at == JOB else cause


def instance_scope(case: Case, name: str, instance_id: str = "") -> Scope:
    """The instance that the worker `name` is on; the worker itself where nobody knows that."""
    known = case.topology.workers.get(name)
    at = instance_id or (known.instance_id if known else "")
    return Scope.of(ScopeKind.INSTANCE, at) if at else worker_scope(name)
