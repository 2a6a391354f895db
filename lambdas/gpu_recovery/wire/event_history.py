"""Events, incidents, timelines and figures of the event history as API clients see them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpu_recovery.core.diagnosis.taxonomy import Remedy
from gpu_recovery.core.event_history.incidents import Incident, Phase
from gpu_recovery.core.event_history.recorded_event import Bill, Failure, Finding, RecordedEvent
from gpu_recovery.core.event_history.roll_up import Figures
from gpu_recovery.core.event_history.thread import Thread
from gpu_recovery.core.event_history.timeline import RankRow
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.task import RankFailure
from gpu_recovery.wire.json_body import time_text


def event_view(event: RecordedEvent) -> dict[str, Any]:
    """Return one event."""
    return {
        "id": event.event_id,
        "at": time_text(event.at),
        "kind": event.kind.value,
        "job_id": event.job_id or None,
        "instance_id": event.instance_id or None,
        "attempt": event.attempt or None,
        "before": event.before or None,
        "after": event.after or None,
        "reason": event.reason,
        "incident_id": event.incident_id or None,
        "check_id": event.check_id or None,
        "failure": None if event.failure is None else failure_view(event.failure),
        "diagnosis": None if event.finding is None else _finding_view(event.finding),
        "message": None
        if event.message is None
        else {"severity": event.message.severity, "subject": event.message.subject},
    }


def failure_view(failure: Failure) -> dict[str, Any]:
    """Return the first failure of an attempt."""
    return {"rank": failure.rank, "instance_id": failure.instance_id, "exit_code": failure.exit_code}


def _finding_view(finding: Finding) -> dict[str, Any]:
    return {
        "cause": finding.cause,
        "confidence": finding.confidence,
        "decided": finding.decided,
        "remedy": finding.remedy,
        "remedy_sentence": Remedy(finding.remedy).sentence if finding.remedy in set(Remedy) else "",
        "instances": list(finding.instances),
        "gpus": list(finding.gpus),
        "sentence": finding.sentence,
    }


def incident_view(incident: Incident, now: datetime) -> dict[str, Any]:
    """Return one incident without its thread."""
    lost = incident.gpu_hours_lost(now)
    return {
        "incident_id": incident.incident_id,
        "state": "open" if incident.is_open else "closed",
        "outcome": None if incident.outcome is None else incident.outcome.value,
        "job_id": incident.job_id or None,
        "instance_id": incident.instance_id or None,
        "opened_at": time_text(incident.opened_at),
        "closed_at": time_text(incident.closed_at),
        "recovered_at": time_text(incident.recovered_at),
        "reason": incident.reason,
        "cause": incident.cause or None,
        "confidence": incident.confidence,
        "decided": incident.decided,
        "instances": list(incident.instances),
        "user": incident.user or None,
        "priority": incident.priority or None,
        "gpus": incident.gpus,
        "gpu_h_lost": None if lost is None else round(lost, 3),
        "attempts": list(incident.attempts),
        "phases": phase_views(incident.phases),
        "bill": None if incident.bill is None else bill_view(incident.bill),
    }


def bill_view(bill: Bill) -> dict[str, Any]:
    """Return what a downtime has cost, in seconds."""
    return {
        "down_s": bill.down_s,
        "repeated_s": bill.repeated_s,
        "lost_s": bill.down_s + (bill.repeated_s or 0),
        "phases": dict(bill.phases),
        "cause": bill.cause,
        "recovered": bill.recovered,
        "kept": bill.kept,
    }


def phase_views(phases: Iterable[Phase]) -> list[dict[str, Any]]:
    """Return the statuses of a record over time."""
    return [
        {
            "status": phase.status,
            "attempt": phase.attempt or None,
            "since": time_text(phase.since),
            "until": time_text(phase.until),
        }
        for phase in phases
    ]


def thread_view(incident: Incident, thread: Thread, now: datetime) -> dict[str, Any]:
    """Return an incident with its events in the order of time."""
    return {
        **incident_view(incident, now),
        "events": [event_view(event) for event in thread.events],
        "passed_checks": {"instances": thread.passed, "named": list(thread.passed_named)},
        "left_out": thread.left_out,
    }


def attempt_timeline_view(
    job_id: str, number: int, phases: Iterable[Phase], failure: RankFailure | None, rows: Iterable[RankRow]
) -> dict[str, Any]:
    """Return one attempt of a timeline."""
    return {
        "attempt": number,
        "attempt_id": attempt_id(job_id, number),
        "phases": phase_views(phases),
        "failure": None
        if failure is None
        else {
            "rank": failure.rank,
            "instance_id": failure.instance_id,
            "exit_code": failure.ending.exit_code,
            "at": time_text(failure.at),
            "sentence": failure.ending.sentence,
        },
        "rows": [
            {
                "ranks": row.ranks,
                "number": row.number,
                "instances": list(row.instances),
                "has_first_failure": row.has_first_failure,
                "marks": [
                    {"status": mark.status, "since": time_text(mark.since), "until": time_text(mark.until)}
                    for mark in row.marks
                ],
            }
            for row in rows
        ],
    }


def figures_view(figures: Figures) -> dict[str, Any]:
    """Return figures of one or several days. What is not known is null.

    `ettr` is that of the jobs of which it is known how much work was done again, and `ettr_share` is their share of the
    held GPU-hours.
    """
    return {
        "gpu_h_held": round(figures.held, 3),
        "gpu_h_running": round(figures.running, 3),
        "gpu_h_in_line": round(figures.in_line, 3),
        "gpu_h_lost": round(figures.lost, 3),
        "running_share": _rounded(figures.running_share, 6),
        "ettr": _rounded(figures.ettr, 6),
        "ettr_share": _rounded(figures.ettr_share, 6),
        "recoveries": len(figures.recoveries),
        "recovery_s_p50": figures.recovery_s(0.5),
        "recovery_s_p90": figures.recovery_s(0.9),
        "recovery_s_longest": figures.recovery_s(1.0),
        "incidents": figures.incidents,
        "recovered": figures.recovered,
        "given_up": figures.given_up,
        "jobs_succeeded": figures.succeeded,
        "jobs_failed": figures.failed,
        "jobs_canceled": figures.canceled,
        "fleet_available": _rounded(figures.fleet_available, 6),
        "mttf_gpu_h": _rounded(figures.mttf_gpu_h, 3),
    }


def _rounded(value: float | None, places: int) -> float | None:
    return None if value is None else round(value, places)
