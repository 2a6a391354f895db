"""A child that is asked by lines and answers by lines, so that a question which never returns stops nobody else.

It is started by whoever asks and may be killed at any time. What sleeps in the driver does not die of that: it is left
behind, and who asks starts no other until `poll` says that the kernel has let go of it.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Mapping, Sequence

ANSWER_BYTES_MAX = 4 * 1024 * 1024
SECRETS = ("GPU_RECOVERY_TOKEN", "CREDENTIALS_DIRECTORY")


class ChildProcess:
    """One running child; `is_over` when it will answer no more. Raises OSError where it cannot be started, or asked."""

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
        """Sends one line, without its end."""
        os.write(self._questions.fileno(), question + b"\n")

    def read_response(self) -> bytes | None:
        """The next line, once all of it has come. None before, and of a child that has ended: `poll` tells which."""
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
        """Returns when there is something to read, or that the child has ended, or the time is over."""
        select.select([self._answers], [], [], max(seconds, 0.0))

    def poll(self) -> int | None:
        """Its status once it has ended; what connected us is closed then."""
        status = self._process.poll()
        if status is not None:
            self._questions.close()
            self._answers.close()
        return status

    def kill(self) -> None:
        """Asks the kernel to end it, and does not wait."""
        self._process.kill()

    def close(self) -> None:
        """Kills it, and waits a moment for its end."""
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0.2)
        self.poll()
