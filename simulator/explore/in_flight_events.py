"""The events that EventBridge carries: which there are, in whose line each waits, and whether it is still news."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_recovery.aws.ecs_events import instance_fact, task_fact
from gpu_recovery.core.attempt import AttemptProgress
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.identifiers import attempt_of, instance_of_check
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.task import LastStatus, TaskFact

from simulator.virtual_clock import START

Envelope = Mapping[str, Any]
TASK, CONTAINER_INSTANCE = "ECS Task State Change", "ECS Container Instance State Change"


@dataclass(frozen=True)
class InFlightEvent:
    """One event. `about` is what the product's own parser makes of it, None for the watchers' events."""

    envelope: Envelope
    line: str
    """The instance it is about: events of one instance wait in one line."""
    words: str
    about: TaskFact | InstanceObserved | None = None

    def is_held(self, instances: Mapping[str, Instance], progress: Mapping[tuple[str, int], AttemptProgress]) -> bool:
        """Whether the records hold what it says. What they hold then stays: ECS's versions rise, the sets of an
        attempt's progress never shrink, and a check that is over never begins again."""
        about = self.about
        if isinstance(about, InstanceObserved):
            record = instances[self.line]
            is_same = record.container_instance_id == about.container_instance_id
            return is_same and record.ecs_version >= about.ecs_version
        if about is None:
            return False
        if (checked := instance_of_check(about.started_by)) is not None:
            run = instances[checked].check
            return run is None or run.check_id != about.started_by
        named = attempt_of(about.started_by)
        known = progress.get(named) if named is not None else None
        if known is None:
            return False
        return about.rank in (
            known.stopped if about.last_status == LastStatus.STOPPED else known.running | known.stopped
        )


class EventTable:
    """Every event that was ever emitted, each by a number: what says the same has the same."""

    def __init__(self, instances: Mapping[str, str]) -> None:
        self._instances = instances
        """The instance of each container instance, by the last part of its ARN."""
        self.known: list[InFlightEvent] = []
        self._numbers: dict[tuple[str, ...], int] = {}

    def number(self, envelope: Envelope) -> int:
        """The number of the event. When it was emitted is not part of what it says: nothing is decided by that."""
        detail, kind = envelope["detail"], envelope["detail-type"]
        says: tuple[str, ...]
        if kind == CONTAINER_INSTANCE:
            free = [one.get("stringSetValue") for one in detail["remainingResources"] if one["name"] == "GPU"]
            told = [str(detail[name]) for name in ("containerInstanceArn", "version", "status", "agentConnected")]
            says = (*told, str(free))
        elif kind == TASK:
            ends = [(one.get("exitCode"), one.get("reason")) for one in detail["containers"]]
            told = [str(detail.get(name)) for name in ("lastStatus", "version", "stopCode", "stoppedReason")]
            says = (detail["taskArn"], *told, str(ends))
        else:
            says = (kind, str(envelope["resources"]), str(detail))
        known = self._numbers.get(says)
        if known is None:
            known = self._numbers[says] = len(self.known)
            self.known.append(self._read(envelope))
        return known

    def _read(self, envelope: Envelope) -> InFlightEvent:
        detail, kind = envelope["detail"], envelope["detail-type"]
        if kind == CONTAINER_INSTANCE:
            instance_id, seen = instance_fact(detail, START)
            agent = "" if seen.agent_connected else ", its agent cut off"
            return InFlightEvent(
                envelope, instance_id, f"{instance_id} is {seen.ecs_status}{agent} (v{seen.ecs_version})", seen
            )
        if kind == TASK:
            fact = task_fact(detail, START)
            who = f"rank {fact.rank} of {fact.started_by}" if fact.rank is not None else fact.started_by
            return InFlightEvent(
                envelope, self._instances[fact.container_instance_id], f"{who} is {fact.last_status}", fact
            )
        instance_id = str(envelope["resources"][0]).rsplit("/", 1)[-1]
        return InFlightEvent(envelope, instance_id, f"{kind} of {instance_id}")
