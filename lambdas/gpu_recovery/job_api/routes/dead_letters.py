"""Routes of dead letters: list them, and redrive them."""

from __future__ import annotations

from typing import Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.job_api import redrive
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.redrive import DeadLetterQueue
from gpu_recovery.job_api.request import Parameter, Request, Route, between, one_of
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.job_api.views import dead_letter_queue_view, redrive_result_view

REDRIVE_MAX = 100
"""Dead letters of one request. Each takes one or two AWS calls, and the function has 29 seconds."""


def read_dead_letters(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the approximate depth of each dead-letter queue, and its first dead letters."""
    previews = redrive.preview_redrive(dependencies.dead_letters(), tuple(DeadLetterQueue))
    return ApiResponse(
        200, {"queues": [dead_letter_queue_view(queue, depth, results) for queue, (depth, results) in previews.items()]}
    )


def redrive_dead_letters(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Redrive dead letters, and return the result of each and the number of dead letters that are left.

    If an error stops the redrive after the first result, the answer contains the results until then and the error.
    """
    name = request.choice("queue", "") if "queue" in request.query else ""
    limit = request.number("limit", REDRIVE_MAX)
    dead_letters = dependencies.dead_letters()
    queues = (DeadLetterQueue(name),) if name else tuple(DeadLetterQueue)
    results: list[dict[str, Any]] = []
    depths: dict[str, int] = {}
    stopped = None
    try:
        for result in redrive.redrive(dead_letters, queues, limit):
            results.append(redrive_result_view(result))
            dependencies.log.info("redriven", extra=results[-1])
        depths |= {queue.value: dead_letters.depth(queue) for queue in queues}
    except Exception as error:
        # Every error, also a defect: letters are sent and deleted already, and the operator must learn which of them.
        if not results:
            raise
        dependencies.log.exception("the redrive stopped before the end")
        stopped = f"{type(error).__name__}: {error}"
    return ApiResponse(200, {"letters": results, "left": depths, "stopped_because": stopped})


_QUERY = (
    Parameter("queue", "Only this dead-letter queue.", one_of(*DeadLetterQueue)),
    Parameter("limit", "Upper bound of the dead letters.", between(1, REDRIVE_MAX)),
)
ROUTES = (
    Route(
        "GET",
        "/api/v2/dead-letters",
        read_dead_letters,
        "List the dead letters",
        {200: "DeadLetters"},
        Role.OPERATOR,
    ),
    Route(
        "POST",
        "/api/v2/dead-letters/redrive",
        redrive_dead_letters,
        "Redrive dead letters",
        {200: "Redriven"},
        Role.OPERATOR,
        _QUERY,
    ),
)
