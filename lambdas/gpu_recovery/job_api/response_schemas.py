"""Schemas of response bodies, as openapi.json describes them."""

from __future__ import annotations

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.diagnosis.taxonomy import Cause, Probe, Remedy, ScopeKind
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import JobStatus, Origin
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.logs.kinds import LineKind, LineRole, LogClass
from gpu_recovery.core.policy import Preset
from gpu_recovery.core.queue.snapshot import RejectionKind
from gpu_recovery.core.task import FailureKind
from gpu_recovery.job_api.console_schemas import CONSOLE_SCHEMAS, OUT_OF_USE, QUOTAS, TOTALS
from gpu_recovery.job_api.history_schemas import HISTORY_SCHEMAS
from gpu_recovery.job_api.instance_schemas import DEPARTURE, HEALTH, HEARTBEAT, HELD, INSTANCE_SCHEMAS, NEED, NODE_AGENT
from gpu_recovery.job_api.redrive import DeadLetterQueue
from gpu_recovery.job_api.schema_types import (
    ANY_OBJECT,
    BOOLEAN,
    INTEGER,
    LIMITS,
    PRIORITY,
    TEXT,
    TIME,
    Schema,
    between,
    by_name,
    list_of,
    none_or,
    one_of,
    ref,
    response_object,
)
from gpu_recovery.wire.attempts import AttemptStatus
from gpu_recovery.wire.event_types import EventType
from gpu_recovery.wire.jobs import ROW_FIELDS

_DIAGNOSIS_RESULT = response_object(
    attempt=INTEGER,
    cause=one_of(Cause),
    where=TEXT,
    instances=list_of(TEXT),
    remedy=one_of(Remedy),
    confidence=between(0, 100),
    decided=BOOLEAN,
    sentence=TEXT,
)
_SCOPE = response_object(kind=one_of(ScopeKind), names=list_of(TEXT))
_SUMMARY: dict[str, Schema] = {
    "job_id": TEXT,
    "status": one_of(JobStatus),
    "reason": TEXT,
    "attempt": INTEGER,
    "attempts_counted": INTEGER,
    "attempts_max": INTEGER,
    "workload": TEXT,
    "user": TEXT,
    "group": TEXT,
    "priority": PRIORITY,
    "asked_priority": PRIORITY,
    "backend": one_of(Backend),
    "nnodes": INTEGER,
    "n_gpus_per_node": INTEGER,
    "task_definition": TEXT,
    "origin": one_of(Origin),
    "instances": list_of(TEXT),
    "repairing": list_of(TEXT),
    "queued_at": TIME,
    "status_at": TIME,
    "deadline_at": none_or(TIME),
    "incident_id": none_or(TEXT),
    "held": BOOLEAN,
    "short_of": none_or(TEXT),
    "next_run_at": none_or(TIME),
}
_ROW = {name: _SUMMARY[name] for name in ROW_FIELDS}
_ATTEMPT = response_object(
    attempt=INTEGER,
    attempt_id=TEXT,
    status=one_of(AttemptStatus),
    started_at=none_or(TIME),
    ended_at=none_or(TIME),
    exit_code=none_or(INTEGER),
    failure_kind=none_or(one_of(FailureKind)),
    message=none_or(TEXT),
    counted=none_or(BOOLEAN),
)
# An attempt on ECS has instances and an attempt on Ray has a submission id, so neither property is required.
_ATTEMPT["properties"] |= {"instances": list_of(TEXT), "submission_id": TEXT}
_FAILURE = response_object(
    rank=INTEGER,
    instance_id=TEXT,
    at=TIME,
    kind=TEXT,
    exit_code=none_or(INTEGER),
    sentence=TEXT,
)
_PLACEMENT_PREVIEW = response_object(
    would_start=BOOLEAN,
    instances=list_of(TEXT),
    short_of=none_or(one_of(RejectionKind)),
    sentence=TEXT,
    position=none_or(INTEGER),
    blockers=list_of(TEXT),
    earliest_at=none_or(TIME),
    would_suspend=list_of(TEXT),
)
_DECISION: dict[str, Schema] = {
    "at": TIME,
    "from": none_or(TEXT),
    "to": TEXT,
    "event": TEXT,
    "attempt": INTEGER,
    "reason": TEXT,
}
_WAITING = response_object(
    job_id=TEXT,
    user=TEXT,
    priority=PRIORITY,
    asked_priority=PRIORITY,
    group=TEXT,
    nodes=INTEGER,
    gpus=INTEGER,
    status=none_or(one_of(JobStatus)),
    queued_at=TIME,
    position=none_or(INTEGER),
    short_of=none_or(TEXT),
    sentence=TEXT,
    earliest_at=none_or(TIME),
    backend=one_of(Backend),
)
# Only the snapshot has these properties, so they are not required.
_WAITING["properties"] |= {"blockers": list_of(TEXT), "would_suspend": list_of(TEXT)}
_QUEUE = response_object(
    waiting=list_of(_WAITING),
    running=list_of(
        response_object(
            job_id=TEXT,
            status=one_of(JobStatus),
            user=TEXT,
            priority=PRIORITY,
            group=TEXT,
            nodes=INTEGER,
            gpus=INTEGER,
            since=TIME,
            ends_at=none_or(TIME),
            can_suspend=BOOLEAN,
            backend=one_of(Backend),
        )
    ),
    totals=TOTALS,
    quotas=QUOTAS,
    reservations=list_of(response_object(job_id=TEXT, group=TEXT, hosts=list_of(TEXT), at=none_or(TIME))),
    next_cursor=none_or(TEXT),
    unreadable=list_of(TEXT),
)
_LOG_FINDING: dict[str, Schema] = {
    "number": INTEGER,
    "line": TEXT,
    "kind": one_of(LineKind),
    "role": one_of(LineRole),
}
_QUEUE["properties"] |= {
    "as_of": none_or(TIME),
    "groups": list_of(TEXT),
    "waiting_more": INTEGER,
    "running_more": INTEGER,
}
_OUTCOME = response_object(cause=one_of(Cause), where=TEXT, held=none_or(BOOLEAN), english=TEXT, chinese=TEXT)
_INSTANCE: dict[str, Schema] = {
    "instance_id": TEXT,
    "status": one_of(InstanceStatus),
    "reason": TEXT,
    "agent_connected": BOOLEAN,
    "ecs_status": TEXT,
    "container_instance_id": TEXT,
    "gpus": INTEGER,
    "claims": by_name(INTEGER),
    "reserved_for": none_or(TEXT),
    "boot_id": none_or(TEXT),
    "booted_at": none_or(TIME),
    "epoch": INTEGER,
    "status_at": TIME,
    "deadline_at": none_or(TIME),
    "incident_id": none_or(TEXT),
    "drained": BOOLEAN,
    "availability_zone": TEXT,
    "group": TEXT,
    "rack": TEXT,
    "silent_since": none_or(TIME),
    "suspicion": none_or(TEXT),
    "health": HEALTH,
    "departure": DEPARTURE,
    "need": NEED,
    "held": HELD,
    "lemon": response_object(score=INTEGER, made_of=none_or(TEXT), signals=by_name(INTEGER)),
    "out_of_use": list_of(OUT_OF_USE),
}

_INSTANCE_ALONE = response_object(**_INSTANCE, history=list_of(ref("Decision")))
_TOKEN: dict[str, Schema] = {
    "live": BOOLEAN,
    "issued_at": TIME,
    "expires_at": TIME,
    "revoked_at": none_or(TIME),
    "issued_by": TEXT,
    "note": TEXT,
}
_NODE_TOKEN: dict[str, Schema] = {"token_id": TEXT, "instance_id": TEXT, **_TOKEN}
_USER_TOKEN: dict[str, Schema] = {"id": TEXT, "user": TEXT, "role": one_of(Role), **_TOKEN}
_DEAD_LETTER = response_object(
    queue=one_of(DeadLetterQueue),
    message_id=TEXT,
    source=none_or(TEXT),
    account=none_or(TEXT),
    **{"for": none_or(TEXT)},
    kept_because=none_or(TEXT),
)

RESPONSE_SCHEMAS: dict[str, Schema] = {
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": TEXT,
            "title": TEXT,
            "status": INTEGER,
            "detail": TEXT,
            "code": TEXT,
            "field": TEXT,
            "job_id": TEXT,
            "retry_after_s": INTEGER,
            "lock": ANY_OBJECT,
            "errors": list_of(response_object(field=TEXT, detail=TEXT)),
        },
    },
    "JobSummary": response_object(**_SUMMARY),
    "JobRow": response_object(**_ROW),
    "Jobs": response_object(
        jobs=list_of({"anyOf": [ref("JobSummary"), ref("JobRow")]}),
        next_cursor=none_or(TEXT),
        unreadable=list_of(TEXT),
    ),
    "Job": response_object(
        **_SUMMARY,
        container=TEXT,
        command=list_of(TEXT),
        entrypoint=TEXT,
        image=none_or(TEXT),
        max_runtime_s=none_or(INTEGER),
        suspend_grace_s=INTEGER,
        checkpoint_dir=TEXT,
        suspended_for=none_or(TEXT),
        suspended_at=none_or(TIME),
        ran_s=INTEGER,
        attempts_uncounted=by_name(INTEGER),
        diagnosis=none_or(_DIAGNOSIS_RESULT),
        failure=none_or(_FAILURE),
        history=list_of(ref("JobDecision")),
        attempts=list_of(ref("Attempt")),
        records=none_or(TEXT),
    ),
    "Decision": response_object(**_DECISION),
    "JobDecision": response_object(**_DECISION, event_type=one_of(EventType)),
    "Attempt": _ATTEMPT,
    "Foresight": _PLACEMENT_PREVIEW,
    "JobOrForesight": {"anyOf": [ref("Job"), ref("Foresight")]},
    "Explanation": response_object(
        job_id=TEXT,
        status=one_of(JobStatus),
        reason=TEXT,
        pending=none_or(ref("Foresight")),
        decisions=list_of(ref("JobDecision")),
    ),
    "LogLines": response_object(
        job_id=TEXT,
        attempt=INTEGER,
        rank=INTEGER,
        lines=list_of(response_object(at=none_or(TIME), text=TEXT)),
        next_cursor=none_or(TEXT),
    ),
    "Finding": response_object(
        row=TEXT,
        cause=none_or(TEXT),
        weight={"type": "number"},
        follows=BOOLEAN,
        english=TEXT,
        chinese=TEXT,
        evidence=list_of(TEXT),
    ),
    "Diagnosis": response_object(
        job_id=none_or(TEXT),
        attempt=none_or(INTEGER),
        cause=one_of(Cause),
        scope=_SCOPE,
        remedy=one_of(Remedy),
        confidence={"type": "number"},
        decided=BOOLEAN,
        evidence=list_of(TEXT),
        findings=list_of(ref("Finding")),
        rivals=list_of(
            response_object(
                cause=one_of(Cause),
                scope=_SCOPE,
                confidence={"type": "number"},
                follows=BOOLEAN,
                evidence=list_of(TEXT),
            )
        ),
        next_probe=none_or(one_of(Probe)),
        said=list_of(ref("Finding")),
        more=response_object(evidence=INTEGER, findings=INTEGER, said=INTEGER),
        version=TEXT,
        page=response_object(en=TEXT, zh=TEXT),
        unread_logs=by_name(TEXT),
        outcome=none_or(_OUTCOME),
    ),
    "LogFinding": response_object(**_LOG_FINDING),
    "LogFindings": response_object(
        name=TEXT,
        findings=list_of(ref("LogFinding")),
        verdict=one_of(LineKind),
        cause=none_or(response_object(**_LOG_FINDING, **{"class": one_of(LogClass)}, policy=TEXT)),
    ),
    "DiagnosisOrLogFindings": {"anyOf": [ref("Diagnosis"), ref("LogFindings")]},
    "Queue": _QUEUE,
    "Quotas": response_object(limits=response_object(**LIMITS), revision=INTEGER),
    "InstanceSummary": response_object(**_INSTANCE, node_agent=NODE_AGENT),
    "Instances": response_object(
        instances=list_of(ref("InstanceSummary")), next_cursor=none_or(TEXT), unreadable=list_of(TEXT)
    ),
    "Instance": {
        **_INSTANCE_ALONE,
        "properties": {**_INSTANCE_ALONE["properties"], "node_agent": NODE_AGENT, "heartbeat": HEARTBEAT},
        "description": "node_agent and heartbeat are there when one instance is read",
    },
    **INSTANCE_SCHEMAS,
    "NodeToken": response_object(**_NODE_TOKEN),
    "NewNodeToken": response_object(token=TEXT, **_NODE_TOKEN),
    "NodeTokens": response_object(instance_id=TEXT, tokens=list_of(ref("NodeToken"))),
    "UserToken": response_object(**_USER_TOKEN),
    "NewUserToken": response_object(token=TEXT, **_USER_TOKEN),
    "UserTokens": response_object(user=TEXT, tokens=list_of(ref("UserToken"))),
    "NewSession": response_object(session=TEXT, user=TEXT, role=one_of(Role), expires_at=TIME),
    "Me": response_object(
        user=TEXT,
        role=none_or(one_of(Role)),
        expires_at=none_or(TIME),
        is_session=BOOLEAN,
        deployment=response_object(
            cluster=TEXT,
            region=TEXT,
            preset=one_of(Preset),
            adopt=one_of(Adoption),
            observe_only=BOOLEAN,
            replace=BOOLEAN,
        ),
    ),
    **CONSOLE_SCHEMAS,
    "DeadLetters": response_object(
        queues=list_of(response_object(queue=one_of(DeadLetterQueue), letters=INTEGER, shown=list_of(_DEAD_LETTER)))
    ),
    "Redriven": response_object(letters=list_of(_DEAD_LETTER), left=by_name(INTEGER), stopped_because=none_or(TEXT)),
    "Lock": response_object(
        job_id=TEXT,
        name=TEXT,
        owner=none_or(TEXT),
        token=INTEGER,
        instance_id=none_or(TEXT),
        acquired_at=none_or(TIME),
        expires_at=none_or(TIME),
        has_ended=BOOLEAN,
    ),
    "OpenApi": ANY_OBJECT,
    **HISTORY_SCHEMAS,
}
"""Schemas of responses by their names in openapi.json."""
