"""The shapes of what is sent and answered, as openapi.json describes them (OpenAPI 3.0.3)."""

from __future__ import annotations

from typing import Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import LIFE_S_MAX, LIFE_S_MIN, NOTE_MAX
from gpu_recovery.core.diagnosis.taxonomy import Cause, Probe, Remedy, ScopeKind
from gpu_recovery.core.gpu_lock import HOLDER, LEASE_S, LEASE_S_MAX, LEASE_S_MIN, OWNER
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus, Origin
from gpu_recovery.core.job.spec import (
    FAMILY,
    GROUP,
    IMAGE,
    NAME,
    NNODES_MAX,
    RESOURCE_MAX,
    SUSPEND_GRACE_S,
    SUSPEND_GRACE_S_MAX,
    Backend,
)
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import ANY
from gpu_recovery.core.queue.snapshot import Shortage
from gpu_recovery.core.task import FailureKind
from gpu_recovery.job_api.redrive import Grave
from gpu_recovery.wire.attempts import AttemptStatus
from gpu_recovery.wire.json_body import BECAUSE_CHARACTERS_MAX

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
YES: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
ANYTHING: Schema = {"type": "object"}


def ref(name: str) -> Schema:
    """The schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def none_or(schema: Schema) -> Schema:
    """The schema, or null."""
    return {"nullable": True, "allOf": [schema]} if "$ref" in schema else {**schema, "nullable": True}


def many(schema: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": schema}


def by_name(schema: Schema) -> Schema:
    """An object with names of its own."""
    return {"type": "object", "additionalProperties": schema}


def one_of(words: Any) -> Schema:
    """A word of an enum."""
    return {"type": "string", "enum": [one.value for one in words]}


def between(least: int, most: int, **more: Any) -> Schema:
    """A whole number."""
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def spelt(pattern: str) -> Schema:
    """A text of a form."""
    return {"type": "string", "pattern": f"^({pattern})$"}


def record(**properties: Schema) -> Schema:
    """An answer's object: every property is always there, and later releases may add some."""
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def wish(needed: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """A request's object: nothing else may be in it."""
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": list(needed)} if needed else made


PRIORITY: Schema = {"type": "string", "enum": [one.name for one in Priority]}
_ANY_PRIORITY: Schema = {
    "oneOf": [PRIORITY, {"type": "integer", "enum": [one.value for one in Priority]}],
    "default": Priority.NORMAL.name,
}
_CONCLUSION = record(
    attempt=WHOLE,
    cause=one_of(Cause),
    where=TEXT,
    instances=many(TEXT),
    remedy=one_of(Remedy),
    confidence=between(0, 100),
    decided=YES,
    sentence=TEXT,
)
_SCOPE = record(kind=one_of(ScopeKind), names=many(TEXT))
_EACH_PRIORITY: Schema = {"type": "string", "enum": [*PRIORITY["enum"], ANY]}
_LINE: Schema = {"type": "string", "maxLength": BECAUSE_CHARACTERS_MAX}
_TEXT_255: Schema = {"type": "string", "maxLength": 255}
_LIFE = {"expires_in_s": between(LIFE_S_MIN, LIFE_S_MAX), "note": {"type": "string", "maxLength": NOTE_MAX}}
_JOB_SPEC = wish(
    ("workload", "nnodes", "n_gpus_per_node"),
    workload=spelt(NAME.pattern),
    nnodes=between(1, NNODES_MAX),
    n_gpus_per_node=between(1, 16),
    task_definition=none_or(spelt(FAMILY.pattern)),
    container=none_or(_TEXT_255),
    command=none_or(many(TEXT)),
    env=none_or(by_name(TEXT)),
    user=none_or(_TEXT_255),
    attempts_max=none_or(between(1, 20)),
    max_runtime_s=none_or(between(60, 7_776_000)),
    priority=_ANY_PRIORITY,
    group=none_or(spelt(GROUP.pattern)),
    suspend_grace_s=none_or(between(1, SUSPEND_GRACE_S_MAX, default=SUSPEND_GRACE_S)),
    checkpoint_dir=none_or({"type": "string", "maxLength": 255}),
    backend=one_of(Backend),
    entrypoint=none_or(TEXT),
    runtime_env=none_or(ANYTHING),
    entrypoint_resources=none_or(by_name(between(1, RESOURCE_MAX))),
    image=none_or(spelt(IMAGE.pattern)),
)
_SUMMARY: dict[str, Schema] = {
    "job_id": TEXT,
    "status": one_of(JobStatus),
    "reason": TEXT,
    "attempt": WHOLE,
    "attempts_counted": WHOLE,
    "attempts_max": WHOLE,
    "workload": TEXT,
    "user": TEXT,
    "group": TEXT,
    "priority": PRIORITY,
    "asked_priority": PRIORITY,
    "backend": one_of(Backend),
    "nnodes": WHOLE,
    "n_gpus_per_node": WHOLE,
    "task_definition": TEXT,
    "origin": one_of(Origin),
    "instances": many(TEXT),
    "repairing": many(TEXT),
    "queued_at": TIME,
    "status_at": TIME,
    "deadline_at": none_or(TIME),
    "incident_id": none_or(TEXT),
    "held": YES,
    "short_of": none_or(TEXT),
    "next_run_at": none_or(TIME),
}
_ATTEMPT = {
    **record(
        attempt=WHOLE,
        attempt_id=TEXT,
        status=one_of(AttemptStatus),
        started_at=none_or(TIME),
        ended_at=none_or(TIME),
        exit_code=none_or(WHOLE),
        failure_kind=none_or(one_of(FailureKind)),
        message=none_or(TEXT),
        counted=none_or(YES),
    ),
}
_ATTEMPT["properties"] |= {"instances": many(TEXT), "submission_id": TEXT}
_FAILURE = record(
    rank=WHOLE,
    instance_id=TEXT,
    at=TIME,
    kind=TEXT,
    exit_code=none_or(WHOLE),
    sentence=TEXT,
)
_FORESIGHT = record(
    would_start=YES,
    instances=many(TEXT),
    short_of=none_or(one_of(Shortage)),
    sentence=TEXT,
    position=none_or(WHOLE),
    blockers=many(TEXT),
    earliest_at=none_or(TIME),
    would_suspend=many(TEXT),
)
_QUEUE = record(
    waiting=many(
        record(
            job_id=TEXT,
            user=TEXT,
            priority=PRIORITY,
            asked_priority=PRIORITY,
            group=TEXT,
            nodes=WHOLE,
            gpus=WHOLE,
            status=none_or(one_of(JobStatus)),
            queued_at=TIME,
            position=none_or(WHOLE),
            short_of=none_or(TEXT),
            sentence=TEXT,
            earliest_at=none_or(TIME),
        )
    ),
    running=many(
        record(
            job_id=TEXT,
            user=TEXT,
            priority=PRIORITY,
            group=TEXT,
            nodes=WHOLE,
            gpus=WHOLE,
            since=TIME,
            ends_at=none_or(TIME),
            can_suspend=YES,
        )
    ),
    quotas=many(record(user=TEXT, priority=_EACH_PRIORITY, group=TEXT, used=WHOLE, limit=none_or(WHOLE))),
    reservations=many(record(job_id=TEXT, group=TEXT, hosts=many(TEXT), at=none_or(TIME))),
    next_cursor=none_or(TEXT),
    unreadable=many(TEXT),
)
_OUTCOME = record(cause=one_of(Cause), where=TEXT, held=none_or(YES), english=TEXT, chinese=TEXT)
_INSTANCE: dict[str, Schema] = {
    "instance_id": TEXT,
    "status": one_of(InstanceStatus),
    "reason": TEXT,
    "agent_connected": YES,
    "ecs_status": TEXT,
    "container_instance_id": TEXT,
    "gpus": WHOLE,
    "claims": by_name(WHOLE),
    "reserved_for": none_or(TEXT),
    "boot_id": none_or(TEXT),
    "booted_at": none_or(TIME),
    "epoch": WHOLE,
    "status_at": TIME,
    "deadline_at": none_or(TIME),
    "incident_id": none_or(TEXT),
    "drained": YES,
    "availability_zone": TEXT,
    "silent_since": none_or(TIME),
    "suspicion": none_or(TEXT),
    "health": by_name(ANYTHING),
    "departure": none_or(ANYTHING),
    "need": none_or(ANYTHING),
    "held": none_or(ANYTHING),
    "lemon": record(score=WHOLE, made_of=none_or(TEXT), signals=by_name(WHOLE)),
}
_TOKEN: dict[str, Schema] = {
    "live": YES,
    "issued_at": TIME,
    "expires_at": TIME,
    "revoked_at": none_or(TIME),
    "issued_by": TEXT,
    "note": TEXT,
}
_NODE_TOKEN: dict[str, Schema] = {"token_id": TEXT, "instance_id": TEXT, **_TOKEN}
_USER_TOKEN: dict[str, Schema] = {"id": TEXT, "user": TEXT, "role": one_of(Role), **_TOKEN}
_LIMIT = none_or({"type": "integer", "minimum": 1})
_LIMITS: dict[str, Schema] = {
    "instances": none_or(by_name({"type": "integer", "minimum": 0})),
    "max_running_jobs": _LIMIT,
    "max_running_jobs_per_user": _LIMIT,
}
_LOCK_OF: dict[str, Schema] = {"job_id": _TEXT_255, "owner": spelt(OWNER.pattern)}
_LEASE: Schema = none_or(between(LEASE_S_MIN, LEASE_S_MAX, default=LEASE_S))
_FENCE: Schema = between(1, 2**53 - 1)
_LETTER = record(queue=one_of(Grave), message_id=TEXT, **{"for": none_or(TEXT)}, kept_because=none_or(TEXT))

SCHEMAS: dict[str, Schema] = {
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": TEXT,
            "title": TEXT,
            "status": WHOLE,
            "detail": TEXT,
            "code": TEXT,
            "field": TEXT,
            "job_id": TEXT,
            "retry_after_s": WHOLE,
            "lock": ANYTHING,
            "errors": many(record(field=TEXT, detail=TEXT)),
        },
    },
    "JobSpec": _JOB_SPEC,
    "JobSummary": record(**_SUMMARY),
    "Jobs": record(jobs=many(ref("JobSummary")), next_cursor=none_or(TEXT), unreadable=many(TEXT)),
    "Job": record(
        **_SUMMARY,
        container=TEXT,
        command=many(TEXT),
        entrypoint=TEXT,
        image=none_or(TEXT),
        max_runtime_s=none_or(WHOLE),
        suspend_grace_s=WHOLE,
        checkpoint_dir=TEXT,
        suspended_for=none_or(TEXT),
        suspended_at=none_or(TIME),
        ran_s=WHOLE,
        attempts_uncounted=by_name(WHOLE),
        diagnosis=none_or(_CONCLUSION),
        failure=none_or(_FAILURE),
        history=many(ref("Decision")),
        attempts=many(ref("Attempt")),
        records=none_or(TEXT),
    ),
    "Decision": record(
        at=TIME,
        **{"from": none_or(TEXT)},
        to=TEXT,
        event=TEXT,
        attempt=WHOLE,
        reason=TEXT,
    ),
    "Attempt": _ATTEMPT,
    "Foresight": _FORESIGHT,
    "JobOrForesight": {"anyOf": [ref("Job"), ref("Foresight")]},
    "Explanation": record(
        job_id=TEXT,
        status=one_of(JobStatus),
        reason=TEXT,
        pending=none_or(ref("Foresight")),
        decisions=many(ref("Decision")),
    ),
    "LogLines": record(
        job_id=TEXT,
        attempt=WHOLE,
        rank=WHOLE,
        lines=many(record(at=none_or(TIME), text=TEXT)),
        next_cursor=none_or(TEXT),
    ),
    "CaseWanted": wish(
        job_id=TEXT,
        attempt=WHOLE,
        reports=many(ANYTHING),
        workers=many(ANYTHING),
        at_s={"type": "number"},
    ),
    "Finding": record(
        row=TEXT,
        cause=none_or(TEXT),
        weight={"type": "number"},
        follows=YES,
        english=TEXT,
        chinese=TEXT,
        evidence=many(TEXT),
    ),
    "Diagnosis": record(
        job_id=none_or(TEXT),
        attempt=none_or(WHOLE),
        cause=one_of(Cause),
        scope=_SCOPE,
        remedy=one_of(Remedy),
        confidence={"type": "number"},
        decided=YES,
        evidence=many(TEXT),
        findings=many(ref("Finding")),
        rivals=many(
            record(
                cause=one_of(Cause),
                scope=_SCOPE,
                confidence={"type": "number"},
                follows=YES,
                evidence=many(TEXT),
            )
        ),
        next_probe=none_or(one_of(Probe)),
        said=many(ref("Finding")),
        more=record(evidence=WHOLE, findings=WHOLE, said=WHOLE),
        version=TEXT,
        page=record(en=TEXT, zh=TEXT),
        unread_logs=by_name(TEXT),
        outcome=none_or(_OUTCOME),
    ),
    "Queue": _QUEUE,
    "Quotas": record(limits=record(**_LIMITS), revision=WHOLE),
    "LimitsWanted": wish(("limits",), limits=wish(**_LIMITS)),
    "InstanceSummary": record(**_INSTANCE),
    "Instances": record(instances=many(ref("InstanceSummary")), next_cursor=none_or(TEXT), unreadable=many(TEXT)),
    "Instance": {
        **record(**_INSTANCE, history=many(ref("Decision"))),
        "description": "heartbeat is there when one instance is read",
    },
    "Because": wish(because=none_or(_LINE)),
    "Why": wish(("because",), because=_LINE),
    "TokenWish": wish(**_LIFE),
    "NodeToken": record(**_NODE_TOKEN),
    "NewNodeToken": record(token=TEXT, **_NODE_TOKEN),
    "NodeTokens": record(instance_id=TEXT, tokens=many(ref("NodeToken"))),
    "UserTokenWish": wish(role=one_of(Role), **_LIFE),
    "UserToken": record(**_USER_TOKEN),
    "NewUserToken": record(token=TEXT, **_USER_TOKEN),
    "UserTokens": record(user=TEXT, tokens=many(ref("UserToken"))),
    "Fleet": record(
        gpu_instances=WHOLE,
        observe_only=YES,
        replace=YES,
        repairing=many(TEXT),
        repairs_at_once_max=WHOLE,
        breaker=ANYTHING,
        deaf=none_or(ANYTHING),
        pause=none_or(ANYTHING),
        held=many(ANYTHING),
        for_a_person=many(ANYTHING),
        unreadable=many(TEXT),
    ),
    "DeadLetters": record(queues=many(record(queue=one_of(Grave), letters=WHOLE, shown=many(_LETTER)))),
    "Redriven": record(letters=many(_LETTER), left=by_name(WHOLE), stopped_because=none_or(TEXT)),
    "Lock": record(
        job_id=TEXT,
        name=TEXT,
        owner=none_or(TEXT),
        token=WHOLE,
        instance_id=none_or(TEXT),
        acquired_at=none_or(TIME),
        expires_at=none_or(TIME),
        has_ended=YES,
    ),
    "LockWish": wish(
        ("job_id", "owner"),
        **_LOCK_OF,
        holder=none_or(spelt(HOLDER.pattern)),
        rank=none_or(between(0, 1_000_000)),
        lease_s=_LEASE,
    ),
    "LockRenewal": wish(("job_id", "owner", "token"), **_LOCK_OF, token=_FENCE, lease_s=_LEASE),
    "LockReturn": wish(("job_id", "owner", "token"), **_LOCK_OF, token=_FENCE),
    "OpenApi": ANYTHING,
}
