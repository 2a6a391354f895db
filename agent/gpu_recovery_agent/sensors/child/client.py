"""Isolates blocking driver calls in a child process, which answers line by line.

A call that never returns blocks only the child. The parent starts the child and may kill it at any time. A process that
sleeps in the driver does not end by that. It is left behind, and the parent starts no other child until `poll` says
that the kernel has removed it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence

ANSWER_BYTES_MAX = 4 * 1024 * 1024
SECRETS = ("GPU_RECOVERY_TOKEN", "CREDENTIALS_DIRECTORY")
"""Variables that the child does not inherit."""


class ChildProcess:
    """One running child; `is_over` is true when it will not answer any more.

    Raises OSError if it cannot be started or asked.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        without = {name: value for name, value in environment.items() if name not in SECRETS}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=without, start_new_session=True
        )
        assert self._process.stdin and self._process.stdout
        self._questions, self._answers = self._process.stdin, self._process.stdout
        os.set_blocking(self._answers.fileno(), False)
        self._pending = b""
        self.is_over = False
        self.pid = self._process.pid

    def ask(self, question: bytes) -> None:
        """Send one question. `question` has no line end."""
        os.write(self._questions.fileno(), question + b"\n")

    def read_response(self) -> bytes | None:
        """Return the next complete line. None if it is not complete, or if the child has ended: `poll` says which."""
        while True:
            if b"\n" in self._pending or len(self._pending) > ANSWER_BYTES_MAX:
                line, _, self._pending = self._pending.partition(b"\n")
                return line
            try:
                part = os.read(self._answers.fileno(), 65_536)
            except BlockingIOError:
                return None
            if not part:
                self.is_over = True
                return None
            self._pending += part

    def wait(self, seconds: float) -> None:
        """Return when there is something to read, when the child has ended, or after `seconds`."""
        select.select([self._answers], [], [], max(seconds, 0.0))

    def poll(self) -> int | None:
        """Return the exit status once the child has ended, and close its pipes; None before."""
        status = self._process.poll()
        if status is not None:
            self._questions.close()
            self._answers.close()
        return status

    def kill(self) -> None:
        """Kill the child and the programs that it runs, without waiting for their end."""
        if self._process.poll() is None:  # its number stays its own until then
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the child and wait briefly for its end."""
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0.2)
        self.poll()
