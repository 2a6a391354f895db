"""Requests of every kind to the node API: never a failure of the server, and nobody is heard without a token."""

from __future__ import annotations

import base64
import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from gpu_recovery.auth.authenticator import TokenAuthenticator
from gpu_recovery.auth.tokens import Token, TokenKind, digest_of
from gpu_recovery.core.heartbeat import AgentReport
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.node_api.heartbeats import ReportResponse
from gpu_recovery.node_api.router import NodeApi
from hypothesis import example, given
from hypothesis import strategies as st

from simulator.memory_store.store import MemoryStore
from tests.auth.test_authenticator import KEY, Shelf, token
from tests.aws.records import JOB, NOW, A
from tests.fuzz.mutations import mutated, odd_values

BOOT = "0b7f3c1e-6a55-4e0c-9f3b-2a9c7d1e4f60"
ROLE = "arn:aws:iam::123456789012:role/nodes"
SIGNER = f"arn:aws:sts::123456789012:assumed-role/nodes/{A}"
CALLS = ("/api/v1/report_gpu", "/api/v1/report_tasks", "/api/v1/reports", "/api/v1/signed/reports")
BODIES: list[Any] = [
    {
        "boot_id": BOOT,
        "uptime_s": 1,
        "sequence": 1,
        "running": [{"job": JOB, "attempt": 1, "rank": 0, "pid": 1, "ticks": 1}],
    },
    {"token": token(1), "tasks": [{"running_log_id": "17"}], "timestamp": "1"},
    {"token": token(1), "gpus": [{"uuid": "GPU-1", "index": "0"}], "timestamp": 1},
]
GOOD: list[dict[str, Any]] = [
    {"path": CALLS[2], "headers": {"authorization": f"Bearer {token(1)}"}, "body": json.dumps(BODIES[0])},
    {"path": CALLS[3], "signer": SIGNER, "body": json.dumps(BODIES[0])},
    {"path": f"{CALLS[1]}/", "body": json.dumps(BODIES[1])},
    {"path": f"{CALLS[0]}/", "body": json.dumps(BODIES[2])},
    {"path": CALLS[0], "body": base64.b64encode(json.dumps(BODIES[2]).encode()).decode(), "flagged": True},
]
raw = st.sampled_from(
    [None, "", "{", "null", "[" * 100_000, '{"a":' * 50_000, "1" * 5_000, "NaN", '"\\ud800"', "\ud800", "%%%", "=" * 99]
)
ODD: dict[str, st.SearchStrategy[Any]] = {
    "path": st.sampled_from([*CALLS, "", "/", "/api/v1/", "/api/v1/reports//", "\ud800"]),
    "method": st.sampled_from(["GET", "PUT", "", "post", "X" * 500]),
    "headers": st.sampled_from(
        [
            None,
            {},
            {"Authorization": f"bearer {token(1)}"},
            {"authorization": token(1)},
            {"authorization": "Bearer \ud800"},
            {"authorization": f"Bearer {token(2)}"},
            {"authorization": "Bearer " + "x" * 70_000},
            {"authorization": f"Bearer {token(1)},Bearer {token(1)}"},
        ]
    ),
    "signer": st.sampled_from([None, "", f"{SIGNER}x", "\ud800", f"{SIGNER}/{A}"]),
    "body": raw | st.builds(json.dumps, mutated(BODIES) | odd_values()),
    "flagged": st.booleans(),
}
"""What may be wrong with each part of a request."""


@st.composite
def requests(draw: Any) -> dict[str, Any]:
    """A good request with something odd in some of its parts."""
    odd = draw(st.lists(st.sampled_from(sorted(ODD)), max_size=2, unique=True))
    return event_of(draw(st.sampled_from(GOOD)), **{name: draw(ODD[name]) for name in odd})


def event_of(good: dict[str, Any], **odd: Any) -> dict[str, Any]:
    """The request `good` as API Gateway hands it over, with the `odd` parts in place of its own."""
    parts = {"method": "POST", "headers": {}, "signer": None, "flagged": False, **good, **odd}
    context: dict[str, Any] = {"http": {"method": parts["method"], "path": parts["path"]}}
    if parts["signer"] is not None:
        context["authorizer"] = {"iam": {"userArn": parts["signer"]}}
    return {
        "rawPath": parts["path"],
        "headers": parts["headers"],
        "body": parts["body"],
        "isBase64Encoded": parts["flagged"],
        "requestContext": context,
    }


@dataclass
class World:
    """Enough of the loop for the node API, and what was heard."""

    policy: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    heard: list[AgentReport] = field(default_factory=list)
    store: MemoryStore = field(default_factory=MemoryStore)

    @property
    def recovery(self) -> World:
        return self

    def clock(self) -> Any:
        return NOW

    def receive(self, report: AgentReport, spare: bool, by: str) -> ReportResponse:
        self.heard.append(report)
        return ReportResponse()


def api() -> tuple[NodeApi, World]:
    """A node API in which token 1 is instance A's, and what it hears."""
    world = World()
    kept = Token(TokenKind.NODE, f"{1:012d}", A, digest_of(token(1)), NOW, NOW + timedelta(days=1), "a test")
    heard: Any = world
    return NodeApi(
        heard, TokenAuthenticator(Shelf({kept.token_id: kept}), world.clock, TokenKind.NODE, lambda: KEY), [ROLE]
    ), world


def test_any_request_is_answered() -> None:
    """With a status that the protocol knows and JSON that can be sent; what is heard is of the instance that spoke."""
    seen: Counter[int] = Counter()

    @example(event_of(GOOD[0]))
    @example(event_of(GOOD[0], body="{"))
    @example(event_of(GOOD[0], headers={}))
    @example(event_of(GOOD[1], signer=f"{SIGNER}x"))
    @example(event_of(GOOD[0], path="/api/v1/"))
    @example(event_of(GOOD[0], method="GET"))
    @given(requests())
    def answered(event: dict[str, Any]) -> None:
        asked, world = api()
        answer = asked.answer(event)
        document = json.loads(answer["body"])
        json.dumps(answer).encode()
        assert (document.get("ok") is True) == (answer["statusCode"] == 200) == bool(world.heard)
        assert {one.instance_id for one in world.heard} <= {A}
        assert answer["statusCode"] == 200 or document["error"].replace("_", "").isalpha()
        seen[answer["statusCode"]] += 1

    answered()
    assert set(seen) == {200, 400, 401, 403, 404, 405}
    assert seen[200] > seen.total() / 20
