"""Events between train and rollout: one course for each, from all that was reported of it (rows 41-43, 45)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import Delivery, EventReport
from gpu_recovery.core.diagnosis.taxonomy import Scope, ScopeKind

EVENTS = frozenset({"train_start", "train_end", "rollout_start", "rollout_end"})
"""The notices that hand a GPU over. The system of seed 002 has no train_end: nobody tells train to let go (41)."""
ORDER: Mapping[Delivery, int] = {Delivery.SENT: 0, Delivery.DELIVERED: 1, Delivery.ACKNOWLEDGED: 2}


@dataclass(frozen=True)
class EventProgress:
    """One event, by all the reports of it up to some moment. `reached`: how far it ever came."""

    reports: tuple[EventReport, ...]

    @property
    def last(self) -> EventReport:
        """The newest report of it."""
        return self.reports[-1]

    @property
    def evidence(self) -> tuple[str, ...]:
        """The ids of its reports."""
        return tuple(one.report_id for one in self.reports)

    @property
    def reached(self) -> Delivery:
        """The furthest state, a failure's own last state among them."""
        states = [one.last_state if one.state is Delivery.FAILED else one.state for one in self.reports]
        return max((one for one in states if one in ORDER), key=ORDER.__getitem__, default=Delivery.SENT)

    @property
    def has_failed(self) -> bool:
        """Whether an exception ended it."""
        return any(one.state is Delivery.FAILED for one in self.reports)

    @property
    def gpu_state(self) -> str:
        """What was last said of the GPU: "ready", "busy", "processing", "error"; "" if nothing was."""
        said = [one.gpu_state for one in self.reports if one.gpu_state]
        return said[-1].removeprefix("gpu_") if said else ""

    @property
    def error(self) -> str:
        """The last error, in one line."""
        return next((one.error for one in reversed(self.reports) if one.error), "?")


def is_confirmed(course: EventProgress) -> bool:
    """Whether the event may be called a success (row 45): that a function returned is none."""
    return course.reached is Delivery.ACKNOWLEDGED


def event_progress(case: Case) -> Mapping[str, EventProgress]:
    """Every event by its request id."""
    found: dict[str, list[EventReport]] = {}
    for one in case.all(EventReport):
        found.setdefault(one.request_id, []).append(one)
    return {request_id: EventProgress(tuple(reports)) for request_id, reports in found.items()}


def target(case: Case, event: EventReport) -> Scope:
    """Whom an event is for: its worker, wherever that is. Where it names none, who reported it."""
    worker = case.topology.workers.get(event.worker)
    if worker:
        return Scope.of(ScopeKind.INSTANCE, worker.instance_id)
    return Scope.of(ScopeKind.WORKER, event.worker) if event.worker else case.scope_of(event)
