"""HTTP responses of the job API as API Gateway receives them: entity tags, conditional requests and compression.

API Gateway's HTTP APIs compress nothing themselves, and a function's response has at most six megabytes.
"""

from __future__ import annotations

import hashlib
from typing import Any

from aws_lambda_powertools.event_handler import Response

from gpu_recovery.job_api.response import ApiResponse

COMPRESS_FROM_BYTES = 1_024
"""Shorter bodies are sent as they are: gzip would save nothing."""
UNCHANGED = 304
"""Status of the answer to a request that names the entity tag of the body."""


def is_known(tag: str, if_none_match: str) -> bool:
    """Return whether the header `If-None-Match` names an entity tag. The mark of a weak tag makes no difference."""
    return tag.removeprefix("W/") in (part.strip().removeprefix("W/") for part in if_none_match.split(","))


def response_of(answer: ApiResponse, method: str, if_none_match: str) -> Response[str]:
    """Return the response to a request.

    A response with status 200 to a GET has a weak entity tag of its body, unless the route gives its own tag. If the
    request names the same tag, the answer is 304 without a body. No answer may be stored by a cache.

    Args:
        answer: the answer of a route.
        method: method of the request.
        if_none_match: header `If-None-Match` of the request, "" without it.
    """
    text = answer.text
    headers: dict[str, Any] = {"Cache-Control": "no-store", **answer.headers}
    if method == "GET" and answer.status == 200:
        tag = headers.setdefault("ETag", f'W/"{hashlib.sha256(text.encode()).hexdigest()[:32]}"')
        if is_known(tag, if_none_match):
            return Response(UNCHANGED, answer.kind, "", headers=headers)
    headers["Vary"] = "Accept-Encoding"
    return Response(answer.status, answer.kind, text, headers=headers, compress=len(text) >= COMPRESS_FROM_BYTES)
