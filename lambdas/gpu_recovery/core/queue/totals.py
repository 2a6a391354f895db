"""Totals of the queue: jobs, instances and GPUs that run and that wait, by priority.

The totals come from queue entries, which have no histories. Nodes of a Ray cluster count as instances.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.priority import Priority, effective


@dataclass(frozen=True, slots=True)
class Total:
    """A number of jobs, with all their instances and GPUs."""

    jobs: int = 0
    instances: int = 0
    gpus: int = 0

    def plus(self, entry: Entry) -> Total:
        """Return the total with one more job."""
        return Total(self.jobs + 1, self.instances + entry.nodes, self.gpus + entry.nodes * entry.gpus)


@dataclass(frozen=True, slots=True)
class PriorityTotals:
    """The jobs of one effective priority. `running`: placed, until they release their GPUs; `queued`: all that wait."""

    priority: Priority
    running: Total = Total()
    queued: Total = Total()


def totals_by_priority(entries: Iterable[Entry], policy: RecoveryPolicy, now: datetime) -> tuple[PriorityTotals, ...]:
    """Return the totals of every priority, the highest first. Each job counts once."""
    running = dict.fromkeys(Priority, Total())
    queued = dict.fromkeys(Priority, Total())
    for entry in entries:
        totals = queued if entry.waits else running
        priority = effective(entry.asked, entry.ran_for_s(now), policy)
        totals[priority] = totals[priority].plus(entry)
    return tuple(
        PriorityTotals(priority, running[priority], queued[priority]) for priority in sorted(Priority, reverse=True)
    )
