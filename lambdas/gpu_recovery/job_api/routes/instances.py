"""Instances: listed, read, taken out of use, given back; and the tokens of their agents."""

from __future__ import annotations

from gpu_recovery.auth import tokens
from gpu_recovery.auth.user_tokens import Role
from gpu_recovery.core.events import InstanceEvent, QuarantineRequested, ReleaseRequested
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.state_machine import Outcome
from gpu_recovery.job_api.dependencies import Desk
from gpu_recovery.job_api.pages import PAGING, page_of
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import Answer, Refused
from gpu_recovery.wire import jobs


def list_instances(desk: Desk, request: Request) -> Answer:
    """Every instance that has not left the cluster, by id, without its history."""
    bad: list[Exception] = []
    present = [status for status in InstanceStatus if status is not InstanceStatus.GONE]
    found = desk.recovery.store.instances_in(present, bad)
    page, cursor = page_of(desk, request, "instances", found, _id, lambda one: (one.instance_id,))
    now = desk.recovery.clock()
    views = [jobs.instance_summary(instance, now) for instance in page]
    return Answer(200, {"instances": views, "next_cursor": cursor, "unreadable": [str(error) for error in bad]})


def _id(instance: Instance) -> str:
    return instance.instance_id


def read_instance(desk: Desk, request: Request) -> Answer:
    """One instance with its history, its latest heartbeat, what it says of its GPUs, and what speaks against it."""
    instance_id, store = request.named["instance_id"], desk.recovery.store
    instance = store.load_instance(instance_id)
    if instance is None:
        raise _no_instance(instance_id)
    beat = next(iter(store.beats([instance_id]).values()), None)
    inventory = store.inventory(instance_id)
    now = desk.recovery.clock()
    told = jobs.heartbeat_view(beat, inventory, desk.recovery.policy, now)
    return Answer(200, {**jobs.instance_view(instance, now), "heartbeat": told})


def release_instance(desk: Desk, request: Request) -> Answer:
    """A quarantined instance, on its way back through a health check."""
    order = ReleaseRequested(at=desk.recovery.clock(), by=request.caller.name)
    return _ordered(desk, request, order, "Not released")


def quarantine_instance(desk: Desk, request: Request) -> Answer:
    """An instance, out of use until it is released."""
    because = jobs.because_of(request.text())
    order = QuarantineRequested(at=desk.recovery.clock(), by=request.caller.name, because=because)
    return _ordered(desk, request, order, "Not quarantined")


def _ordered(desk: Desk, request: Request, order: InstanceEvent, otherwise: str) -> Answer:
    """The instance after a person's order; `otherwise` is the title if it cannot be followed."""
    instance_id = request.named["instance_id"]
    decision = desk.recovery.tell(instance_id, order)
    if decision is None:
        raise _no_instance(instance_id)
    if decision.outcome is not Outcome.APPLIED:
        detail = f"{instance_id} is {decision.record.status}: {decision.reason}"
        raise Refused(409, "not_possible", otherwise, detail)
    return Answer(200, jobs.instance_view(decision.record, desk.recovery.clock()))


def _no_instance(instance_id: str) -> Refused:
    return Refused(404, "no_such_instance", "No such instance", f"there is no instance {instance_id}")


# -- tokens of agents --------------------------------------------------------------------------------------------------


def issue_token(desk: Desk, request: Request) -> Answer:
    """201 and a new token for the instance's agent, the only time that it is shown."""
    asked, now = jobs.object_of(request.text()), desk.recovery.clock()
    issued = tokens.issue(desk.node_tokens, request.named["instance_id"], now, request.caller.name, asked)
    desk.log.info("token_issued", extra=jobs.token_view(issued.kept, now))
    return Answer(201, {"token": issued.token, **jobs.token_view(issued.kept, now)})


def list_tokens(desk: Desk, request: Request) -> Answer:
    """The tokens of an instance, the newest last, without what opens."""
    instance_id = tokens.checked(request.named["instance_id"])
    listed = desk.node_tokens.load_tokens(instance_id)
    views = [jobs.token_view(one, desk.recovery.clock()) for one in listed.tokens]
    return Answer(200, {"instance_id": instance_id, "tokens": views})


def revoke_token(desk: Desk, request: Request) -> Answer:
    """The token, revoked; within a minute it opens nothing."""
    now, instance_id, token_id = desk.recovery.clock(), request.named["instance_id"], request.named["token_id"]
    revoked = tokens.revoke(desk.node_tokens, instance_id, token_id, now)
    if revoked is None:
        raise Refused(404, "no_such_token", "No such token", f"{instance_id} has no token {token_id}")
    desk.log.info("token_revoked", extra=jobs.token_view(revoked, now))
    return Answer(200, jobs.token_view(revoked, now))


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
        issue_token,
        "Issue a token for an instance's agent",
        {201: "NewNodeToken"},
        Role.OPERATOR,
        takes="TokenWish",
        refuses=(409, 413, 422),
    ),
    Route(
        "GET",
        f"{_ONE}/tokens",
        list_tokens,
        "The tokens of an instance",
        {200: "NodeTokens"},
        Role.OPERATOR,
        refuses=(422,),
    ),
    Route(
        "DELETE",
        f"{_ONE}/tokens/<token_id>",
        revoke_token,
        "Revoke a token of an instance",
        {200: "NodeToken"},
        Role.OPERATOR,
        refuses=(422,),
    ),
)
