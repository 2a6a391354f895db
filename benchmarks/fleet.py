"""Benchmark of a large fleet: what the operations that read every instance or every waiting job cost, by its size.

    python -m benchmarks.fleet    measures only this, and writes it into results.json

Each operation runs once in its Lambda handler, in a new process, against a server of the fleet (`fleet_server.py`).
Every record has a full history. Processor time includes the cold start, the SDK and HTTP; elapsed time is not given,
because the server is slower than DynamoDB.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.fleet_operation import OPERATIONS
from benchmarks.fleet_server import serve
from tests.aws.environment import CREDENTIALS, FUNCTION

ROOT = Path(__file__).parent.parent
SIZES = ((100, 500), (1_000, 5_000), (10_000, 50_000))
"""Pairs of instances and waiting jobs."""
COUNTED = ("calls", "dynamodb_calls", "read_units", "bytes_read", "histories")
"""Figures that the server counts. `histories` is the number of records in answers that had their history."""


def fleet_figures(
    sizes: Sequence[tuple[int, int]] = SIZES, operations: Sequence[str] = tuple(OPERATIONS)
) -> dict[str, Any]:
    """Return the figures of each operation, by the size of the fleet."""
    return {
        f"{instances} instances, {jobs} waiting jobs": _figures(instances, jobs, operations)
        for instances, jobs in sizes
    }


def _figures(instances: int, jobs: int, operations: Sequence[str]) -> dict[str, Any]:
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    server = processes.Process(target=serve, args=(instances, jobs, theirs), daemon=True)
    server.start()
    theirs.close()
    try:
        port = ours.recv()
        figures = {}
        for name in operations:
            measured = _run(name, port)
            ours.send("counts")
            counted = ours.recv()
            figures[name] = {key: counted.get(key, 0) for key in COUNTED} | measured
        return figures
    finally:
        ours.close()
        server.join()


def _run(operation: str, port: int) -> dict[str, Any]:
    """Run the program of one operation. Return the figures that it measures."""
    environment = {
        **CREDENTIALS,
        **FUNCTION,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "lambdas"), str(ROOT)]),
        "PATH": os.environ["PATH"],
    }
    command = [sys.executable, "-m", "benchmarks.fleet_operation", operation]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
    if run.returncode:
        raise RuntimeError(f"{operation}: {run.stderr[-2_000:]}")
    figures: dict[str, Any] = json.loads(run.stderr.strip().splitlines()[-1])
    return figures


if __name__ == "__main__":
    measured = fleet_figures()
    results.update("fleet", measured)
    print(json.dumps(measured, indent=2))
