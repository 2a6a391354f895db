"""Program that runs the functions behind the web console in front of a large fleet, and measures what it adds to them.

    python -m benchmarks.console_functions

The environment names the server (`fleet_server.py`). A cycle of the reconciler and a pass of the scheduler write the
snapshots; then the polled routes read them. The program prints figures in seconds of processor time as JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from benchmarks.fleet_operation import OPERATIONS, first_page

RUNS = 3
"""Cycles, and passes. The first one also makes the client of S3, and may have no time for all snapshots."""
REQUESTS, PAUSE_S = int(os.environ.get("REQUESTS", "200")), 0.05
"""Requests to each route, and the pause between two. A function reads a snapshot again after five seconds."""
ROUTES = {"overview": "/api/v2/overview", "map": "/api/v2/fleet/map"}


def _spent_on_snapshots(operation: Callable[[], int]) -> float:
    """Carry out the operation, and return the processor time that it spends on snapshots for the console."""
    from gpu_recovery.ports.console_snapshots import SnapshotWriter  # noqa: PLC0415  # after the environment is set

    write, spent = SnapshotWriter.write, 0.0

    def timed(self: SnapshotWriter, documents: Any, as_of: datetime | None = None) -> frozenset[Any]:
        nonlocal spent
        began = time.process_time()
        left = write(self, documents, as_of)
        spent += time.process_time() - began
        return left

    SnapshotWriter.write = timed  # type: ignore[method-assign]
    try:
        operation()
    finally:
        SnapshotWriter.write = write  # type: ignore[method-assign]
    return spent


def _usual(operation: Callable[[], int]) -> float:
    """Return the median of the times that wrote a snapshot: a run without a change may write none."""
    taken = [_spent_on_snapshots(operation) for _ in range(RUNS)]
    return statistics.median([seconds for seconds in taken if seconds] or [0.0])


def _requests(path: str) -> list[float]:
    """Return the processor time of each request of a warm function, in order of size."""
    read, taken = first_page(path, **{"accept-encoding": "gzip"}), []
    read()
    for _ in range(REQUESTS):
        time.sleep(PAUSE_S)
        began = time.process_time()
        read()
        taken.append(time.process_time() - began)
    return sorted(taken)


def main() -> None:
    """Print the figures."""
    figures = {
        "reconciler_snapshots_s": _usual(OPERATIONS["reconciler round"]),
        "scheduler_snapshot_s": _usual(OPERATIONS["scheduler pass"]),
    }
    for name, path in ROUTES.items():
        taken = _requests(path)
        figures[f"{name}_s_p50"] = taken[len(taken) // 2]
        figures[f"{name}_s_p99"] = taken[min(len(taken) - 1, len(taken) * 99 // 100)]
    print(json.dumps({name: round(figure, 4) for name, figure in figures.items()}), file=sys.stderr)


if __name__ == "__main__":
    main()
