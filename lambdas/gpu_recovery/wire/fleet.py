"""Fleet limits as API clients see them: repair budget, circuit breaker, pause, and held repairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpu_recovery.core.fleet import Fleet, breaker_limit, budget, probe_at
from gpu_recovery.core.instance.out_of_use import out_of_use_reasons
from gpu_recovery.core.instance.record import InstanceStatus, ListedInstance
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.wire.instances import out_of_use_view, quarantined_by
from gpu_recovery.wire.json_body import time_text

OUT_OF_USE_MAX = 2_000
"""Upper bound of the reasons in an answer. Each has at most about 600 bytes, and Lambda answers with at most 6 MB."""


def fleet_view(
    fleet: Fleet, policy: RecoveryPolicy, instances: Iterable[ListedInstance], unreadable: Iterable[Exception]
) -> dict[str, Any]:
    """Return the fleet limits, the quarantined instances, and every reason why an instance gets no job.

    Quarantined instances wait for the limits, for jobs, or for an operator.

    Args:
        instances: the instances of the cluster.
        unreadable: errors of records that could not be read and may be out of use too.
    """
    ordered = sorted(instances, key=lambda instance: instance.instance_id)
    waiting = [instance for instance in ordered if instance.status is InstanceStatus.QUARANTINED]
    reasons = [(instance, reason) for instance in ordered for reason in out_of_use_reasons(instance)]
    return {
        "gpu_instances": fleet.gpu_instances,
        "gpu_instances_counted": fleet.is_counted,
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
        "for_a_person": [_for_operator_view(instance) for instance in waiting if instance.held is None],
        "out_of_use": [
            {"instance_id": instance.instance_id, **out_of_use_view(reason)}
            for instance, reason in reasons[:OUT_OF_USE_MAX]
        ],
        "out_of_use_more": max(0, len(reasons) - OUT_OF_USE_MAX),
        "unreadable": [str(error) for error in unreadable],
    }


def _for_operator_view(instance: ListedInstance) -> dict[str, Any]:
    """Return an instance that only an operator returns to work."""
    return {
        "instance_id": instance.instance_id,
        "since": time_text(instance.status_at),
        "because": instance.reason,
        "quarantined_by": quarantined_by(instance),
    }
