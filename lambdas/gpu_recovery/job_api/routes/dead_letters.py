"""Dead letters: what nobody could handle, looked at and given again."""

from __future__ import annotations

from typing import Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.job_api import redrive
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.redrive import DeadLetterQueue
from gpu_recovery.job_api.request import Parameter, Request, Route
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.job_api.views import dead_letter_queue_view, redrive_result_view

REDRIVE_MAX = 100
"""Letters of one request: each takes a call or two, and API Gateway waits for 29 seconds."""


def read_dead_letters(desk: Dependencies, request: Request) -> ApiResponse:
    """How many letters each queue holds, and what the first of them are."""
    found = redrive.preview_redrive(desk.dead_letters(), tuple(DeadLetterQueue))
    return ApiResponse(
        200, {"queues": [dead_letter_queue_view(grave, depth, fates) for grave, (depth, fates) in found.items()]}
    )


def redrive_dead_letters(desk: Dependencies, request: Request) -> ApiResponse:
    """What became of the letters, how many are left, and why it stopped half-way if it did."""
    queue = request.choice("queue", "", *DeadLetterQueue) if "queue" in request.query else ""
    limit = request.number("limit", REDRIVE_MAX, 1, REDRIVE_MAX) or REDRIVE_MAX
    letters = desk.dead_letters()
    graves = (DeadLetterQueue(queue),) if queue else tuple(DeadLetterQueue)
    done: list[dict[str, Any]] = []
    left: dict[str, int] = {}
    stopped = None
    try:
        for fate in redrive.redrive(letters, graves, limit):
            done.append(redrive_result_view(fate))
            desk.log.info("redriven", extra=done[-1])
        left |= {grave.value: letters.depth(grave) for grave in graves}
    except Exception as error:
        if not done:
            raise
        desk.log.exception("the redrive has stopped half-way")
        stopped = f"{type(error).__name__}: {error}"
    return ApiResponse(200, {"letters": done, "left": left, "stopped_because": stopped})


_QUERY = (
    Parameter("queue", "only this queue", {"type": "string", "enum": [one.value for one in DeadLetterQueue]}),
    Parameter("limit", "how many letters at most", {"type": "integer", "minimum": 1, "maximum": REDRIVE_MAX}),
)
ROUTES = (
    Route(
        "GET",
        "/api/v2/dead-letters",
        read_dead_letters,
        "What nobody could handle",
        {200: "DeadLetters"},
        Role.OPERATOR,
    ),
    Route(
        "POST",
        "/api/v2/dead-letters/redrive",
        redrive_dead_letters,
        "Give dead letters to whom they were for",
        {200: "Redriven"},
        Role.OPERATOR,
        _QUERY,
    ),
)
