"""The decision log: an interface for logs, metrics and transcripts of decisions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import Decision

if TYPE_CHECKING:
    from gpu_recovery.core.console_snapshots import SnapshotName
    from gpu_recovery.core.queue.totals import PriorityTotals


class DecisionLog(Protocol):
    """Receives each decision: the log of a function, or the transcript of a simulation."""

    def job_created(self, decision: Decision[Job]) -> None:
        """Log a new job. The job is saved."""

    def decided(self, record: Job | Instance, event: Any, decision: Decision[Any]) -> None:
        """Log a decision about `record`. A decision that changes the record is saved.

        A decision is logged once, however often its save was refused and repeated.

        Args:
            record: the record before the decision.
        """

    def record_due(self, record: Job | Instance, now: datetime) -> None:
        """Log that the reconciler processes a due record."""

    def fleet_checked(self, fleet: Fleet, now: datetime) -> None:
        """Log the fleet limits. The reconciler calls this in each cycle."""

    def queue_checked(self, totals: Iterable[PriorityTotals]) -> None:
        """Log the totals of the queue. The reconciler calls this in each cycle."""

    def notified(self, record: Job | Instance, command: Any, failure: Exception | None) -> None:
        """Log that a notification was sent. `failure` says why it was not sent; None if it was."""

    def placement_failed(self, failure: Exception) -> None:
        """Log that the scheduler could not deliver an event to a job, or that a command of the job failed.

        The error is not raised, because it would block the messages about all other jobs.
        """

    def snapshot_failed(self, name: SnapshotName, failure: Exception) -> None:
        """Log that a console snapshot could not be written. Nothing but the web console reads it."""

    def unknown_record(self, record_id: str, event: Any) -> None:
        """Log an event about a record that does not exist."""
