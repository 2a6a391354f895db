"""Instances: listed, read, taken out of use, given back; and the tokens of their agents."""

from __future__ import annotations

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.events import InstanceEvent, QuarantineRequested, ReleaseRequested
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import PAGING, page_of
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.routes.tokens import TokenRoutes
from gpu_recovery.wire.instances import heartbeat_view, instance_summary, instance_view
from gpu_recovery.wire.json_body import because_of


def list_instances(desk: Dependencies, request: Request) -> ApiResponse:
    """Every instance that has not left the cluster, by id, without its history."""
    bad: list[Exception] = []
    present = [status for status in InstanceStatus if status is not InstanceStatus.GONE]
    found = desk.recovery.store.instances_in(present, bad)
    page, cursor = page_of(desk, request, "instances", found, _id, lambda one: (one.instance_id,))
    now = desk.recovery.clock()
    views = [instance_summary(instance, now) for instance in page]
    return ApiResponse(200, {"instances": views, "next_cursor": cursor, "unreadable": [str(error) for error in bad]})


def _id(instance: Instance) -> str:
    return instance.instance_id


def read_instance(desk: Dependencies, request: Request) -> ApiResponse:
    """One instance with its history, its latest heartbeat, what it says of its GPUs, and what speaks against it."""
    instance_id, store = request.named["instance_id"], desk.recovery.store
    instance = store.load_instance(instance_id)
    if instance is None:
        raise _no_instance(instance_id)
    beat = next(iter(store.load_heartbeats([instance_id]).values()), None)
    inventory = store.load_inventory(instance_id)
    now = desk.recovery.clock()
    told = heartbeat_view(beat, inventory, desk.recovery.policy, now)
    return ApiResponse(200, {**instance_view(instance, now), "heartbeat": told})


def release_instance(desk: Dependencies, request: Request) -> ApiResponse:
    """A quarantined instance, on its way back through a health check."""
    order = ReleaseRequested(at=desk.recovery.clock(), by=request.caller.name)
    return _ordered(desk, request, order, "Not released")


def quarantine_instance(desk: Dependencies, request: Request) -> ApiResponse:
    """An instance, out of use until it is released."""
    because = because_of(request.text())
    order = QuarantineRequested(at=desk.recovery.clock(), by=request.caller.name, because=because)
    return _ordered(desk, request, order, "Not quarantined")


def _ordered(desk: Dependencies, request: Request, order: InstanceEvent, otherwise: str) -> ApiResponse:
    """The instance after a person's order; `otherwise` is the title if it cannot be followed."""
    instance_id = request.named["instance_id"]
    decision = desk.recovery.handle(instance_id, order)
    if decision is None:
        raise _no_instance(instance_id)
    if decision.outcome is not EventOutcome.APPLIED:
        detail = f"{instance_id} is {decision.record.status}: {decision.reason}"
        raise ApiError(409, "not_possible", otherwise, detail)
    return ApiResponse(200, instance_view(decision.record, desk.recovery.clock()))


def _no_instance(instance_id: str) -> ApiError:
    return ApiError(404, "no_such_instance", "No such instance", f"there is no instance {instance_id}")


TOKENS = TokenRoutes(lambda desk: desk.node_tokens, issued="token_issued", revoked="token_revoked")
_BASE = "/api/v2/instances"
_ONE = f"{_BASE}/<instance_id>"
ROUTES = (
    Route("GET", _BASE, list_instances, "List the instances", {200: "Instances"}, query=PAGING),
    Route("GET", _ONE, read_instance, "One instance, its history and its latest heartbeat", {200: "Instance"}),
    Route(
        "POST",
        f"{_ONE}/release",
        release_instance,
        "Give a quarantined instance back",
        {200: "Instance"},
        Role.OPERATOR,
        refuses=(409,),
    ),
    Route(
        "POST",
        f"{_ONE}/quarantine",
        quarantine_instance,
        "Take an instance out of use",
        {200: "Instance"},
        Role.OPERATOR,
        takes="Because",
        refuses=(409, 413, 422),
    ),
    Route(
        "POST",
        f"{_ONE}/tokens",
        TOKENS.issue_token,
        "Issue a token for an instance's agent",
        {201: "NewNodeToken"},
        Role.OPERATOR,
        takes="TokenWish",
        refuses=(409, 413, 422),
    ),
    Route(
        "GET",
        f"{_ONE}/tokens",
        TOKENS.list_tokens,
        "The tokens of an instance",
        {200: "NodeTokens"},
        Role.OPERATOR,
        refuses=(422,),
    ),
    Route(
        "DELETE",
        f"{_ONE}/tokens/<token_id>",
        TOKENS.revoke_token,
        "Revoke a token of an instance",
        {200: "NodeToken"},
        Role.OPERATOR,
        refuses=(422,),
    ),
)
