"""Decisions in the log, one structured line each, with the same reason that history, e-mail and command line give; and
what they measure, as metrics in the same log (CloudWatch's embedded metric format)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from threading import Lock
from typing import Any

from aws_lambda_powertools import Logger, Metrics

from gpu_recovery.core import metrics as measures
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import Decision


class PowertoolsDecisionLog:
    """`recovery.Journal` on Powertools' logger and metrics. The handler's `log_metrics` writes the metrics out."""

    def __init__(self, logger: Logger, metrics: Metrics) -> None:
        self.logger, self.metrics = logger, metrics
        # Records are told in parallel, and Powertools' metrics are made for one thread: it would lose values, or raise
        # between a save and its commands.
        self._measuring = Lock()

    def job_created(self, decision: Decision[Job]) -> None:
        """A new job is kept."""
        record = decision.record
        self.logger.info(
            "job_created", extra={"job_id": record.job_id, "after": record.status.value, "reason": decision.reason}
        )
        self._measure(measures.of_decision(None, decision))

    def decided(self, record: Job | Instance, event: Any, decision: Decision[Any]) -> None:
        """`decision` about `record` is taken, and kept if it changes anything."""
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
        # A record that no store has written yet is a new one: its first status counts as entered.
        self._measure(measures.of_decision(record if record.revision else None, decision))

    def record_due(self, record: Job | Instance, now: datetime) -> None:
        """The reconciler opened `record` because it is due."""
        self._measure(measures.of_due_record(record, now))

    def fleet_checked(self, fleet: Fleet, now: datetime) -> None:
        """The reconciler has looked at the brakes."""
        self._measure(measures.of_fleet(fleet, now))

    def notified(self, record: Job | Instance, command: Any, failure: Exception | None) -> None:
        """A word to the outside was sent, or could not be because of `failure`."""
        if failure is not None:
            kind, name = _ids_of(record)
            self.logger.error(
                "word_unsaid",
                extra={f"{kind}_id": name, "command": type(command).__name__, "failure": type(failure).__name__},
            )
        self._measure(measures.of_notification(command, failure is None))

    def unknown_record(self, record_id: str, event: Any) -> None:
        """An event is about something that we hold no record of."""
        self.logger.warning("record_unknown", extra={"record_id": record_id, "event_type": type(event).__name__})

    def _measure(self, found: Iterable[measures.MetricValue]) -> None:
        with self._measuring:
            for one in found:
                self.metrics.add_metric(one.name, one.unit.value, one.value)


def _ids_of(record: Job | Instance) -> tuple[str, str]:
    if isinstance(record, Job):
        return "job", record.job_id
    return "instance", record.instance_id
