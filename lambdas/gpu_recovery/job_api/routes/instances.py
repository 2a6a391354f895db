"""Routes of an instance: read, quarantine and release it, and its agent's tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.events import InstanceEvent, QuarantineRequested, ReleaseRequested
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.routes.tokens import TokenRoutes
from gpu_recovery.job_api.validation import body_of
from gpu_recovery.wire.instances import heartbeat_view, instance_view, node_agent_view

if TYPE_CHECKING:
    from gpu_recovery.job_api.models.requests import OptionalReason


def read_instance(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return one instance with its history, its latest heartbeat, its GPU inventory and its health reports."""
    instance_id, store = request.named["instance_id"], dependencies.recovery.store
    instance = store.load_instance(instance_id)
    if instance is None:
        raise no_instance(instance_id)
    heartbeat = next(iter(store.load_heartbeats([instance_id]).values()), None)
    inventory = store.load_inventory(instance_id)
    now, policy = dependencies.recovery.clock(), dependencies.recovery.policy
    agent = {
        "node_agent": node_agent_view(heartbeat, policy, now),
        "heartbeat": heartbeat_view(heartbeat, inventory, policy, now),
    }
    return ApiResponse(200, {**instance_view(instance, now, heartbeat), **agent})


def release_instance(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Release a quarantined instance.

    A health check must pass first, unless a job works on the instance and it was quarantined without evidence.
    """
    event = ReleaseRequested(at=dependencies.recovery.clock(), by=request.caller.name)
    return _handle_request(dependencies, request, event, "Not released")


def quarantine_instance(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Quarantine an instance until an operator releases it."""
    body: OptionalReason = body_of(request.text(), "OptionalReason")
    because = (body.because or "").strip()
    event = QuarantineRequested(at=dependencies.recovery.clock(), by=request.caller.name, because=because)
    return _handle_request(dependencies, request, event, "Not quarantined")


def _handle_request(
    dependencies: Dependencies, request: Request, event: InstanceEvent, refusal_title: str
) -> ApiResponse:
    """Handle an operator's request and return the instance.

    Args:
        dependencies: gives the recovery loop.
        request: names the instance.
        event: the operator's request.
        refusal_title: title of the problem document if the request is not possible.

    Raises:
        ApiError: 404, there is no such instance; 409, the request is not possible in the status of the instance.
    """
    instance_id = request.named["instance_id"]
    decision = dependencies.recovery.handle(instance_id, event)
    if decision is None:
        raise no_instance(instance_id)
    dependencies.instance_listings.forget()
    if decision.outcome is not EventOutcome.APPLIED:
        detail = f"{instance_id} is {decision.record.status}: {decision.reason}"
        raise ApiError(409, "not_possible", refusal_title, detail)
    return ApiResponse(200, instance_view(decision.record, dependencies.recovery.clock()))


def no_instance(instance_id: str) -> ApiError:
    """Return the error for an instance that is not known."""
    return ApiError(404, "no_such_instance", "No such instance", f"there is no instance {instance_id}")


TOKENS = TokenRoutes(
    lambda dependencies: dependencies.node_tokens,
    lambda dependencies: dependencies.node_token_key(),
    "IssueTokenRequest",
    issued="token_issued",
    revoked="token_revoked",
)
_INSTANCE = "/api/v2/instances/<instance_id>"
ROUTES = (
    Route("GET", _INSTANCE, read_instance, "Read an instance", {200: "Instance"}),
    Route(
        "POST",
        f"{_INSTANCE}/release",
        release_instance,
        "Release a quarantined instance",
        {200: "Instance"},
        Role.OPERATOR,
        refuses=(409,),
    ),
    Route(
        "POST",
        f"{_INSTANCE}/quarantine",
        quarantine_instance,
        "Quarantine an instance",
        {200: "Instance"},
        Role.OPERATOR,
        takes="OptionalReason",
        refuses=(409, 413, 422),
    ),
    Route(
        "POST",
        f"{_INSTANCE}/tokens",
        TOKENS.issue_token,
        "Issue a token for an instance's agent",
        {201: "NewNodeToken"},
        Role.OPERATOR,
        takes="IssueTokenRequest",
        refuses=(409, 413, 422),
    ),
    Route(
        "GET",
        f"{_INSTANCE}/tokens",
        TOKENS.list_tokens,
        "List the tokens of an instance",
        {200: "NodeTokens"},
        Role.OPERATOR,
        refuses=(422,),
    ),
    Route(
        "DELETE",
        f"{_INSTANCE}/tokens/<token_id>",
        TOKENS.revoke_token,
        "Revoke a token of an instance",
        {200: "NodeToken"},
        Role.OPERATOR,
        refuses=(422,),
    ),
)
