"""Manages the child process that reads NVML, and its deadline.

A GPU that hangs does not stop the heartbeat. There is one child at a time. It is killed at its deadline. A process
that sleeps in the driver does not end even then. It is left behind, and no other child is started until the kernel has
removed it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_recovery_agent import clock
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors.child.client import ChildProcess

COMMAND = (sys.executable, "-m", "gpu_recovery_agent.sensors.child.nvml")


class NvmlSensor:
    """Reads NVML every `interval_s`; `poll` never waits.

    `reading` is the last answer, None before the first; `gpus` is the last answer that contains GPUs. `trouble` says
    why NVML cannot be read, None if it can. `hung` says that the deadline has passed.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        log: AgentLog,
        *,
        interval_s: float,
        deadline_s: float,
        command: Sequence[str] = COMMAND,
        now: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        self._command, self._log, self._now = command, log, now
        self._environment = environment
        self._interval_s, self._deadline_s = interval_s, deadline_s
        self._child: ChildProcess | None = None
        self._asked_at: float | None = None
        self._killed = False
        self._next_at = self._answered_at = now()
        self.started = 0
        self.reading: dict[str, Any] | None = None
        self.gpus: dict[str, Any] | None = None
        self.trouble: str | None = None
        self.hung = False

    @property
    def current(self) -> dict[str, Any] | None:
        """Return the last answer; None if a later question has got none."""
        return None if self.hung or self.trouble else self.reading

    @property
    def unanswered_s(self) -> float:
        """Return seconds since the last answer."""
        return self._now() - self._answered_at

    def poll(self) -> bool:
        """Ask if it is time, and take an answer that has arrived.

        Return whether there is a new reading or a new trouble.
        """
        if self._child is not None and (status := self._child.poll()) is not None:
            return self._handle_end(status)
        if self._child is None:
            if self._now() >= self._next_at:
                self._ask()
            return False
        if self._asked_at is None:
            if self._now() >= self._next_at:
                self._ask()
            return False
        if not self._killed and self._take():
            return True
        if not self._killed and self._now() - self._asked_at >= self._deadline_s:
            self._killed, self.hung = True, True
            self._child.kill()
            self._log.once("nvml", "NVML does not answer: its reader process is killed and started again")
            return True
        return False

    def read_soon(self) -> None:
        """Ask at the next poll, before the interval has passed."""
        self._next_at = min(self._next_at, self._now())

    def close(self) -> None:
        """End the child. Waits at most 0.2 s for its end."""
        if self._child is not None:
            self._child.close()

    def pause(self) -> None:
        """End the child, and read no GPU until the next `poll`."""
        self.close()
        self._child, self._asked_at, self._killed = None, None, False

    def _ask(self) -> None:
        try:
            if self._child is None:
                self._child = ChildProcess(self._command, self._environment)
                self._killed = False
                self.started += 1
            self._child.ask(b"read")
            self._asked_at = self._now()
        except OSError as error:
            self.trouble = f"the reader process of NVML cannot be started: {error.strerror or error}"
            self._log.once("nvml", self.trouble)
            self._next_at = self._now() + self._interval_s

    def _take(self) -> bool:
        line = self._child.read_response() if self._child is not None else None
        return line is not None and self._handle_reading(line)

    def _handle_reading(self, line: bytes) -> bool:
        self._asked_at = None
        self._next_at = self._now() + self._interval_s
        try:
            reading = json.loads(line)
        except ValueError:
            reading = None
        if not isinstance(reading, dict) or not isinstance(reading.get("error", {}), dict):
            reading = {"error": {"code": None, "text": "the reader process of NVML does not answer with JSON"}}
        self._answered_at, self.hung = self._now(), False
        self._log.over("nvml", "NVML answers again")
        if "error" in reading:
            self._log.once("nvml reading", f"the GPUs cannot be read: {reading['error'].get('text')}")
        else:
            self._log.over("nvml reading", "the GPUs can be read again")
        self.reading, self.trouble = reading, None
        self.gpus = reading if "gpus" in reading else self.gpus
        return True

    def _handle_end(self, status: int) -> bool:
        if not self._killed:
            self.trouble = f"the reader of NVML ended with {status}"
            self._log.once("nvml", self.trouble)
        self._child, self._asked_at = None, None
        self._next_at = self._now() + self._interval_s
        return not self._killed
