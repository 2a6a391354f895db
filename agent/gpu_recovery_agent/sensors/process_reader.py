"""Asks a child of processes what may block, within a deadline: whatever a process waits for, the heartbeat goes on.

A child is started when there is a question and ended when there is none, so it costs memory for moments only. What was
found of a process is kept: it began with that environment. One that does not let itself be read is left alone for a
minute, and while the child that asked it still sleeps in the kernel nobody is asked anything.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_recovery_agent import clock
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.child.client import ChildProcess

COMMAND = (sys.executable, "-m", "gpu_recovery_agent.sensors.child.processes")
DEADLINE_S = 5.0
"""As long as the API has. The first answer of a child includes its start."""
RETRY_STUCK_AFTER_S, PAUSE_S = 60.0, 10.0
"""After one that could not be read, for how long it is not asked again, and for how long nobody is: of eight that sleep
each would cost a deadline."""
RESTS_AFTER_S = 3.0
KEPT_MAX = 1_024
ASKED_AT_ONCE, ASKED_EVERY = 5, 30
"""A process that is no rank is asked at these first times, then every so many: it may become one by an `exec`."""

Named = tuple[int, int]
"""A pid and its start ticks."""


class ProcessReader:
    """`processes.Direct`, behind a deadline. `unread` says what could not be read, "" when all could."""

    def __init__(
        self,
        host_proc: Path,
        environment: Mapping[str, str],
        journal: AgentLog,
        *,
        deadline_s: float = DEADLINE_S,
        command: Sequence[str] = COMMAND,
        now: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        self._proc, self._environment, self._log = host_proc, environment, journal
        self._deadline_s, self._command, self._now = deadline_s, command, now
        self._child: ChildProcess | None = None
        self._killed = False
        self._asked_at = self._not_before = now()
        self._known: dict[Named, dict[str, str]] = {}
        self._nobody: dict[Named, int] = {}
        self._stuck: dict[str, float] = {}
        self.started = 0

    @property
    def unread(self) -> str:
        """What does not let itself be read, in words for the report."""
        now = self._now()
        self._stuck = {what: until for what, until in self._stuck.items() if until > now}
        return f"{', '.join(sorted(self._stuck))} cannot be read: no answer of the kernel" if self._stuck else ""

    def environment(self, pid: int) -> dict[str, str] | None:
        """What of its rank the process began with; None where it cannot be read, or cannot be read now."""
        process = processes.read(self._proc, pid)
        if process is None or not process.is_alive:
            return None
        name = (pid, process.ticks)
        if name in self._known:
            return self._known[name]
        asked = self._nobody.get(name, 0)
        if asked >= ASKED_AT_ONCE and asked % ASKED_EVERY:
            self._nobody[name] = asked + 1
            return {}
        answered, found = self._ask(f"process {pid}", {"pid": pid})
        if not answered:
            return None
        if isinstance(found, dict) and "JOB_ID" in found:
            _bounded(self._known)[name] = found
            self._nobody.pop(name, None)
            return found
        _bounded(self._nobody)[name] = asked + 1
        return found if isinstance(found, dict) else None

    def first_processes(self, containers: Sequence[str]) -> dict[str, int]:
        """The first process of each of these containers; none where they cannot be read now."""
        answered, found = self._ask("the processes of containers", {"containers": list(containers)})
        return found if answered and isinstance(found, dict) else {}

    def rest(self) -> None:
        """Ends the child when nothing was asked for a while. To be called often: it never waits."""
        if self._gone() or self._child is None or self._killed:
            return
        if self._now() - self._asked_at >= RESTS_AFTER_S:
            self._child.close()
            self._killed = not self._gone()

    def close(self) -> None:
        """Ends the child without waiting for it."""
        if self._child is not None:
            self._child.close()

    def _ask(self, what: str, question: dict[str, Any]) -> tuple[bool, Any]:
        """Whether there is an answer, and which."""
        if self._stuck.get(what, 0.0) > self._now() or self._not_before > self._now():
            return False, None
        if self._killed and not self._gone():
            return False, None
        try:
            line = self._answer(json.dumps({"proc": str(self._proc), **question}).encode())
        except OSError as error:
            self._log.once("processes", f"the reader of processes cannot be asked: {error.strerror or error}")
            return False, None
        if line is None:
            self._give_up(what)
            return False, None
        self._log.over(what, f"{what} can be read again")
        return True, json.loads(line)

    def _answer(self, question: bytes) -> bytes | None:
        if self._gone() or self._child is None:
            self._child, self._killed = ChildProcess(self._command, self._environment), False
            self.started += 1
        self._child.ask(question)
        self._asked_at = self._now()
        while (left := self._asked_at + self._deadline_s - self._now()) > 0:
            self._child.wait(left)
            if (line := self._child.read_response()) is not None:
                return line
            if self._child.is_over:
                return None
        return None

    def _give_up(self, what: str) -> None:
        if self._child is not None:
            self._child.kill()
        self._killed = True
        self._stuck[what] = self._now() + RETRY_STUCK_AFTER_S
        self._not_before = self._now() + PAUSE_S
        self._log.once(what, f"{what} cannot be read within {self._deadline_s:g} s; the heartbeat goes on")

    def _gone(self) -> bool:
        """Whether there was a child and the kernel has let go of it; then there is none."""
        if self._child is None or self._child.poll() is None:
            return False
        self._child, self._killed = None, False
        return True


def _bounded(kept: dict[Named, Any]) -> dict[Named, Any]:
    if len(kept) >= KEPT_MAX:
        kept.clear()  # nobody has so many ranks: what still runs is asked again
    return kept
