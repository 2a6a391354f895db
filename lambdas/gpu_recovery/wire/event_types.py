"""Event types of seed 004 for the decisions about a job: its table `events` has these four."""

from __future__ import annotations

from enum import StrEnum

from gpu_recovery.core import events
from gpu_recovery.core.job.record import LIVE, JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.state_machine import HistoryEntry


class EventType(StrEnum):
    """What a decision about a job was, in the words of seed 004.

    RETRY_SCHEDULED: the attempt is over, and another follows.
    SUBMIT:          the backend has accepted the attempt.
    RAY_STATUS_SYNC: the decision follows from the status of the driver, as Ray reported it.
    STATE_TRANSITION: any other decision.
    """

    STATE_TRANSITION = "STATE_TRANSITION"
    SUBMIT = "SUBMIT"
    RAY_STATUS_SYNC = "RAY_STATUS_SYNC"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"


_OF_DRIVERS = {event.__name__ for event in (events.AllRanksRunning, events.AllRanksStopped, events.Diagnosed)}
"""Events that report the status of a driver on Ray."""
_HAD_AN_ATTEMPT = {*LIVE, JobStatus.DIAGNOSING}
_WAITS_FOR_ANOTHER = (JobStatus.PENDING_RESOURCES, JobStatus.RECOVERING)


def event_type_of(entry: HistoryEntry, backend: Backend) -> EventType:
    """Return the event type of a decision about a job on `backend`."""
    if entry.before in _HAD_AN_ATTEMPT and entry.after in _WAITS_FOR_ANOTHER:
        return EventType.RETRY_SCHEDULED
    if entry.event == events.AttemptLaunched.__name__:
        return EventType.SUBMIT
    if backend is Backend.RAY and entry.event in _OF_DRIVERS:
        return EventType.RAY_STATUS_SYNC
    return EventType.STATE_TRANSITION
