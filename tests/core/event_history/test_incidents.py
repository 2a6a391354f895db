"""What the events of an incident say together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.event_history.incidents import IncidentOutcome, incident_of
from gpu_recovery.core.event_history.repairs import repairs_between
from gpu_recovery.core.event_history.thread import EVENTS_MAX, thread_of
from hypothesis import given
from hypothesis import strategies as st

from tests.core.event_history.recorded import (
    COURSE,
    INCIDENT,
    JOB,
    OPENED,
    SICK,
    instance_moved,
    job_moved,
    read,
    recovery,
)

EVENTS = [read(event) for event in COURSE]
OF_JOB = [event for event in EVENTS if event.incident_id]


def test_a_whole_incident() -> None:
    """Its cause, its phases, and what it cost: 16 GPUs for 550 s."""
    incident = incident_of(OF_JOB)
    assert incident is not None
    assert (incident.incident_id, incident.job_id, incident.outcome) == (INCIDENT, JOB, IncidentOutcome.RECOVERED)
    assert (incident.opened_at, incident.closed_at) == (OPENED, OPENED + timedelta(seconds=610))
    assert (incident.cause, incident.confidence, incident.instances) == ("GPU_FAULT", 97, (SICK,))
    assert incident.reason == "rank 1 was ended by signal 6"
    assert incident.attempts == (1,)
    assert [phase.status for phase in incident.phases] == [
        "STOPPING",
        "DIAGNOSING",
        "RECOVERING",
        "SUBMITTING",
        "SUBMITTED",
        "RUNNING",
    ]
    assert incident.gpu_hours_lost(OPENED) == pytest.approx(16 * 550 / 3_600)
    assert incident.recovered_at == OPENED + timedelta(seconds=550)


@given(st.lists(st.sampled_from(OF_JOB), min_size=len(OF_JOB) * 2, max_size=len(OF_JOB) * 3))
def test_order_and_repetition_change_nothing(known: list[Any]) -> None:
    """Only the set of events counts."""
    assert incident_of(known) == incident_of(set(known)) == incident_of(reversed(known))


def test_an_open_incident_loses_until_now() -> None:
    """The last phase lasts."""
    incident = incident_of(OF_JOB[:3])
    assert incident is not None and incident.is_open and incident.outcome is None
    assert incident.phases[-1].until is None
    assert incident.gpu_hours_lost(OPENED + timedelta(hours=1)) == pytest.approx(16)


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        (job_moved(7, "DIAGNOSING", "FAILED", 150), IncidentOutcome.FAILED),
        (recovery(7, "Failed", 150), IncidentOutcome.FAILED),
        (job_moved(7, "DIAGNOSING", "CANCELED", 150), IncidentOutcome.CANCELED),
        (job_moved(7, "STOPPING", "SUCCEEDED", 150), IncidentOutcome.RECOVERED),
    ],
)
def test_how_an_incident_ends(last: tuple[str, dict[str, Any]], outcome: IncidentOutcome) -> None:
    """By the end of the recovery, or of the job."""
    incident = incident_of([*OF_JOB[:3], read(last)])
    assert incident is not None and incident.outcome is outcome
    assert incident.closed_at == OPENED + timedelta(seconds=150)
    assert incident.gpu_hours_lost(OPENED) == pytest.approx(16 * 150 / 3_600)


def test_an_incident_of_an_instance_ends_when_it_works_again() -> None:
    """No job waits for it, so it costs no GPU-hours of a job."""
    own = {"incident_id": f"{SICK}/3", "opened_at": OPENED.isoformat(), "job_id": None, "attempt": None}
    course = [
        instance_moved(3, "AVAILABLE", "REBOOTING", 0, **own),
        instance_moved(4, "REBOOTING", "VERIFYING", 9, **own),
    ]
    incident = incident_of(map(read, course))
    assert incident is not None and incident.is_open and incident.gpu_hours_lost(OPENED) is None
    ended = incident_of(map(read, [*course, instance_moved(5, "VERIFYING", "AVAILABLE", 99, **own)]))
    assert ended is not None and ended.outcome is IncidentOutcome.IN_SERVICE
    assert (ended.job_id, ended.instance_id) == ("", SICK)


def test_without_its_beginning_there_is_no_incident() -> None:
    """An event of an older release does not say when the incident began."""
    assert incident_of([]) is None
    assert incident_of([read(job_moved(5, "RUNNING", "STOPPING", 0, opened_at=None))]) is None


# -- the thread --------------------------------------------------------------------------------------------------------


def _gang(instances: int) -> list[Any]:
    """Instances that are checked and pass."""
    found = []
    for number in range(instances):
        name = f"i-{number:017x}"
        found.append(read(instance_moved(1, "AVAILABLE", "CHECKING", 13, instance_id=name)))
        found.append(read(instance_moved(2, "CHECKING", "AVAILABLE", 100 + number / 10, instance_id=name)))
    return found


def test_a_thread_has_every_event_in_the_order_of_time() -> None:
    """With those of the instance that was repaired for the job, but not those of another attempt."""
    incident = incident_of(OF_JOB)
    assert incident is not None
    later = read(instance_moved(8, "AVAILABLE", "CHECKING", 9_000, attempt=2))
    thread = thread_of(incident, [later, *reversed(EVENTS), *EVENTS])
    assert [event.event_id for event in thread.events] == [
        event.event_id for event in sorted(EVENTS, key=lambda event: (event.at, event.record, event.version))
    ]
    assert (thread.passed, thread.left_out) == (0, 0)


def test_instances_that_pass_their_check_are_counted() -> None:
    """A gang of 3,000 has 6,000 such events, which say nothing."""
    incident = incident_of(OF_JOB)
    assert incident is not None
    thread = thread_of(incident, [*EVENTS, *_gang(300)])
    assert len(thread.events) == len(EVENTS)
    assert thread.passed == 300 and len(thread.passed_named) == 8


def test_the_repair_that_an_agent_asked_for_belongs_to_the_thread() -> None:
    """Its agent saw the fault before the job failed, and no event of the repair names the job."""
    incident = incident_of(OF_JOB)
    assert incident is not None
    of_agent = {"job_id": None, "attempt": None}
    course = [
        instance_moved(1, "AVAILABLE", "CHECKING", -9_000, **of_agent),
        instance_moved(2, "CHECKING", "AVAILABLE", -8_900, **of_agent),
        instance_moved(3, "AVAILABLE", "CHECKING", -2, **of_agent),
        instance_moved(4, "CHECKING", "REBOOTING", 30, **of_agent),
        instance_moved(5, "REBOOTING", "AVAILABLE", 9_000, **of_agent),
        instance_moved(6, "AVAILABLE", "CHECKING", 9_100, **of_agent),
    ]
    repairs = repairs_between(map(read, reversed(course)), OPENED, OPENED + timedelta(seconds=610))
    assert [event.version for event in repairs] == [3, 4, 5]
    thread = thread_of(incident, OF_JOB, repairs)
    assert [event.after for event in thread.events if event.instance_id] == ["CHECKING", "REBOOTING", "AVAILABLE"]


def test_a_thread_is_bounded() -> None:
    """However much happens."""
    incident = incident_of(OF_JOB)
    assert incident is not None
    many = [
        read(instance_moved(version, "CHECKING", "REBOOTING", version, instance_id=f"i-{version:017x}"))
        for version in range(1, 1_001)
    ]
    thread = thread_of(incident, [*OF_JOB, *many])
    assert len(thread.events) == EVENTS_MAX and thread.left_out == len(OF_JOB) + 1_000 - EVENTS_MAX
