"""What the job API reads of the event history: late events, the size of reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.core.event_history.recorded import OPENED, instance_moved, job_moved
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions
from tests.lambdas.test_event_recorder import Event, deliver

DAY_S = 86_400


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API, an hour after the incident began."""
    functions.now = OPENED + timedelta(hours=1)
    return Api(functions)


def moved(version: int, seconds: float) -> Event:
    """An instance becomes another status."""
    return instance_moved(version, "AVAILABLE", "CHECKING", seconds)


def version_of(event: dict[str, Any]) -> int:
    """The version in the id of an event."""
    return int(event["id"].split("/")[1])


def pages(api: Api, cursor: str, limit: int) -> tuple[list[int], str]:
    """The events of the following pages until a page is not full, and the last cursor."""
    seen: list[int] = []
    for _ in range(20):
        answer = api.get("/events", after=cursor, limit=str(limit)).body
        seen += [version_of(event) for event in answer["events"]]
        cursor = answer["next_cursor"]
        if len(answer["events"]) < limit:
            return seen, cursor
    raise AssertionError(f"no end after {seen}")


# -- the feed ----------------------------------------------------------------------------------------------------------


def test_a_full_page_does_not_lose_an_event_that_arrives_late(api: Api) -> None:
    """The cursor of a full page leads on, and the last page leads back to where events may still arrive."""
    cursor = api.get("/events").body["next_cursor"]
    deliver(api, moved(9, 3_590), moved(10, 3_592), moved(11, 3_594))
    first = api.get("/events", after=cursor, limit="1").body
    assert [version_of(event) for event in first["events"]] == [9]
    deliver(api, moved(8, 3_585))
    seen, cursor = pages(api, first["next_cursor"], 1)
    assert seen == [10, 11]
    assert pages(api, cursor, 1)[0] == [8, 9, 10, 11]


def test_after_a_while_no_event_comes_again(api: Api) -> None:
    """Once no event can arrive late, the cursor is behind all of them."""
    cursor = api.get("/events").body["next_cursor"]
    deliver(api, *(moved(number, 3_590 + number) for number in range(1, 8)))
    seen, cursor = pages(api, cursor, 2)
    assert seen == list(range(1, 8))
    api.functions.now += timedelta(minutes=1)
    seen, cursor = pages(api, cursor, 2)
    assert seen == list(range(1, 8))
    assert pages(api, cursor, 2)[0] == []


@pytest.mark.parametrize("path", ["/events"])
def test_the_number_of_reads_does_not_follow_the_limit(api: Api, path: str) -> None:
    """A client that asks for little of what is rare costs no more than another."""
    for number in range(60):
        name = f"sft-{number:02d}--a01"
        at = {"incident_id": name, "opened_at": f"2026-11-23T10:00:{number:02d}Z", "job_id": f"sft-{number:02d}"}
        deliver(api, job_moved(5 + number, "RUNNING", "STOPPING", number, **at))
    query = {"kind": "recovery_started"} if path == "/events" else {"job": "sft-99"}
    reads = []
    for limit in ("1", "50"):
        assert api.get(path, limit=limit, **query).status == 200
        reads.append(api.functions.aws.operations("dynamodb")["Query"])
    assert reads[0] == reads[1] <= 10
