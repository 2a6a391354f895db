"""Schemas of the fleet and of the web console's polled routes, as openapi.json describes them."""

from __future__ import annotations

from gpu_recovery.core.fleet import Breaker
from gpu_recovery.core.instance.record import RepairLevel
from gpu_recovery.core.queue.quota import ANY
from gpu_recovery.core.queue.snapshot import OutOfUse
from gpu_recovery.job_api.overview_parts import OverviewPart
from gpu_recovery.job_api.schema_types import (
    BOOLEAN,
    COLUMN,
    INTEGER,
    PRIORITY,
    TEXT,
    TIME,
    Schema,
    by_name,
    list_of,
    none_or,
    one_of,
    ref,
    response_object,
)

_TOTAL = response_object(jobs=INTEGER, instances=INTEGER, gpus=INTEGER)
TOTALS = list_of(response_object(priority=PRIORITY, running=_TOTAL, queued=_TOTAL))
"""Totals of the queue by priority."""
_QUOTA_PRIORITY: Schema = {"type": "string", "enum": [*PRIORITY["enum"], ANY]}
QUOTAS = list_of(response_object(user=TEXT, priority=_QUOTA_PRIORITY, group=TEXT, used=INTEGER, limit=none_or(INTEGER)))
"""Use and limit of each quota."""
OUT_OF_USE = response_object(kind=one_of(OutOfUse), since=none_or(TIME), because=TEXT)
"""A reason why an instance gets no job."""
_BREAKER = response_object(
    state=one_of(Breaker),
    since=none_or(TIME),
    because=none_or(TEXT),
    probe=none_or(TEXT),
    probe_at=none_or(TIME),
    incident_id=none_or(TEXT),
    blamed=by_name(TIME),
    opens_at=INTEGER,
)
_OUTAGE = response_object(since=TIME, because=TEXT, incident_id=TEXT)
_PAUSE = response_object(by=TEXT, because=TEXT, at=TIME)
_HELD = response_object(
    instance_id=TEXT, since=TIME, because=TEXT, rung=none_or(one_of(RepairLevel)), evidence=none_or(TEXT)
)
_FOR_A_PERSON = response_object(instance_id=TEXT, since=TIME, because=TEXT)
_FLEET_TOTALS = response_object(
    instances=INTEGER,
    gpus=INTEGER,
    by_status=by_name(INTEGER),
    silent=INTEGER,
    instances_in_use=INTEGER,
    instances_free=INTEGER,
    gpus_in_use=INTEGER,
    gpus_free=INTEGER,
    gpus_out_of_use=INTEGER,
)

CONSOLE_SCHEMAS: dict[str, Schema] = {
    "Fleet": response_object(
        gpu_instances=INTEGER,
        gpu_instances_counted=BOOLEAN,
        observe_only=BOOLEAN,
        replace=BOOLEAN,
        repairing=list_of(TEXT),
        repairs_at_once_max=INTEGER,
        breaker=_BREAKER,
        deaf=none_or(_OUTAGE),
        pause=none_or(_PAUSE),
        held=list_of(_HELD),
        for_a_person=list_of(_FOR_A_PERSON),
        out_of_use=list_of(response_object(instance_id=TEXT, kind=one_of(OutOfUse), since=none_or(TIME), because=TEXT)),
        out_of_use_more=INTEGER,
        unreadable=list_of(TEXT),
    ),
    "FleetTotals": _FLEET_TOTALS,
    "FleetMap": response_object(
        as_of=none_or(TIME),
        members=none_or(TEXT),
        statuses=list_of(TEXT),
        jobs=list_of(TEXT),
        status=COLUMN,
        flags=COLUMN,
        job=COLUMN,
        status_at=COLUMN,
        utilisation=none_or(COLUMN),
        gpu_history=BOOLEAN,
    ),
    "FleetMembers": response_object(
        as_of=none_or(TIME),
        members=none_or(TEXT),
        ids=list_of(TEXT),
        gpus=COLUMN,
        groups=list_of(TEXT),
        group=COLUMN,
        zones=list_of(TEXT),
        zone=COLUMN,
        racks=list_of(TEXT),
        rack=COLUMN,
    ),
    "FleetLimits": response_object(
        as_of=none_or(TIME), totals=none_or(ref("FleetTotals")), limits=none_or(ref("Fleet"))
    ),
    "Overview": response_object(
        as_of=none_or(TIME),
        queue_as_of=none_or(TIME),
        fleet=none_or(ref("FleetTotals")),
        limits=none_or(
            response_object(
                gpu_instances=INTEGER,
                observe_only=BOOLEAN,
                replace=BOOLEAN,
                repairing=list_of(TEXT),
                repairs_at_once_max=INTEGER,
                breaker=_BREAKER,
                pause=none_or(_PAUSE),
                deaf=none_or(_OUTAGE),
            )
        ),
        held=INTEGER,
        for_a_person=list_of(_FOR_A_PERSON),
        for_a_person_more=INTEGER,
        totals=TOTALS,
        quotas=QUOTAS,
        incidents=list_of(ref("Incident")),
        events=list_of(ref("Event")),
        week=none_or(ref("Figures")),
        dead_letters=none_or(by_name(INTEGER)),
        missing=list_of(one_of(OverviewPart)),
    ),
}
"""Schemas by their names in openapi.json."""
