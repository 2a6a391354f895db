"""What the job API reads of the event history: late events, the size of reads, open and full incidents."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.taxonomy import Remedy

from simulator.dynamodb.capacity_meter import CapacityMeter
from tests.core.event_history.recorded import COURSE, DIAGNOSIS, INCIDENT, OPENED, instance_moved, job_moved, recovery
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


@pytest.mark.parametrize("path", ["/events", "/incidents"])
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


# -- incidents ---------------------------------------------------------------------------------------------------------


def with_open_incidents(api: Api, number: int) -> list[str]:
    """Let incidents begin one after the other. Return their ids, the latest first: the first in the alphabet."""
    names = [f"sft-{number - each:03d}--a01" for each in range(number)]
    for each, name in enumerate(names):
        opened = (OPENED + timedelta(seconds=each)).isoformat()
        about = {"incident_id": name, "opened_at": opened, "job_id": name.removesuffix("--a01")}
        deliver(api, job_moved(5 + each, "RUNNING", "STOPPING", each, **about))
    return names[::-1]


def test_the_overview_shows_the_latest_open_incidents_and_loads_few(api: Api) -> None:
    """There are more of them than it shows."""
    names = with_open_incidents(api, 60)
    assert [one["incident_id"] for one in api.get("/overview").body["incidents"]] == names[:20]
    asked = api.functions.aws.asked("BatchGetItem")
    keys = [key for each in asked for table in each["RequestItems"].values() for key in table["Keys"]]
    assert len([key for key in keys if key.get("stream") == {"S": "incidents"}]) <= 25


def test_open_incidents_are_read_page_by_page(api: Api) -> None:
    """Without a limit a page has as many of them as of all incidents."""
    names = with_open_incidents(api, 60)
    first = api.get("/incidents", state="open").body
    assert [one["incident_id"] for one in first["incidents"]] == names[:50]
    second = api.get("/incidents", state="open", cursor=first["next_cursor"]).body
    assert [one["incident_id"] for one in second["incidents"]] == names[50:]
    assert second["next_cursor"] is None


def _before_write(api: Api, number: int, other: Event) -> list[str]:
    """Let another recorder take an event before this write of an incident, counted from 0. Return the writes."""
    seen: list[str] = []

    def watch(asked: dict[str, Any]) -> None:
        if asked["Key"]["stream"]["S"].startswith("incidents"):
            seen.append(asked["Key"]["stream"]["S"])
            if len(seen) == number + 1:
                deliver(api, other)

    api.functions.aws.dynamodb = dict.fromkeys(("UpdateItem", "DeleteItem"), watch)
    return seen


@pytest.mark.parametrize("number", range(2))
def test_an_incident_that_goes_on_while_its_end_is_recorded_is_open(api: Api, number: int) -> None:
    """An instance works again, although it is impaired, and is checked again in the same incident."""
    about = {"incident_id": "i-1/4", "opened_at": OPENED.isoformat(), "job_id": None}
    deliver(api, instance_moved(5, "QUARANTINED", "CHECKING", 0, **about))
    seen = _before_write(api, number, instance_moved(7, "AVAILABLE", "CHECKING", 61, **about))
    deliver(api, instance_moved(6, "CHECKING", "AVAILABLE", 60, **about))
    assert len(seen) > number
    (one,) = api.get("/incidents", state="open").body["incidents"]
    assert one["incident_id"] == "i-1/4"


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("paused", [0, -1])
def test_an_incident_that_ends_while_it_is_recorded_is_read_for_no_list_of_open_ones(
    api: Api, paused: int, number: int
) -> None:
    """Its first and its last event are recorded at the same time."""
    seen = _before_write(api, number, COURSE[-1 - paused])
    deliver(api, COURSE[paused])
    assert len(seen) > number
    assert api.get("/incidents", state="open").body["incidents"] == []
    assert api.functions.aws.asked("BatchGetItem") == []
    assert len(api.get("/incidents", state="closed").body["incidents"]) == 1


def test_a_full_incident_has_its_end(api: Api) -> None:
    """An item has at most 400 KB. The events in the middle give way to the last one."""
    long = "故" * 2_000
    deliver(api, *COURSE[:2])
    for number in range(40):
        more = {"reason": long, "message": {"severity": "SEV3", "subject": long}}
        deliver(api, job_moved(10 + number, "RECOVERING", "SUBMITTING", 20 + number, **more))
    deliver(api, recovery(60, "Succeeded", 610, attempt=2, **more))
    (one,) = api.get("/incidents").body["incidents"]
    assert (one["state"], one["outcome"]) == ("closed", "recovered")
    assert one["reason"] == "rank 1 was ended by signal 6"
    deliver(api, job_moved(11, "RECOVERING", "SUBMITTING", 21, **more))
    assert api.get("/incidents", state="open").body["incidents"] == []


def test_the_thread_of_an_ended_incident_does_not_grow_with_its_job(api: Api) -> None:
    """The events of the job and of its instances long after the incident are not read."""
    deliver(api, *COURSE)
    meter = api.functions.aws.tables.meter = CapacityMeter()
    thread = api.get(f"/incidents/{INCIDENT}").body
    alone = sum(meter.reads.values())
    for number in range(60):
        deliver(api, job_moved(20 + number, "RUNNING", "LOST", DAY_S + number, incident_id=None, opened_at=None))
    deliver(api, instance_moved(3, "AVAILABLE", "CHECKING", DAY_S, instance_id="i-0a1"))
    api.functions.now = OPENED + timedelta(days=2)
    meter = api.functions.aws.tables.meter = CapacityMeter()
    assert api.get(f"/incidents/{INCIDENT}").body == thread
    assert sum(meter.reads.values()) == alone


def test_the_end_of_a_check_after_the_incident_is_in_its_thread(api: Api) -> None:
    """An instance that nobody names is checked for the incident until shortly after its end."""
    other = {"instance_id": "i-0a1"}
    deliver(api, *COURSE, instance_moved(3, "AVAILABLE", "CHECKING", 14, **other))
    deliver(api, instance_moved(4, "CHECKING", "AVAILABLE", 900, **other))
    passed = api.get(f"/incidents/{INCIDENT}").body["passed_checks"]
    assert passed == {"instances": 1, "named": ["i-0a1"]}


def test_the_remedy_of_a_diagnosis_is_told_in_plain_words(api: Api) -> None:
    """That of a remedy which this release does not know is empty: a newer release has recorded the event."""
    unknown = {**DIAGNOSIS, "remedy": "PRAY"}
    deliver(api, *COURSE, job_moved(12, "RUNNING", "RECOVERING", 3_000, diagnosis=unknown))
    told = [event["diagnosis"] for event in api.get("/events").body["events"] if event["diagnosis"] is not None]
    sentences = {diagnosis["remedy"]: diagnosis["remedy_sentence"] for diagnosis in told}
    assert sentences == {"CHECK": Remedy.CHECK.sentence, "PRAY": ""}
