"""Sends one POST to the reports endpoint within a deadline.

TLS is verified, and a proxy of the environment is used. No redirect is followed: it would send the token to an address
outside the configuration. So a redirect counts as a response like any other.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NoReturn

from gpu_recovery_agent import VERSION, clock, responses
from gpu_recovery_agent.responses import Response

TIMEOUT_S = 5.0
"""Seconds for the whole request and its response."""
ANSWER_BYTES_MAX = 256 * 1024
PART_BYTES = 16 * 1024


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class ReportsEndpoint:
    """The address to which the agent sends its reports."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self._url, self.timeout_s = url, timeout_s
        secure = urllib.request.HTTPSHandler(context=ssl.create_default_context())
        self._opener = urllib.request.build_opener(_NoRedirect(), secure)

    def post(self, body: bytes, credentials: str | Mapping[str, str]) -> Response:
        """Send `body` and return the response, or `no_response` with the reason if none came.

        Never raises for an error of the network or of the server.

        Args:
            body: the JSON bytes.
            credentials: a token, or the headers that authenticate the body.
        """
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"gpu-recovery-agent/{VERSION}",
            **({"Authorization": f"Bearer {credentials}"} if isinstance(credentials, str) else credentials),
        }
        request = urllib.request.Request(self._url, body, headers, method="POST")
        deadline = clock.monotonic_s() + self.timeout_s
        try:
            with self._opener.open(request, timeout=self.timeout_s) as answer:
                return responses.read(answer.status, _bounded(answer, deadline), answer.headers.get("Retry-After"))
        except urllib.error.HTTPError as error:
            with error:
                try:
                    raw = _bounded(error, deadline)
                except (OSError, http.client.HTTPException):
                    raw = b""  # the status alone is enough
                return responses.read(error.code, raw, error.headers.get("Retry-After"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            return responses.no_response(f"the API does not answer: {type(reason).__name__}: {reason}"[:300])


def _bounded(answer: Any, deadline: float) -> bytes:
    """Return the whole body. Raises TimeoutError if it is too long, or not complete at the deadline."""
    body = b""
    while part := answer.read1(PART_BYTES):
        body += part
        if clock.monotonic_s() > deadline or len(body) > ANSWER_BYTES_MAX:
            _too_slow_or_long()
    return body


def _too_slow_or_long() -> NoReturn:
    raise TimeoutError("the answer did not end in time, or is too long")
