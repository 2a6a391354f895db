"""Schemas of request bodies, as openapi.json describes them."""

from __future__ import annotations

from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.sessions import LIFETIME_S_MAX as SESSION_S_MAX
from gpu_recovery.auth.sessions import LIFETIME_S_MIN as SESSION_S_MIN
from gpu_recovery.auth.tokens import LIFETIME_S_MAX, LIFETIME_S_MIN, NOTE_MAX
from gpu_recovery.core.gpu_lock import HOLDER, LEASE_S, LEASE_S_MAX, LEASE_S_MIN, OWNER
from gpu_recovery.core.job import verl_template
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
from gpu_recovery.job_api.schema_types import (
    ANY_OBJECT,
    INTEGER,
    LIMITS,
    PRIORITY,
    TEXT,
    Schema,
    between,
    by_name,
    list_of,
    none_or,
    one_of,
    request_object,
    text_like,
)
from gpu_recovery.wire.json_body import BECAUSE_CHARACTERS_MAX

_ANY_PRIORITY: Schema = {
    "oneOf": [PRIORITY, {"type": "integer", "enum": [priority.value for priority in Priority]}],
    "default": Priority.NORMAL.name,
}
_REASON: Schema = {"type": "string", "maxLength": BECAUSE_CHARACTERS_MAX}
_TEXT_255: Schema = {"type": "string", "maxLength": 255}
_TOKEN_LIFETIME = {
    "expires_in_s": between(LIFETIME_S_MIN, LIFETIME_S_MAX),
    "note": {"type": "string", "maxLength": NOTE_MAX},
}
_JOB_SPEC = request_object(
    ("workload", "nnodes", "n_gpus_per_node"),
    workload=text_like(NAME.pattern),
    nnodes=between(1, NNODES_MAX),
    n_gpus_per_node=between(1, 16),
    task_definition=none_or(text_like(FAMILY.pattern)),
    container=none_or(_TEXT_255),
    command=none_or(list_of(TEXT)),
    env=none_or(by_name(TEXT)),
    user=none_or(_TEXT_255),
    attempts_max=none_or(between(1, 20)),
    max_runtime_s=none_or(between(60, 7_776_000)),
    priority=_ANY_PRIORITY,
    group=none_or(text_like(GROUP.pattern)),
    suspend_grace_s=none_or(between(1, SUSPEND_GRACE_S_MAX, default=SUSPEND_GRACE_S)),
    checkpoint_dir=none_or({"type": "string", "maxLength": 255}),
    backend=one_of(Backend),
    entrypoint=none_or(TEXT),
    runtime_env=none_or(ANY_OBJECT),
    entrypoint_resources=none_or(by_name(between(1, RESOURCE_MAX))),
    image=none_or(text_like(IMAGE.pattern)),
    template=none_or({"type": "string", "enum": [verl_template.VERL]}),
    code_path=none_or(text_like(verl_template.PLACE.pattern)),
    model_id=none_or(text_like(verl_template.PLACE.pattern)),
    train_file=none_or(text_like(verl_template.PLACE.pattern)),
    val_file=none_or(text_like(verl_template.PLACE.pattern)),
    **{name: none_or(between(least, verl_template.NUMBER_MAX)) for name, least in verl_template.NUMBERS.items()},
    overrides=none_or(list_of(text_like(verl_template.OVERRIDE.pattern))),
)
_LOCK_OWNER: dict[str, Schema] = {"job_id": _TEXT_255, "owner": text_like(OWNER.pattern)}
_LEASE: Schema = none_or(between(LEASE_S_MIN, LEASE_S_MAX, default=LEASE_S))
_FENCING_TOKEN: Schema = between(1, 2**53 - 1)

REQUEST_SCHEMAS: dict[str, Schema] = {
    "JobSpec": _JOB_SPEC,
    "CaseWanted": request_object(
        job_id=TEXT,
        attempt=INTEGER,
        reports=list_of(ANY_OBJECT),
        workers=list_of(ANY_OBJECT),
        at_s={"type": "number"},
        log=TEXT,
        name=_TEXT_255,
    ),
    "LimitsWanted": request_object(("limits",), limits=request_object(**LIMITS)),
    "Because": request_object(because=none_or(_REASON)),
    "Why": request_object(("because",), because=_REASON),
    "TokenWish": request_object(**_TOKEN_LIFETIME),
    "UserTokenWish": request_object(role=one_of(Role), **_TOKEN_LIFETIME),
    "SessionWish": request_object(role=one_of(Role), expires_in_s=between(SESSION_S_MIN, SESSION_S_MAX)),
    "LockWish": request_object(
        ("job_id", "owner"),
        **_LOCK_OWNER,
        holder=none_or(text_like(HOLDER.pattern)),
        rank=none_or(between(0, 1_000_000)),
        lease_s=_LEASE,
    ),
    "LockRenewal": request_object(("job_id", "owner", "token"), **_LOCK_OWNER, token=_FENCING_TOKEN, lease_s=_LEASE),
    "LockReturn": request_object(("job_id", "owner", "token"), **_LOCK_OWNER, token=_FENCING_TOKEN),
}
"""Schemas of request bodies by their names in openapi.json."""
