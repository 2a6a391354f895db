"""Instances listed, read and released."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.instance_index import MARK
from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.heartbeat import Heartbeat
from gpu_recovery.core.instance.record import HealthReport, InstanceStatus
from gpu_recovery.core.state_machine import HistoryEntry

from simulator.dynamodb.capacity_meter import CapacityMeter
from tests.aws.records import JOB, NOW, A, B, claim, instance, later
from tests.lambdas.api_gateway import Api, refused

C = "i-0cccccccccccccccc"
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def test_instances_are_listed_page_by_page(api: Api) -> None:
    """By id; one that comes or goes before the page's end moves nobody else."""
    names = [f"i-{n:017x}" for n in range(5)]
    for name in names:
        api.functions.store.save_instance(instance(name))
    first = api.get("/instances", limit="2").body
    api.functions.store.save_instance(instance("i-0000000000000000"))
    second = api.get("/instances", limit="2", cursor=first["next_cursor"]).body
    last = api.get("/instances", cursor=second["next_cursor"]).body
    pages = [[one["instance_id"] for one in page["instances"]] for page in (first, second, last)]
    assert pages == [names[:2], names[2:4], names[4:]] and last["next_cursor"] is None


def test_instances_are_listed_without_those_that_are_gone(api: Api) -> None:
    """By id, with their claims."""
    api.functions.store.save_instance(instance(B, claims={JOB: claim(2)}))
    api.functions.store.save_instance(instance(A, reserved_for=JOB, booted_at=NOW))
    api.functions.store.save_instance(instance("i-0c", status=InstanceStatus.GONE))
    body = api.get("/instances").body
    assert [one["instance_id"] for one in body["instances"]] == [A, B] and body["next_cursor"] is None
    assert body["instances"][1]["claims"] == {JOB: 2}
    one = api.get(f"/instances/{A}").body
    assert (one["reserved_for"], one["booted_at"], one["gpus"]) == (JOB, "2026-11-21T09:00:00.000Z", 8)


def test_a_listing_that_lacks_instances_is_an_error_that_says_what_to_deploy(api: Api) -> None:
    """The index of 0.1 was removed before the end of an upgrade. A shorter answer would look like lost instances."""
    table = api.functions.store.table
    api.functions.store.save_instance(instance(A))
    table.client.put_item(TableName=table.name, Item=typed({table.key: MARK, "seen_at": "2026-11-21T09:00:00.000000Z"}))
    answer = api.get("/instances")
    assert answer.status == 500 and "deploy again with gpu-recovery:upgrade_from=0.1" in answer.body["detail"]


def test_a_listing_of_instances_leaves_their_histories_out(api: Api) -> None:
    """Each may hold many sentences, and Lambda answers with 6 MB at most: a thousand machines must fit in."""
    most = import_module("gpu_recovery.aws.wiring").settings().policy.history_max
    entry = HistoryEntry(NOW, "AVAILABLE", "CHECKING", "CheckRequested", 1, "x" * 400)
    api.functions.store.save_instance(instance(history=(entry,) * most))
    (listed,) = api.get("/instances").body["instances"]
    alone = api.get(f"/instances/{A}").body
    assert alone.pop("history") and alone.pop("heartbeat") is None and listed == alone
    assert len(json.dumps(listed)) * 1_000 < 6_000_000


@pytest.mark.parametrize(
    ("query", "units", "calls"), [({}, 20, 1), ({"node_agent": "1"}, 20, 1), ({"node_agent": "0"}, 0, 0)]
)
def test_the_heartbeats_of_a_listing_cost_half_a_unit_each_or_nothing(
    api: Api, query: dict[str, str], units: float, calls: int
) -> None:
    """They were the largest part of a page. Nothing decides on them, so they may lag by a moment, or be left out."""
    names = [f"i-{n:017x}" for n in range(40)]
    for name in names:
        api.functions.store.save_instance(instance(name))
        api.functions.store.save_heartbeat(Heartbeat(name, NOW), True)
    api.get("/instances", limit="1")
    meter = api.functions.aws.tables.meter = CapacityMeter()
    listed = api.get("/instances", **query).body["instances"]
    assert [one["instance_id"] for one in listed] == names
    assert [one.get("node_agent") is not None for one in listed] == [bool(calls)] * 40
    assert ["node_agent" in one for one in listed] == [bool(calls)] * 40
    assert api.functions.aws.operations()["BatchGetItem"] == calls  # of this request
    of_heartbeats = sum(read for key, read in meter.reads.items() if "#beat" in str(key))
    assert of_heartbeats == units


def test_a_listing_shows_what_is_wrong_with_each_instance(api: Api) -> None:
    """The node agent as one instance shows it, and every reason why an instance gets no job. One call reads a page."""
    sick = {"NODE_AGENT": HealthReport(HealthStatus.IMPAIRED, NOW, "XID 48 on GPU 3")}
    api.functions.store.save_instance(instance(A, ecs_status="DRAINING", health=sick))
    api.functions.store.save_instance(instance(B, silent_since=NOW))
    api.functions.store.save_instance(instance(C))
    for name in (A, B):
        api.functions.store.save_heartbeat(Heartbeat(name, NOW), True)
    api.functions.now = later(840)
    api.functions.store.save_heartbeat(Heartbeat(A, later(828)), True)
    first, second, third = api.get("/instances").body["instances"]
    assert api.functions.aws.operations()["BatchGetItem"] == 1
    assert first["node_agent"] == {"seen_at": "2026-11-21T09:13:48.000Z", "liveness": "HEARD"}
    assert second["node_agent"] == {"seen_at": "2026-11-21T09:00:00.000Z", "liveness": "LOST"}
    assert third["node_agent"] is None and third["out_of_use"] == []
    assert api.get(f"/instances/{B}").body["node_agent"] == second["node_agent"]
    assert [(one["kind"], one["since"]) for one in first["out_of_use"]] == [
        ("draining", None),
        ("impaired", "2026-11-21T09:00:00.000Z"),
    ]
    assert "not by gpu-recovery" in first["out_of_use"][0]["because"]
    assert "XID 48 on GPU 3" in first["out_of_use"][1]["because"]
    assert [(one["kind"], one["since"]) for one in second["out_of_use"]] == [("lost", "2026-11-21T09:00:00.000Z")]


USUAL: dict[str, int] = {}
HURRIED, PATIENT = {"suspect_s": 20, "unreachable_s": 60}, {"unreachable_s": 400, "heartbeat_stale_s": 500}


@pytest.mark.parametrize(
    ("policy", "unheard_s", "word"),
    [
        (USUAL, 45, "HEARD"),
        (USUAL, 46, "SUSPECT"),
        (USUAL, 120, "SUSPECT"),
        (USUAL, 121, "UNREACHABLE"),
        (USUAL, 180, "UNREACHABLE"),
        (USUAL, 181, "LOST"),
        (HURRIED, 21, "SUSPECT"),
        (HURRIED, 61, "UNREACHABLE"),
        (HURRIED, 181, "LOST"),
        (PATIENT, 181, "SUSPECT"),
        (PATIENT, 401, "UNREACHABLE"),
        (PATIENT, 501, "LOST"),
    ],
)
def test_how_sure_it_is_that_an_instance_is_there_is_said_in_the_words_of_the_policy(
    api: Api, monkeypatch: pytest.MonkeyPatch, policy: dict[str, int], unheard_s: int, word: str
) -> None:
    """Each of the three ages is a setting of the deployment."""
    monkeypatch.setenv("RECOVERY_POLICY", json.dumps(policy))
    api.functions.store.save_instance(instance())
    api.functions.store.save_heartbeat(Heartbeat(A, NOW), True)
    api.functions.now = later(unheard_s)
    assert api.get(f"/instances/{A}").body["heartbeat"]["liveness"] == word


def test_a_quarantined_instance_is_given_back_through_a_check(api: Api) -> None:
    """It does not work again before it has passed."""
    held = instance(status=InstanceStatus.QUARANTINED, ecs_status="DRAINING", drained=True)
    api.functions.store.save_instance(held)
    body = api.post(f"/instances/{A}/release").body
    assert body["status"] == "VERIFYING" and "operator" in body["reason"]
    api.functions.wake()
    assert [asked["status"] for asked in api.functions.aws.asked("UpdateContainerInstancesState")] == ["ACTIVE"]
    assert len(api.functions.aws.asked("RunTask")) == 1


def test_releasing_what_is_not_quarantined_changes_nothing(api: Api) -> None:
    """409, and why."""
    api.functions.store.save_instance(instance())
    assert "AVAILABLE" in refused(api.post(f"/instances/{A}/release"), 409)
    assert "RunTask" not in api.functions.aws.operations()
