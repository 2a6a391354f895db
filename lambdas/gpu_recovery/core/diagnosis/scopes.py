"""Scope of an observation in a diagnosis: its worker, or the instance of that worker."""

from __future__ import annotations

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.failure_pattern import common_place
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind

NO_WORKER = "unknown"
"""Name that sentences show for an unknown worker."""


def worker_of(case: Case, report: Observation) -> str:
    """Name of the observation's worker: its own, else the worker of its rank, else its reporter.

    Empty if the observation names none of these.
    """
    if report.worker:
        return report.worker
    known = case.topology.by_rank.get(report.rank) if report.rank is not None else None
    return known.name if known else report.reporter


def name_of(case: Case, report: Observation) -> str:
    """Name of the observation's worker for a sentence; `NO_WORKER` if it is unknown."""
    return worker_of(case, report) or NO_WORKER


def at_worker(case: Case, report: Observation) -> Scope:
    """Scope of the observation's worker; the whole job if the worker is unknown."""
    name = worker_of(case, report)
    return Scope.of(ScopeKind.WORKER, name) if name else JOB


def worker_scope(name: str) -> Scope:
    """Scope of the worker with this name; the whole job for an empty name."""
    return Scope.of(ScopeKind.WORKER, name) if name else JOB


def at_place(case: Case, report: Observation) -> Scope:
    """Scope of the place that failed as a whole with the worker in it (`failure_pattern`).

    If no place failed as a whole, it is the scope of the observation's worker.
    """
    return common_place(case).get(worker_of(case, report)) or at_worker(case, report)


def once(cause: Cause | None, at: Scope) -> Cause | None:
    """Cause that a row about one worker supports at the scope `at`; None for a hang of the whole job.

    If every worker hangs, each worker's row repeats the same fact without a reason. Row 19 reports that hang once for
    the job, so that a row which names a reason outweighs it.
    """
    return None if cause is Cause.WORKER_HANG and at == JOB else cause


def instance_scope(case: Case, name: str, instance_id: str = "") -> Scope:
    """Scope of the instance of worker `name`; of the worker itself if its instance is unknown."""
    known = case.topology.workers.get(name)
    at = instance_id or (known.instance_id if known else "")
    return Scope.of(ScopeKind.INSTANCE, at) if at else worker_scope(name)
