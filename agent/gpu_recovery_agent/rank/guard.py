"""The guard of a rank: ends what the command leaves behind if the wrapper is killed.

The kernel ends the command with the wrapper (PR_SET_PDEATHSIG), but not the children of the command. Outside of a
container nothing else ends them, and they may hold GPUs. The guard is a child of the wrapper in a session of its own.
It holds the read end of a pipe. Only the wrapper holds the write end, so the read returns when the wrapper has ended.

The guard finds the processes by the command's process group, and by the variable that names the suspension folder.
Every process of the rank inherits that variable, and no other rank has the same folder. Launchers such as torchrun
start their workers in new sessions, so the process group alone would not find them. Workers of Ray overwrite their
environment with their title, so the descendants of all these processes are ended, too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import NoReturn

from ..sensors import processes
from .suspension_folder import VARIABLE

ROUNDS_MAX, PAUSE_S = 50, 0.1
"""How often the guard searches for processes, and the pause between. A process may fork while it is being ended."""
PROC = Path("/proc")
GROUP_DIGITS = 20


class Guard:
    """The guard of one run of a command, from its creation until the wrapper ends or kills it.

    A wrapper that is the first process of a PID namespace needs no guard: the kernel ends the namespace with it.

    Args:
        folder: the suspension folder; None if there is none. Then only the command's process group is ended.
    """

    def __init__(self, folder: Path | None) -> None:
        self.pid: int | None = None
        if os.getpid() == 1:
            return
        read_end, self._pipe = os.pipe()
        with contextlib.suppress(OSError):  # no process can be made: the start of the command will say so
            self.pid = os.fork()
        if self.pid == 0:
            _stand_guard(read_end, folder)
        os.close(read_end)

    def watch(self, group: int) -> None:
        """Tell the guard the command's process group."""
        if self.pid is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, b"%d" % group)

    def dismiss(self) -> None:
        """End the guard: from here on the wrapper itself ends the rest."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.close(self._pipe)
            self.pid = None


def _stand_guard(read_end: int, folder: Path | None) -> NoReturn:
    """Run in the child: wait until the wrapper has ended, then end the rest. Never returns."""
    try:
        os.setsid()  # signals for the wrapper's group do not reach this process
        _close_all_but(read_end)  # an open end of an output would make its reader wait
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        group = b""
        while part := os.read(read_end, GROUP_DIGITS):
            group += part
        end_processes(int(group or b"0"), folder)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def _close_all_but(kept: int) -> None:
    """Close all descriptors of this process besides `kept` and the standard ones."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def end_processes(group: int, folder: Path | None) -> None:
    """Kill the processes of the rank until a search finds none. The arguments are those of `processes_of`."""
    for _ in range(ROUNDS_MAX):
        found = processes_of(group, folder)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(PAUSE_S)


def processes_of(group: int, folder: Path | None) -> set[int]:
    """Return the live processes of the group, those whose environment names the folder, and all their descendants.

    Args:
        group: the command's process group; 0 if the wrapper was killed before it had started the command.
        folder: the suspension folder; None if there is none.
    """
    read = (processes.read(PROC, pid) for pid in processes.pids(PROC) if pid != os.getpid())
    live = [process for process in read if process is not None and process.is_alive]
    children: dict[int, list[int]] = {}
    for process in live:
        children.setdefault(process.parent, []).append(process.pid)
    # Group 0 is that of kernel threads, and of processes that a PID namespace got from outside.
    in_group = [process.pid for process in live if process.group == group] if group else []
    rest = [*in_group, *(process.pid for process in live if _names(folder, process.pid))]
    found: set[int] = set()
    while rest:
        pid = rest.pop()
        if pid not in found:
            found.add(pid)
            rest += children.get(pid, [])
    return found


def _names(folder: Path | None, pid: int) -> bool:
    """Return whether the environment that a process began with names the folder."""
    environment = processes.environment(PROC, pid) if folder is not None else None
    return environment is not None and environment.get(VARIABLE) == str(folder)
