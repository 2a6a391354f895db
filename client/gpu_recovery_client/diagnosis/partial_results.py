"""Continues without the slowest workers (row 17 of the fault catalogue, docs/diagnosis.md)."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

from .event_tracker import OK
from .reporter import reporter
from .sender import log
from .timings import CALLS_GAP_S

TIMEOUT_S, ENOUGH = 3_600.0, 0.8
"""Default seconds of the wait, and default share of the workers that is enough."""


def most_results(
    calls: Mapping[str, Future[Any]],
    method: str = "",
    *,
    timeout_s: float = TIMEOUT_S,
    enough: float = ENOUGH,
) -> dict[str, Any]:
    """Wait for the calls of all workers, and continue with the results of most of them.

    The workers without a result are reported as late, and their calls are cancelled. A call that already runs goes on
    in its thread, and its result is dropped. A call that raised has no result, and ends the wait for no other call.

    Args:
        calls: the call of each worker, by the worker's name in the job.
        method: the name of the called method, for the reports.
        timeout_s: seconds of the wait for all calls together.
        enough: share of the calls that must have a result.

    Returns:
        The results by worker, in the order of `calls`.

    Raises:
        TimeoutError: fewer workers than `enough` have a result, and some have not ended in time.
        Exception: fewer workers than `enough` have a result, and all have ended: the first error of a call.
    """
    wait(calls.values(), timeout_s)
    late = [worker for worker, call in calls.items() if not call.done()]
    for worker in late:
        calls[worker].cancel()
        error = f"late: {timeout_s:g} s"
        reporter().send("rpc", worker=worker, urgent=True, method=method, timed_out=True, error=error)
    done = {worker: call for worker, call in calls.items() if worker not in late}
    errors = [raised for call in done.values() if not call.cancelled() and (raised := call.exception()) is not None]
    results = {
        worker: call.result() for worker, call in done.items() if not call.cancelled() and call.exception() is None
    }
    for worker in results:
        reporter().send_latest("rpc", CALLS_GAP_S, method, worker=worker, method=method, status=OK)
    if len(results) >= enough * len(calls):
        if late:
            log.warning("continue with %s of %s workers; late: %s", len(results), len(calls), ", ".join(late))
        return results
    if not late and errors:
        raise errors[0]
    raise TimeoutError(f"more than {1 - enough:.0%} of workers timed out → suspected network failure") from (
        errors[0] if errors else None
    )
