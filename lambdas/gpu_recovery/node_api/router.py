"""The calls of node agents (docs/protocol.md): an event of API Gateway in, an answer out. What follows is `hearing`'s.

The older calls answer as seed 000 has it, `{"ok": false, "error": code}`; the others with a problem document.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from gpu_recovery.auth.authenticator import TokenAuthenticator, TokenInvalid, TokenMissing
from gpu_recovery.auth.tokens import Token
from gpu_recovery.core.heartbeat import BY_ROLE, AgentReport
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver
from gpu_recovery.node_api.report_parser import ReportInvalid, report, report_of_gpus, report_of_tasks
from gpu_recovery.ports.errors import AnotherAgent, SequenceStale, TooManyConflicts, TooManyReports, TryAgainSoon
from gpu_recovery.wire import json_body
from gpu_recovery.wire.json_body import read_json

BODY_BYTES_MAX = 1_048_576
RETRY_AFTER_S = 5
NEXT_S_MIN, NEXT_S_MAX = 1, 300
MISSED_HEARTBEATS_UNTIL_SUSPECT = 3
"""An instance is suspect when so many heartbeats are missing."""
ROLE = re.compile(r"arn:(?P<partition>aws[a-z-]*):iam::(?P<account>\d{12}):role/(?:[^/]+/)*(?P<role>[\w+=,.@-]+)")
SESSION = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):sts::(?P<account>\d{12}):assumed-role/(?P<role>[\w+=,.@-]+)"
    r"/(?P<instance>m?i-[0-9a-f]{8,17})",
    re.ASCII,
)


LEGACY_PATHS = ("/api/v1/report_gpu", "/api/v1/report_tasks")
BUSY = (TryAgainSoon, TooManyConflicts)
"""It may be asked again: a report that is heard twice changes nothing."""
REFUSALS = (ReportInvalid, TokenMissing, TokenInvalid, SequenceStale, AnotherAgent, TooManyReports)


class NodeApiError(Exception):
    """An answer other than 200. `more` goes into its body, `headers` beside it."""

    def __init__(
        self, status: int, error: str, detail: str, headers: Mapping[str, str] | None = None, **more: object
    ) -> None:
        super().__init__(detail)
        self.status, self.error, self.detail, self.headers, self.more = status, error, detail, headers or {}, more


class NodeApi:
    """Answers agents.

    node_roles: the ARNs of the roles whose instances may sign their calls instead of sending a token.
    tell:       gets what is no agent's fault and no defect either: AWS or a record was too busy.
    """

    def __init__(
        self,
        hearing: HeartbeatReceiver,
        door: TokenAuthenticator,
        node_roles: Sequence[str] = (),
        tell: Callable[[BaseException], object] = lambda error: None,
    ) -> None:
        self._recovery, self._receiver, self._authenticator, self._log_error = hearing.recovery, hearing, door, tell
        self._roles = [found.group(*ROLE.groupindex) for role in node_roles if (found := ROLE.fullmatch(role))]
        self._calls: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "/api/v1/report_gpu": self._gpus,
            "/api/v1/report_tasks": self._tasks,
            "/api/v1/reports": self._with_token,
            "/api/v1/signed/reports": self._signed,
        }

    def answer(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request, payload format 2.0. What is no fault of the request's is raised."""
        path = str(event.get("rawPath", "")).removesuffix("/")
        try:
            return _answer(200, self._answered(path, event))
        except NodeApiError as error:
            refusal = error
        except BUSY as error:
            self._log_error(error)
            refusal = NodeApiError(503, "busy", f"ask again in {RETRY_AFTER_S} s", {"Retry-After": str(RETRY_AFTER_S)})
        except REFUSALS as error:
            refusal = _refused(error)
        return _refusal(refusal, older=path in LEGACY_PATHS)

    def _answered(self, path: str, event: Mapping[str, Any]) -> Mapping[str, Any]:
        call = self._calls.get(path)
        if call is None:
            raise NodeApiError(404, "not_found", "there is no such path")
        if event["requestContext"]["http"]["method"] != "POST":
            raise NodeApiError(405, "method_not_allowed", "only POST is understood here", {"Allow": "POST"})
        return call(event)

    # -- the calls ---------------------------------------------------------------------------------------------------

    def _with_token(self, event: Mapping[str, Any]) -> dict[str, Any]:
        body = _body(event)
        scheme, _, token = _headers(event).get("authorization", "").partition(" ")
        by, spare = self._authenticate(token if scheme.lower() == "bearer" else "")
        return self._receive(report(by.holder, _json(body)), spare, by.token_id)

    def _signed(self, event: Mapping[str, Any]) -> dict[str, Any]:
        body = _body(event)
        signer = event["requestContext"].get("authorizer", {}).get("iam", {}).get("userArn") or ""
        session = SESSION.fullmatch(signer)
        if session is None or session.group(*ROLE.groupindex) not in self._roles:
            raise NodeApiError(
                403, "invalid_signer", "only the instances of the roles in node_role_arns may sign reports"
            )
        return self._receive(report(session["instance"], _json(body)), spare=True, by=BY_ROLE)

    def _gpus(self, event: Mapping[str, Any]) -> dict[str, Any]:
        by, spare, document = self._legacy_call(event)
        self._receiver.receive(report_of_gpus(by.holder, document), spare, by.token_id)
        return {"ok": True, "ts": self._ts()}

    def _tasks(self, event: Mapping[str, Any]) -> dict[str, Any]:
        by, spare, document = self._legacy_call(event)
        heard = self._receiver.receive(report_of_tasks(by.holder, document), spare, by.token_id)
        return {"ok": True, "updated": heard.updated, "revived": heard.revived, "ts": self._ts()}

    def _legacy_call(self, event: Mapping[str, Any]) -> tuple[Token, bool, Mapping[str, Any]]:
        """(token, spare, body) of a call of seed 000, which carries its token in the body."""
        document = _json(_body(event))
        if not isinstance(document, dict):
            raise NodeApiError(400, "invalid_json", "the body must be a JSON object")
        token = document.get("token")
        return *self._authenticate(token if isinstance(token, str) else ""), document

    def _authenticate(self, token: str) -> tuple[Token, bool]:
        """What is kept of a token, and whether that was known: then the report has a call to spare."""
        reads = self._authenticator.reads
        return self._authenticator.authenticate(token.strip()), self._authenticator.reads == reads

    def _receive(self, said: AgentReport, spare: bool, by: str) -> dict[str, Any]:
        heard = self._receiver.receive(said, spare, by)
        next_s = self._recovery.policy.suspect_s // MISSED_HEARTBEATS_UNTIL_SUSPECT
        return {
            "ok": True,
            "ts": self._ts(),
            "next_s": max(NEXT_S_MIN, min(NEXT_S_MAX, next_s)),
            "inventory": heard.wants_inventory,
            "orders": [
                {
                    "id": one.order_id,
                    "kind": one.kind.value,
                    "job": one.job_id,
                    "attempt": one.attempt,
                    "grace_s": one.grace_s,
                }
                for one in heard.commands
            ],
            "refused": [{"job": one.job_id, "attempt": one.attempt, "why": why} for one, why in heard.refused],
            **({"left_out": heard.left_out} if heard.left_out else {}),
        }

    def _ts(self) -> int:
        return int(self._recovery.clock().timestamp())


def _refused(error: BaseException) -> NodeApiError:
    """The answer that an error asks for."""
    match error:
        case ReportInvalid():
            return NodeApiError(400, error.error_code, error.detail, field=error.field)
        case TokenMissing():
            return NodeApiError(401, "missing_token", str(error), {"WWW-Authenticate": "Bearer"})
        case SequenceStale():
            return NodeApiError(409, "stale_sequence", str(error), last=error.last)
        case AnotherAgent():
            return NodeApiError(409, "another_agent", str(error))
        case TooManyReports():
            return NodeApiError(429, "too_many", str(error), {"Retry-After": str(error.retry_after_s)})
    return NodeApiError(403, "invalid_token", str(error))


def _headers(event: Mapping[str, Any]) -> dict[str, str]:
    return {name.lower(): value for name, value in (event.get("headers") or {}).items()}


def _body(event: Mapping[str, Any]) -> bytes:
    """The body as it was sent; refused before it is decoded if it is too large."""
    text = event.get("body") or ""
    encoded = bool(event.get("isBase64Encoded"))
    try:
        if len(text) * (3 if encoded else 4) <= BODY_BYTES_MAX * 4 + 8:
            body = base64.b64decode(text, validate=True) if encoded else text.encode()
            if len(body) <= BODY_BYTES_MAX:
                return body
    except ValueError as error:
        raise NodeApiError(400, "invalid_json", "the body is no text") from error
    raise NodeApiError(413, "too_large", f"a body may have {BODY_BYTES_MAX} bytes")


def _json(body: bytes) -> Any:
    try:
        return read_json(body.decode())
    except (ValueError, RecursionError) as error:
        raise NodeApiError(400, "invalid_json", f"the body is not JSON: {error}"[:200]) from error


def _refusal(refusal: NodeApiError, older: bool) -> dict[str, Any]:
    if older:
        return _answer(refusal.status, {"ok": False, "error": refusal.error}, refusal.headers)
    problem = json_body.problem(refusal.status, HTTPStatus(refusal.status).phrase, refusal.detail)
    body = {**problem, "error": refusal.error, **{name: value for name, value in refusal.more.items() if value != ""}}
    return _answer(refusal.status, body, {**refusal.headers, "content-type": "application/problem+json"})


def _answer(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    given = {"content-type": "application/json", **(headers or {})}
    return {"statusCode": status, "headers": given, "body": json.dumps(body)}
