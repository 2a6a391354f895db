"""Runs one program of the preflight of a rank: with a deadline, as a process group of its own, with a bounded answer.

A program that does not answer in time is killed with its whole group. A process that sleeps in the driver cannot be
killed: it is left behind, and the preflight goes on. So no program can hold up the rank for longer than its deadline
and GIVE_UP_S.
"""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .. import clock
from .hold import ENDS
from .process import Command

GIVE_UP_S = 2.0
"""Seconds for which a killed program is waited for."""
REST_S = 1.0
"""Seconds for which the killed descendants of a program are waited for."""
ANSWER_BYTES_MAX = 4 * 2**20
"""Bytes of an answer that are read. `nvidia-smi -q -x` prints about 30 KB for each GPU."""
FILE_BYTES_MAX = 2**30
"""Largest file that a program may write, its output included. NCCL has shared memory of some MiB for each peer."""
POLL_S = 0.1


class AttemptOver(Exception):
    """The attempt is being ended, so a program was killed before its end. Its answer counts for nothing."""


class Interrupted(Exception):
    """The preflight was ended by a signal that ends the container.

    Args:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


@dataclass(frozen=True)
class Answer:
    """What a program printed, on both channels, and how it ended.

    code: exit status as a shell reports it; None if it was killed at its deadline, or could not be started.
    late: it did not end before its deadline.
    """

    text: str = ""
    code: int | None = None
    late: bool = False

    @property
    def last_line(self) -> str:
        """Return the last line with text."""
        return next((line.strip() for line in reversed(self.text.splitlines()) if line.strip()), "it printed nothing")


class Programs:
    """Runs the programs of one preflight.

    Args:
        environment: the environment of the programs.
        ends_at_s: monotonic time in seconds at which the preflight must be over.
        is_over: returns whether the attempt is being ended, so that no further program counts.
    """

    def __init__(self, environment: Mapping[str, str], ends_at_s: float, is_over: Callable[[], bool]) -> None:
        self._environment, self._ends_at_s, self._is_over = environment, ends_at_s, is_over

    @property
    def left_s(self) -> float:
        """Seconds until the preflight must be over, without the time for a program that cannot be killed."""
        return self._ends_at_s - clock.monotonic_s() - GIVE_UP_S - REST_S - 2 * POLL_S

    @property
    def is_over(self) -> bool:
        """Whether the attempt is being ended."""
        return self._is_over()

    def answer(self, arguments: Sequence[str], within_s: float, more: Mapping[str, str] | None = None) -> Answer:
        """Run a program and return its answer.

        Args:
            arguments: the command line.
            within_s: seconds that it may take. The end of the preflight is a second deadline.
            more: further variables of its environment.

        Raises:
            Interrupted: a signal ends the container.
            AttemptOver: the attempt is being ended.
            OSError: there is no room for its output, or no process can be started.
        """
        with tempfile.TemporaryFile() as output:
            ends = {1: output.fileno(), 2: output.fileno()}
            command = Command(arguments, {**self._environment, **(more or {})}, ends)
            policy = _Deadline(clock.monotonic_s() + max(0.0, min(within_s, self.left_s)), self._is_over)
            with suppress(OSError, ValueError):  # without the limit only the deadline bounds the output
                resource.prlimit(command.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
            command.go()
            try:
                status = command.wait(policy, policy.poll_s).status
            except _Stuck:
                status = None
            command.end_the_rest(REST_S)
            if policy.received:
                raise Interrupted(policy.received)
            if policy.is_cut:
                raise AttemptOver
            output.seek(0)
            text = output.read(ANSWER_BYTES_MAX).decode("utf-8", "replace")
        return Answer(text, None if policy.is_late else status, policy.is_late)


class _Stuck(Exception):
    """A killed program has not ended within GIVE_UP_S."""


class _Deadline:
    """Signals for a program: it is killed at its deadline, by a signal that ends the container, or with its attempt."""

    def __init__(self, ends_at_s: float, is_over: Callable[[], bool]) -> None:
        self._ends_at_s, self._is_over = ends_at_s, is_over
        self.received, self.is_late, self.is_cut = 0, False, False

    def poll_s(self) -> float:
        """Return the seconds until the next check."""
        return min(POLL_S, max(self._ends_at_s - clock.monotonic_s(), 0.01))

    def on_signal(self, number: int) -> int:
        """Remember a signal that ends the container. No program gets any other."""
        if number in ENDS:
            self.received = number
        return self.due()

    def due(self) -> int:
        """Return SIGKILL from the deadline on. Raises _Stuck if the program has not ended GIVE_UP_S later."""
        now = clock.monotonic_s()
        if now < self._ends_at_s and (self.received or self._is_over()):
            self._ends_at_s, self.is_cut = now, True
        if now < self._ends_at_s:
            return 0
        self.is_late = True
        if now >= self._ends_at_s + GIVE_UP_S:
            raise _Stuck
        return signal.SIGKILL


def found_in_path(names: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the path of the first of these programs in the PATH of the environment; "" if there is none."""
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        for name in names:
            path = os.path.join(folder, name)
            if folder and os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return ""
