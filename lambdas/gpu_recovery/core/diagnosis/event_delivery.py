"""Delivery of events between the train and the rollout phase of a training: the progress of each event.

These events are no AWS events. Rows 41-43 and 45 of the fault catalogue, docs/diagnosis.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.cuda_errors import LINE_MAX
from gpu_recovery.core.diagnosis.observations import Delivery, EventReport
from gpu_recovery.core.diagnosis.taxonomy import Scope, ScopeKind
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

EVENTS = frozenset({"train_start", "train_end", "rollout_start", "rollout_end"})
"""Events that hand a GPU over.

The system that the catalogue describes has no train_end: no event asks train to release the GPU (row 41).
"""
ORDER: Mapping[Delivery, int] = {Delivery.SENT: 0, Delivery.DELIVERED: 1, Delivery.ACKNOWLEDGED: 2}
"""Order of the delivery states."""
CLAIM_KIND, CLAIM_ROLE = "event_claim", "advice"
"""Kind and role of a `LogFinding` that claims the success of an event. The log line is no error, so it is no root."""
_CLAIM = re.compile(r"notify_(\w{1,40}?)_event succeeded")


def claimed_event(line: str) -> str:
    """Name of the event whose success a log line claims, such as "rollout_start"; "" if it claims none (row 45)."""
    claim = _CLAIM.search(line[:LINE_MAX])
    return claim.group(1) if claim else ""


def success_claims(lines: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Last line of a log that claims the success of each event, with its number from 1, by the name of the event."""
    found: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines, start=1):
        if event := claimed_event(line):
            found[event] = (number, line)
    return found


@frozen_dataclass()
class EventProgress:
    """One event, by its observations up to some time."""

    reports: tuple[EventReport, ...]

    @property
    def last(self) -> EventReport:
        """The newest observation."""
        return self.reports[-1]

    @property
    def evidence(self) -> tuple[str, ...]:
        """Report ids of the observations."""
        return tuple(report.report_id for report in self.reports)

    @property
    def reached(self) -> Delivery:
        """The furthest state. For a failure its own last state counts."""
        states = [report.last_state if report.state is Delivery.FAILED else report.state for report in self.reports]
        return max((state for state in states if state in ORDER), key=ORDER.__getitem__, default=Delivery.SENT)

    @property
    def has_failed(self) -> bool:
        """Whether an exception ended the event."""
        return any(report.state is Delivery.FAILED for report in self.reports)

    @property
    def gpu_state(self) -> str:
        """Last known state of the GPU: "ready", "busy", "processing", "error"; "" if it is unknown."""
        states = [report.gpu_state for report in self.reports if report.gpu_state]
        return states[-1].removeprefix("gpu_") if states else ""

    @property
    def error(self) -> str:
        """The last error, in one line; "?" without an error."""
        return next((report.error for report in reversed(self.reports) if report.error), "?")


def is_confirmed(course: EventProgress) -> bool:
    """Whether the event was acknowledged (row 45). A function that returned is no acknowledgement."""
    return course.reached is Delivery.ACKNOWLEDGED


def event_progress(case: Case) -> Mapping[str, EventProgress]:
    """Progress of every event, by its request id."""
    by_request: dict[str, list[EventReport]] = {}
    for report in case.all(EventReport):
        by_request.setdefault(report.request_id, []).append(report)
    return {request_id: EventProgress(tuple(reports)) for request_id, reports in by_request.items()}


def target(case: Case, event: EventReport) -> Scope:
    """Scope of the event's target: the instance of its worker. An event without a worker has its reporter's scope."""
    worker = case.topology.workers.get(event.worker)
    if worker:
        return Scope.of(ScopeKind.INSTANCE, worker.instance_id)
    return Scope.of(ScopeKind.WORKER, event.worker) if event.worker else case.scope_of(event)
