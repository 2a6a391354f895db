"""In-flight events: the events that EventBridge has not delivered yet, their queues, and whether they are news."""

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
"""Detail types of the events of ECS."""


@dataclass(frozen=True)
class InFlightEvent:
    """An event in flight.

    Attributes:
        envelope: the EventBridge envelope.
        line: id of the event's instance. The events of an instance wait in a queue of their own.
        words: text of the event in reports.
        about: the event as the product's parser reads it. None for an event of a health source.
    """

    envelope: Envelope
    line: str
    words: str
    about: TaskFact | InstanceObserved | None = None

    def is_held(self, instances: Mapping[str, Instance], progress: Mapping[tuple[str, int], AttemptProgress]) -> bool:
        """Whether the records already contain the content of the event.

        The records then contain the content for ever: versions of ECS rise, the sets of `AttemptProgress` never shrink,
        and a check that has ended never begins again.
        """
        about = self.about
        if isinstance(about, InstanceObserved):
            record = instances[self.line]
            is_same = record.container_instance_id == about.container_instance_id
            return is_same and record.ecs_version >= about.ecs_version
        if about is None:
            return False
        if (checked_instance := instance_of_check(about.started_by)) is not None:
            check = instances[checked_instance].check
            return check is None or check.check_id != about.started_by
        attempt = attempt_of(about.started_by)
        held = progress.get(attempt) if attempt is not None else None
        if held is None:
            return False
        return about.rank in (held.stopped if about.last_status == LastStatus.STOPPED else held.running | held.stopped)


class EventTable:
    """Table of all emitted events. Events with the same content have the same number."""

    def __init__(self, instances: Mapping[str, str]) -> None:
        self._instances = instances
        """Instance id by id of the container instance, the last part of its ARN."""
        self.known: list[InFlightEvent] = []
        self._numbers: dict[tuple[str, ...], int] = {}

    def number(self, envelope: Envelope) -> int:
        """Return the number of the event. The time of emission is not part of the content: no decision reads it."""
        detail, kind = envelope["detail"], envelope["detail-type"]
        content: tuple[str, ...]
        if kind == CONTAINER_INSTANCE:
            free = [item.get("stringSetValue") for item in detail["remainingResources"] if item["name"] == "GPU"]
            values = [str(detail[name]) for name in ("containerInstanceArn", "version", "status", "agentConnected")]
            content = (*values, str(free))
        elif kind == TASK:
            ends = [(item.get("exitCode"), item.get("reason")) for item in detail["containers"]]
            values = [str(detail.get(name)) for name in ("lastStatus", "version", "stopCode", "stoppedReason")]
            identity = (detail["taskArn"], str(detail["startedBy"]), str(detail["overrides"]))
            content = (*identity, str(detail.get("containerInstanceArn")), *values, str(ends))
        else:
            content = (kind, str(envelope["resources"]), str(detail))
        known = self._numbers.get(content)
        if known is None:
            known = self._numbers[content] = len(self.known)
            self.known.append(self._read(envelope))
        return known

    def _read(self, envelope: Envelope) -> InFlightEvent:
        detail, kind = envelope["detail"], envelope["detail-type"]
        if kind == CONTAINER_INSTANCE:
            instance_id, observed = instance_fact(detail, START)
            agent = "" if observed.agent_connected else ", its agent cut off"
            return InFlightEvent(
                envelope,
                instance_id,
                f"{instance_id} is {observed.ecs_status}{agent} (v{observed.ecs_version})",
                observed,
            )
        if kind == TASK:
            fact = task_fact(detail, START)
            subject = f"rank {fact.rank} of {fact.started_by}" if fact.rank is not None else fact.started_by
            return InFlightEvent(
                envelope, self._instances[fact.container_instance_id], f"{subject} is {fact.last_status}", fact
            )
        instance_id = str(envelope["resources"][0]).rsplit("/", 1)[-1]
        return InFlightEvent(envelope, instance_id, f"{kind} of {instance_id}")
