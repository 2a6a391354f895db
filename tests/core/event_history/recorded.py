"""Events of the bus for tests: their detail as EventBridge delivers it, and the same as the history reads it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_recovery.core.event_history.recorded_event import RecordedEvent, event_of, text_of
from gpu_recovery.core.published_events import utc_text

OPENED = datetime(2026, 11, 23, 10, 14, 3, tzinfo=UTC)
JOB, INCIDENT, SICK = "sft-20261123-101318-6eea", "sft-20261123-101318-6eea--a01", "i-2bc47fccb4f6d9072"


def at(seconds: float) -> str:
    """The time so many seconds after the incident began."""
    return utc_text(OPENED + timedelta(seconds=seconds))


def detail(decision: str, **data: Any) -> dict[str, Any]:
    """The detail of an event."""
    metadata = {"schema_version": 1, "correlation_id": "x", "causation_id": decision}
    return {"metadata": metadata, "data": data}


def job_moved(version: int, before: str, after: str, seconds: float, **more: Any) -> tuple[str, dict[str, Any]]:
    """A job with 16 GPUs becomes another status."""
    data = {
        "job_id": JOB,
        "attempt": 1,
        "before": before,
        "after": after,
        "reason": f"it is {after}",
        "version": version,
        "incident_id": INCIDENT,
        "at": at(seconds),
        "opened_at": at(0),
        "user": "ana",
        "priority": "HIGH",
        "instances": 2,
        "gpus": 16,
    }
    return "Job State Changed", detail(f"{JOB}/{version}", **data | more)


def recovery(version: int, what: str, seconds: float, **more: Any) -> tuple[str, dict[str, Any]]:
    """A recovery of the job started, succeeded or failed."""
    data = {"job_id": JOB, "attempt": 1, "incident_id": INCIDENT, "reason": f"recovery {what}", "at": at(seconds)}
    return f"Recovery {what}", detail(f"{JOB}/{version}", **data | {"opened_at": at(0), "gpus": 16} | more)


def instance_moved(version: int, before: str, after: str, seconds: float, **more: Any) -> tuple[str, dict[str, Any]]:
    """An instance becomes another status, for the job."""
    data = {
        "instance_id": SICK,
        "before": before,
        "after": after,
        "reason": f"it is {after}",
        "version": version,
        "incident_id": None,
        "at": at(seconds),
        "job_id": JOB,
        "attempt": 1,
        "gpus": 8,
    }
    name = more.get("instance_id", SICK)
    return "Instance State Changed", detail(f"{name}/{version}", **data | more)


FAILURE = {"rank": 1, "instance_id": SICK, "exit_code": 134}
DIAGNOSIS = {
    "cause": "GPU_FAULT",
    "confidence": 97,
    "decided": True,
    "remedy": "CHECK",
    "instances": [SICK],
    "gpus": ["3"],
    "sentence": "XID 79",
}
COURSE = (
    job_moved(5, "RUNNING", "STOPPING", 0, failure=FAILURE, message={"severity": "SEV3", "subject": "recovering"}),
    recovery(5, "Started", 0, reason="rank 1 was ended by signal 6", failure=FAILURE),
    job_moved(6, "STOPPING", "DIAGNOSING", 12),
    instance_moved(3, "AVAILABLE", "CHECKING", 13, check_id=f"check/{SICK}/1"),
    job_moved(7, "DIAGNOSING", "RECOVERING", 150, diagnosis=DIAGNOSIS),
    instance_moved(4, "CHECKING", "REBOOTING", 151),
    instance_moved(5, "REBOOTING", "VERIFYING", 400),
    instance_moved(6, "VERIFYING", "AVAILABLE", 500),
    job_moved(8, "RECOVERING", "SUBMITTING", 510, attempt=2),
    job_moved(9, "SUBMITTING", "SUBMITTED", 515, attempt=2),
    job_moved(10, "SUBMITTED", "RUNNING", 550, attempt=2),
    recovery(11, "Succeeded", 610, attempt=2),
)
"""A whole incident of a GPU fault: 550 s without training."""


def read(event: tuple[str, dict[str, Any]]) -> RecordedEvent:
    """The event as the history reads it."""
    return event_of(text_of(*event, "2026-11-23T10:14:05Z"))
