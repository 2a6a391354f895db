"""The list of instances: filters, orders, and what a page of it reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.instance.fault_history import signal_at
from gpu_recovery.core.instance.lemons import LemonSignal
from gpu_recovery.core.instance.record import InstanceStatus, RepairLevel, RepairNeed
from gpu_recovery.job_api.snapshot_cache import SNAPSHOT_TTL

from tests.aws.records import JOB, NOW, OTHER_JOB, A, B, claim, instance, later
from tests.lambdas.api_gateway import Api, refused

C, D = "i-0cccccccccccccccc", "i-1ddddddddddddddd"
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def ids(api: Api, **query: str) -> list[str]:
    """The ids of a list, page by page."""
    found: list[str] = []
    while True:
        body = api.get("/instances", **query).body
        found += [one["instance_id"] for one in body["instances"]]
        if body["next_cursor"] is None:
            return found
        query["cursor"] = body["next_cursor"]


@pytest.fixture
def fleet(api: Api) -> Api:
    """A in use, B quarantined, C being checked and a lemon, D free."""
    rack = {"rack": "r-7", "group": "a100"}
    api.functions.store.save_instance(instance(A, claims={JOB: claim()}, status_at=later(30), **rack))
    api.functions.store.save_instance(instance(B, status=InstanceStatus.QUARANTINED, status_at=later(20)))
    past = (signal_at(NOW, LemonSignal.LEFT_OUT),) * 3
    api.functions.store.save_instance(instance(C, status=InstanceStatus.CHECKING, status_at=later(40), past=past))
    api.functions.store.save_instance(instance(D, reserved_for=OTHER_JOB))
    return api


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({}, [A, B, C, D]),
        ({"status": "QUARANTINED"}, [B]),
        ({"status": "QUARANTINED,CHECKING"}, [B, C]),
        ({"status": ""}, [A, B, C, D]),
        ({"job": JOB}, [A]),
        ({"job": OTHER_JOB}, [D]),
        ({"job": "unknown"}, []),
        ({"q": "i-0"}, [A, B, C]),
        ({"q": "i-0b"}, [B]),
        ({"q": "i-0b", "status": "AVAILABLE"}, []),
        ({"order": "since"}, [C, A, B, D]),
        ({"order": "lemon"}, [C, A, B, D]),
        ({"order": "since", "status": "AVAILABLE"}, [A, D]),
        ({"q": "i-0", "limit": "1"}, [A, B, C]),
        ({"order": "since", "limit": "1"}, [C, A, B, D]),
    ],
)
def test_a_list_is_filtered_and_ordered(fleet: Api, query: dict[str, str], shown: list[str]) -> None:
    """By status, job and first characters; each instance is on one page."""
    assert ids(fleet, **query) == shown


def test_an_instance_is_found_by_the_job_that_waits_for_its_repair(api: Api) -> None:
    """The job claims nothing on it."""
    need = RepairNeed(RepairLevel.REBOOT, "XID 79", NOW, job_id=JOB)
    api.functions.store.save_instance(instance(A, status=InstanceStatus.QUARANTINED, need=need))
    assert ids(api, job=JOB) == [A]


@pytest.mark.parametrize(
    ("query", "field"),
    [({"status": "GONE"}, "status"), ({"status": "AVAILABLE,broken"}, "status"), ({"order": "size"}, "order")]
    + [({"q": text}, "q") for text in ("#listing", "i-0~", "I-0", "x" * 33)],
)
def test_a_malformed_filter_is_refused(api: Api, query: dict[str, str], field: str) -> None:
    """The answer names the parameter."""
    refused(api.get("/instances", **query), 400, field)


def test_a_cursor_belongs_to_its_filter(fleet: Api) -> None:
    """The place in one order means nothing in another."""
    cursor = fleet.get("/instances", order="since", limit="1").body["next_cursor"]
    for query in ({}, {"order": "lemon"}, {"order": "since", "status": "AVAILABLE"}):
        refused(fleet.get("/instances", cursor=cursor, **query), 400, "cursor")


def test_a_page_of_a_prefix_reads_its_range_alone(api: Api) -> None:
    """Four queries, each with both ends of the range; the heartbeats of the page in one more call."""
    for number in range(30):
        api.functions.store.save_instance(instance(f"i-0{number:016x}"))
    api.functions.store.save_instance(instance(D))
    body = api.get("/instances", q="i-1", limit="100").body
    assert [one["instance_id"] for one in body["instances"]] == [D]
    queries: list[dict[str, Any]] = api.functions.aws.asked("Query")
    assert len(queries) == 4 and all("BETWEEN" in query["KeyConditionExpression"] for query in queries)
    assert {query["IndexName"] for query in queries} == {"listing"}


def test_a_filtered_page_has_at_most_a_hundred_and_reads_the_listing_once(api: Api) -> None:
    """The plain list keeps its pages of a thousand."""
    for number in range(120):
        api.functions.store.save_instance(instance(f"i-0{number:016x}"))
    body = api.get("/instances", order="since", limit="1000").body
    assert len(body["instances"]) == 100 and body["next_cursor"]
    assert api.functions.aws.operations()["Query"] == 4
    assert len(api.get("/instances").body["instances"]) == 120


def test_the_fleet_is_read_once_for_all_pages_and_tabs(api: Api) -> None:
    """Twenty tabs that poll a filtered list, and its further pages, cost one reading in five seconds."""
    for number in range(5):
        api.functions.store.save_instance(instance(f"i-0{number:016x}"))

    def reads(**query: str) -> tuple[int, Any]:
        body = api.get("/instances", **query).body
        return api.functions.aws.operations()["Query"], body

    assert reads(order="since", limit="2")[0] == 4
    assert reads(status="AVAILABLE", order="lemon")[0] == 0
    api.functions.now += SNAPSHOT_TTL
    queries, body = reads(order="since", limit="2")
    assert queries == 4
    seen = list(body["instances"])
    while body["next_cursor"] is not None:
        api.functions.now += timedelta(seconds=10)
        queries, body = reads(order="since", limit="2", cursor=body["next_cursor"])
        assert queries == 0
        seen += body["instances"]
    assert len({one["instance_id"] for one in seen}) == len(seen) == 5
    assert reads(order="since")[0] == 4


def test_a_list_after_an_order_shows_what_was_ordered(fleet: Api) -> None:
    """The person who gave the order looks at the list next."""
    assert D in ids(fleet, status="AVAILABLE")
    assert fleet.post(f"/instances/{D}/quarantine", {}).status == 200
    assert D in ids(fleet, status="QUARANTINED") and D not in ids(fleet, status="AVAILABLE")


def test_a_list_shows_rack_and_group(fleet: Api) -> None:
    """As the ECS attributes name them."""
    (one,) = fleet.get("/instances", job=JOB).body["instances"]
    assert (one["rack"], one["group"]) == ("r-7", "a100")
