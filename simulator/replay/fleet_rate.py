"""Failure rate of a fleet by its records: the figures that the job API takes from the event history, of a saved folder.

The roll-up of the event history counts the incidents and the GPU-days in which jobs held instances. A job without an
event in the records is not known, so its GPU-days are not counted.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpu_recovery.core.event_history.incidents import Incident, incident_of
from gpu_recovery.core.event_history.recorded_event import RecordedEvent
from gpu_recovery.core.event_history.roll_up import FLEET, Standing, roll_up
from gpu_recovery.core.job.downtime import LossCause
from gpu_recovery.core.recovery_expectation.expectation import MEASURED_MAX, measured_recoveries
from gpu_recovery.core.recovery_expectation.failure_rate import FailureRate
from gpu_recovery.core.recovery_expectation.published_times import Recovery

from simulator.replay.records import Records

DAY_S = 86_400.0


@dataclass(frozen=True)
class FleetFigures:
    """What the records of a fleet tell about its failures.

    rate:       its failure rate, blended with the published one.
    by_cause:   incidents by the cause on their bill, the most frequent first. An incident without a bill is `unknown`.
    recoveries: the recoveries that it has measured, the latest first.
    """

    rate: FailureRate
    by_cause: Mapping[str, int]
    recoveries: tuple[Recovery, ...]

    def view(self, gpus_per_node: int) -> dict[str, Any]:
        """Return the rate as JSON. Instances have so many GPUs."""
        days = self.rate.gpu_days / gpus_per_node
        low, high = (bound * gpus_per_node * 1_000 for bound in self.rate.range_per_gpu_day)
        causes = {
            cause: {"incidents": number, "per_1000_instance_days": round(number / days * 1_000, 3) if days else None}
            for cause, number in self.by_cause.items()
        }
        return {
            "source": self.rate.source.value,
            "per_1000_instance_days": round(self.rate.per_1000_instance_days(gpus_per_node), 3),
            "low": round(low, 3),
            "high": round(high, 3),
            "own_incidents": self.rate.incidents,
            "own_instance_days": round(days, 3),
            "own_gpu_days": round(self.rate.gpu_days, 3),
            "own_recoveries": len(self.recoveries),
            "by_cause": causes,
        }


NO_RECORDS = FleetFigures(FailureRate(missing="no records of this fleet were given"), {}, ())
"""The published rate, without records of a fleet."""


def fleet_figures(records: Records) -> FleetFigures:
    """Return the figures of a fleet by its records, from the begin to the end of the collection."""
    figures, _ = roll_up(Standing(), records.events, records.since, records.until)
    total = figures[FLEET]
    days = math.ceil((records.until - records.since).total_seconds() / DAY_S)
    incidents = sorted(_incidents(records), key=lambda incident: incident.opened_at, reverse=True)
    closed = [incident for incident in incidents if not incident.is_open][:MEASURED_MAX]
    return FleetFigures(
        FailureRate(total.incidents, total.held / 24, days, "no job held an instance in the records of this fleet"),
        dict(Counter(_cause(incident) for incident in incidents).most_common()),
        tuple(measured_recoveries(closed)),
    )


def _incidents(records: Records) -> Iterator[Incident]:
    """Yield the incidents of jobs that began in the time of the records."""
    events = defaultdict[str, list[RecordedEvent]](list)
    for event in records.events:
        if event.incident_id and event.job_id and not event.is_about_instance:
            events[event.incident_id].append(event)
    for each in events.values():
        incident = incident_of(each)
        if incident is not None and records.since <= incident.opened_at < records.until:
            yield incident


def _cause(incident: Incident) -> str:
    return LossCause.UNKNOWN.value if incident.bill is None else incident.bill.cause
