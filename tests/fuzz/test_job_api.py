"""Requests of every kind to the HTTP API: never a failure of the server, always a problem document that helps."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import Any
from urllib.parse import quote

import pytest
from gpu_recovery.core.job.record import JobStatus
from hypothesis import example, given
from hypothesis import strategies as st

from tests.aws.records import JOB, OTHER_JOB, A
from tests.fuzz.conftest import CHECKED, World
from tests.fuzz.mutations import mutated, nested, odd_values
from tests.job_api.submissions import ASKED
from tests.lambdas.api_gateway import TOKEN, encoded, forged

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
AUTHORIZED = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "get", "", "X" * 500]
IDS = [
    JOB,
    OTHER_JOB,
    A,
    CHECKED,
    f"{JOB}#a01",
    f"{JOB}#a01#plan",
    f"{JOB}#spec",
    f"ci-{A}",
    "fleet",
    "",
    " ",
    ".",
    "..",
    "a/b",
    "%",
    "%2",
    "%00",
    "\u00e9",
    "\U0001d518",
    "x" * 300,
    "x" * 9_000,
    "\ud800",
    "'; --",
    "<job_id>",
    "i-0 ",
    "\n",
    JOB.upper(),
    "null",
    "-1",
    "{}",
    "*",
]
PATHS = [
    "/api/v2/jobs",
    "/api/v2/jobs/",
    "/api/v2/jobs/{}",
    "/api/v2/jobs/{}/cancel",
    "/api/v2/jobs/{}/{}",
    "/api/v2/instances",
    "/api/v2/instances/{}",
    "/api/v2/instances/{}/release",
    "/api/v1/{}",
    "/",
    "",
    "//",
    "/api/v2",
    "{}",
    "/api/v2/jobs/../instances/{}",
]
odd_texts = st.sampled_from(IDS) | st.text(st.characters(), max_size=30)
cursors = (
    st.sampled_from(
        [
            forged(status, at, name)
            for status in (*JobStatus, "BUSY", "")
            for at in ("2026-11-21T09:00:00Z", "", "9999-12-31T23:59:59-14:00")
            for name in (JOB, "", "x" * 3_000, "\ud800")
        ]
    )
    | st.builds(lambda value: encoded(json.dumps(value)), odd_values())
    | odd_texts
)
queries = st.dictionaries(
    st.sampled_from(["status", "limit", "cursor", "dry_run", ""]),
    cursors
    | st.sampled_from([*JobStatus, "0", "1", "200", "201", "1e3", "\u0663", "9" * 5_000, "1,2", "QUEUED,FAILED"]),
    max_size=3,
)
headers = st.sampled_from(
    [
        {},
        {"Authorization": "x"},
        {"authorization": TOKEN},
        {"authorization": f"Bearer {TOKEN} "},
        {"authorization": f"bearer {TOKEN}"},
        {"authorization": f"Bearer {TOKEN},Bearer {TOKEN}"},
        {"authorization": "Bearer \ud800"},
        {"authorization": "Bearer " + "x" * 70_000},
        {"authorization": ""},
    ]
)
raw_bodies = st.sampled_from(
    [
        None,
        "",
        "{",
        "null",
        "[]",
        "workload: sft\nnnodes: 2\n",
        "[" * 100_000,
        '{"a":' * 50_000,
        "1" * 5_000,
        "NaN",
        '{"nnodes": 2, "nnodes": 3}',
        '{"nnodes": NaN}',
        '{"nnodes": 1e999}',
        '"\\ud800"',
        "\ud800",
        "\ufeff{}",
        json.dumps(ASKED | {"user": "x" * 300_000}),
        "x" * 300_000,
        "=" * 100,
        "%%%",
    ]
)
spoilt_jobs = st.builds(json.dumps, mutated([ASKED]))
bodies = raw_bodies | spoilt_jobs
binary = st.binary(max_size=100).map(lambda raw: base64.b64encode(raw).decode()) | raw_bodies | spoilt_jobs


def request(method: str, path: str, query: Any, sent: dict[str, str], body: Any, flagged: bool) -> dict[str, Any]:
    """As API Gateway hands it over, payload format 2.0."""
    return {
        "version": "2.0",
        "routeKey": "ANY /{proxy+}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": sent,
        "queryStringParameters": query or None,
        "isBase64Encoded": flagged,
        "body": body,
        "requestContext": {"http": {"method": method, "path": path}, "stage": "$default", "requestId": "r-1"},
    }


def answered(world: World, event: dict[str, Any]) -> int:
    """The status of an answer, once it is one that a client can use and that changed nothing it must not."""
    answer = world.functions.call("job_api", event)
    status, text = answer["statusCode"], answer["body"]
    assert TOKEN not in text and len(text) < 100_000
    assert text.encode()
    body = json.loads(text)
    kind = {name.lower(): value for name, value in answer["headers"].items()}["content-type"]
    assert 200 <= status < 500, body
    if status >= 400:
        assert kind == "application/problem+json"
        assert (body["status"], bool(body["title"]), bool(body["detail"])) == (status, True, True)
        assert status not in (400, 413, 422) or body["field"], body
    if status >= 400 or event["requestContext"]["http"]["method"] == "GET":
        assert not world.writes(), body
    if world.writes():
        world.begin_again()
    return int(status)


def paths() -> st.SearchStrategy[str]:
    """A route, or nearly one, with ids of every kind, escaped or not."""
    names = odd_texts | odd_texts.map(lambda name: quote(name, safe="", errors="replace"))
    return st.builds(
        lambda path, one, two: path.replace("{}", one, 1).replace("{}", two, 1), st.sampled_from(PATHS), names, names
    ) | st.text(st.characters(), max_size=40)


def test_requests_of_every_kind(world: World) -> None:
    """Any method, path, query, header and body: under 500, with the field, with no secret, with nothing half done."""
    seen: Counter[int] = Counter()

    @example("GET", f"/api/v2/jobs/{JOB}", {}, {}, None, False)
    @example("GET", "/api/v2/nothing", {}, AUTHORIZED, None, False)
    @given(st.sampled_from(METHODS), paths(), queries, headers | st.just(AUTHORIZED), binary, st.booleans())
    def each(method: str, path: str, query: Any, sent: dict[str, str], body: Any, flagged: bool) -> None:
        seen[answered(world, request(method, path, query, sent, body, flagged))] += 1

    each()
    assert seen[404] and seen[401], "the requests reach too little"


def test_nothing_but_the_token_opens_a_route(world: World) -> None:
    """However the header is spelt."""

    @given(st.sampled_from([path.format(JOB, JOB) for path in PATHS if path.startswith("/api/v2/j")]), headers)
    def each(path: str, sent: dict[str, str]) -> None:
        assert answered(world, request("GET", path, None, sent, None, False)) in (401, 404)
        assert world.functions.aws.count("dynamodb") == 0

    each()


def test_listings_of_every_kind(world: World) -> None:
    """Cursors that were forged, garbled or handed out for another status; limits and statuses of any spelling."""
    seen: Counter[int] = Counter()

    @example({})
    @example({"limit": "0"})
    @given(queries)
    def each(query: dict[str, str]) -> None:
        seen[answered(world, request("GET", "/api/v2/jobs", query, AUTHORIZED, None, False))] += 1

    each()
    assert set(seen) == {200, 400}


def test_jobs_of_every_kind(world: World) -> None:
    """Bodies that are no JSON, no job, almost a job, or too much of one, flagged as binary or not."""
    seen: Counter[int] = Counter()

    @example(json.dumps(ASKED), False)
    @example("{", False)
    @example("x" * 300_000, False)
    @example('{"nnodes": 2}', False)
    @given(bodies, st.booleans())
    def plain(body: Any, flagged: bool) -> None:
        seen[answered(world, request("POST", "/api/v2/jobs", None, AUTHORIZED, body, flagged))] += 1

    @given(binary)
    def flagged_as_binary(body: Any) -> None:
        seen[answered(world, request("POST", "/api/v2/jobs", None, AUTHORIZED, body, True))] += 1

    plain()
    flagged_as_binary()
    assert set(seen) == {201, 400, 413, 422}


@pytest.mark.slow
def test_orders_about_ids_of_every_kind(world: World) -> None:
    """Reading, canceling and releasing: what is not there is 404, and the items beside a record are no record."""
    seen: Counter[int] = Counter()
    routes = ["/api/v2/jobs/{}", "/api/v2/jobs/{}/cancel", "/api/v2/instances/{}", "/api/v2/instances/{}/release"]

    @example("GET", routes[0], JOB, False, None)
    @example("POST", routes[1], JOB, False, None)
    @example("GET", routes[2], "i-0", False, None)
    @given(st.sampled_from(["GET", "POST"]), st.sampled_from(routes), odd_texts, st.booleans(), bodies)
    def each(method: str, route: str, name: str, escaped: bool, body: Any) -> None:
        shown = quote(name, safe="", errors="replace") if escaped else name
        seen[answered(world, request(method, route.replace("{}", shown), None, AUTHORIZED, body, False))] += 1

    each()
    for method, route in (("GET", routes[0]), ("POST", routes[1]), ("GET", routes[2]), ("POST", routes[3])):
        for beside in (f"{JOB}#a01", f"{JOB}#a01#plan", f"{JOB}#spec", f"ci-{A}"):
            path = route.replace("{}", quote(beside, safe=""))
            assert answered(world, request(method, path, None, AUTHORIZED, None, False)) == 404
    assert {200, 202, 404} <= set(seen) <= {200, 202, 404, 405, 409}


def test_a_depth_that_json_can_spell_is_refused(world: World) -> None:
    """Deep enough to exhaust a reader, inside a field that is otherwise in order."""
    for depth in (10, 900, 20_000):
        body = json.dumps(ASKED).replace('"0.1"', "[" * depth + "]" * depth)
        assert answered(world, request("POST", "/api/v2/jobs", None, AUTHORIZED, body, False)) in (400, 422)
    assert answered(world, request("POST", "/api/v2/jobs", {"limit": str(nested(5))}, AUTHORIZED, "{}", False)) == 422
