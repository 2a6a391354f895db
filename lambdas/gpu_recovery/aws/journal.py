"""Decisions in the log: one structured line each, with the same reason that history, e-mail and command line give."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from ..core.instance.record import Instance
from ..core.job.record import Job
from ..core.machine import Decision, Outcome


class LogJournal:
    """`recovery.Journal` on Powertools' logger and metrics."""

    def __init__(self, logger: Logger, metrics: Metrics) -> None:
        self.logger, self.metrics = logger, metrics

    def decided(self, record: Job | Instance, event: Any, decision: Decision[Any]) -> None:
        applied = decision.outcome is Outcome.APPLIED
        moved = applied and decision.record.status != record.status
        kind = "job" if isinstance(record, Job) else "instance"
        name = record.job_id if isinstance(record, Job) else record.instance_id
        self.logger.info(
            f"{kind}_decided",
            extra={
                f"{kind}_id": name, "event_type": type(event).__name__, "outcome": decision.outcome.value,
                "before": record.status.value, "after": decision.record.status.value, "reason": decision.reason,
                "attempt": getattr(record, "attempt", None), "version": decision.record.version,
            },
        )  # fmt: skip
        if moved:
            self.metrics.add_metric(
                f"{kind.capitalize()}{decision.record.status.title().replace('_', '')}", MetricUnit.Count, 1
            )

    def unknown(self, record_id: str, event: Any) -> None:
        self.logger.warning("record_unknown", extra={"record_id": record_id, "event_type": type(event).__name__})
