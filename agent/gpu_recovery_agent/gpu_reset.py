"""Resets the GPUs of the instance by order of the server, in a child process with a deadline.

The server repeats its order until the instance needs no reset any more, and the agent repeats in each report how the
last reset ended. So nothing is lost with a report or a response. An order is carried out once in a boot.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_recovery_agent import clock
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.reset_settings import ResetSettings
from gpu_recovery_agent.responses import RESET, ServerCommand
from gpu_recovery_agent.sensors.child.client import ChildProcess
from gpu_recovery_agent.state import AgentState

CHILD = (sys.executable, "-m", "gpu_recovery_agent.reset_child")
SENTENCE_MAX = 300


class GpuReset:
    """The resets of one instance.

    Args:
        settings: whether and how the agent resets GPUs.
        host_proc: the process table of the instance.
        environment: variables of the child process.
        state: keeps the result over a restart of the agent.
        log: the agent's log.
    """

    def __init__(
        self,
        settings: ResetSettings,
        host_proc: Path,
        environment: Mapping[str, str],
        state: AgentState,
        log: AgentLog,
        *,
        now: Callable[[], float] = clock.monotonic_s,
        child: Sequence[str] = CHILD,
    ) -> None:
        self._settings, self._proc, self._environment = settings, host_proc, environment
        self._state, self._log, self._now, self._program = state, log, now, child
        self._child: ChildProcess | None = None
        self._answer: bytes | None = None
        self._order, self._kill_at, self._killed = "", 0.0, False
        if settings.excluded:
            log.write(settings.excluded)

    @property
    def is_able(self) -> bool:
        """Return whether this agent is set up to reset GPUs."""
        return bool(self._settings.command)

    @property
    def is_running(self) -> bool:
        """Return whether a reset is under way. NVML must not be read then: each reader is a user of the GPUs."""
        return self._child is not None

    def report(self) -> dict[str, Any] | None:
        """Return the field `reset` of a report; None if the agent resets no GPUs.

        While a reset is under way, the field is empty. The stored result stands in case that the agent is killed.
        """
        if not self.is_able:
            return None
        return {} if self.is_running else dict(self._state.reset)

    def is_new(self, commands: Sequence[ServerCommand]) -> bool:
        """Return whether the commands of a response order a reset that has not begun."""
        return self._next(commands) is not None

    def begin(self, commands: Sequence[ServerCommand]) -> None:
        """Begin the ordered reset, unless it has begun."""
        command = self._next(commands)
        if command is None:
            return
        self._order, self._killed, self._answer = command.id, False, None
        self._kill_at = self._now() + command.grace_s
        self._log.write(f"order {command.id}: the GPUs are reset")
        self._finish(False, "the agent ended during the reset")  # what stays if the agent is killed now
        try:
            self._child = ChildProcess((*self._program, *self._arguments()), self._environment)
        except OSError as error:
            self._finish(False, f"the reset cannot be started: {error.strerror or error}")

    def poll(self) -> bool:
        """Look after the child. Return True when the reset has ended, so that it is reported at once."""
        if self._child is None:
            return False
        self._answer = self._child.read_response() or self._answer
        status = self._child.poll()
        if status is None:
            if self._now() >= self._kill_at and not self._killed:
                self._killed = True
                self._child.kill()
            return False
        self._child = None
        if self._killed:
            self._finish(False, "the reset did not end in time")
        else:
            self._finish(*_read(self._answer, status))
        return True

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()

    def _arguments(self) -> Iterator[str]:
        """Yield the arguments of the child process."""
        if self._settings.root is not None:
            yield f"--root={self._settings.root}"
        for service in self._settings.services:
            yield f"--service={service}"
        yield from (str(self._proc), *self._settings.command)

    def _next(self, commands: Sequence[ServerCommand]) -> ServerCommand | None:
        wanted = [command for command in commands if command.kind == RESET]
        if not self.is_able or self.is_running or not wanted or wanted[-1].id == self._state.reset.get("order"):
            return None
        return wanted[-1]

    def _finish(self, done: bool, sentence: str) -> None:
        self._state.reset = {"order": self._order, "done": done, "sentence": sentence[:SENTENCE_MAX]}
        self._state.save()


def _read(line: bytes | None, status: int) -> tuple[bool, str]:
    """Return whether the GPUs were reset, and a sentence, from the answer and the exit status of the child."""
    try:
        answer = json.loads(line or b"")
        return bool(answer["done"]), str(answer["sentence"])
    except (ValueError, KeyError, TypeError):
        return False, f"the process of the reset ended with {status} and gave no answer"
