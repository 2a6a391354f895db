"""Sends observations of a training process to the agent: queue, thread, datagrams.

A caller only appends to the queue, which takes a microsecond or two. The thread does everything else. If the agent
does not listen, the queue fills, and the oldest observations are dropped and counted. The training never waits.
"""

from __future__ import annotations

import json
import logging
import os
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

WAITING_MAX, WORK_MAX = 1_024, 64
"""Largest number of queued observations, and of queued work items."""
TURN_S = 1.0
"""Seconds between two turns of the thread."""
DATAGRAM_BYTES_MAX, LINE_BYTES_MAX = 32_768, 4_096
ADDRESS_BYTES_MAX = 107
"""Longest path of a UNIX socket on Linux, in bytes."""
LATE_S = 0.2
"""Seconds that the end of the process may be delayed to send what is queued."""
TROUBLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors that the work of the thread may raise, in any code: they cost one observation, and never the training."""
log = logging.getLogger("gpu_recovery.diagnosis")
Values = dict[str, Any]


@dataclass
class _Repeated:
    """Work that is repeated."""

    every_s: float
    work: Callable[[], None]
    due_at: float
    ended: bool = False


class Sender:
    """Sends to the socket at `path`; None disables it. Every thread may use it.

    `lost` is the number of dropped observations that were not reported as lost yet.
    """

    def __init__(self, path: str | None, now: Callable[[], float] = time.monotonic) -> None:
        self._path, self.now = path, now
        self._queue: deque[tuple[float, Values]] = deque()
        self._latest: dict[object, tuple[float, Values, float]] = {}
        self._sent_at: dict[object, float] = {}
        self._once: deque[Callable[[], None]] = deque()
        self._repeated: list[_Repeated] = []
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self.lost = 0

    # -- from the training -------------------------------------------------------------------------------------------

    def put(self, values: Values, *, urgent: bool = False) -> None:
        """Queue an observation. With `urgent`, send it at once, together with all that was withheld before."""
        if self._path is None:
            return
        if urgent:
            self._withheld(everything=True)
        self._append(self.now(), {**values, "urgent": True} if urgent else values)
        self._begin()
        if urgent:
            self._wake.set()

    def put_latest(self, key: object, values: Values, gap_s: float, at: float | None = None) -> None:
        """Queue an observation, but send at most one per `key` in `gap_s` seconds: the latest.

        `at` is the time of the observation if it is not now.
        """
        if self._path is not None:
            self._latest[key] = (self.now() if at is None else at, values, gap_s)
            self._begin()

    def work(self, work: Callable[[], None]) -> None:
        """Run `work` in the thread, soon."""
        if len(self._once) >= WORK_MAX:
            self.lost += 1
            return
        self._once.append(work)
        self._begin()

    def every(self, seconds: float, work: Callable[[], None]) -> Callable[[], None]:
        """Run `work` in the thread every `seconds`. Return a function that ends it."""
        repeated = _Repeated(seconds, work, self.now())
        self._repeated.append(repeated)
        self._begin()

        def stop() -> None:
            repeated.ended = True

        return stop

    def finish(self) -> None:
        """Send what is queued, within LATE_S seconds: the process ends."""
        deadline = self.now() + LATE_S
        with suppress(*TROUBLE):
            self._withheld(everything=True)
            while self._queue and self._flush() and self.now() < deadline:
                pass
        # The thread dies with the process, and may hold what it has taken out of the queue.
        if self._sending.acquire(timeout=LATE_S):
            self._sending.release()

    # -- in the thread -----------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Run one turn of the thread: the work that is due, then send all that may be sent. Never waits."""
        now = self.now()
        self._repeated = [repeated for repeated in self._repeated if not repeated.ended]
        for repeated in self._repeated:
            if repeated.due_at <= now:
                repeated.due_at = now + repeated.every_s
                self._do(repeated.work)
        for _ in range(len(self._once)):
            self._do(self._once.popleft())
        self._withheld(everything=False)
        while self._queue and self._flush():
            pass

    def _begin(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="gpu-recovery-diagnosis", daemon=True)
            with suppress(RuntimeError):  # the interpreter is shutting down: `finish` sends
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._wake.wait(
                TURN_S * (0.8 + 0.4 * random.random())
            )  # so that the processes of an instance do not send together
            self._wake.clear()
            self.turn()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except TROUBLE as error:
            self.lost += 1
            log.debug("a report could not be made: %s: %s", type(error).__name__, error)

    def _append(self, at: float, values: Values) -> None:
        if len(self._queue) >= WAITING_MAX:
            with suppress(IndexError):
                self._queue.popleft()
                self.lost += 1
        self._queue.append((at, values))

    def _withheld(self, *, everything: bool) -> None:
        """Queue the latest observation of each key after its gap."""
        now = self.now()
        due = [
            (entry[0], key)
            for key, entry in list(self._latest.items())
            if everything or now - self._sent_at.get(key, -1e9) >= entry[2]
        ]
        for _, key in sorted(due, key=lambda item: item[0]):
            entry = self._latest.pop(key, None)
            if entry is not None:
                if len(self._sent_at) > WAITING_MAX:
                    self._sent_at.clear()
                self._sent_at[key] = now
                self._append(entry[0], entry[1])

    def _flush(self) -> bool:
        """Send one datagram, as full as possible.

        Return False if it cannot be sent now; its content is then queued again.
        """
        with self._sending:
            return self._flush_once()

    def _flush_once(self) -> bool:
        now, lost = self.now(), self.lost
        lines = [json.dumps({"type": "lost", "count": lost}).encode()] if lost else []
        room = DATAGRAM_BYTES_MAX - sum(map(len, lines))
        taken: list[tuple[float, Values]] = []
        while self._queue:
            try:
                at, values = self._queue.popleft()
            except IndexError:
                break
            line = encoded({**values, "age_s": round(max(now - at, 0.0), 2)})
            if len(line) > LINE_BYTES_MAX:
                self.lost += 1
                continue
            if len(line) + 1 > room:
                self._queue.appendleft((at, values))
                break
            room -= len(line) + 1
            taken.append((at, values))
            lines.append(line)
        if not lines or self._send(b"\n".join(lines)):
            self.lost -= lost
            return True
        self._queue.extendleft(reversed(taken))
        return False

    def _send(self, datagram: bytes) -> bool:
        try:
            if self._socket is None:
                kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
                self._socket = socket.socket(socket.AF_UNIX, kind)
            _send_to(self._socket, datagram, self._path or "")
        except OSError:
            return False  # no agent listens, or it has not read the last datagrams yet
        return True


def _send_to(sender: socket.socket, datagram: bytes, path: str) -> None:
    """Send to a path of any length.

    A socket address holds 107 bytes, so a long path is reached by its folder's descriptor.
    """
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        sender.sendto(datagram, path)
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        sender.sendto(datagram, f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)


def encoded(values: Values) -> bytes:
    """Return one line of a datagram.

    A value without a form in JSON is sent as text, so that it does not cost the others.
    """
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False, default=str)
    return text.encode("utf-8", errors="replace")
