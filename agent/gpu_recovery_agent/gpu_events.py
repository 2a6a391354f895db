"""GPU Operational Events that wait for a report. A preview: they are reported beside the XIDs and decide nothing."""

from __future__ import annotations

from typing import Any

from gpu_recovery_agent.log import AgentLog

EVENTS_MAX = 32
"""Largest number of events in a report, and of events that wait; the oldest are dropped first."""
FIELDS = ("code", "category", "severity", "attributes", "group_attributes")


class GpuEventQueue:
    """Holds the events of the readings until the server has them."""

    def __init__(self, log: AgentLog) -> None:
        self._log = log
        self._last: object = None
        self._waiting: list[dict[str, Any]] = []
        self._is_read = False

    @property
    def batch(self) -> tuple[dict[str, Any], ...] | None:
        """Return the events of the next report, the oldest first. None: no driver gives them, or they are not read."""
        return tuple(self._waiting) if self._waiting or self._is_read else None

    def add(self, reading: dict[str, Any] | None) -> bool:
        """Take the events of a reading of NVML; return whether there are new ones. The same reading counts once.

        `reading` is None while NVML does not answer.
        """
        found = (reading or {}).get("gpu_events")
        if reading is not None and reading is self._last:
            return False
        if not isinstance(found, dict):
            self._is_read = False
            return False
        self._last = reading
        trouble = found.get("trouble")
        self._is_read = trouble is None
        if isinstance(trouble, str):
            self._log.once("gpu events", trouble)
        events = found.get("events")
        added = [event for event in events if _is_whole(event)] if isinstance(events, list) else []
        self._waiting = [*self._waiting, *added][-EVENTS_MAX:]
        return bool(added)

    def acknowledge(self, sent: tuple[dict[str, Any], ...] | None) -> None:
        """Remove the events that the server has, or has refused."""
        self._waiting = [event for event in self._waiting if not any(event is one for one in sent or ())]


def _is_whole(event: Any) -> bool:
    return isinstance(event, dict) and all(type(event.get(name)) is int for name in FIELDS)
