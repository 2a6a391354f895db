"""Fleet limits as API clients see them: repair budget, circuit breaker, pause, and held repairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpu_recovery.core.fleet import Fleet, breaker_limit, budget, probe_at
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.wire.json_body import time_text


def fleet_view(
    fleet: Fleet, policy: RecoveryPolicy, quarantined: Iterable[Instance], unreadable: Iterable[Exception]
) -> dict[str, Any]:
    """Return the fleet limits and the quarantined instances that wait: for the limits, for jobs, or for an operator.

    Args:
        unreadable: errors of records that could not be read and may be quarantined too.
    """
    waiting = sorted(quarantined, key=lambda instance: instance.instance_id)
    return {
        "gpu_instances": fleet.gpu_instances,
        "observe_only": policy.observe_only,
        "replace": policy.replace,
        "repairing": sorted(fleet.repairing),
        "repairs_at_once_max": budget(fleet, policy),
        "breaker": {
            "state": fleet.breaker.value,
            "since": time_text(fleet.opened_at),
            "because": fleet.opened_because or None,
            "probe": fleet.probe or None,
            "probe_at": time_text(probe_at(fleet, policy)),
            "incident_id": fleet.incident_id or None,
            "blamed": {instance_id: time_text(at) for instance_id, at in sorted(fleet.blamed.items())},
            "opens_at": breaker_limit(fleet, policy),
        },
        "deaf": None
        if fleet.deaf is None
        else {
            "since": time_text(fleet.deaf.since),
            "because": fleet.deaf.sentence,
            "incident_id": fleet.deaf.incident_id,
        },
        "pause": None
        if fleet.pause is None
        else {
            "by": fleet.pause.by,
            "because": fleet.pause.because,
            "at": time_text(fleet.pause.at),
        },
        "held": [
            {
                "instance_id": instance.instance_id,
                "since": time_text(instance.held.since),
                "because": instance.held.sentence,
                "rung": instance.need.rung.value if instance.need else None,
                "evidence": instance.need.evidence if instance.need else None,
            }
            for instance in waiting
            if instance.held is not None
        ],
        "for_a_person": [
            {"instance_id": instance.instance_id, "since": time_text(instance.status_at), "because": instance.reason}
            for instance in waiting
            if instance.held is None
        ],
        "unreadable": [str(error) for error in unreadable],
    }
