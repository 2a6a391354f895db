"""GPU Operational Events of NVIDIA drivers since R615: what they would have decided, beside the XIDs. A preview.

NVIDIA calls the events a preview: "Legacy Xid output remains the stable contract" (docs.nvidia.com/deploy/
gpu-operational-events). So no decision reads them. An instance only records in one sentence whether they would have
decided otherwise. Numbers of severities and attributes are those of nvidia-ml-py 13.615.71.

NVIDIA names no action for an event. The rules here are those of this project:

- An event of a simulated group does not count.
- If an event is marked as primary, only primary events count. A propagated event is the echo of another event.
- An event of a recovered group, and an event of severity CORRECTED or INFORMATIONAL, is only watched.
- Every other event has the class of its XID. An event without an XID needs a health check.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum, IntFlag

from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.xid import XidClass, XidProfile, class_of

EVENTS_MAX = 32
"""Largest number of events in a report."""
EVENTS_NAMED_MAX = 3
"""Events that a sentence names at most."""
MODULE_CHARACTERS_MAX = 16
"""`sourceModule` of NVML has 16 bytes."""


class EventSeverity(IntEnum):
    """Severity of an event (`NVML_OPERATIONAL_EVENT_SEVERITY_*`)."""

    INFORMATIONAL = 10
    CORRECTED = 20
    RECOVERABLE = 30
    FATAL = 40


class EventAttribute(IntFlag):
    """Attributes of an event (`NVML_OPERATIONAL_EVENT_ATTR_*`)."""

    UNCONTAINED = 1
    LATENT = 2
    PROPAGATED = 4
    COMPONENT_RESET = 8
    THRESHOLD_EXCEEDED = 16
    PRIMARY = 32
    OVERFLOW = 64


class GroupAttribute(IntFlag):
    """Attributes of the group of an event (`NVML_OPERATIONAL_EVENT_GROUP_ATTR_*`)."""

    RECOVERED = 1
    PREVERR = 2
    SIMULATED = 4


@frozen_dataclass()
class GpuEvent:
    """One GPU Operational Event, as the node agent reports it.

    gpu:              UUID of the GPU, "" if unknown.
    module:           module that reported it, such as GPU-RAS.
    code:             code of the event within its module.
    category:         number of its category. The list of categories may change between driver releases.
    severity:         its severity, by number.
    attributes:       its attributes, as a bit field.
    group_attributes: the attributes of its group, as a bit field.
    xid:              the XID that the driver logs for the same occurrence; None if there is none.
    """

    gpu: str
    module: str
    code: int
    category: int
    severity: int
    attributes: int = 0
    group_attributes: int = 0
    xid: int | None = None

    @property
    def text(self) -> str:
        """The event in words. It names no XID, so that nobody takes it for the report of an XID."""
        severity = next((known.name for known in EventSeverity if known == self.severity), str(self.severity))
        marks = [flag.name or "" for flag in EventAttribute if self.attributes & flag]
        marks += [f"group {flag.name}" for flag in GroupAttribute if self.group_attributes & flag]
        return f"{self.module} {self.code:#06x} {severity}{' ' if marks else ''}{', '.join(marks).lower()}"


def class_by_events(events: Sequence[GpuEvent], profile: XidProfile) -> XidClass:
    """Return the gravest class that the events ask for; IGNORE without an event that counts.

    Args:
        events: the events of one occurrence.
        profile: source of the classification of XIDs.
    """
    counted = [event for event in events if not event.group_attributes & GroupAttribute.SIMULATED]
    primary = [event for event in counted if event.attributes & EventAttribute.PRIMARY]
    return _gravest([_class_of_event(event, profile) for event in primary or counted])


def _class_of_event(event: GpuEvent, profile: XidProfile) -> XidClass:
    if event.attributes & EventAttribute.PROPAGATED and not event.attributes & EventAttribute.PRIMARY:
        return XidClass.FOLLOW_OTHER
    if event.group_attributes & GroupAttribute.RECOVERED or event.severity < EventSeverity.RECOVERABLE:
        return XidClass.WATCH
    return XidClass.DIAG if event.xid is None else class_of(event.xid, profile)


def _gravest(classes: Collection[XidClass]) -> XidClass:
    order = list(XidClass)
    return max(classes, key=order.index, default=XidClass.IGNORE)


_DECISIONS = {
    XidClass.CONFIG: "a health check",
    XidClass.DIAG: "a health check",
    XidClass.REBOOT: "a health check and a reboot",
    XidClass.REPLACE: "a health check and a replacement",
}
"""Decisions by class. Every other class decides nothing."""


def comparison(events: Sequence[GpuEvent], xids: Collection[int], profile: XidProfile) -> str:
    """Return in one sentence what the events would have decided, and whether the XIDs decide the same.

    It is "" if neither decides anything.

    Args:
        events: the events of one occurrence.
        xids: the XIDs that are known of the instance. The XIDs of the events are added.
        profile: source of the classification of XIDs.
    """
    named = {*xids, *(event.xid for event in events if event.xid is not None)}
    by_xids = _DECISIONS.get(_gravest([class_of(xid, profile) for xid in named]), "")
    by_events = _DECISIONS.get(class_by_events(events, profile), "")
    if not by_xids and not by_events:
        return ""
    would = f"GPU Operational Events (preview) would have decided {by_events or 'nothing'}"
    if by_events == by_xids:
        return f"{would}, as the XIDs do"
    return f"{would}; the XIDs decide {by_xids or 'nothing'}, and the XIDs count"


def missing_events(found: str) -> str:
    """Return in one sentence that no event was read before a check found a fault, which is named by `found`."""
    return (
        f"no GPU Operational Event (preview) was read: the events would have decided nothing; the check found {found}"
    )


def named_events(events: Sequence[GpuEvent]) -> str:
    """Return the first events in words, and how many more there are."""
    texts = list(dict.fromkeys(event.text for event in events))
    more = f" and {len(texts) - EVENTS_NAMED_MAX} more" if len(texts) > EVENTS_NAMED_MAX else ""
    return "; ".join(texts[:EVENTS_NAMED_MAX]) + more
