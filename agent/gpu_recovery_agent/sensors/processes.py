"""Reads processes from /proc.

For a process that is gone or that cannot be read, the functions return None, and `namespace_pids` returns ().
`pids` does not read the processes: it yields nothing if the folder itself cannot be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

ENVIRONMENT_BYTES_MAX = 1024 * 1024
ZOMBIE, DEAD, WAITS = "Z", "X", "D"
OF_A_RANK = ("JOB_ID", "ATTEMPT", "RANK", "NODE_RANK", "EPOCH", "RUNNING_LOG_ID")
"""Variables that are read from an environment. The others may hold secrets of a job and are never passed on."""


@dataclass(frozen=True)
class ProcessInfo:
    """One process. `ticks` is its start in clock ticks since the boot; pid and ticks together identify the process.

    `cpu_ticks` is the processor time, in clock ticks, of the process and of its children that it has waited for.
    """

    pid: int
    state: str
    parent: int
    group: int
    ticks: int
    cpu_ticks: int = field(default=0, compare=False)

    @property
    def is_alive(self) -> bool:
        """Return whether the process still executes: a zombie has ended and waits for its parent."""
        return self.state not in (ZOMBIE, DEAD)


def read(host_proc: Path, pid: int) -> ProcessInfo | None:
    """Return the process of that pid, as /proc/<pid>/stat shows it."""
    try:
        text = (host_proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may contain blanks and parentheses; the fields begin after the last one.
    fields = text.rpartition(")")[2].split()
    try:
        used = sum(map(int, fields[11:15]))
        return ProcessInfo(pid, fields[0], int(fields[1]), int(fields[2]), int(fields[19]), used)
    except (IndexError, ValueError):
        return None


def pids(host_proc: Path) -> Iterator[int]:
    """Yield all pids of the namespace of `host_proc`, in no order."""
    try:
        with os.scandir(host_proc) as entries:
            yield from (int(entry.name) for entry in entries if entry.name.isdigit())
    except OSError:
        return


def namespace_pids(host_proc: Path, pid: int) -> tuple[int, ...]:
    """Return the pids of a process from the namespace of `host_proc` inwards; the last is the pid that it sees
    itself.
    """
    return _status(host_proc, pid, "NSpid:")


def user(host_proc: Path, pid: int) -> int | None:
    """Return the user id that the files of a process get, which is its filesystem uid."""
    uids = _status(host_proc, pid, "Uid:")  # real, effective, saved, filesystem
    return uids[3] if len(uids) == 4 else None


def _status(host_proc: Path, pid: int, name: str) -> tuple[int, ...]:
    """Return the numbers of a line of /proc/<pid>/status; () if the process or the line is missing."""
    try:
        status = (host_proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    line = next((line for line in status.splitlines() if line.startswith(name)), "")
    return tuple(int(field) for field in line.split()[1:] if field.isdigit())


def pid_namespace(host_proc: Path, pid: int | str) -> int | None:
    """Return the inode of a process's PID namespace; None without permission (CAP_SYS_PTRACE, or the same user)."""
    try:
        return os.stat(host_proc / str(pid) / "ns" / "pid").st_ino
    except OSError:
        return None


def environment(host_proc: Path, pid: int) -> dict[str, str] | None:
    """Return the environment that a process began with; None without permission to read it."""
    try:
        with (host_proc / str(pid) / "environ").open("rb") as file:
            raw = file.read(ENVIRONMENT_BYTES_MAX)
    except OSError:
        return None
    pairs = (entry.partition("=") for entry in raw.decode("utf-8", errors="replace").split("\0"))
    return {key: value for key, separator, value in pairs if separator}


def container_id(host_proc: Path, pid: int) -> str | None:
    """Return the container id in a process's control group, 64 hexadecimal digits; None if there is none."""
    try:
        text = (host_proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for part in text.replace("\n", "/").replace("docker-", "/").replace(".scope", "/").split("/"):
        if len(part) == 64 and all(digit in "0123456789abcdef" for digit in part):
            return part
    return None


class Reader(Protocol):
    """Reads what may block in /proc."""

    def environment(self, pid: int) -> dict[str, str] | None:
        """Return the rank variables that a process began with; None if they cannot be read."""

    def first_processes(self, containers: Sequence[str]) -> dict[str, int]:
        """Return the pid of the first process of each of these containers that has one."""


class Direct:
    """Reads without a deadline. The child process uses it; its parent watches the deadline."""

    def __init__(self, host_proc: Path) -> None:
        self._proc = host_proc

    def environment(self, pid: int) -> dict[str, str] | None:
        """Return the rank variables that a process began with; None if they cannot be read."""
        whole = environment(self._proc, pid)
        return {name: whole[name] for name in OF_A_RANK if name in whole} if whole is not None else None

    def first_processes(self, containers: Sequence[str]) -> dict[str, int]:
        """Return the pid of the first process of each of these containers that has one."""
        wanted, first = set(containers), dict[str, int]()
        for pid in pids(self._proc):
            container = container_id(self._proc, pid)
            if container in wanted and container is not None and namespace_pids(self._proc, pid)[-1:] == (1,):
                first[container] = min(pid, first.get(container, pid))
        return first
