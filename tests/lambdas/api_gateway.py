"""Calls of the HTTP API as API Gateway makes them (payload format 2.0), and what a client sees of the answers."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import pytest
from gpu_recovery.job_api.pagination import signed_cursor

from tests.aws.issuer_keys import CURSOR_KEY
from tests.lambdas.conftest import Functions
from tests.lambdas.described_answers import check_answer

TOKEN = "secret of operator-token"


@dataclass
class Answer:
    """What a client sees; header names in small letters."""

    status: int
    kind: str
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Api:
    """The API, called with the operator's token unless a test says otherwise."""

    functions: Functions

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = f"Bearer {TOKEN}",
        raw: str | None = None,
        encoded: bool = False,
        headers: dict[str, str] | None = None,
        signer: str | None = None,
        **query: str,
    ) -> Answer:
        authorizer = {} if signer is None else {"authorizer": {"iam": {"userArn": signer, "cognitoIdentity": None}}}
        path = decoded(path)
        text = raw if raw is not None else None if body is None else json.dumps(body)
        event = {
            "version": "2.0",
            "routeKey": "ANY /{proxy+}",
            "rawPath": path,
            "rawQueryString": "",
            "headers": {"content-type": "application/json"}
            | ({} if token is None else {"authorization": token})
            | (headers or {}),
            "queryStringParameters": query or None,
            "isBase64Encoded": encoded,
            "body": text,
            "requestContext": {
                "http": {"method": method, "path": path},
                "stage": "$default",
                "requestId": "r-1",
                **authorizer,
            },
        }
        answer = self.functions.call("job_api", event)
        sent = {name.lower(): value for name, value in answer["headers"].items()}
        said = json.loads(answer["body"])
        check_answer(method, path, answer["statusCode"], said)
        return Answer(answer["statusCode"], sent["content-type"], said, sent)

    def get(self, path: str, **query: str) -> Answer:
        """GET below /api/v2."""
        return self.call("GET", f"/api/v2{path}", **query)

    def post(self, path: str, body: Any = None, **how: Any) -> Answer:
        """POST below /api/v2."""
        return self.call("POST", f"/api/v2{path}", body, **how)


def decoded(path: str) -> str:
    """A path as an HTTP API gives it to its function: every escape is decoded but that of the percent sign."""
    return re.sub(r"(?:%(?!25)[0-9A-Fa-f]{2})+", lambda run: unquote(run[0]), path)


def encoded(text: str) -> str:
    """A text as a cursor carries it."""
    return base64.urlsafe_b64encode(text.encode()).decode()


def signed(place: str) -> str:
    """A cursor of the listing of jobs with the right signature, whatever it leads to."""
    return signed_cursor(CURSOR_KEY, "jobs", place)


def forged(status: str, queued_at: str, job_id: str) -> str:
    """A cursor to a place that no listing has led to, as if it had."""
    return signed(encoded(json.dumps({"status": status, "queued_at": queued_at, "job_id_rank": job_id})))


def with_ray(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of a deployment that has a Ray cluster."""
    monkeypatch.setenv("RAY_QUEUE_URL", "https://sqs.us-east-1.amazonaws.com/111122223333/ray.fifo")
    monkeypatch.setenv("RAY_RUNNER_FUNCTION", "gpu-recovery-ray_runner")
    api.functions.chill()


def user_token(api: Api, user: str, role: str = "user") -> str:
    """The header of a new token of `user`."""
    body = api.post(f"/users/{quote(user, safe='')}/tokens", {"role": role}).body
    return f"Bearer {body['token']}"


def refused(answer: Answer, status: int, field: str | None = None) -> str:
    """The detail of a problem document, once it is one."""
    assert (answer.status, answer.kind) == (status, "application/problem+json")
    assert answer.body["status"] == status and answer.body["type"] and answer.body["title"]
    assert answer.body.get("field") == field
    return str(answer.body["detail"])
