"""Guard of the sandbox's servers: decides by host, origin and SigV4 signature whether a request is answered.

The loopback interface alone protects nothing. Every user of the computer reaches it. So does a web page in a browser,
by requests to 127.0.0.1 or by a name that its owner points there (DNS rebinding).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from sandbox import credentials

AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/\s,]+)/(?P<day>\d{8})/(?P<region>[\w-]+)/(?P<service>[\w-]+)/aws4_request"
    r", ?SignedHeaders=(?P<headers>[a-z0-9;_-]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)
TIMESTAMP = "%Y%m%dT%H%M%SZ"
SKEW_MAX = timedelta(minutes=15)
"""Age of a signature at most, as on AWS."""
API_HOST = r"[a-z0-9]{1,32}\.execute-api\.localhost"
"""Pattern of the host of a deployed API, which its outputs and the links of e-mails name.

Every name below `localhost` is the loopback interface (RFC 6761), so nobody can point it elsewhere.
"""
MUST_BE_SIGNED = {"host", "x-amz-date"}


def _utc_now() -> datetime:
    return datetime.now(UTC)


class RequestGuard:
    """Refuses requests to one server of the sandbox.

    Args:
        secret: The random secret of the sandbox.
        port: TCP port of the server.
        clock: Returns the present time.
    """

    def __init__(self, secret: str, port: int, clock: Callable[[], datetime] = _utc_now) -> None:
        self._secret, self._clock = secret, clock
        self._host = re.compile(rf"(127\.0\.0\.1|localhost|\[::1\]|{API_HOST}):{port}")

    def cross_site_refusal(self, headers: Mapping[str, str]) -> str:
        """Return why a request may come from a foreign web page; "" if it does not.

        The web console is a page of this server itself, so its own origin is accepted.

        Args:
            headers: The headers, with names in small letters.
        """
        host = headers.get("host", "").lower()
        if self._host.fullmatch(host) is None:
            return "the Host header must name the loopback interface and the port of this server"
        origin = headers.get("origin", f"http://{host}").lower()
        return "" if origin == f"http://{host}" else "requests of foreign web pages are refused"

    def refusal(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> str:
        """Return why a request is refused; "" if it comes from a holder of a key of this sandbox.

        Args:
            method: The HTTP method.
            target: Path and query.
            headers: The headers, with names in small letters.
            body: The body, which the signature covers.
        """
        return self.cross_site_refusal(headers) or self._signature_refusal(method, target, headers, body)

    def _signature_refusal(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> str:
        found = AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        if found is None:
            return "sign the request with the credentials of the sandbox (state.json)"
        signed = set(found["headers"].split(";"))
        if "x-amz-content-sha256" in headers:
            return "the hash of the body is computed here, not taken from a header"
        if not (signed >= MUST_BE_SIGNED and signed <= headers.keys()):
            return "the signature must cover the headers that it names, Host and X-Amz-Date among them"
        date = headers["x-amz-date"]
        try:
            age = abs(self._clock() - datetime.strptime(date, TIMESTAMP).replace(tzinfo=UTC))
        except ValueError:
            return "X-Amz-Date is no time"
        if age > SKEW_MAX or not date.startswith(found["day"]):
            return "the signature is too old"
        request = AWSRequest(
            method, f"http://{headers['host']}{target}", {name: headers[name] for name in signed}, body
        )
        request.context["timestamp"] = date
        secret = credentials.secret_access_key(self._secret, found["key"])
        signer = SigV4Auth(Credentials(found["key"], secret), found["service"], found["region"])
        expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
        return "" if hmac.compare_digest(expected, found["signature"]) else "the signature does not match"
