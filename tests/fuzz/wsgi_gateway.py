"""The job API as a WSGI application: what API Gateway does to a request and an answer, and nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

Start = Callable[[str, list[tuple[str, str]]], Any]
AS_TEXT = ("application/json", "text/")


def event_of(environ: dict[str, Any]) -> dict[str, Any]:
    """The event of payload format 2.0; a body that is neither JSON nor text comes in base64."""
    path, _, query = environ["REQUEST_URI"].partition("?")
    headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")}
    headers.pop("accept-encoding", None)  # the WSGI client of schemathesis decodes no compressed answer
    if environ.get("CONTENT_TYPE"):
        headers["content-type"] = environ["CONTENT_TYPE"]
    raw = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    is_text = headers.get("content-type", "text/").startswith(AS_TEXT)
    body = (raw.decode(errors="replace") if is_text else base64.b64encode(raw).decode()) if raw else None
    asked = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        asked[name] = f"{asked[name]},{value}" if name in asked else value
    return {
        "version": "2.0",
        "routeKey": "ANY /{proxy+}",
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "queryStringParameters": asked or None,
        "isBase64Encoded": bool(raw) and not is_text,
        "body": body,
        "requestContext": {
            "http": {"method": environ["REQUEST_METHOD"], "path": path},
            "stage": "$default",
            "requestId": "r-1",
        },
    }


def gateway(call: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[dict[str, Any], Start], Iterable[bytes]]:
    """A WSGI application in front of a handler."""

    def app(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        answer = call(event_of(environ))
        status = answer["statusCode"]
        start(
            f"{status} {HTTPStatus(status).phrase}", [(name, str(value)) for name, value in answer["headers"].items()]
        )
        raw = answer["body"].encode()
        return [base64.b64decode(raw) if answer["isBase64Encoded"] else raw]

    return app
