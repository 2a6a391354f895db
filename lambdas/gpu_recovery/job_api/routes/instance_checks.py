"""Routes of the health checks of an instance: the list, and the verdict document of one check.

The checks of an instance have consecutive numbers, which its record counts. A verdict document stays in S3 for a month.
So the list has every check of the instance, and the result of those whose document is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.identifiers import check_id
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.job_api.check_state import CheckState
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import signed_cursor, verified_position
from gpu_recovery.job_api.request import TEXT, Parameter, Request, Route, between
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.routes.instances import no_instance
from gpu_recovery.ports.errors import VerdictUnreadable

PAGE_DEFAULT, PAGE_MAX = 10, 20
"""Checks of a page: default and upper bound. The document of each is read."""
NUMBER = re.compile(r"[1-9][0-9]{0,8}")
"""Form of the number of a check."""
SERIAL = "serial"
"""Fields with this word in their name hold serial numbers, which only operators receive."""
SHOWN = ("outcome", "summary", "level", "started_at", "ended_at")
"""Fields of the verdict document that the list has."""


def list_checks(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return a page of the health checks of an instance, the newest first, each with the result of its document.

    Raises:
        ApiError: 400, the limit is malformed; 404, there is no such instance.
        CursorInvalid: the cursor was issued for another list, or was not issued at all.
    """
    instance = _instance(dependencies, request)
    limit = request.number("limit", PAGE_DEFAULT)
    purpose, cursor = f"checks\n{instance.instance_id}", request.query.get("cursor")
    newest = instance.checks
    if cursor is not None:
        newest = min(newest, int(verified_position(dependencies.cursor_key(), purpose, cursor)) - 1)
    oldest = max(1, newest - limit + 1)
    views = [_summary(dependencies, instance, number) for number in range(newest, oldest - 1, -1)]
    following = signed_cursor(dependencies.cursor_key(), purpose, str(oldest)) if oldest > 1 and views else None
    return ApiResponse(
        200, {"instance_id": instance.instance_id, "total": instance.checks, "checks": views, "next_cursor": following}
    )


def read_check(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the verdict document of one check, by the number of the check: its id has slashes, which no path keeps.

    Serial numbers are left out for callers below the role operator.

    Raises:
        ApiError: 404, the instance has no such check, or no document of the check is stored; 502, the document is
            malformed.
    """
    instance, number = _instance(dependencies, request), request.named["number"]
    if not NUMBER.fullmatch(number) or int(number) > instance.checks:
        raise ApiError(404, "no_such_check", "No such check", f"{instance.instance_id} has no check {number[:20]}")
    asked, run = check_id(instance.instance_id, int(number)), instance.check
    try:
        document = dependencies.verdicts.load(asked)
    except VerdictUnreadable as error:
        raise ApiError(502, "verdict_unreadable", "The document is malformed", str(error)) from error
    if document is None:
        ends = "it is under way" if run is not None and run.check_id == asked else "documents are kept for 30 days"
        raise ApiError(404, "no_verdict", "No document", f"no verdict document of {asked} is stored: {ends}")
    shown = document if request.caller.may(Role.OPERATOR) else without_serial_numbers(document)
    return ApiResponse(200, {"check_id": asked, "document": shown})


def without_serial_numbers(value: Any) -> Any:
    """Return a JSON value without the fields that hold serial numbers, at any depth."""
    if isinstance(value, Mapping):
        return {name: without_serial_numbers(field) for name, field in value.items() if SERIAL not in str(name).lower()}
    return [without_serial_numbers(entry) for entry in value] if isinstance(value, list) else value


def _instance(dependencies: Dependencies, request: Request) -> Instance:
    instance_id = request.named["instance_id"]
    instance = dependencies.recovery.store.load_instance(instance_id)
    if instance is None:
        raise no_instance(instance_id)
    return instance


def _summary(dependencies: Dependencies, instance: Instance, number: int) -> dict[str, Any]:
    """Return a check in the list."""
    name, run = check_id(instance.instance_id, number), instance.check
    document, state = None, CheckState.NO_DOCUMENT
    try:
        document = dependencies.verdicts.load(name)
    except VerdictUnreadable:
        state = CheckState.UNREADABLE
    if document is not None:
        state = CheckState.ENDED
    elif run is not None and run.check_id == name:
        state = CheckState.RUNNING if run.task_id else CheckState.WAITING
    current = run if run is not None and run.check_id == name else None
    refused = None if current is None or current.why_not_started is None else current.why_not_started.reason
    facts = {field: _plain((document or {}).get(field)) for field in SHOWN}
    return {
        "check_id": name,
        "number": number,
        "state": state,
        "job_id": (current.job_id or None) if current is not None else None,
        "refused": refused,
        **facts,
    }


def _plain(value: Any) -> str | int | None:
    """Return a text or a number of a document, which the check wrote itself; None for any other value."""
    return value if isinstance(value, str | int) else None


_CHECKS = "/api/v2/instances/<instance_id>/checks"
ROUTES = (
    Route(
        "GET",
        _CHECKS,
        list_checks,
        "List the health checks of an instance",
        {200: "Checks"},
        query=(
            Parameter("limit", "Upper bound of the entries of a page.", between(1, PAGE_MAX)),
            Parameter("cursor", "`next_cursor` of the page before.", TEXT),
        ),
    ),
    Route(
        "GET",
        f"{_CHECKS}/<number>",
        read_check,
        "Read the document of a health check",
        {200: "Check"},
        refuses=(502,),
    ),
)
