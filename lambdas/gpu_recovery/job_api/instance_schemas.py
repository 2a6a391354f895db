"""Schemas of instances, their checks and gauges, and of users, as openapi.json describes them."""

from __future__ import annotations

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.gpu_history import GAUGES
from gpu_recovery.core.health_signals import DepartureKind, HealthStatus
from gpu_recovery.core.heartbeat import GpuHealth
from gpu_recovery.core.instance.record import RepairLevel
from gpu_recovery.core.liveness import Liveness
from gpu_recovery.job_api.check_state import CheckState
from gpu_recovery.job_api.schema_types import (
    ANY_OBJECT,
    INTEGER,
    TEXT,
    TIME,
    Schema,
    by_name,
    list_of,
    none_or,
    one_of,
    response_object,
)

HEALTH = by_name(response_object(status=one_of(HealthStatus), since=TIME, sentence=TEXT))
DEPARTURE = none_or(response_object(kind=one_of(DepartureKind), leaves_at=TIME, source=TEXT, sentence=TEXT))
NEED = none_or(response_object(rung=one_of(RepairLevel), evidence=TEXT, seen_at=TIME, job_id=none_or(TEXT)))
HELD = none_or(response_object(since=TIME, because=TEXT))
NODE_AGENT = none_or(response_object(seen_at=TIME, liveness=one_of(Liveness)))
_INVENTORY: Schema = {
    "type": "object",
    "properties": {"at": TIME, "agent": TEXT, "driver": none_or(TEXT), "gpus": list_of(ANY_OBJECT)},
    "required": ["at", "gpus"],
}
HEARTBEAT = none_or(
    response_object(
        seen_at=TIME,
        liveness=one_of(Liveness),
        boot_id=none_or(TEXT),
        booted_at=none_or(TIME),
        health=none_or(one_of(GpuHealth)),
        sentence=none_or(TEXT),
        ranks=list_of(response_object(job_id=TEXT, attempt=INTEGER, rank=INTEGER, seen_at=TIME)),
        inventory=none_or(_INVENTORY),
    )
)
_RANGE = response_object(min=list_of(none_or(INTEGER)), max=list_of(none_or(INTEGER)))
INSTANCE_SCHEMAS: dict[str, Schema] = {
    "Checks": response_object(
        instance_id=TEXT,
        total=INTEGER,
        checks=list_of(
            response_object(
                check_id=TEXT,
                number=INTEGER,
                state=one_of(CheckState),
                job_id=none_or(TEXT),
                refused=none_or(TEXT),
                outcome=none_or(TEXT),
                summary=none_or(TEXT),
                level=none_or(INTEGER),
                started_at=none_or(TEXT),
                ended_at=none_or(TEXT),
            )
        ),
        next_cursor=none_or(TEXT),
    ),
    "Check": response_object(check_id=TEXT, document=ANY_OBJECT),
    "Gauges": response_object(
        instance_id=TEXT,
        **{"from": TIME},
        to=TIME,
        at=list_of(TIME),
        gpus=list_of(response_object(gpu=INTEGER, **dict.fromkeys(GAUGES, _RANGE))),
    ),
    "Users": response_object(
        users=list_of(
            response_object(
                user=TEXT,
                roles=list_of(one_of(Role)),
                live_tokens=INTEGER,
                next_end=none_or(TIME),
                last_issued_at=none_or(TIME),
            )
        ),
        next_cursor=none_or(TEXT),
    ),
}
"""Schemas by their names in openapi.json."""
