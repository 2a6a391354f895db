"""Calls of node agents (docs/protocol.md): parses an API Gateway event and returns a response.

`HeartbeatReceiver` processes the report. Errors of the older calls have the form of GPUTasker, `{"ok": false,
"error": code}`; errors of the other calls are problem documents.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from gpu_recovery.auth.authenticator import TokenAuthenticator, TokenInvalid, TokenMissing
from gpu_recovery.auth.principals import signer_of, user_arn, without_path
from gpu_recovery.auth.tokens import INSTANCE_ID, Token
from gpu_recovery.core.heartbeat import BY_DAEMON, BY_ROLE, AgentCommand, AgentReport
from gpu_recovery.node_api.agent_tasks import TASK_ID, AgentTasks
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver
from gpu_recovery.node_api.report_parser import ReportInvalid, parse_gpu_report, parse_report, parse_task_report
from gpu_recovery.ports.errors import AnotherAgent, SequenceStale, TooManyConflicts, TooManyReports, TryAgainSoon
from gpu_recovery.wire import json_body
from gpu_recovery.wire.json_body import read_json

BODY_BYTES_MAX = 1_048_576
"""Size limit of a request body in bytes."""
RETRY_AFTER_S = 5
"""Seconds after which an agent sends a report again that was not processed."""
NEXT_S_MIN, NEXT_S_MAX = 1, 300
"""Bounds of the seconds until the next report that an agent is asked for."""
MISSED_HEARTBEATS_UNTIL_SUSPECT = 3
"""Missing heartbeats in a row that make an instance suspect."""
LEGACY_PATHS = ("/api/v1/report_gpu", "/api/v1/report_tasks")
BUSY = (TryAgainSoon, TooManyConflicts)
"""Errors after which the agent sends the report again. A report that is received twice changes nothing."""
REFUSALS = (ReportInvalid, TokenMissing, TokenInvalid, SequenceStale, AnotherAgent, TooManyReports)
"""Errors that the request caused."""


class NodeApiError(Exception):
    """A response other than 200. `more` is added to its body, `headers` to its headers."""

    def __init__(
        self, status: int, error: str, detail: str, headers: Mapping[str, str] | None = None, **more: object
    ) -> None:
        super().__init__(detail)
        self.status, self.error, self.detail, self.headers, self.more = status, error, detail, headers or {}, more


class NodeApi:
    """Answers the requests of node agents.

    node_roles: ARNs of the roles with instances that may sign their calls instead of sending a token.
    log_error:  receives errors that are neither the agent's fault nor a defect: AWS or a record was too busy.
    agent_role: ARN of the role of the agent's daemon service; "" if the deployment has no such service.
    """

    def __init__(
        self,
        receiver: HeartbeatReceiver,
        authenticator: TokenAuthenticator,
        node_roles: Sequence[str] = (),
        log_error: Callable[[BaseException], object] = lambda error: None,
        agent_role: str = "",
    ) -> None:
        self._recovery, self._receiver, self._authenticator, self._log_error = (
            receiver.recovery,
            receiver,
            authenticator,
            log_error,
        )
        self._roles = {without_path(role) for role in node_roles}
        self._agent_role = without_path(agent_role)
        self._agent_tasks = AgentTasks(receiver.recovery.store, receiver.recovery.clock)
        self._calls: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "/api/v1/report_gpu": self._gpus,
            "/api/v1/report_tasks": self._tasks,
            "/api/v1/reports": self._with_token,
            "/api/v1/signed/reports": self._signed,
        }

    def answer(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response to one request (payload format 2.0).

        Raises:
            Exception: errors that the request did not cause.
        """
        path = str(event.get("rawPath", "")).removesuffix("/")
        try:
            return _answer(200, self._dispatch(path, event))
        except NodeApiError as error:
            refusal = error
        except BUSY as error:
            self._log_error(error)
            refusal = NodeApiError(503, "busy", f"try again in {RETRY_AFTER_S} s", {"Retry-After": str(RETRY_AFTER_S)})
        except REFUSALS as error:
            refusal = _error_response(error)
        return _refusal(refusal, older=path in LEGACY_PATHS)

    def _dispatch(self, path: str, event: Mapping[str, Any]) -> Mapping[str, Any]:
        call = self._calls.get(path)
        if call is None:
            raise NodeApiError(404, "not_found", "there is no such path")
        if event["requestContext"]["http"]["method"] != "POST":
            raise NodeApiError(405, "method_not_allowed", "only POST is allowed", {"Allow": "POST"})
        return call(event)

    # -- the calls ---------------------------------------------------------------------------------------------------

    def _with_token(self, event: Mapping[str, Any]) -> dict[str, Any]:
        body = _body(event)
        scheme, _, token = _headers(event).get("authorization", "").partition(" ")
        by, spare = self._authenticate(token if scheme.lower() == "bearer" else "")
        return self._receive(parse_report(by.holder, _json(body)), spare, by.token_id)

    def _signed(self, event: Mapping[str, Any]) -> dict[str, Any]:
        body = _body(event)
        signer = signer_of(user_arn(event))
        if signer is not None and signer.principal == self._agent_role:
            return self._signed_by_task(signer.name, body)
        # EC2 names a session of an instance's role by the id of the instance.
        if signer is None or signer.principal not in self._roles or not INSTANCE_ID.fullmatch(signer.name):
            raise NodeApiError(
                403, "invalid_signer", "only the instances of the roles in node_role_arns may sign reports"
            )
        return self._receive(parse_report(signer.name, _json(body)), spare=True, by=BY_ROLE)

    def _signed_by_task(self, task_id: str, body: bytes) -> dict[str, Any]:
        """Receive a report of the agent's service. ECS names a session of a task's role by the id of the task."""
        if not TASK_ID.fullmatch(task_id):
            raise NodeApiError(403, "invalid_signer", "only tasks of ECS may sign with the role of the agent's service")
        instance_id = self._agent_tasks.instance_of(task_id)
        if instance_id is None:
            raise TryAgainSoon(f"no event of ECS has named task {task_id} yet")
        return self._receive(parse_report(instance_id, _json(body)), spare=True, by=BY_DAEMON)

    def _gpus(self, event: Mapping[str, Any]) -> dict[str, Any]:
        by, spare, document = self._legacy_call(event)
        self._receiver.receive(parse_gpu_report(by.holder, document), spare, by.token_id)
        return {"ok": True, "ts": self._ts()}

    def _tasks(self, event: Mapping[str, Any]) -> dict[str, Any]:
        by, spare, document = self._legacy_call(event)
        response = self._receiver.receive(parse_task_report(by.holder, document), spare, by.token_id)
        return {"ok": True, "updated": response.updated, "revived": response.revived, "ts": self._ts()}

    def _legacy_call(self, event: Mapping[str, Any]) -> tuple[Token, bool, Mapping[str, Any]]:
        """Return (token, spare, body) of a call of a GPUTasker agent, which carries its token in the body."""
        document = _json(_body(event))
        if not isinstance(document, dict):
            raise NodeApiError(400, "invalid_json", "the body must be a JSON object")
        token = document.get("token")
        return *self._authenticate(token if isinstance(token, str) else ""), document

    def _authenticate(self, token: str) -> tuple[Token, bool]:
        """Return the record of the token, and whether it was cached: then the report may cause one more call."""
        reads = self._authenticator.reads
        return self._authenticator.authenticate(token.strip()), self._authenticator.reads == reads

    def _receive(self, agent_report: AgentReport, spare: bool, by: str) -> dict[str, Any]:
        response = self._receiver.receive(agent_report, spare, by)
        next_s = self._recovery.policy.suspect_s // MISSED_HEARTBEATS_UNTIL_SUSPECT
        return {
            "ok": True,
            "ts": self._ts(),
            "next_s": max(NEXT_S_MIN, min(NEXT_S_MAX, next_s)),
            "inventory": response.wants_inventory,
            "orders": [
                {
                    "id": command.order_id,
                    "kind": command.kind.value,
                    "job": command.job_id,
                    "attempt": command.attempt,
                    "grace_s": command.grace_s,
                    **({"next": command.next_attempt} if command.next_attempt else {}),
                    **({"environment": dict(command.environment)} if command.environment else {}),
                }
                for command in response.commands
            ],
            "refused": [{"job": rank.job_id, "attempt": rank.attempt, "why": why} for rank, why in response.refused],
            **({"left_out": response.left_out} if response.left_out else {}),
            **({"records": [_record(order) for order in response.records]} if response.records else {}),
        }

    def _ts(self) -> int:
        return int(self._recovery.clock().timestamp())


def _record(order: AgentCommand) -> dict[str, Any]:
    return {"epoch": order.attempt, "text": order.text}


def _error_response(error: BaseException) -> NodeApiError:
    """Return the response to an error that the request caused."""
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
    """Return the bytes of the body. A body that is too large is refused before it is decoded."""
    text = event.get("body") or ""
    encoded = bool(event.get("isBase64Encoded"))
    try:
        if len(text) * (3 if encoded else 4) <= BODY_BYTES_MAX * 4 + 8:
            body = base64.b64decode(text, validate=True) if encoded else text.encode()
            if len(body) <= BODY_BYTES_MAX:
                return body
    except ValueError as error:
        raise NodeApiError(400, "invalid_json", "the body is not text") from error
    raise NodeApiError(413, "too_large", f"the body has more than {BODY_BYTES_MAX} bytes")


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
    all_headers = {"content-type": "application/json", **(headers or {})}
    return {"statusCode": status, "headers": all_headers, "body": json.dumps(body)}
