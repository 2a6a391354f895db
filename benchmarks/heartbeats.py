"""Benchmark of a heartbeat in the node API: processor time without the network.

The measured code is the handler of the function, from the request of API Gateway to the response, with the real SDK.
Only the HTTP exchange with DynamoDB is replaced by a fixed answer. The number of cores that 10,000 instances need is
computed from the result.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from gpu_recovery.auth.authenticator import TokenAuthenticator
from gpu_recovery.auth.issuer_tag import add_tag
from gpu_recovery.auth.tokens import Token, TokenKind, digest_of
from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.heartbeat_store import heartbeat_key
from gpu_recovery.aws.item_codec import encode, to_iso
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.heartbeat import GpuHealth, Heartbeat, running_log_id, window_of
from gpu_recovery.core.instance.record import Claim, Instance
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver
from gpu_recovery.node_api.router import NodeApi
from gpu_recovery.recovery import Recovery

RANKS, HEARTBEATS = 8, 2_000
FLEET, INTERVAL_S = 10_000, 15
INSTANCE, BOOT = "i-0123456789abcdef0", "0b7c1d2e-1111-4222-8333-444455556666"
KEY = b"issuer key"
TOKEN = add_tag(KEY, f"grn_{'a' * 12}_{'b' * 43}")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def heartbeat_figures(heartbeats: int = HEARTBEATS) -> dict[str, Any]:
    """Return processor time in microseconds and DynamoDB calls of one heartbeat, and the cores for a large fleet."""
    calls: list[str] = []
    store = DynamoTokenStore(_client(calls), "instances")
    authenticator = TokenAuthenticator(store, lambda: NOW, TokenKind.NODE, lambda: KEY)
    api = NodeApi(HeartbeatReceiver(_loop(calls)), authenticator)
    _send_heartbeat(api, 1)  # the first heartbeat of a function also reads the token and the claims
    calls.clear()
    began = time.process_time()
    for sequence in range(2, heartbeats + 2):
        _send_heartbeat(api, sequence)
    taken_us = (time.process_time() - began) / heartbeats * 1e6
    per_s = FLEET / INTERVAL_S
    return {
        f"handler_us_with_{RANKS}_ranks": round(taken_us, 1),
        "dynamodb_calls_each": round(len(calls) / heartbeats, 3),
        f"cores_for_{FLEET}_instances": round(taken_us * per_s / 1e6, 2),
    }


def _loop(calls: list[str]) -> Recovery:
    store = DynamoStore(_client(calls), "jobs", "instances")
    unused: Any = None  # a heartbeat without a change causes no action and no notification
    return Recovery(store, unused, PRESETS[Preset.ADAPTIVE], lambda: NOW, unused)


def _client(calls: list[str]) -> Any:
    client = boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")

    def answer(request: Any, **_: Any) -> AWSResponse:
        operation = request.headers["X-Amz-Target"].decode().rsplit(".", 1)[-1]
        calls.append(operation)
        return _Answer(json.dumps(_ANSWERS[operation](json.loads(request.body))).encode())

    client.meta.events.register("before-send.dynamodb", answer)
    return client


_HEADERS: Any = {"content-type": "application/x-amz-json-1.0"}


class _Answer(AWSResponse):
    """An HTTP response that exists without a network exchange."""

    def __init__(self, body: bytes) -> None:
        super().__init__("https://dynamodb/", 200, _HEADERS, None)
        self._content = body


def _item(request: dict[str, Any]) -> dict[str, Any]:
    key = request["Key"]["container_inst_id"]["S"]
    if key == INSTANCE:
        claims = {f"sft-{n}": Claim(1, 1, n, n) for n in range(RANKS)}
        record = encode(Instance(INSTANCE, NOW, claims=claims))
        return {"Item": typed({**record, "container_inst_id": key, "commands": {}})}
    token = Token(
        TokenKind.NODE,
        token_id="a" * 12,
        holder=INSTANCE,
        digest=digest_of(TOKEN),
        issued_at=NOW,
        expires_at=NOW + timedelta(days=90),
        issued_by="bench",
    )
    return {"Item": typed(DynamoTokenStore(None, "instances").item_of_token(token))}


def _update_answer(request: dict[str, Any]) -> dict[str, Any]:
    return _EARLIER_HEARTBEAT


def _earlier_heartbeat() -> dict[str, Any]:
    """Return the earlier heartbeat as DynamoDB returns it after an update."""
    earlier = Heartbeat(INSTANCE, NOW, BOOT, NOW, 0, INTERVAL_S, health=GpuHealth.OK, window=window_of(NOW))
    beat = encode(earlier)
    ranks = {str(running_log_id(f"sft-{n}", 1, n)): f"{to_iso(NOW)} 1 {n} 0 sft-{n}" for n in range(RANKS)}
    counts = {"heard_even": {"a" * 12: 7}, "heard_odd": {}}
    return {"Attributes": typed({**beat, **counts, "ranks": ranks, "container_inst_id": heartbeat_key(INSTANCE)})}


_EARLIER_HEARTBEAT = _earlier_heartbeat()
_ANSWERS = {"GetItem": _item, "UpdateItem": _update_answer}


def _send_heartbeat(api: NodeApi, sequence: int) -> None:
    running = [
        {"job": f"sft-{n}", "attempt": 1, "rank": n, "epoch": 0, "pid": 4_000 + n, "ticks": 123_456}
        for n in range(RANKS)
    ]
    report = {
        "boot_id": BOOT,
        "uptime_s": 5_000.0,
        "sequence": sequence,
        "interval_s": INTERVAL_S,
        "running": running,
        "health": {"status": "ok", "digest": ""},
    }
    answer = api.answer(
        {
            "rawPath": "/api/v1/reports",
            "headers": {"authorization": f"Bearer {TOKEN}"},
            "body": json.dumps(report),
            "requestContext": {"http": {"method": "POST"}},
            "isBase64Encoded": False,
        }
    )
    if answer["statusCode"] != 200:
        raise AssertionError(f"a heartbeat was refused: {answer}")


if __name__ == "__main__":
    print(json.dumps(heartbeat_figures(), indent=2))
