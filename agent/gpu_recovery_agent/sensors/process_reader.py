"""Isolates reads of /proc that may block in a child process, with a deadline.

So a blocked read does not stop the heartbeat. The child is started for a question and ended when there is none, so it
uses memory only for moments. An environment that was read is stored, because the environment at the start of a process
does not change. A process that cannot be read is left alone for a minute. While a child still sleeps in the kernel, no
process is asked.
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
"""Seconds for an answer, as many as for the API. The first answer of a child includes the start of the child."""
RETRY_STUCK_AFTER_S, PAUSE_S = 60.0, 10.0
"""Seconds until a process that could not be read is asked again, and seconds until any process is asked. Without the
second pause, eight sleeping processes would cost eight deadlines.
"""
RESTS_AFTER_S = 3.0
"""Seconds without a question after which the child is ended."""
CACHE_MAX = 1_024
"""Largest number of processes with stored answers."""
ASKED_AT_ONCE, ASKED_EVERY = 5, 30
"""A process that is no rank is asked this many times, then only every so many polls: an `exec` may make it a rank."""

Named = tuple[int, int]
"""A pid and its start ticks."""


class ProcessReader:
    """Like `processes.Direct`, with a deadline. `unread` names what could not be read; "" if all could."""

    def __init__(
        self,
        host_proc: Path,
        environment: Mapping[str, str],
        log: AgentLog,
        *,
        deadline_s: float = DEADLINE_S,
        command: Sequence[str] = COMMAND,
        now: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        self._proc, self._environment, self._log = host_proc, environment, log
        self._deadline_s, self._command, self._now = deadline_s, command, now
        self._child: ChildProcess | None = None
        self._killed = False
        self._asked_at = self._not_before = now()
        self._known: dict[Named, dict[str, str]] = {}
        self._not_ranks: dict[Named, int] = {}
        self._stuck: dict[str, float] = {}
        self.started = 0

    @property
    def unread(self) -> str:
        """Return a sentence for the report about what cannot be read; "" if all can."""
        now = self._now()
        self._stuck = {what: until for what, until in self._stuck.items() if until > now}
        return f"{', '.join(sorted(self._stuck))} cannot be read: no answer of the kernel" if self._stuck else ""

    def environment(self, pid: int) -> dict[str, str] | None:
        """Return the rank variables that the process began with; {} for a process that is no rank.

        None if the process has ended, or if the variables cannot be read now.
        """
        process = processes.read(self._proc, pid)
        if process is None or not process.is_alive:
            return None
        name = (pid, process.ticks)
        if name in self._known:
            return self._known[name]
        asked = self._not_ranks.get(name, 0)
        if asked >= ASKED_AT_ONCE and asked % ASKED_EVERY:
            self._not_ranks[name] = asked + 1
            return {}
        answered, answer = self._ask(f"process {pid}", {"pid": pid})
        if not answered:
            return None
        if isinstance(answer, dict) and "JOB_ID" in answer:
            _bounded(self._known)[name] = answer
            self._not_ranks.pop(name, None)
            return answer
        _bounded(self._not_ranks)[name] = asked + 1
        return answer if isinstance(answer, dict) else None

    def first_processes(self, containers: Sequence[str]) -> dict[str, int]:
        """Return the first process of each of these containers; an empty result if they cannot be read now."""
        answered, answer = self._ask("the processes of containers", {"containers": list(containers)})
        return answer if answered and isinstance(answer, dict) else {}

    def rest(self) -> None:
        """End the child after RESTS_AFTER_S without a question. Call often: it waits at most 0.2 s, for that end."""
        if self._gone() or self._child is None or self._killed:
            return
        if self._now() - self._asked_at >= RESTS_AFTER_S:
            self._child.close()
            self._killed = not self._gone()

    def close(self) -> None:
        """End the child. Waits at most 0.2 s for its end."""
        if self._child is not None:
            self._child.close()

    def _ask(self, what: str, question: dict[str, Any]) -> tuple[bool, Any]:
        """Return whether there is an answer, and the answer."""
        if self._stuck.get(what, 0.0) > self._now() or self._not_before > self._now():
            return False, None
        if self._killed and not self._gone():
            return False, None
        try:
            line = self._answer(json.dumps({"proc": str(self._proc), **question}).encode())
        except OSError as error:
            self._log.once("processes", f"the reader of processes cannot be started: {error.strerror or error}")
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
        self._log.once(what, f"{what} cannot be read within {self._deadline_s:g} s; heartbeats continue")

    def _gone(self) -> bool:
        """Return whether the child has ended and the kernel has removed it; it is then forgotten."""
        if self._child is None or self._child.poll() is None:
            return False
        self._child, self._killed = None, False
        return True


def _bounded(stored: dict[Named, Any]) -> dict[Named, Any]:
    if len(stored) >= CACHE_MAX:
        stored.clear()  # no instance runs so many ranks; the running ranks are asked again
    return stored
