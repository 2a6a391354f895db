"""Jobs as API clients see them. Field names are public and do not change."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.downtime import broken_limits, has_contract
from gpu_recovery.core.job.held_ranks import container_hold_s
from gpu_recovery.core.job.record import Job, ListedJob
from gpu_recovery.core.job.spec import runs_preflight
from gpu_recovery.core.notifications.recovery_contract import bill_lines
from gpu_recovery.core.policy import Preflight, RecoveryPolicy
from gpu_recovery.core.queue.priority import effective
from gpu_recovery.wire.event_types import event_type_of
from gpu_recovery.wire.json_body import history_view, time_text

ROW_FIELDS = (
    "job_id",
    "name",
    "status",
    "reason",
    "attempt",
    "attempts_counted",
    "attempts_max",
    "user",
    "group",
    "priority",
    "asked_priority",
    "backend",
    "nnodes",
    "nnodes_min",
    "width",
    "n_gpus_per_node",
    "origin",
    "queued_at",
    "status_at",
    "incident_id",
    "held",
    "short_of",
)
"""Fields of a job in a list with `fields=list`: those that a table of jobs shows. Lists of instances are left out."""


def job_id(workload: str, prefix: str, now: datetime, random: str) -> str:
    """Return the id of a new job: `<prefix><workload>-<yyyymmdd>-<hhmmss>-<4 hex>`."""
    return f"{prefix}{workload}-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{random}"


def records_of(job_id: str) -> str:
    """Return the S3 prefix of a job's archive. The id of an adopted job may hold any character, so it is quoted."""
    return f"jobs/{quote(job_id, safe='')}/"


def job_summary(job: ListedJob, policy: RecoveryPolicy) -> dict[str, Any]:
    """Return a job in a listing."""
    return {
        "job_id": job.job_id,
        "name": job.spec.name or None,
        "status": job.status.value,
        "reason": job.reason,
        "attempt": job.attempt,
        "attempts_counted": job.attempts_counted,
        "attempts_max": job.attempts_max(policy),
        "workload": job.spec.workload,
        "user": job.spec.user,
        "group": job.spec.group,
        "priority": effective(job.spec.priority, job.ran_s, policy).name,
        "asked_priority": job.spec.priority.name,
        "backend": job.spec.backend.value,
        "nnodes": job.spec.nnodes,
        "nnodes_min": job.spec.nnodes_min,
        "width": job.width if job.attempt else None,
        "n_gpus_per_node": job.spec.gpus_per_node,
        "task_definition": job.spec.task_definition,
        "origin": job.origin.value,
        "instances": list(job.instances),
        "repairing": list(job.repairing),
        "queued_at": time_text(job.queued_at),
        "status_at": time_text(job.status_at),
        "deadline_at": time_text(job.deadline_at),
        "incident_id": job.incident_id,
        "held": job.held,
        "short_of": job.short_of or None,
        "next_run_at": time_text(job.next_run_at),
    }


def job_row(job: ListedJob, policy: RecoveryPolicy) -> dict[str, Any]:
    """Return a job in a listing with `fields=list`."""
    summary = job_summary(job, policy)
    return {name: summary[name] for name in ROW_FIELDS}


def diagnosis_result_view(result: DiagnosisResult) -> dict[str, Any]:
    """Return the diagnosis result of an attempt; its confidence is in percent."""
    return {
        "attempt": result.attempt,
        "cause": result.cause,
        "where": result.where,
        "instances": list(result.instances),
        "remedy": result.remedy,
        "remedy_sentence": result.remedy.sentence,
        "confidence": result.confidence,
        "decided": result.decided,
        "sentence": result.sentence,
    }


def downtime_view(job: Job, now: datetime) -> dict[str, Any] | None:
    """Return the open or the last downtime of a job until `now`, in seconds; None if the job was never down."""
    down = job.downtime
    if down is None:
        return None
    return {
        "since": time_text(down.since),
        "until": time_text(down.until),
        "attempt": down.attempt,
        "phase": down.phase.value if down.is_open else None,
        "down_s": down.down_s(now),
        "repeated_s": down.repeated_s,
        "lost_s": down.lost_s(now),
        "phases": down.by_phase(now),
        "cause": down.cause.value,
        "recovered": down.recovered,
        "kept": not broken_limits(job.spec, down, now) if has_contract(job.spec) else None,
        "sentences": list(bill_lines(job.spec, down, now)),
    }


def decision_views(job: Job) -> list[dict[str, Any]]:
    """Return every decision about a job, the oldest first. `event_type` says it in the words of seed 004."""
    backend = job.spec.backend
    return [{**history_view(entry), "event_type": event_type_of(entry, backend).value} for entry in job.history]


def reason_at(job: Job) -> datetime:
    """Return the time of the decision that gave the job its reason. The scheduler tells a job only of a new kind."""
    return job.history[-1].at if job.history else job.status_at


def job_view(job: Job, policy: RecoveryPolicy) -> dict[str, Any]:
    """Return a job on its own: its summary, its failure, its spec, and every decision with its reason."""
    failure = job.failure
    return {
        **job_summary(job, policy),
        "reason_at": time_text(reason_at(job)),
        "container": job.spec.container,
        "command": list(job.spec.command),
        "entrypoint": job.spec.entrypoint,
        "image": job.spec.image or None,
        "max_runtime_s": job.spec.max_runtime_s,
        "progress_timeout_s": job.spec.progress_timeout_s,
        "suspend_grace_s": job.spec.suspend_grace_s,
        "checkpoint_dir": job.spec.checkpoint_dir,
        "restart_in_place": container_hold_s(job.spec, policy) > 0,
        "ranks_in_place": job.ranks_in_place,
        "preflight": (Preflight.QUICK if runs_preflight(job.spec, policy) else Preflight.OFF).value,
        "warm_spares": [spare.instance_id for spare in job.spares if spare.waits],
        "max_down_minutes": job.spec.max_down_minutes,
        "max_lost_minutes": job.spec.max_lost_minutes,
        "checkpoint_every_s": job.spec.checkpoint_every_s,
        "reports_progress": job.spec.reports_progress,
        "recovery_limit_at": time_text(job.limit_at),
        "lost_s": dict(job.lost_s),
        "suspended_for": job.suspended_for or None,
        "suspended_at": time_text(job.suspended_at),
        "ran_s": job.ran_s,
        "attempts_uncounted": dict(job.attempts_uncounted),
        "diagnosis": None if job.conclusion is None else diagnosis_result_view(job.conclusion),
        "failure": None
        if failure is None
        else {
            "rank": failure.rank,
            "instance_id": failure.instance_id,
            "at": time_text(failure.at),
            "kind": failure.ending.kind.value,
            "exit_code": failure.ending.exit_code,
            "sentence": failure.ending.sentence,
        },
        "history": decision_views(job),
    }
