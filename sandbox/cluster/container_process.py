"""One container as a real process: its own session and process group, its own log, its real exit code."""

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path

MARK = "SANDBOX_TASK"
"""In the environment of everything a task starts, so that its strays can be found. Its value is the task's log path,
which no other sandbox shares, whatever ids both make of the same seed."""


class TaskProcess:
    """A running command. Raises OSError when it cannot be started."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path, log: Path) -> None:
        self._mark = f"{MARK}={log}"
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                env=environment | {MARK: str(log)},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._reaped = False
        self._reaping = threading.Lock()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def signal(self, number: int) -> None:
        """To the whole group. The leader's id cannot be reused before `wait` has reaped it."""
        with self._reaping:
            if not self._reaped:
                os.killpg(self.pid, number)

    def signal_program(self, number: int) -> None:
        """To the program of the task. The wrapper of a rank runs it in a group of its own, and is spared for that: what
        befalls a GPU ends who uses it, and the wrapper says how. Without /proc, and without a wrapper, to the group."""
        with self._reaping:
            if not self._reaped:
                for group in self._groups() - {self.pid} or {self.pid}:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(group, number)

    def _groups(self) -> set[int]:
        """The process groups of the task's session."""
        found = set()
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                group, session = entry.read_text().rpartition(")")[2].split()[2:4]
                found |= {int(group)} if int(session) == self.pid else set()
        return found

    def wait(self) -> int:
        """Block until the main process ends, end what it leaves behind, and return the shell's exit code."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        os.killpg(self.pid, signal.SIGKILL)  # a container ends with its first process
        self._kill_strays()
        with self._reaping:
            self._reaped = True
            code = self._popen.wait()
        return 128 - code if code < 0 else code

    def _kill_strays(self) -> None:
        """Processes that left the group (a launcher's own sessions) still carry our mark; Linux only."""
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                is_ours = self._mark.encode() in entry.read_bytes().split(b"\0")
                if is_ours and int(entry.parent.name) != self.pid:
                    os.kill(int(entry.parent.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it ended meanwhile, or belongs to somebody else
