"""Warns of a worker with little GPU memory or an overloaded CPU when its report is received.

Row 39 of the fault catalogue, docs/diagnosis.md. Workers report every 10 s, so a condition is logged once while it
lasts. The memory of that belongs to the function's process: another process may log the condition again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.core.diagnosis.observations import Observation, WorkerHealth
from gpu_recovery.core.diagnosis.thresholds import Thresholds

KNOWN_MAX = 10_000
"""Largest number of workers with a condition that are remembered."""
Warn = Callable[..., Any]
"""Logs a warning: its name, and as `extra` its sentence and the fields that say where the worker is."""


def log_nothing(name: str, *, extra: Mapping[str, Any]) -> None:
    """Log no warning."""


@dataclass
class HealthWarnings:
    """Logs the start of each condition with `warn`."""

    warn: Warn = log_nothing
    thresholds: Thresholds = field(default_factory=Thresholds)
    _known: set[tuple[str, str, str]] = field(default_factory=set)

    def receive(self, job_id: str, instance_id: str, reports: Iterable[Observation]) -> None:
        """Log the conditions that begin with these observations of one instance, the oldest first."""
        for report in reports:
            if isinstance(report, WorkerHealth):
                for name, lasts in self._conditions(report).items():
                    self._note((job_id, f"{instance_id}/{report.reporter}", name), lasts, report, instance_id)

    def _conditions(self, health: WorkerHealth) -> dict[str, bool]:
        free, busy = health.memory_free_gb, health.cpu_percent
        low = {} if free is None else {"GPU memory low": free < self.thresholds.memory_low_gb}
        return low | ({} if busy is None else {"CPU overload": busy > self.thresholds.cpu_overload_percent})

    def _note(self, key: tuple[str, str, str], lasts: bool, health: WorkerHealth, instance_id: str) -> None:
        if not lasts:
            self._known.discard(key)
        elif key not in self._known:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known.add(key)
            values = {"memory_free_gb": health.memory_free_gb, "cpu_percent": health.cpu_percent}
            where = {"job_id": key[0], "instance_id": instance_id, "worker": health.reporter, **values}
            self.warn("worker_health", extra={"sentence": f"Worker {health.reporter} {key[2]}", **where})
