"""HTTP: submit, list and read jobs; read instances. Every route needs the operator's token."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from gpu_recovery import wire
from gpu_recovery.aws.api_sources import operator_token, task_definition
from gpu_recovery.aws.wiring import logger, metrics, recovery, settings
from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.events import CancelRequested, ReleaseRequested
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.machine import Outcome
from gpu_recovery.ports import CursorInvalid
from gpu_recovery.submitting import submit

BODY_BYTES_MAX = 262_144
PAGE_MAX, PAGE_DEFAULT = 200, 50
CANCEL_TRIES = 5
"""The scheduler may launch a job between our look at it and our order, which is then about an attempt that is over."""
OPERATOR = "an operator"
app = APIGatewayHttpResolver()


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


@app.exception_handler(CursorInvalid)
def _bad_cursor(error: CursorInvalid) -> Response[str]:
    return refuse(400, "Bad cursor", str(error), "cursor")


@app.exception_handler(Unauthorized)
def _unauthorized(error: Unauthorized) -> Response[str]:
    return refuse(401, "Unauthorized", "send the operator token as `Authorization: Bearer <token>`")


@app.not_found
def _no_route(error: NotFoundError) -> Response[str]:
    return refuse(404, "Not found", f"there is no {app.current_event.http_method} {app.current_event.path}")


def authorized(route: Callable[..., Response[str]]) -> Callable[..., Response[str]]:
    """The route behind the operator's token, compared in constant time."""

    def guarded(**parameters: str) -> Response[str]:
        given = app.current_event.headers.get("authorization", "")
        expected = f"Bearer {operator_token(settings().operator_token_secret)}"
        if not hmac.compare_digest(given.encode(), expected.encode()):
            raise Unauthorized
        return route(**parameters)

    return guarded


@app.post("/api/v2/jobs")
@authorized
def submit_job() -> Response[str]:
    """201 and the new job."""
    try:
        text = app.current_event.decoded_body or ""
        if len(text.encode()) > BODY_BYTES_MAX:
            return refuse(413, "Too large", f"a job may have {BODY_BYTES_MAX} bytes")
        document = json.loads(text)
        json.dumps(document, ensure_ascii=False).encode()  # JSON can spell half a character; no table can hold one
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
    page = recovery().store.list_jobs(JobStatus(status) if status else None, int(limit), asked.get("cursor"))
    jobs = [wire.job_summary(job, settings().policy) for job in page.jobs]
    return answer(200, {"jobs": jobs, "next_cursor": page.cursor})


@app.get("/api/v2/jobs/<job_id>")
@authorized
def read_job(job_id: str) -> Response[str]:
    """One job with its history."""
    job = recovery().store.load_job(job_id)
    return answer(200, wire.job_view(job, settings().policy)) if job else _no_job(job_id)


@app.post("/api/v2/jobs/<job_id>/cancel")
@authorized
def cancel_job(job_id: str) -> Response[str]:
    """The job, being stopped or already ended."""
    loop = recovery()
    for _ in range(CANCEL_TRIES):
        job = loop.store.load_job(job_id)
        if job is None:
            return _no_job(job_id)
        decision = loop.tell(job_id, CancelRequested(at=loop.clock(), attempt=job.attempt, by=OPERATOR))
        if decision is not None and decision.outcome is not Outcome.OUTDATED:
            return read_job(job_id=job_id)
    return refuse(409, "The job is moving", f"job {job_id} was launched anew each time; cancel it again")


@app.get("/api/v2/instances")
@authorized
def list_instances() -> Response[str]:
    """Every instance that has not left the cluster, by id."""
    found = recovery().store.instances_in([status for status in InstanceStatus if status is not InstanceStatus.GONE])
    views = [wire.instance_view(instance) for instance in sorted(found, key=lambda one: one.instance_id)]
    return answer(200, {"instances": views, "next_cursor": None})


@app.get("/api/v2/instances/<instance_id>")
@authorized
def read_instance(instance_id: str) -> Response[str]:
    """One instance with its history."""
    instance = recovery().store.load_instance(instance_id)
    return answer(200, wire.instance_view(instance)) if instance else _no_instance(instance_id)


@app.post("/api/v2/instances/<instance_id>/release")
@authorized
def release_instance(instance_id: str) -> Response[str]:
    """A quarantined instance, on its way back through a health check."""
    loop = recovery()
    decision = loop.tell(instance_id, ReleaseRequested(at=loop.clock(), by=OPERATOR))
    if decision is None:
        return _no_instance(instance_id)
    if decision.outcome is not Outcome.APPLIED:
        return refuse(409, "Not released", f"{instance_id} is {decision.record.status}: {decision.reason}")
    return answer(200, wire.instance_view(decision.record))


def _no_job(job_id: str) -> Response[str]:
    return refuse(404, "No such job", f"there is no job {job_id}")


def _no_instance(instance_id: str) -> Response[str]:
    return refuse(404, "No such instance", f"there is no instance {instance_id}")


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One HTTP request, payload format 2.0."""
    return app.resolve(event, context)
