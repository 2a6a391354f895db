"""What travels over HTTP: records as clients see them. Names follow seeds 003 and 004 where those name a field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from .core.instance.record import Instance
from .core.job.record import Job
from .core.machine import HistoryEntry
from .core.policy import RecoveryPolicy


def read_json(text: str) -> Any:
    """The value that `text` spells; ValueError or RecursionError if it is none, or one that means two things.

    Stricter than `json`: no NaN, no key given twice, no half characters, which neither a table nor ECS can hold.
    """
    document = json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)
    json.dumps(document, ensure_ascii=False).encode()
    return document


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:80]!r} is given twice")
        found[key] = value
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")


def job_id(workload: str, prefix: str, now: datetime, random: str) -> str:
    """A new job's id: `<prefix><workload>-<yyyymmdd>-<hhmmss>-<4 hex>`."""
    return f"{prefix}{workload}-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{random}"


def job_summary(job: Job, policy: RecoveryPolicy) -> dict[str, Any]:
    """A job in a listing."""
    return {
        "job_id": job.job_id, "status": job.status.value, "reason": job.reason, "attempt": job.attempt,
        "attempts_counted": job.attempts_counted, "attempts_max": job.attempts_max(policy),
        "workload": job.spec.workload, "user": job.spec.user, "nnodes": job.spec.nnodes,
        "n_gpus_per_node": job.spec.gpus_per_node, "task_definition": job.spec.task_definition,
        "origin": job.origin.value, "instances": list(job.instances), "repairing": list(job.repairing),
        "queued_at": _time(job.queued_at), "status_at": _time(job.status_at), "deadline_at": _time(job.deadline_at),
        "incident_id": job.incident_id,
    }  # fmt: skip


def job_view(job: Job, policy: RecoveryPolicy) -> dict[str, Any]:
    """A job by itself: its summary, what failed, what it runs, and every decision with its reason."""
    failure = job.failure
    return {
        **job_summary(job, policy),
        "container": job.spec.container,
        "command": list(job.spec.command),
        "max_runtime_s": job.spec.max_runtime_s,
        "attempts_uncounted": dict(job.attempts_uncounted),
        "failure": None if failure is None else {
            "rank": failure.rank, "instance_id": failure.instance_id, "at": _time(failure.at),
            "kind": failure.ending.kind.value, "exit_code": failure.ending.exit_code,
            "sentence": failure.ending.sentence,
        },
        "history": [history_view(entry) for entry in job.history],
    }  # fmt: skip


def instance_view(instance: Instance) -> dict[str, Any]:
    """An instance with its history."""
    return {
        "instance_id": instance.instance_id, "status": instance.status.value, "reason": instance.reason,
        "agent_connected": instance.agent_connected, "ecs_status": instance.ecs_status,
        "container_instance_id": instance.container_instance_id, "gpus": instance.gpus,
        "claims": {job: claim.attempt for job, claim in instance.claims.items()},
        "reserved_for": instance.reserved_for or None, "boot_id": instance.boot_id,
        "booted_at": _time(instance.booted_at), "epoch": instance.epoch, "status_at": _time(instance.status_at),
        "deadline_at": _time(instance.deadline_at),
        "history": [history_view(entry) for entry in instance.history],
    }  # fmt: skip


def history_view(entry: HistoryEntry) -> dict[str, Any]:
    """One decision as it was taken."""
    return {
        "at": _time(entry.at), "from": entry.before or None, "to": entry.after, "event": entry.event,
        "attempt": entry.attempt, "reason": entry.reason,
    }  # fmt: skip


def problem(status: int, title: str, detail: str, field: str | None = None) -> Mapping[str, Any]:
    """An error body as RFC 9457 has it (application/problem+json); `field` names the culprit in a request."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return body if field is None else {**body, "field": field}


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
