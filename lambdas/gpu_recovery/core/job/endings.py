"""How a job ends, and what every ending owes: instances given back, operators told, the scheduler woken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import commands, notice
from ..machine import Step
from ..names import attempt_id
from .record import Job, JobStatus


def finished(job: Job, status: JobStatus, reason: str) -> Step:
    """An end that needs nobody: whatever is still claimed is given back, and an incident that is open is closed."""
    orders: tuple[Any, ...] = (commands.ReleaseInstances(job.instances, attempt=job.attempt), poke(job))
    if status is JobStatus.SUCCEEDED and job.incident_id is not None:
        orders = (*orders, notice.recovered(job))
    return Step(status, reason, {"incident_id": None, "repairing": ()}, orders)


def failed(job: Job, reason: str, unconfirmed: tuple[str, ...], changes: Mapping[str, Any] | None = None) -> Step:
    """A terminal failure: whatever is still claimed is given back but for `unconfirmed`, and operators are told."""
    incident = job.incident_id or attempt_id(job.job_id, job.attempt)
    data = {"job_id": job.job_id, "attempt": job.attempt, "incident_id": incident, "reason": reason}
    orders = (
        commands.ReleaseInstances(job.instances, unconfirmed, job.attempt), notice.failed(job, incident, reason),
        commands.PublishEvent("Recovery Failed", data), poke(job),
    )  # fmt: skip
    kept = {"repairing": (), "incident_id": incident, "claims_kept": bool(unconfirmed)}
    return Step(JobStatus.FAILED, reason, {**kept, **(changes or {})}, orders)


def poke(job: Job) -> commands.PokeScheduler:
    """The order that makes the scheduler look: something changed for those in line."""
    return commands.PokeScheduler(f"{job.job_id}/{job.version + 1}")
