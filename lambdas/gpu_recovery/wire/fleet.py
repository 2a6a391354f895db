"""The fleet limits as clients of the API see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpu_recovery.core.fleet import Fleet, breaker_limit, budget
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.policy import RecoveryPolicy, within
from gpu_recovery.wire.json_body import time_text


def fleet_view(
    fleet: Fleet, policy: RecoveryPolicy, quarantined: Iterable[Instance], unreadable: Iterable[Exception]
) -> dict[str, Any]:
    """The brakes as they stand, and the instances that wait: for the brakes, for jobs to leave, for a person.

    unreadable: what is wrong with those instances that may be among them and cannot be read.
    """
    probe_at = fleet.opened_at + within(policy.breaker_probe_s) if fleet.opened_at and not fleet.probe else None
    waiting = sorted(quarantined, key=lambda one: one.instance_id)
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
            "probe_at": time_text(probe_at),
            "incident_id": fleet.incident_id or None,
            "blamed": {one: time_text(at) for one, at in sorted(fleet.blamed.items())},
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
                "instance_id": one.instance_id,
                "since": time_text(one.held.since),
                "because": one.held.sentence,
                "rung": one.need.rung.value if one.need else None,
                "evidence": one.need.evidence if one.need else None,
            }
            for one in waiting
            if one.held is not None
        ],
        "for_a_person": [
            {"instance_id": one.instance_id, "since": time_text(one.status_at), "because": one.reason}
            for one in waiting
            if one.held is None
        ],
        "unreadable": [str(error) for error in unreadable],
    }
