"""Decision log on Powertools: one structured log line for each decision, and its metrics.

A line gives the same reason as the history, the e-mail and the command line. The metrics are written into the same log
in CloudWatch's embedded metric format.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics

from gpu_recovery.core import metrics as measures
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import Decision

if TYPE_CHECKING:
    from gpu_recovery.core.console_snapshots import SnapshotName
    from gpu_recovery.core.queue.totals import PriorityTotals


class PowertoolsDecisionLog:
    """`ports.DecisionLog` on Powertools' logger and metrics. The handler's `log_metrics` flushes the metrics."""

    def __init__(self, logger: Logger, metrics: Metrics) -> None:
        self.logger, self.metrics = logger, metrics
        # Events are delivered to records in parallel threads, and Powertools' metrics support one thread only. Without
        # the lock they would lose values, or raise between a save and its commands.
        self._measuring = Lock()

    def job_created(self, decision: Decision[Job]) -> None:
        """Log a new job. The job is saved."""
        record = decision.record
        self.logger.info(
            "job_created", extra={"job_id": record.job_id, "after": record.status.value, "reason": decision.reason}
        )
        self._measure(measures.of_decision(None, decision))

    def decided(self, record: Job | Instance, event: Any, decision: Decision[Any]) -> None:
        """Log a decision; `record` is the record before it. A decision that changes the record is saved."""
        kind, name = _ids_of(record)
        self.logger.info(
            f"{kind}_decided",
            extra={
                f"{kind}_id": name,
                "event_type": type(event).__name__,
                "outcome": decision.outcome.value,
                "before": record.status.value,
                "after": decision.record.status.value,
                "reason": decision.reason,
                "attempt": getattr(record, "attempt", None),
                "version": decision.record.version,
                "incident_id": decision.record.incident_id or record.incident_id or None,
            },
        )
        # Revision 0 means that the record is new: its first status counts as entered.
        self._measure(measures.of_decision(record if record.revision else None, decision))

    def record_due(self, record: Job | Instance, now: datetime) -> None:
        """Measure a due record that the reconciler processes: seconds overdue, and the age of its incident."""
        self._measure(measures.of_due_record(record, now))

    def fleet_checked(self, fleet: Fleet, now: datetime) -> None:
        """Measure the fleet limits. The reconciler calls this in each cycle."""
        self._measure(measures.of_fleet(fleet, now))

    def queue_checked(self, totals: Iterable[PriorityTotals]) -> None:
        """Measure the totals of the queue. The reconciler calls this in each cycle."""
        self._measure(measures.of_queue(totals))

    def notified(self, record: Job | Instance, command: Any, failure: Exception | None) -> None:
        """Count a notification. If it was not sent, log the `failure`."""
        if failure is not None:
            kind, name = _ids_of(record)
            self.logger.error(
                "word_unsaid",
                extra={f"{kind}_id": name, "command": type(command).__name__, "failure": type(failure).__name__},
            )
        self._measure(measures.of_notification(command, failure is None))

    def placement_failed(self, failure: Exception) -> None:
        """Log the failure with its traceback, and count it for the alarm on errors of the scheduler."""
        self.logger.error("placement_failed", exc_info=failure)
        self._measure(measures.of_failed_placement())

    def snapshot_failed(self, name: SnapshotName, failure: Exception) -> None:
        """Log the failure with its traceback, and count it."""
        self.logger.error("snapshot_failed", extra={"snapshot": name.value}, exc_info=failure)
        self._measure(measures.of_failed_snapshot())

    def gpu_sample_failed(self, failure: Exception) -> None:
        """Log that a sample of the GPU history could not be written, and count it."""
        self.logger.warning("gpu_history_failed", exc_info=failure)
        self._measure(measures.of_failed_gpu_sample())

    def unknown_record(self, record_id: str, event: Any) -> None:
        """Log an event about a record that does not exist."""
        self.logger.warning("record_unknown", extra={"record_id": record_id, "event_type": type(event).__name__})

    def _measure(self, values: Iterable[measures.MetricValue]) -> None:
        with self._measuring:
            for metric in values:
                self.metrics.add_metric(metric.name, metric.unit.value, metric.value)


def _ids_of(record: Job | Instance) -> tuple[str, str]:
    if isinstance(record, Job):
        return "job", record.job_id
    return "instance", record.instance_id
