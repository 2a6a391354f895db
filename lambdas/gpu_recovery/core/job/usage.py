"""Usage of a job: instances or nodes of a Ray cluster against a quota, and run time for estimates of backfill."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.job.record import PLACED, RUNS, Job, JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.queue.run_time_estimates import JobKind, RunTime, slot_of
from gpu_recovery.core.state_machine import QuotaChange, Step


def usage_changes(job: Job, event: events.JobEvent | str, step: Step, now: datetime) -> dict[str, Any]:
    """Return the changes of the quota use and, when the job stops running, of its run time."""
    accounts: dict[str, Any] = {}
    if isinstance(event, events.JobPlaced):
        is_elastic = job.spec.nnodes_min is not None
        accounts["quota_nodes"] = len(event.instances) if is_elastic else job.spec.nnodes
    elif step.status not in PLACED:
        accounts["quota_nodes"] = 0
    if job.status in RUNS and step.status not in RUNS and job.running_at is not None:
        accounts["ran_s"] = job.ran_s + max(0, int((now - job.running_at).total_seconds()))
    return accounts


def quota_change(before: Job, after: Job, event: events.JobEvent | str) -> QuotaChange | None:
    """Return what a decision changes in the quota of the job's user, or None if it changes nothing."""
    term = event.term if isinstance(event, events.JobPlaced) else None
    grows = after.quota_nodes - before.quota_nodes
    ended = after.status is JobStatus.SUCCEEDED and before.status is not JobStatus.SUCCEEDED
    ended = ended and after.spec.backend is Backend.ECS  # run time estimates are for instances of ours
    ran = _ran_for(after) if ended and before.quota_nodes and after.ran_s else None
    placed_at = event.at if isinstance(event, events.JobPlaced) and event.counts else None
    return QuotaChange(after.quota_key, grows, term, ran, placed_at) if grows or term is not None else None


def _ran_for(job: Job) -> RunTime:
    """Return the run time of the job for the estimates of similar jobs."""
    kind = JobKind(job.spec.user, job.spec.workload, job.spec.nnodes, job.spec.gpus_per_node)
    return RunTime(kind.text, slot_of(job.job_id), job.ran_s)
