"""Events of the bus as the event history keeps them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpu_recovery.core.event_history.recorded_event import RecordedEventUnreadable, event_of, text_of

from tests.core.event_history.recorded import COURSE, OPENED, detail, job_moved, read
from tests.core.event_schemas import of_type

SENT = "2026-11-23T10:14:05Z"


@pytest.mark.parametrize("event", COURSE)
def test_the_events_of_these_tests_follow_their_schemas(event: tuple[str, dict[str, Any]]) -> None:
    """Except for what they leave out, they are events that the product sends."""
    data = event[1]["data"]
    extra = {"epoch": 0} if event[0] == "Operator Action Required" else {}
    of_type(event[0]).validate({**event[1], "data": data | extra})


def test_an_event_of_an_older_release_has_the_time_at_which_it_was_sent() -> None:
    """Release 0.1 wrote no time into its events."""
    kind, told = job_moved(5, "RUNNING", "STOPPING", 0)
    del told["data"]["at"], told["data"]["opened_at"]
    event = event_of(text_of(kind, told, SENT))
    assert event.at.isoformat() == "2026-11-23T10:14:05+00:00" and event.opened_at is None


def test_a_field_that_the_history_does_not_know_is_left_out() -> None:
    """Anyone with PutEvents on the bus can add megabytes of them."""
    kind, told = job_moved(5, "RUNNING", "STOPPING", 0, more="x" * 10_000, reason="y" * 10_000)
    text = text_of(kind, told, SENT)
    assert "xx" not in text and len(text) < 3_000
    assert event_of(text).reason == "y" * 2_000


def test_an_event_is_known_by_its_decision_and_kind() -> None:
    """The same decision may order several events, and the same event may be sent again."""
    assert len({read(event).event_id for event in COURSE}) == len(COURSE)
    assert read(COURSE[0]).at == OPENED


@pytest.mark.parametrize(
    ("decision", "data"),
    [
        ("sft-1", {"job_id": "sft-1"}),
        ("sft-1/x", {"job_id": "sft-1"}),
        ("sft-1/5", {}),
        ("sft-1/5", {"job_id": "a#b"}),
        ("sft-1/5", {"job_id": "a\nb"}),
        ("sft-1/5", {"job_id": "a" * 300}),
        ("sft-1/5", {"job_id": 5}),
        ("sft-1/5", {"job_id": "sft-1", "attempt": "1"}),
        ("sft-1/5", {"job_id": "sft-1", "at": "yesterday"}),
        ("sft-1/5", {"job_id": "sft-1", "at": 5}),
        ("sft-1/5", {"job_id": "sft-1", "diagnosis": "GPU"}),
        ("sft-1/5", {"job_id": "sft-1", "failure": {"rank": "a"}}),
    ],
)
def test_what_is_no_event_is_refused(decision: str, data: dict[str, Any]) -> None:
    """It is raised, so it ends in the queue of failed events and not in a stream."""
    with pytest.raises(RecordedEventUnreadable):
        text_of("Job State Changed", detail(decision, **data), SENT)


def test_an_unknown_kind_and_a_malformed_text_are_refused() -> None:
    """A stored text is checked as well: a person may have edited the table."""
    with pytest.raises(RecordedEventUnreadable):
        text_of("Job Ended", detail("sft-1/5", job_id="sft-1"), SENT)
    for text in ("", "[]", "null", json.dumps({"type": "Job State Changed"})):
        with pytest.raises(RecordedEventUnreadable):
            event_of(text)
