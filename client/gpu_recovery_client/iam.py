"""IAM authentication of the client: it signs each request (`gpu_recovery_client.request_signer`)."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping

import httpx

from gpu_recovery_client.request_signer import RequestSigner

SIGNED_HEADERS = ("content-type", "idempotency-key", "if-match")
"""Headers that a signature covers, besides Host and those of the signature itself. A proxy may change other headers."""


class IamAuth(httpx.Auth):
    """Signs each request, also each repetition, with SigV4. Credentials are read for each signature.

    Args and errors are those of `RequestSigner`.
    """

    requires_request_body = True

    def __init__(self, api_url: str, environment: Mapping[str, str] = os.environ) -> None:
        self.signer = RequestSigner(api_url, environment)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Sign the request and send it once."""
        headers = {name: request.headers[name] for name in SIGNED_HEADERS if name in request.headers}
        request.headers.update(self.signer.sign(request.method, str(request.url), headers, request.content))
        yield request
