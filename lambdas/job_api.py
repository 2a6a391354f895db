"""HTTP: jobs, instances, tokens of nodes, the fleet's brakes, dead letters. Every route needs the operator's token."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from aws_lambda_powertools import Tracer
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from gpu_recovery import braking, redriving, wire
from gpu_recovery import tokens as node_tokens
from gpu_recovery.aws.api_sources import operator_token, task_definition
from gpu_recovery.aws.dead_letters import AwsDeadLetters
from gpu_recovery.aws.items import ItemUnreadable
from gpu_recovery.aws.wiring import logger, metrics, recovery, settings, tokens
from gpu_recovery.core.errors import RecoveryError, SpecInvalid
from gpu_recovery.core.events import CancelRequested, InstanceEvent, QuarantineRequested, ReleaseRequested
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.machine import Outcome
from gpu_recovery.ports import CursorInvalid, TryAgainSoon
from gpu_recovery.recovery import TooContended, Unsaid
from gpu_recovery.submitting import submit
from gpu_recovery.tokens import TokensFull

BODY_BYTES_MAX = 262_144
PAGE_MAX, PAGE_DEFAULT = 200, 50
ID_CHARACTERS_MAX = 255
SHOWN_MAX = 200
CANCEL_TRIES = 5
"""The scheduler may launch a job between our look at it and our order, which is then about an attempt that is over."""
REDRIVE_MAX = 100
"""Letters of one request: each takes a call or two, and API Gateway waits for 29 seconds."""
RETRY_AFTER_S = 5
OPERATOR = "an operator"
app = APIGatewayHttpResolver()
tracer = Tracer()


class Unauthorized(Exception):
    """No token, or not the operator's."""


def answer(status: int, body: Any, kind: str = "application/json") -> Response[str]:
    """An HTTP answer with a JSON body."""
    return Response(status_code=status, content_type=kind, body=json.dumps(body))


def refuse(status: int, title: str, detail: str, field: str | None = None) -> Response[str]:
    """An error answer as RFC 9457 has it."""
    return answer(status, wire.problem(status, title, detail, field), "application/problem+json")


@app.exception_handler(SpecInvalid)
def _invalid(error: SpecInvalid) -> Response[str]:
    return refuse(422, "The request cannot be accepted", error.detail, error.field)


@app.exception_handler(TokensFull)
def _enough(error: TokensFull) -> Response[str]:
    return refuse(409, "Enough tokens", str(error))


@app.exception_handler(CursorInvalid)
def _bad_cursor(error: CursorInvalid) -> Response[str]:
    return refuse(400, "Bad cursor", str(error), "cursor")


@app.exception_handler(Unsaid)
def _unsaid(error: Unsaid) -> Response[str]:
    return refuse(502, "Done, but not told", f"{error}; what could not be said is kept and tried again")


@app.exception_handler([TryAgainSoon, TooContended])
def _busy(error: RecoveryError) -> Response[str]:
    logger.warning("busy", exc_info=error)
    refusal = refuse(503, "Busy", f"{error}; ask again in {RETRY_AFTER_S} s")
    refusal.headers["Retry-After"] = str(RETRY_AFTER_S)
    return refusal


@app.exception_handler(ItemUnreadable)
def _unreadable(error: ItemUnreadable) -> Response[str]:
    logger.error("unreadable", exc_info=error)
    return refuse(500, "A record cannot be read", str(error))


@app.exception_handler(Unauthorized)
def _unauthorized(error: Unauthorized) -> Response[str]:
    return refuse(401, "Unauthorized", "send the operator token as `Authorization: Bearer <token>`")


@app.not_found
def _no_route(error: NotFoundError) -> Response[str]:
    asked = app.current_event
    return refuse(404, "Not found", f"there is no {asked.http_method[:16]} {asked.path[:SHOWN_MAX]}")


def authorized(route: Callable[..., Response[str]]) -> Callable[..., Response[str]]:
    """The route behind the operator's token, compared in constant time."""

    def guarded(**parameters: str) -> Response[str]:
        given = app.current_event.headers.get("authorization", "")
        expected = f"Bearer {operator_token(settings().operator_token_secret)}"
        if not hmac.compare_digest(given.encode(errors="replace"), expected.encode()):
            raise Unauthorized
        # The job ids of people may hold a slash, which a path carries as %2F.
        named = {name: unquote(value) for name, value in parameters.items()}
        if not all(one.isascii() and one.isprintable() and len(one) <= ID_CHARACTERS_MAX for one in named.values()):
            return refuse(404, "Not found", f"an id has at most {ID_CHARACTERS_MAX} printable ASCII characters")
        return route(**named)

    return guarded


@app.post("/api/v2/jobs")
@authorized
def submit_job() -> Response[str]:
    """201 and the new job."""
    try:
        text = app.current_event.decoded_body or ""
        if len(text.encode()) > BODY_BYTES_MAX:
            return refuse(413, "Too large", f"a job may have {BODY_BYTES_MAX} bytes", "body")
        document = wire.read_json(text)
    except (ValueError, RecursionError) as error:  # no text, no JSON, a number too long, lists too deep
        return refuse(400, "Not JSON", str(error), "body")
    told = settings()
    job = submit(recovery(), document, text, told.job_id_prefix, task_definition, lambda: secrets.token_hex(2))
    return answer(201, wire.job_view(job, told.policy))


@app.get("/api/v2/jobs")
@authorized
def list_jobs() -> Response[str]:
    """A page of jobs, what is under way first."""
    asked = app.current_event.query_string_parameters or {}
    status = asked.get("status")
    if status is not None and status not in set(JobStatus):
        return refuse(400, "Bad status", f"must be one of {', '.join(JobStatus)}", "status")
    limit = asked.get("limit", str(PAGE_DEFAULT))
    if not limit.isdecimal() or len(limit) > len(str(PAGE_MAX)) or not 1 <= int(limit) <= PAGE_MAX:
        return refuse(400, "Bad limit", f"must be a whole number from 1 to {PAGE_MAX}", "limit")
    bad: list[Exception] = []
    page = recovery().store.list_jobs(JobStatus(status) if status else None, int(limit), asked.get("cursor"), bad)
    jobs = [wire.job_summary(job, settings().policy) for job in page.jobs]
    return answer(200, {"jobs": jobs, "next_cursor": page.cursor, "unreadable": [str(error) for error in bad]})


@app.get("/api/v2/jobs/<job_id>")
@authorized
def read_job(job_id: str) -> Response[str]:
    """One job with its history."""
    job = recovery().store.load_job(job_id)
    return answer(200, wire.job_view(job, settings().policy)) if job else _no_job(job_id)


@app.post("/api/v2/jobs/<job_id>/cancel")
@authorized
def cancel_job(job_id: str) -> Response[str]:
    """The job, being stopped or already ended; by force, through the agents of its instances, too."""
    loop = recovery()
    asked = (app.current_event.query_string_parameters or {}).get("force", "0")
    if asked not in ("0", "1"):
        return refuse(400, "Bad force", "must be 0 or 1", "force")
    for _ in range(CANCEL_TRIES):
        job = loop.store.load_job(job_id)
        if job is None:
            return _no_job(job_id)
        order = CancelRequested(at=loop.clock(), attempt=job.attempt, by=OPERATOR, force=asked == "1")
        decision = loop.tell(job_id, order)
        if decision is not None and decision.outcome is not Outcome.OUTDATED:
            return read_job(job_id=job_id)
    return refuse(409, "The job is moving", f"job {job_id} was launched anew each time; cancel it again")


@app.get("/api/v2/instances")
@authorized
def list_instances() -> Response[str]:
    """Every instance that has not left the cluster, by id, without its history."""
    bad: list[Exception] = []
    present = [status for status in InstanceStatus if status is not InstanceStatus.GONE]
    found = recovery().store.instances_in(present, bad)
    views = [wire.instance_summary(instance) for instance in sorted(found, key=lambda one: one.instance_id)]
    return answer(200, {"instances": views, "next_cursor": None, "unreadable": [str(error) for error in bad]})


@app.get("/api/v2/instances/<instance_id>")
@authorized
def read_instance(instance_id: str) -> Response[str]:
    """One instance with its history, its latest heartbeat and what it says of its GPUs."""
    loop = recovery()
    instance = loop.store.load_instance(instance_id)
    if instance is None:
        return _no_instance(instance_id)
    beat = next(iter(loop.store.beats([instance_id]).values()), None)
    told = wire.heartbeat_view(beat, loop.store.inventory(instance_id), settings().policy, loop.clock())
    return answer(200, {**wire.instance_view(instance), "heartbeat": told})


@app.post("/api/v2/instances/<instance_id>/release")
@authorized
def release_instance(instance_id: str) -> Response[str]:
    """A quarantined instance, on its way back through a health check."""
    return _ordered(instance_id, ReleaseRequested(at=recovery().clock(), by=OPERATOR), "Not released")


@app.post("/api/v2/instances/<instance_id>/quarantine")
@authorized
def quarantine_instance(instance_id: str) -> Response[str]:
    """An instance, out of use until it is released."""
    because = wire.because_of(app.current_event.decoded_body)
    order = QuarantineRequested(at=recovery().clock(), by=OPERATOR, because=because)
    return _ordered(instance_id, order, "Not quarantined")


@app.post("/api/v2/instances/<instance_id>/tokens")
@authorized
def issue_token(instance_id: str) -> Response[str]:
    """201 and a new token for the instance's agent, the only time that it is shown."""
    asked = wire.object_of(app.current_event.decoded_body)
    issued = node_tokens.issue(tokens(), instance_id, recovery().clock(), OPERATOR, asked)
    logger.info("token_issued", extra=wire.token_view(issued.kept, recovery().clock()))
    return answer(201, {"token": issued.token, **wire.token_view(issued.kept, recovery().clock())})


@app.get("/api/v2/instances/<instance_id>/tokens")
@authorized
def list_tokens(instance_id: str) -> Response[str]:
    """The tokens of an instance, the newest last, without what opens."""
    listed = tokens().load_tokens(node_tokens.checked(instance_id))
    views = [wire.token_view(one, recovery().clock()) for one in listed.tokens]
    return answer(200, {"instance_id": instance_id, "tokens": views})


@app.delete("/api/v2/instances/<instance_id>/tokens/<token_id>")
@authorized
def revoke_token(instance_id: str, token_id: str) -> Response[str]:
    """The token, revoked; within a minute it opens nothing."""
    now = recovery().clock()
    revoked = node_tokens.revoke(tokens(), instance_id, token_id, now)
    if revoked is None:
        return refuse(404, "No such token", f"{instance_id} has no token {token_id}")
    logger.info("token_revoked", extra=wire.token_view(revoked, now))
    return answer(200, wire.token_view(revoked, now))


def _ordered(instance_id: str, order: InstanceEvent, otherwise: str) -> Response[str]:
    """The instance after a person's order; `otherwise` is the title if it cannot be followed."""
    decision = recovery().tell(instance_id, order)
    if decision is None:
        return _no_instance(instance_id)
    if decision.outcome is not Outcome.APPLIED:
        return refuse(409, otherwise, f"{instance_id} is {decision.record.status}: {decision.reason}")
    return answer(200, wire.instance_view(decision.record))


@app.get("/api/v2/fleet")
@authorized
def read_fleet() -> Response[str]:
    """The brakes, and whom they hold."""
    return answer(200, _fleet_view())


@app.post("/api/v2/fleet/pause")
@authorized
def pause_fleet() -> Response[str]:
    """The brakes, with recovery paused."""
    because = wire.because_of(app.current_event.decoded_body, required=True)
    braking.pause(recovery(), OPERATOR, because)
    return answer(200, _fleet_view())


@app.post("/api/v2/fleet/unpause")
@authorized
def unpause_fleet() -> Response[str]:
    """The brakes, with recovery going on."""
    braking.unpause(recovery())
    return answer(200, _fleet_view())


@app.post("/api/v2/fleet/reset-breaker")
@authorized
def reset_breaker() -> Response[str]:
    """The brakes, with the breaker closed."""
    braking.reset_breaker(recovery(), OPERATOR)
    return answer(200, _fleet_view())


def _fleet_view() -> dict[str, Any]:
    store = recovery().store
    bad: list[Exception] = []
    out_of_use = store.instances_in([InstanceStatus.QUARANTINED], bad)
    return wire.fleet_view(store.load_fleet(), settings().policy, out_of_use, bad)


@app.get("/api/v2/dead-letters")
@authorized
def read_dead_letters() -> Response[str]:
    """How many letters each queue holds, and what the first of them are."""
    found = redriving.look(AwsDeadLetters(settings()), tuple(redriving.Grave))
    queues = [wire.grave_view(grave, depth, fates) for grave, (depth, fates) in found.items()]
    return answer(200, {"queues": queues})


@app.post("/api/v2/dead-letters/redrive")
@authorized
def redrive_dead_letters() -> Response[str]:
    """What became of the letters, how many are left, and why it stopped half-way if it did."""
    asked = app.current_event.query_string_parameters or {}
    queue, limit = asked.get("queue"), asked.get("limit", str(REDRIVE_MAX))
    if queue is not None and queue not in set(redriving.Grave):
        return refuse(400, "Bad queue", f"must be one of {', '.join(redriving.Grave)}", "queue")
    if not limit.isdecimal() or len(limit) > len(str(REDRIVE_MAX)) or not 1 <= int(limit) <= REDRIVE_MAX:
        return refuse(400, "Bad limit", f"must be a whole number from 1 to {REDRIVE_MAX}", "limit")
    letters = AwsDeadLetters(settings())
    graves = (redriving.Grave(queue),) if queue else tuple(redriving.Grave)
    done: list[dict[str, Any]] = []
    left: dict[str, int] = {}
    stopped = None
    try:
        for fate in redriving.redrive(letters, graves, int(limit)):
            done.append(wire.fate_view(fate))
            logger.info("redriven", extra=done[-1])
        left |= {grave.value: letters.depth(grave) for grave in graves}
    except Exception as error:
        if not done:
            raise
        logger.exception("the redrive has stopped half-way")
        stopped = f"{type(error).__name__}: {error}"
    return answer(200, {"letters": done, "left": left, "stopped_because": stopped})


def _no_job(job_id: str) -> Response[str]:
    return refuse(404, "No such job", f"there is no job {job_id}")


def _no_instance(instance_id: str) -> Response[str]:
    return refuse(404, "No such instance", f"there is no instance {instance_id}")


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
@tracer.capture_lambda_handler(capture_response=False)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One HTTP request, payload format 2.0."""
    return app.resolve(event, context)
