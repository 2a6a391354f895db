"""Short outages of the API: a command that follows a job asks again."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

from gpu_recovery_client.errors import RequestRefused, ServiceUnreachable

POLL_S = 5.0
"""Seconds between two requests during an outage."""
ABSENCES_MAX = 12
"""Largest number of requests in a row without a response, a minute in all, before the command gives up. The job
continues.
"""
Answer = TypeVar("Answer")


def patiently(ask: Callable[[], Answer], report: Callable[[Exception], None], pause: Callable[[float], None]) -> Answer:
    """Return the answer of `ask`, which reads. During a short outage `report` gets each error, and `ask` is repeated.

    Raises:
        ServiceUnreachable: the outage lasts too long.
        RequestRefused: the outage lasts too long, or the refusal is final.
    """
    absences = 0
    while True:
        try:
            return ask()
        except (ServiceUnreachable, RequestRefused) as error:
            absences += 1
            if absences > ABSENCES_MAX or not may_pass(error):
                raise
            report(error)
            pause(POLL_S)


def may_pass(error: Exception) -> bool:
    """Return whether the same request may succeed later: no response, too many requests, or an error of the server."""
    if isinstance(error, RequestRefused):
        return error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, ServiceUnreachable)
