"""The log of decisions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import Decision


class DecisionLog(Protocol):
    """Where decisions are told: the log of a function, the transcript of a simulation."""

    def job_created(self, decision: Decision[Job]) -> None:
        """A new job is kept."""

    def decided(self, record: Job | Instance, event: Any, decision: Decision[Any]) -> None:
        """A decision about `record` is taken and, if it changes anything, kept: told once, however often refused."""

    def record_due(self, record: Job | Instance, now: datetime) -> None:
        """The reconciler opened a record because it is due."""

    def fleet_checked(self, fleet: Fleet, now: datetime) -> None:
        """The reconciler has looked at the brakes, as it does each round."""

    def notified(self, record: Job | Instance, command: Any, failure: Exception | None) -> None:
        """A word to the outside was sent, or, because of `failure`, was not."""

    def unknown_record(self, record_id: str, event: Any) -> None:
        """An event is about something that there is no record of."""
