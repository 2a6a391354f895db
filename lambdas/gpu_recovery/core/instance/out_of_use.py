"""Instances out of use: why an instance of the cluster gets no job now, since when, and the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from gpu_recovery.core.identifiers import attempt_id, listed
from gpu_recovery.core.instance.record import IN_USE, EcsStatus, InstanceStatus, ListedInstance
from gpu_recovery.core.queue.snapshot import OutOfUse


@dataclass(frozen=True, slots=True)
class OutOfUseReason:
    """One reason why an instance gets no job: its kind, since when (None if not recorded), and the reason in words."""

    kind: OutOfUse
    since: datetime | None
    sentence: str


def out_of_use_reasons(instance: ListedInstance) -> Iterator[OutOfUseReason]:
    """Yield every reason why the instance gets no job, the gravest first. An instance may have several.

    An instance that left the cluster has none.

    A repair and a quarantine come first. The others are reported by ECS, by health sources and by heartbeats.
    """
    if instance.status is InstanceStatus.GONE:
        return
    if instance.held is not None and instance.status is InstanceStatus.QUARANTINED:
        yield OutOfUseReason(OutOfUse.HELD, instance.held.since, instance.held.sentence)
    elif instance.status is InstanceStatus.QUARANTINED:
        yield OutOfUseReason(OutOfUse.QUARANTINED, instance.status_at, instance.reason)
    elif instance.status is not InstanceStatus.AVAILABLE:
        yield OutOfUseReason(OutOfUse.REPAIR, instance.status_at, instance.reason)
    if instance.ecs_status == EcsStatus.DRAINING and instance.status in IN_USE:
        by = "by gpu-recovery, and not yet ACTIVE again" if instance.drained else "in ECS, not by gpu-recovery"
        yield OutOfUseReason(OutOfUse.DRAINING, None, f"set to DRAINING {by}")
    if orphans := instance.orphaned_ranks:
        ranks = listed(attempt_id(rank.job_id, rank.attempt) for rank in orphans)
        yield OutOfUseReason(OutOfUse.ORPHANED, None, f"{ranks} may still run on it, unknown to ECS")
    for kind, health in sorted(instance.health.items()):
        if health.impairs:
            yield OutOfUseReason(OutOfUse.IMPAIRED, health.since, health.clause(kind))
    if instance.silent_since is not None:
        words = f"the last report of its node agent was at {instance.silent_since:%H:%M:%S} UTC"
        yield OutOfUseReason(OutOfUse.LOST, instance.silent_since, words)
    if instance.departure is not None:
        yield OutOfUseReason(OutOfUse.LEAVING, None, instance.departure.sentence)
    if not instance.agent_connected and instance.status in IN_USE:
        yield OutOfUseReason(OutOfUse.DISCONNECTED, None, "its ECS agent is not connected")
    elif instance.ecs_status not in tuple(EcsStatus):
        yield OutOfUseReason(OutOfUse.DISCONNECTED, None, f"its status in ECS is {instance.ecs_status}")


def out_of_use(instance: ListedInstance) -> OutOfUse | None:
    """Return the gravest reason why the instance gets no job; None if it may get jobs."""
    reason = next(out_of_use_reasons(instance), None)
    return reason.kind if reason is not None else None
