"""The queue as the scheduler wrote it last: what the web console polls."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.job_api.routes import queue

from tests.aws.records import A, B, instance, job, later, spec
from tests.job_api.routes.test_overview import keeps_objects
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ONLY_SNAPSHOT = {"as_of", "groups", "waiting_more", "running_more"}


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on a cluster of two instances, whose scheduler may write."""
    functions.now = later(60)
    for one in (A, B):
        functions.store.save_instance(instance(one, group="a100"))
    api = Api(functions)
    keeps_objects(api)
    return api


def asks(api: Api, job_id: str, n: int = 0, nodes: int = 1, group: str = "a100", **more: Any) -> None:
    """A queued job."""
    own = spec(user="bob", nnodes=nodes, group=group, **more)
    api.functions.store.create_job(job(job_id, spec=own, queued_at=later(n)), "")


def passes(api: Api) -> None:
    """A pass of the scheduler, and the time for which the API keeps a snapshot."""
    api.functions.call("scheduler", {"Records": []})
    api.functions.now = later((api.functions.now - later(0)).total_seconds() + 6)


def test_the_queue_is_answered_as_the_pass_has_left_it(api: Api) -> None:
    """The placed job runs, the other waits behind it, and no record is read."""
    asks(api, "first", nodes=2, max_runtime_s=7_200)
    asks(api, "second", 1, nodes=2)
    passes(api)
    api.functions.aws.calls.clear()
    body = api.get("/queue", snapshot="1").body
    assert body["as_of"] == "2026-11-21T09:01:00Z" and body["groups"] == ["a100"]
    (running,), (waiting,) = body["running"], body["waiting"]
    assert (running["job_id"], running["status"], running["can_suspend"]) == ("first", "SUBMITTING", False)
    assert (waiting["job_id"], waiting["position"], waiting["blockers"]) == ("second", 1, ["first"])
    assert waiting["earliest_at"] == running["ends_at"] == "2026-11-21T11:01:00.000Z"
    assert [(one["used"], one["limit"]) for one in body["quotas"]] == [(2, None)]
    assert set(api.functions.aws.operations()) == {"GetSecretValue", "GetObject"}


def test_each_answer_about_a_waiting_job_says_as_of_when(api: Api) -> None:
    """Its record keeps the sentence of the first pass: no pass writes a record for another number of free GPUs."""
    asks(api, "first", nodes=1, max_runtime_s=7_200)
    asks(api, "second", 1, nodes=2)
    passes(api)
    api.functions.now += timedelta(minutes=4)
    asks(api, "urgent", 246, nodes=1, priority=Priority.HIGH, max_runtime_s=7_200)
    passes(api)
    record = api.get("/jobs/second").body
    (shown,) = api.get("/queue", snapshot="1").body["waiting"]
    pending = api.get("/jobs/second/explain").body["pending"]
    assert not shown["sentence"].startswith(record["reason"])
    assert record["reason_at"] == "2026-11-21T09:01:00.000Z"
    assert api.get("/queue", snapshot="1").body["as_of"] == "2026-11-21T09:05:06Z"
    assert pending["as_of"] == "2026-11-21T09:05:12.000Z"


def test_the_snapshot_has_what_the_live_answer_has(api: Api) -> None:
    """With the same JSON, and with what only the snapshot has. The live answer is as before."""
    asks(api, "big", nodes=2)
    asks(api, "next", 1)
    passes(api)
    passes(api)
    live, shown = api.get("/queue").body, api.get("/queue", snapshot="1").body
    assert set(shown) == set(live) | ONLY_SNAPSHOT and not ONLY_SNAPSHOT & set(live)
    more = {"blockers", "would_suspend"}
    assert [{name: value for name, value in one.items() if name not in more} for one in shown["waiting"]] == live[
        "waiting"
    ]
    same = ("running", "totals", "quotas", "reservations", "unreadable")
    assert {name: shown[name] for name in same} == {name: live[name] for name in same}


def test_the_pages_of_a_snapshot_have_every_job_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all groups, or of one; the running jobs that the first page has no room for come last."""
    monkeypatch.setattr(queue, "RUNNING_SNAPSHOT_MAX", 1)
    for n in range(5):
        asks(api, f"a-{n}", n)
    asks(api, "b-0", 9, group="b", max_runtime_s=60)
    passes(api)

    def pages(**query: str) -> tuple[list[str], list[str]]:
        waiting, running, cursor = [], [], {}
        while True:
            body = api.get("/queue", snapshot="1", limit="2", **query, **cursor).body
            waiting += [one["job_id"] for one in body["waiting"]]
            running += [one["job_id"] for one in body["running"]]
            if body["next_cursor"] is None:
                return waiting, running
            cursor = {"cursor": body["next_cursor"]}

    assert pages() == (["a-2", "a-3", "a-4", "b-0"], ["a-0", "a-1"])
    assert pages(group="b") == (["b-0"], [])


def test_before_the_first_pass_the_snapshot_is_empty(api: Api) -> None:
    """Null and empty lists, not an error."""
    body = api.get("/queue", snapshot="1").body
    assert body["as_of"] is None and not any(body.values())
    refused(api.get("/queue", snapshot="yes"), 400, "snapshot")


def test_a_cursor_of_the_live_queue_does_not_continue_the_snapshot(api: Api) -> None:
    """And vice versa."""
    for n in range(5):
        asks(api, f"a-{n}", n)
    passes(api)
    live, shown = (api.get("/queue", limit="1", **more).body["next_cursor"] for more in ({}, {"snapshot": "1"}))
    refused(api.get("/queue", snapshot="1", cursor=live), 400, "cursor")
    refused(api.get("/queue", cursor=shown), 400, "cursor")


@pytest.mark.parametrize("query", [{}, {"snapshot": "1"}])
def test_each_job_has_its_name(api: Api, query: dict[str, str]) -> None:
    """The running and the waiting job, in the snapshot and in an answer that reads the queue; no name is null."""
    asks(api, "first", nodes=2, name="night-run")
    asks(api, "second", 1, nodes=2, name="next")
    asks(api, "third", 2, nodes=2)
    passes(api)
    body = api.get("/queue", **query).body
    assert [job["name"] for job in body["running"]] == ["night-run"]
    assert [job["name"] for job in body["waiting"]] == ["next", None]


def test_a_snapshot_of_an_older_release_has_no_names(api: Api) -> None:
    """The scheduler has not written since the upgrade: each name is null."""
    objects = keeps_objects(api)
    asks(api, "first", nodes=2, name="night-run")
    asks(api, "second", 1, nodes=2, name="next")
    passes(api)
    (key,) = (key for key in objects if "queue" in key)
    document = json.loads(gzip.decompress(objects[key]))
    for row in (*document["waiting"], *document["running"]):
        del row["name"]
    objects[key] = gzip.compress(json.dumps(document).encode())
    body = api.get("/queue", snapshot="1").body
    assert [(job["job_id"], job["name"]) for job in (*body["running"], *body["waiting"])] == [
        ("first", None),
        ("second", None),
    ]


def test_a_queue_entry_of_an_older_release_is_read_without_a_name(api: Api) -> None:
    """The job gets its name in the queue with its next write."""
    asks(api, "first", name="night-run")
    (item,) = (item for item in api.functions.kept().values() if item.get("job_id_rank") == {"S": "first"})
    assert '"name":"night-run"' in item["line_entry"]["S"]
    table = api.functions.aws.tables.tables[api.functions.store.jobs.name]
    table.put({**item, "line_entry": {"S": item["line_entry"]["S"].replace(',"name":"night-run"', "")}})
    (waiting,) = api.get("/queue").body["waiting"]
    assert (waiting["job_id"], waiting["name"]) == ("first", None)
