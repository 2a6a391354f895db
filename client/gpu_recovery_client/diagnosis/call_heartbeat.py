"""Asks a worker for its heartbeat while a call to it is open (row 12 of the fault catalogue, docs/diagnosis.md).

A call that takes long is no evidence about the reason. A worker that answers the heartbeats computes; one that does not
answer is cut off or dead. `worker_endpoint` answers them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException

from .event_tracker import OK, Http, Transport
from .reporter import reporter
from .sender import log

EVERY_S, ANSWER_S = 5.0, 5.0
"""Seconds between two heartbeats, and until an answer is given up."""
GAP_S = 10.0
"""Seconds in which at most one failed heartbeat of a worker is reported."""
NO_ANSWER = 0
"""Status of a heartbeat without an answer."""


class CallHeartbeat:
    """Heartbeats to one worker."""

    def __init__(self, transport: Transport, worker: str) -> None:
        self._transport, self._worker, self._reporter = transport, worker, reporter()

    def poll(self) -> int:
        """Ask once, and report a failure. Return the HTTP status, or NO_ANSWER."""
        try:
            status, _ = self._transport.get("/heartbeat", ANSWER_S)
        except (OSError, HTTPException) as error:
            status = NO_ANSWER
            log.warning("Heartbeat of %s failed: %s", self._worker, type(error).__name__)
        if status != OK:
            self._reporter.send_latest("progress", GAP_S, "heartbeat", worker=self._worker, status=status)
        return status


@contextmanager
def call_heartbeat(address: str, worker: str, every_s: float = EVERY_S) -> Iterator[CallHeartbeat]:
    """Poll the heartbeat of the worker at `address` in a thread, as long as the block runs.

    A failed heartbeat is reported and does not end the call. `worker` is the worker's name in the job.
    """
    heartbeat, over = CallHeartbeat(Http(address), worker), threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            heartbeat.poll()

    threading.Thread(target=run, name="gpu-recovery-heartbeat", daemon=True).start()
    try:
        yield heartbeat
    finally:
        over.set()
