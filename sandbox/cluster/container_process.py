"""A container as a real process, with its own session, process group and log, and a real exit code."""

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path

MARK = "SANDBOX_TASK"
"""Environment variable of every process that a task starts, by which the sandbox finds stray processes.

The value is the path of the task's log, which is unique even if two sandboxes make the same ids from the same seed.
"""


class TaskProcess:
    """A running command. The constructor raises OSError if the command cannot be started."""

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
        """Process id of the main process, which is also the id of its group and session."""
        return self._popen.pid

    def signal(self, number: int) -> None:
        """Send a signal to the whole process group. The id cannot be reused before `wait` has reaped the leader."""
        with self._reaping:
            if not self._reaped:
                os.killpg(self.pid, number)

    def signal_program(self, number: int) -> None:
        """Send a signal to the program of the task, but not to the wrapper of a rank.

        The wrapper runs the program in another process group. A GPU fault ends the program that uses the GPU, and the
        wrapper reports how the program ended. Without a wrapper, or without /proc, the whole group gets the signal.
        """
        with self._reaping:
            if not self._reaped:
                for group in self._groups() - {self.pid} or {self.pid}:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(group, number)

    def _groups(self) -> set[int]:
        """Return the process groups of the task's session."""
        groups = set()
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # the process ended meanwhile
                group, session = entry.read_text().rpartition(")")[2].split()[2:4]
                groups |= {int(group)} if int(session) == self.pid else set()
        return groups

    def wait(self) -> int:
        """Wait until the main process ends, kill the processes that it leaves, and return its exit code.

        The code follows the shell: 128 plus the signal's number if a signal ended the process.
        """
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        os.killpg(self.pid, signal.SIGKILL)  # all processes of a container end with its first process
        self._kill_strays()
        with self._reaping:
            self._reaped = True
            code = self._popen.wait()
        return 128 - code if code < 0 else code

    def _kill_strays(self) -> None:
        """Kill the processes that left the group (a launcher's own sessions) but have the mark. Linux only."""
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                is_ours = self._mark.encode() in entry.read_bytes().split(b"\0")
                if is_ours and int(entry.parent.name) != self.pid:
                    os.kill(int(entry.parent.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # the process ended meanwhile, or belongs to another user
