"""The event recorder as Lambda runs it, and what the job API shows of what it recorded."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core.event_history.recorded_event import RecordedEventUnreadable

from simulator.dynamodb.capacity_meter import CapacityMeter
from tests.aws.cost_page import RECORDED_READ_UNITS, RECORDED_WRITE_UNITS
from tests.aws.environment import ACCOUNT, REGION
from tests.core.event_history.recorded import COURSE, INCIDENT, JOB, OPENED, SICK, instance_moved, job_moved
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions

Event = tuple[str, dict[str, Any]]


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API, an hour after the incident began."""
    functions.now = OPENED + timedelta(hours=1)
    return Api(functions)


def envelope(event: Event, **other: str) -> dict[str, Any]:
    """The event as EventBridge delivers it."""
    return {
        "version": "0",
        "id": "0d079340-135a-c8c6-95c2-41fb8f496c53",
        "source": "gpu.recovery",
        "account": ACCOUNT,
        "region": REGION,
        "time": "2026-11-23T10:14:05Z",
        "resources": [],
        "detail-type": event[0],
        "detail": event[1],
    } | other


def deliver(api: Api, *events: Event) -> None:
    """Let EventBridge deliver the events."""
    for event in events:
        api.functions.call("event_recorder", envelope(event))


def test_recorded_events_are_in_the_feed_once_and_in_order(api: Api) -> None:
    """Though they came twice, and in another order."""
    shuffled = [*COURSE, *COURSE]
    random.Random(1).shuffle(shuffled)
    deliver(api, *shuffled)
    answer = api.get("/events")
    assert answer.status == 200
    assert len(answer.body["events"]) == len(COURSE)
    assert [event["at"] for event in answer.body["events"]] == sorted(event["at"] for event in answer.body["events"])
    first = answer.body["events"][0]
    assert (first["job_id"], first["before"], first["after"]) == (JOB, "RUNNING", "STOPPING")
    assert first["failure"] == {"rank": 1, "instance_id": SICK, "exit_code": 134}
    assert first["message"] == {"severity": "SEV3", "subject": "recovering"}


def test_the_feed_goes_on_after_its_cursor(api: Api) -> None:
    """Page by page, and with an empty answer until something happens."""
    deliver(api, *COURSE)
    seen = []
    cursor = api.get("/events", limit="4").body["next_cursor"]
    assert api.get("/events", after=cursor).body == {"events": [], "next_cursor": cursor}
    api.functions.now += timedelta(minutes=1)
    deliver(api, instance_moved(9, "AVAILABLE", "CHECKING", 3_600), instance_moved(10, "CHECKING", "AVAILABLE", 3_601))
    while events := (answer := api.get("/events", after=cursor, limit="1").body)["events"]:
        seen += [event["id"] for event in events]
        cursor = answer["next_cursor"]
    assert seen == [f"{SICK}/9/instance_state_changed", f"{SICK}/10/instance_state_changed"]


def test_an_event_that_another_overtakes_is_not_missed(api: Api) -> None:
    """For half a minute a client gets events again, and knows them by their id."""
    deliver(api, instance_moved(10, "CHECKING", "AVAILABLE", 3_595))
    first = api.get("/events").body
    deliver(api, instance_moved(9, "AVAILABLE", "CHECKING", 3_590))
    second = api.get("/events", after=first["next_cursor"]).body
    assert [event["id"].split("/")[1] for event in second["events"]] == ["9", "10"]
    api.functions.now += timedelta(minutes=1)
    third = api.get("/events", after=second["next_cursor"]).body
    assert len(third["events"]) == 2
    assert api.get("/events", after=third["next_cursor"]).body["events"] == []


def test_the_feed_crosses_midnight(api: Api) -> None:
    """Each day is a stream of its own."""
    api.functions.now = OPENED + timedelta(days=2)
    deliver(api, COURSE[0], instance_moved(9, "AVAILABLE", "CHECKING", 86_400))
    deliver(api, job_moved(20, "RUNNING", "LOST", 172_000))
    answer = api.get("/events", limit="2").body
    assert [event["id"].split("/")[1] for event in answer["events"]] == ["9", "20"]
    deliver(api, job_moved(21, "LOST", "RUNNING", 172_790))
    assert [event["after"] for event in api.get("/events", after=answer["next_cursor"]).body["events"]] == ["RUNNING"]


def test_the_events_of_one_thing(api: Api) -> None:
    """A job has those of the instances that are checked and repaired for it."""
    deliver(api, *COURSE)
    assert len(api.get("/events", job=JOB).body["events"]) == len(COURSE)
    assert {event["instance_id"] for event in api.get("/events", instance=SICK).body["events"]} == {SICK}
    assert len(api.get("/events", incident=INCIDENT).body["events"]) == len(COURSE) - 4
    started = api.get("/events", kind="recovery_started").body["events"]
    assert [event["reason"] for event in started] == ["rank 1 was ended by signal 6"]
    assert api.get("/events", job="another").body["events"] == []


def test_a_malformed_query_is_a_problem_document(api: Api) -> None:
    """It names the parameter."""
    refused(api.get("/events", job=JOB, instance=SICK), 400, "instance")
    refused(api.get("/events", kind="mail"), 400, "kind")
    refused(api.get("/events", limit="201"), 400, "limit")
    refused(api.get("/events", job="x" * 400), 400, "job")
    refused(api.get("/events", after="AAAA"), 400, "cursor")
    other = api.get("/events", job=JOB).body["next_cursor"]
    refused(api.get("/events", after=other), 400, "cursor")
    refused(api.get("/incidents", state="new"), 400, "state")
    refused(api.get("/incidents", cursor="AAAA"), 400, "cursor")


# -- incidents ---------------------------------------------------------------------------------------------------------


def test_an_incident_opens_and_closes(api: Api) -> None:
    """As its events arrive."""
    deliver(api, *COURSE[:3])
    (one,) = api.get("/incidents", state="open").body["incidents"]
    assert (one["incident_id"], one["state"], one["gpus"]) == (INCIDENT, "open", 16)
    assert one["gpu_h_lost"] == 16.0
    assert api.get("/incidents", state="closed").body["incidents"] == []
    deliver(api, *COURSE[3:])
    assert api.get("/incidents", state="open").body["incidents"] == []
    (one,) = api.get("/incidents", state="closed").body["incidents"]
    assert (one["outcome"], one["cause"], one["confidence"]) == ("recovered", "GPU_FAULT", 97)
    assert one == api.get("/incidents").body["incidents"][0]


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_events_does_not_matter(api: Api, seed: int) -> None:
    """Also if the end of an incident arrives before its beginning, and twice."""
    deliver(api, *COURSE)
    expected = [api.get(path).body for path in ("/incidents", f"/incidents/{INCIDENT}", "/events")]
    table = api.functions.aws.tables.tables["gpu-recovery-event-history"]
    for key in list(table.items):
        table.delete(key)
    shuffled = [*COURSE, *COURSE[:4], COURSE[-1]]
    random.Random(seed).shuffle(shuffled)
    deliver(api, *shuffled)
    assert [api.get(path).body for path in ("/incidents", f"/incidents/{INCIDENT}", "/events")] == expected
    assert api.get("/incidents", state="open").body["incidents"] == []


def test_incidents_are_listed_page_by_page(api: Api) -> None:
    """The latest first."""
    for number in range(5):
        name = f"sft-{number}--a01"
        at = {"incident_id": name, "opened_at": f"2026-11-2{number}T10:00:00Z", "job_id": f"sft-{number % 2}"}
        deliver(api, job_moved(5 + number, "RUNNING", "STOPPING", number, **at))
    for query in ({}, {"state": "open"}):
        names, cursor = [], {}
        while True:
            answer = api.get("/incidents", limit="2", **query, **cursor).body
            names += [one["incident_id"] for one in answer["incidents"]]
            if answer["next_cursor"] is None:
                break
            cursor = {"cursor": answer["next_cursor"]}
        assert names == [f"sft-{number}--a01" for number in reversed(range(5))]
    assert len(api.get("/incidents", job="sft-1").body["incidents"]) == 2


def test_an_incident_is_read_as_a_thread(api: Api) -> None:
    """Every decision, check and repair with its reason, and the message to operators."""
    deliver(api, *COURSE)
    answer = api.get(f"/incidents/{INCIDENT}")
    assert answer.status == 200
    assert [event["after"] or event["kind"] for event in answer.body["events"]] == [
        "STOPPING",
        "recovery_started",
        "DIAGNOSING",
        "CHECKING",
        "RECOVERING",
        "REBOOTING",
        "VERIFYING",
        "AVAILABLE",
        "SUBMITTING",
        "SUBMITTED",
        "RUNNING",
        "recovery_succeeded",
    ]
    assert answer.body["phases"][0]["status"] == "STOPPING"
    refused(api.get("/incidents/sft-9--a01"), 404)


def test_a_thread_has_the_repair_that_the_agent_of_the_instance_asked_for(api: Api) -> None:
    """None of its events names the job."""
    of_agent: dict[str, Any] = {"job_id": None, "attempt": None}
    moves = [("AVAILABLE", "CHECKING", -2), ("CHECKING", "REBOOTING", 20), ("REBOOTING", "AVAILABLE", 700)]
    deliver(api, *(event for event in COURSE if event[0] != "Instance State Changed"))
    deliver(api, *(instance_moved(n, *move, **of_agent) for n, move in enumerate(moves, 20)))
    events = api.get(f"/incidents/{INCIDENT}").body["events"]
    assert [event["after"] for event in events if event["instance_id"]] == ["CHECKING", "REBOOTING", "AVAILABLE"]


def test_an_event_costs_what_the_page_of_costs_says(api: Api) -> None:
    """Units of DynamoDB over a whole incident, with the roll-up of its day."""
    meter = api.functions.aws.tables.meter = CapacityMeter()
    for event in COURSE:
        api.functions.now = datetime.fromisoformat(event[1]["data"]["at"])
        deliver(api, event)
    assert round(sum(meter.writes.values()) / len(COURSE), 1) == RECORDED_WRITE_UNITS
    assert sum(meter.reads.values()) / len(COURSE) <= RECORDED_READ_UNITS


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"account": "999999999999"}, {"region": "eu-west-1"}, {"source": "aws.ecs"}])
def test_an_event_of_another_origin_is_refused(functions: Functions, other: dict[str, str]) -> None:
    """It costs no write."""
    functions.call("event_recorder", envelope(COURSE[0], **other))
    assert functions.aws.count("dynamodb") == 0
    assert functions.logged("event_refused")


def test_no_other_function_takes_an_event_of_our_own(functions: Functions) -> None:
    """Anyone with PutEvents on our bus can write one."""
    for name in ("ecs_task_handler", "dcgm_task_monitor", "ecs_instance_monitor"):
        functions.call(name, envelope(COURSE[0]))
        assert functions.aws.calls == []
    assert len(functions.logged("event_refused")) == 3


def test_what_is_no_event_is_raised(functions: Functions) -> None:
    """Lambda tries twice more, and puts it into the queue of failed events."""
    with pytest.raises(RecordedEventUnreadable):
        functions.call("event_recorder", envelope(("Job Ended", COURSE[0][1])))


def test_a_table_that_fails_is_raised_and_the_redrive_fills_the_gap(api: Api) -> None:
    """While the table is away nothing else is touched. Afterwards a client reads what it would have read anyway."""
    deliver(api, *COURSE)
    expected = _answers(api)
    table = api.functions.aws.tables.tables["gpu-recovery-event-history"]
    for key in list(table.items):
        table.delete(key)
    api.functions.now = OPENED + timedelta(hours=1)
    away = {"Error": {"Code": "AccessDeniedException", "Message": "away"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    api.functions.aws.dynamodb = {"UpdateItem": lambda asked: away}
    for event in COURSE:
        with pytest.raises(Exception, match="away"):
            api.functions.call("event_recorder", envelope(event))
    api.functions.aws.dynamodb = {}
    assert api.get("/events").body["events"] == []
    letters = [
        {
            "MessageId": f"m-{n}",
            "ReceiptHandle": f"r-{n}",
            "Body": json.dumps(
                {
                    "requestContext": {
                        "functionArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:gpu-recovery-event_recorder:$LATEST"
                    },
                    "requestPayload": envelope(event),
                }
            ),
        }
        for n, event in enumerate(COURSE[:10])
    ]
    answers = [letters, []]
    api.functions.aws.answers["ReceiveMessage"] = lambda asked: {"Messages": answers.pop(0)}
    api.functions.aws.answers["GetQueueAttributes"] = lambda asked: {"Attributes": {"ApproximateNumberOfMessages": "0"}}
    answer = api.post("/dead-letters/redrive", {"queues": ["failed"], "limit": 10})
    assert answer.status == 200, answer.body
    sent = [json.loads(asked["Payload"]) for asked in api.functions.aws.asked("Invoke")]
    assert len(sent) == 10
    for event in sent:
        api.functions.call("event_recorder", event)
    deliver(api, *COURSE[10:])
    assert _answers(api) == expected
    assert len(expected[0]["events"]) == len(COURSE) + 1


def _answers(api: Api) -> list[Any]:
    """What a client reads an hour later, after a roll-up."""
    api.functions.now = OPENED + timedelta(hours=2)
    deliver(api, instance_moved(9, "AVAILABLE", "CHECKING", 7_190))
    return [api.get(path).body for path in ("/events", "/incidents", f"/incidents/{INCIDENT}", "/summary")]
