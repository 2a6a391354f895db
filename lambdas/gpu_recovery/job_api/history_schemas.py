"""Schemas of responses from the event history, as openapi.json describes them."""

from __future__ import annotations

from gpu_recovery.core.event_history.incidents import IncidentOutcome
from gpu_recovery.core.event_history.recorded_event import EventKind
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.job_api.schema_types import (
    BOOLEAN,
    INTEGER,
    TEXT,
    TIME,
    Schema,
    between,
    list_of,
    none_or,
    one_of,
    ref,
    response_object,
)

NUMBER: Schema = {"type": "number"}
_FAILURE = response_object(rank=INTEGER, instance_id=TEXT, exit_code=none_or(INTEGER))
_FINDING = response_object(
    cause=TEXT,
    confidence=between(0, 100),
    decided=BOOLEAN,
    remedy=TEXT,
    instances=list_of(TEXT),
    gpus=list_of(TEXT),
    sentence=TEXT,
)
_INCIDENT: dict[str, Schema] = {
    "incident_id": TEXT,
    "state": {"type": "string", "enum": ["open", "closed"]},
    "outcome": none_or(one_of(IncidentOutcome)),
    "job_id": none_or(TEXT),
    "instance_id": none_or(TEXT),
    "opened_at": TIME,
    "closed_at": none_or(TIME),
    "recovered_at": none_or(TIME),
    "reason": TEXT,
    "cause": none_or(TEXT),
    "confidence": none_or(between(0, 100)),
    "decided": BOOLEAN,
    "instances": list_of(TEXT),
    "user": none_or(TEXT),
    "priority": none_or(TEXT),
    "gpus": INTEGER,
    "gpu_h_lost": none_or(NUMBER),
    "attempts": list_of(INTEGER),
    "phases": list_of(ref("Phase")),
}
_FIGURES: dict[str, Schema] = {
    **dict.fromkeys(("gpu_h_held", "gpu_h_running", "gpu_h_in_line", "gpu_h_lost"), NUMBER),
    **{name: none_or(NUMBER) for name in ("running_share", "ettr", "ettr_share", "fleet_available", "mttf_gpu_h")},
    **{f"recovery_s_{name}": none_or(NUMBER) for name in ("p50", "p90", "longest")},
    **dict.fromkeys(("recoveries", "incidents", "recovered", "given_up"), INTEGER),
    **{f"jobs_{name}": INTEGER for name in ("succeeded", "failed", "canceled")},
}
HISTORY_SCHEMAS: dict[str, Schema] = {
    "Event": response_object(
        id=TEXT,
        at=TIME,
        kind=one_of(EventKind),
        job_id=none_or(TEXT),
        instance_id=none_or(TEXT),
        attempt=none_or(INTEGER),
        before=none_or(TEXT),
        after=none_or(TEXT),
        reason=TEXT,
        incident_id=none_or(TEXT),
        check_id=none_or(TEXT),
        failure=none_or(_FAILURE),
        diagnosis=none_or(_FINDING),
        message=none_or(response_object(severity=TEXT, subject=TEXT)),
    ),
    "Events": response_object(events=list_of(ref("Event")), next_cursor=TEXT),
    "Phase": response_object(status=TEXT, attempt=none_or(INTEGER), since=TIME, until=none_or(TIME)),
    "Incident": response_object(**_INCIDENT),
    "Incidents": response_object(incidents=list_of(ref("Incident")), next_cursor=none_or(TEXT)),
    "IncidentThread": response_object(
        **_INCIDENT,
        events=list_of(ref("Event")),
        passed_checks=response_object(instances=INTEGER, named=list_of(TEXT)),
        left_out=INTEGER,
    ),
    "Timeline": response_object(
        job_id=TEXT,
        status=one_of(JobStatus),
        as_of=TIME,
        before_first_attempt=list_of(ref("Phase")),
        attempts=list_of(
            response_object(
                attempt=INTEGER,
                attempt_id=TEXT,
                phases=list_of(ref("Phase")),
                failure=none_or(
                    response_object(rank=INTEGER, instance_id=TEXT, exit_code=none_or(INTEGER), at=TIME, sentence=TEXT)
                ),
                rows=list_of(
                    response_object(
                        ranks=TEXT,
                        number=INTEGER,
                        instances=list_of(TEXT),
                        has_first_failure=BOOLEAN,
                        marks=list_of(response_object(status=TEXT, since=TIME, until=none_or(TIME))),
                    )
                ),
            )
        ),
        earlier_attempts=INTEGER,
        is_complete=BOOLEAN,
    ),
    "Figures": response_object(**_FIGURES),
    "Summary": response_object(
        by={"type": "string", "enum": ["day", "user", "priority"]},
        since=TEXT,
        as_of=none_or(TIME),
        rows=list_of(response_object(name=TEXT, **_FIGURES)),
        total=ref("Figures"),
    ),
}
"""Schemas by their names in openapi.json."""
