"""Program that carries out one operation of a large fleet in its Lambda handler, and measures itself.

    python -m benchmarks.fleet_operation OPERATION

The environment names the server (`AWS_ENDPOINT_URL`) and all that a function's environment names. The program prints
the figures as JSON.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

LEFT_MS = 110_000
"""Milliseconds that a handler has left."""


class Context:
    """The Lambda context that the handlers read."""

    function_name, memory_limit_in_mb, aws_request_id = "benchmark", "512", "r-1"
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:benchmark"

    def get_remaining_time_in_millis(self) -> int:
        """Return the time until the timeout. It is always enough, so that the operation is measured to its end."""
        return LEFT_MS


def _handler(name: str) -> Callable[[Any, Any], Any]:
    handler: Callable[[Any, Any], Any] = importlib.import_module(name).handler
    return handler


def _reconcile() -> int:
    _handler("reconciler")({}, Context())
    return 0


def _schedule() -> int:
    _handler("scheduler")({"Records": [{"body": json.dumps({"key": "/"}), "messageId": "1"}]}, Context())
    return 0


def first_page(path: str, **headers: str) -> Callable[[], int]:
    """Return an operation that reads one page of a list, and returns the bytes of the answer as API Gateway gets it."""

    def read() -> int:
        event = {
            "version": "2.0",
            "routeKey": "ANY /{proxy+}",
            "rawPath": path,
            "rawQueryString": "",
            "headers": {"authorization": "Bearer token", **headers},
            "isBase64Encoded": False,
            "requestContext": {"http": {"method": "GET", "path": path}, "stage": "$default", "requestId": "r-1"},
        }
        answer = _handler("job_api")(event, Context())
        if answer["statusCode"] != 200:
            raise RuntimeError(answer["body"])
        return len(answer["body"].encode())

    return read


OPERATIONS: dict[str, Callable[[], int]] = {
    "reconciler round": _reconcile,
    "scheduler pass": _schedule,
    "GET /instances": first_page("/api/v2/instances"),
    "GET /queue": first_page("/api/v2/queue"),
    "GET /jobs": first_page("/api/v2/jobs"),
}
"""The operations by name. Each returns the bytes of its answer, 0 if it has none."""


def main() -> None:
    """Carry out the operation once, and print its figures."""
    operation = OPERATIONS[sys.argv[1]]
    began = time.process_time()
    answered = operation()
    taken = time.process_time() - began
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {"processor_s": round(taken, 3), "peak_mib": round(peak_mib, 1), "answer_bytes": answered}
    print(json.dumps(figures), file=sys.stderr)


if __name__ == "__main__":
    main()
