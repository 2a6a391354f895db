"""The polled routes of the web console: what they answer from snapshots, without them, and what they cost."""

from __future__ import annotations

import gzip
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.job_api.snapshot_cache import FAILURE_TTL

from tests.aws.environment import FUNCTION
from tests.aws.records import NOW, A, instance
from tests.lambdas.api_gateway import Api, user_token

POLLED = ("/overview", "/fleet/map", "/fleet/members", "/fleet/limits")


def keeps_objects(api: Api) -> dict[str, bytes]:
    """Let S3 keep what is put; return its objects by key."""
    objects: dict[str, bytes] = {}

    def put(asked: dict[str, Any]) -> dict[str, Any]:
        body = asked["Body"]
        objects[asked["Key"]] = body if isinstance(body, bytes) else body.getvalue()
        return {}

    def get(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["Key"] not in objects:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "no such key"}}, "GetObject")
        return {"Body": io.BytesIO(objects[asked["Key"]])}

    api.functions.aws.answers |= {"PutObject": put, "GetObject": get}
    return objects


def with_fleet(api: Api) -> dict[str, bytes]:
    """A deployment with a quarantined instance, after a reconcile cycle."""
    objects = keeps_objects(api)
    bad = instance(status=InstanceStatus.QUARANTINED, status_at=NOW, reason="row remap failed", gpus=8, gpus_most=8)
    api.functions.store.save_instance(bad)
    api.functions.store.save_fleet(Fleet(gpu_instances=1, counted=True))
    api.functions.call("reconciler", {})
    return objects


def test_without_snapshots_the_answers_are_empty(api: Api) -> None:
    """A new deployment has none: null and empty lists, not an error."""
    keeps_objects(api)
    overview = api.get("/overview").body
    assert not any(value for name, value in overview.items() if name != "dead_letters")
    assert overview["missing"] == []
    shown = api.get("/fleet/map").body
    assert (shown["as_of"], shown["members"], shown["status"], shown["statuses"]) == (None, None, "", [])
    members = api.get("/fleet/members").body
    assert (members["as_of"], members["members"], members["ids"]) == (None, None, [])
    assert api.get("/fleet/limits").body == {"as_of": None, "totals": None, "limits": None}


def test_the_overview_shows_the_fleet_as_of_the_last_cycle(api: Api) -> None:
    """Counts, limits, and the instance that needs an operator with its reason."""
    with_fleet(api)
    overview = api.get("/overview").body
    assert overview["as_of"] == f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    assert overview["fleet"]["by_status"]["QUARANTINED"] == overview["fleet"]["instances"] == 1
    assert overview["limits"]["breaker"]["state"] == "CLOSED" and overview["limits"]["gpu_instances"] == 1
    (waits,) = overview["for_a_person"]
    assert (waits["instance_id"], waits["because"], overview["for_a_person_more"]) == (A, "row remap failed", 0)
    assert (overview["held"], overview["incidents"], overview["events"], overview["week"]) == (0, [], [], None)


def test_the_map_names_the_members_that_its_columns_refer_to(api: Api) -> None:
    """A page asks for the members only if it does not know them."""
    with_fleet(api)
    shown, members = api.get("/fleet/map").body, api.get("/fleet/members").body
    assert shown["members"] == members["members"] and members["ids"] == [A]
    assert shown["utilisation"] is None and api.get("/fleet/map", gpu="1").body["utilisation"] is None


def test_the_limits_are_those_of_the_route_that_reads_every_record(api: Api) -> None:
    """The same properties with the same values."""
    with_fleet(api)
    assert api.get("/fleet/limits").body["limits"] == api.get("/fleet").body


def test_the_totals_of_the_queue_come_from_the_schedulers_snapshot(api: Api) -> None:
    """With a time of their own, because the scheduler writes them."""
    objects = keeps_objects(api)
    total = {"jobs": 1, "instances": 2, "gpus": 16}
    of_queue = {
        "as_of": "2026-11-21T08:59:00Z",
        "totals": [{"priority": "HIGH", "running": total, "queued": total}],
        "quotas": [{"user": "ana", "priority": "HIGH", "group": "", "used": 2, "limit": 4}],
    }
    objects[f"console/{SnapshotName.QUEUE}.json.gz"] = gzip.compress(json.dumps(of_queue).encode())
    overview = api.get("/overview").body
    assert (overview["queue_as_of"], overview["totals"], overview["quotas"]) == tuple(of_queue.values())
    assert overview["as_of"] is None


def test_twenty_tabs_cost_two_reads_of_s3_in_five_seconds(api: Api) -> None:
    """And at most ten queries of the event history. No record is read, once the caller's token is known."""
    with_fleet(api)
    viewer = user_token(api, "vera", "viewer")
    api.call("GET", "/api/v2/me", token=viewer)
    reads, queries = 0, 0
    for _ in range(20):
        assert api.call("GET", "/api/v2/overview", token=viewer).status == 200
        reads += api.functions.aws.operations("s3")["GetObject"]
        asked = api.functions.aws.operations("dynamodb")
        assert set(asked) <= {"Query"}
        queries += asked["Query"]
    assert reads == 2 and queries <= 10
    api.functions.now += timedelta(seconds=5)
    api.get("/overview")
    assert api.functions.aws.operations("s3")["GetObject"] == 2


def test_dead_letters_are_counted_once_a_minute(api: Api) -> None:
    """SQS is asked about three queues, however often the overview is."""
    keeps_objects(api)
    api.functions.aws.answers["GetQueueAttributes"] = lambda asked: {"Attributes": {"ApproximateNumberOfMessages": "2"}}
    counted = api.get("/overview").body["dead_letters"]
    assert counted == {"failed": 2, "undelivered": 2, "scheduler": 2}
    api.functions.now += timedelta(seconds=59)
    api.get("/overview")
    assert api.functions.aws.count("sqs") == 0
    api.functions.now += timedelta(seconds=1)
    api.get("/overview")
    assert api.functions.aws.count("sqs") == 3


def test_dead_letters_that_cannot_be_counted_hide_nothing_else(api: Api) -> None:
    """The rest of the overview is there, and the failure is in the log."""
    with_fleet(api)

    def refuse(asked: dict[str, Any]) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetQueueAttributes")

    api.functions.aws.answers["GetQueueAttributes"] = refuse
    overview = api.get("/overview").body
    assert overview["dead_letters"] is None and overview["fleet"]["instances"] == 1
    assert overview["missing"] == ["dead_letters"] and api.functions.logged("overview without dead_letters")


@pytest.mark.parametrize("path", POLLED)
def test_an_unchanged_answer_is_not_sent_again(api: Api, path: str) -> None:
    """By its entity tag."""
    with_fleet(api)
    tag = api.get(path).headers["etag"]
    event = {"if-none-match": tag}
    answer = api.functions.call(
        "job_api",
        {
            "version": "2.0",
            "rawPath": f"/api/v2{path}",
            "rawQueryString": "",
            "headers": {"authorization": "Bearer secret of operator-token", **event},
            "isBase64Encoded": False,
            "requestContext": {
                "http": {"method": "GET", "path": f"/api/v2{path}"},
                "stage": "$default",
                "requestId": "r",
            },
        },
    )
    assert (answer["statusCode"], answer["body"]) == (304, "")


def hangs(api: Api, *parts: str) -> None:
    """Let storage never answer, and the time of the functions pass while a client waits: s3, sqs, the history."""
    table = FUNCTION["EVENT_HISTORY_TABLE_NAME"]

    def is_hung(service: str, asked: dict[str, Any]) -> bool:
        return service in parts or ("history" in parts and asked.get("TableName") == table)

    def wait(seconds: float) -> None:
        api.functions.now += timedelta(seconds=seconds)

    api.functions.aws.hangs, api.functions.aws.wait = is_hung, wait


def test_the_last_answer_stands_while_storage_does_not_answer(api: Api) -> None:
    """For a minute the overview shows what it read before, with its time; then the part is missing."""
    with_fleet(api)
    before = api.get("/overview").body
    hangs(api, "s3")
    api.functions.now += timedelta(seconds=30)
    overview = api.get("/overview").body
    assert (overview["missing"], overview["fleet"], overview["as_of"]) == ([], before["fleet"], before["as_of"])
    api.functions.now += timedelta(seconds=40)
    assert api.get("/overview").body["missing"] == MISSING["s3"]


MISSING = {
    "s3": ["fleet", "queue"],
    "history": ["incidents", "events", "week"],
    "sqs": ["dead_letters"],
}


@pytest.mark.parametrize("storage", MISSING)
def test_storage_that_never_answers_hides_its_parts_alone_and_is_asked_once(api: Api, storage: str) -> None:
    """The answer names the missing parts. Further requests within five seconds do not wait again."""
    with_fleet(api)
    hangs(api, storage)
    began = api.functions.now
    overview = api.get("/overview").body
    assert overview["missing"] == MISSING[storage]
    assert api.functions.now - began <= timedelta(seconds=5)
    assert (overview["fleet"] is None) == (storage == "s3")
    assert (overview["dead_letters"] is None) == (storage == "sqs")
    assert f"overview without {MISSING[storage][0]}" in api.functions.log.getvalue()
    waited = api.functions.now
    assert api.get("/overview").body["missing"] == MISSING[storage]
    assert api.functions.now == waited
    hangs(api)
    api.functions.now += FAILURE_TTL
    assert api.get("/overview").body["missing"] == []


def test_the_overview_ends_in_time_while_nothing_answers(api: Api) -> None:
    """The function has 29 seconds, and a page asks again. Parts that are not begun in time are missing, too."""
    with_fleet(api)
    hangs(api, *MISSING)
    began = api.functions.now
    assert sorted(api.get("/overview").body["missing"]) == sorted(part for parts in MISSING.values() for part in parts)
    assert api.functions.now - began <= timedelta(seconds=6.5)


@pytest.mark.parametrize("path", POLLED[1:])
def test_a_polled_route_whose_storage_does_not_answer_is_busy(api: Api, path: str) -> None:
    """503 with the time after which to ask again, and one short wait in five seconds."""
    with_fleet(api)
    hangs(api, "s3")
    began = api.functions.now
    for _ in range(3):
        answer = api.get(path)
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert api.functions.now - began <= timedelta(seconds=1.5)


@pytest.mark.parametrize("path", ["/events", "/incidents", "/incidents?", "/summary"])
def test_a_list_whose_history_does_not_answer_is_busy(api: Api, path: str) -> None:
    """As above. The client repeats the request."""
    hangs(api, "history")
    began = api.functions.now
    assert api.get(path.rstrip("?"), **({"state": "open"} if "?" in path else {})).status == 503
    assert api.functions.now - began <= timedelta(seconds=1.5)


@pytest.mark.parametrize(
    ("stream", "position", "part"),
    [("events#2026-11-21", "2026-11-21T08:00:00.000Z", "events"), ("days", "2026-11-21#000", "week")],
)
def test_a_malformed_text_of_the_history_hides_its_part_alone(api: Api, stream: str, position: str, part: str) -> None:
    """A release that we do not know may have written it."""
    with_fleet(api)
    texts = {"event": "no JSON", "text": "no JSON", "until": "2026-11-21T09:00:00.000Z", "parts": "1"}
    item = {name: {"S": text} for name, text in {"stream": stream, "at": position, **texts}.items()}
    api.functions.aws.client("dynamodb").put_item(TableName=FUNCTION["EVENT_HISTORY_TABLE_NAME"], Item=item)
    assert api.get("/overview").body["missing"] == [part]


def test_the_figures_of_the_week_are_read_once_a_minute(api: Api) -> None:
    """Their items hold up to 400 KB each."""
    with_fleet(api)

    def reads_of_days() -> int:
        api.get("/overview")
        asked = api.functions.aws.asked("Query")
        return sum("days" in str(one["ExpressionAttributeValues"]) for one in asked)

    assert reads_of_days() == 1
    api.functions.now += timedelta(seconds=59)
    assert reads_of_days() == 0
    api.functions.now += timedelta(seconds=1)
    assert reads_of_days() == 1
