"""Totals of the queue: jobs, instances and GPUs that run and that wait, by priority.

The totals come from queue entries, which have no histories. Nodes of a Ray cluster count as instances.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.priority import Priority, effective


@frozen_dataclass()
class Total:
    """A number of jobs, with all their instances and GPUs."""

    jobs: int = 0
    instances: int = 0
    gpus: int = 0


@frozen_dataclass()
class PriorityTotals:
    """The jobs of one effective priority. `running`: placed, until they release their GPUs; `queued`: all that wait."""

    priority: Priority
    running: Total = Total()
    queued: Total = Total()


def totals_by_priority(entries: Iterable[Entry], policy: RecoveryPolicy, now: datetime) -> tuple[PriorityTotals, ...]:
    """Return the totals of every priority, the highest first. Each job counts once."""
    counts = {(priority, waits): [0, 0, 0] for priority in Priority for waits in (False, True)}
    for entry in entries:
        count = counts[effective(entry.asked, entry.ran_for_s(now), policy), entry.waits]
        count[0] += 1
        count[1] += entry.width
        count[2] += entry.width * entry.gpus
    return tuple(
        PriorityTotals(priority, Total(*counts[priority, False]), Total(*counts[priority, True]))
        for priority in sorted(Priority, reverse=True)
    )
