"""What /proc says of processes. One that is gone, or of which it says nothing, is None."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ENVIRONMENT_BYTES_MAX = 1024 * 1024
ZOMBIE, DEAD = "Z", "X"
OF_A_RANK = ("JOB_ID", "ATTEMPT", "RANK", "NODE_RANK", "EPOCH", "RUNNING_LOG_ID")
"""What is taken from an environment. The rest of it may hold secrets of a job, and is nobody's business."""


@dataclass(frozen=True)
class ProcessInfo:
    """One process: `ticks` is its start in clock ticks since the boot, which with its pid names it for ever."""

    pid: int
    state: str
    parent: int
    group: int
    ticks: int

    @property
    def is_alive(self) -> bool:
        """Whether it still executes: a zombie has ended and waits for its parent."""
        return self.state not in (ZOMBIE, DEAD)


def read(host_proc: Path, pid: int) -> ProcessInfo | None:
    """The process of that pid, as /proc/<pid>/stat has it."""
    try:
        text = (host_proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in brackets may hold blanks and brackets of its own; what is counted begins after its last one.
    fields = text.rpartition(")")[2].split()
    try:
        return ProcessInfo(pid, fields[0], int(fields[1]), int(fields[2]), int(fields[19]))
    except (IndexError, ValueError):
        return None


def pids(host_proc: Path) -> Iterator[int]:
    """All pids of the namespace of `host_proc`, in no order."""
    try:
        with os.scandir(host_proc) as entries:
            yield from (int(entry.name) for entry in entries if entry.name.isdigit())
    except OSError:
        return


def namespace_pids(host_proc: Path, pid: int) -> tuple[int, ...]:
    """The pids of a process from the namespace of `host_proc` inwards; the last is the one it knows itself."""
    try:
        status = (host_proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    line = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
    return tuple(int(one) for one in line.split()[1:] if one.isdigit())


def pid_namespace(host_proc: Path, pid: int | str) -> int | None:
    """The inode of a process's pid namespace; None without the right to ask (CAP_SYS_PTRACE, or the same user)."""
    try:
        return os.stat(host_proc / str(pid) / "ns" / "pid").st_ino
    except OSError:
        return None


def environment(host_proc: Path, pid: int) -> dict[str, str] | None:
    """The environment that a process began with; None without the right to read it."""
    try:
        with (host_proc / str(pid) / "environ").open("rb") as file:
            raw = file.read(ENVIRONMENT_BYTES_MAX)
    except OSError:
        return None
    pairs = (one.partition("=") for one in raw.decode("utf-8", errors="replace").split("\0"))
    return {key: value for key, separator, value in pairs if separator}


def container_id(host_proc: Path, pid: int) -> str | None:
    """The container that a process's control group names: 64 hexadecimal digits."""
    try:
        text = (host_proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for part in text.replace("\n", "/").replace("docker-", "/").replace(".scope", "/").split("/"):
        if len(part) == 64 and all(digit in "0123456789abcdef" for digit in part):
            return part
    return None


class Reader(Protocol):
    """Who reads of processes what may block."""

    def environment(self, pid: int) -> dict[str, str] | None:
        """What of its rank a process began with; None where that cannot be read."""

    def first_processes(self, containers: Sequence[str]) -> dict[str, int]:
        """The pid of the first process of each of these containers that has one."""


class Direct:
    """Reads without a deadline: in the child that has one."""

    def __init__(self, host_proc: Path) -> None:
        self._proc = host_proc

    def environment(self, pid: int) -> dict[str, str] | None:
        found = environment(self._proc, pid)
        return {name: found[name] for name in OF_A_RANK if name in found} if found is not None else None

    def first_processes(self, containers: Sequence[str]) -> dict[str, int]:
        wanted, found = set(containers), dict[str, int]()
        for pid in pids(self._proc):
            container = container_id(self._proc, pid)
            if container in wanted and container is not None and namespace_pids(self._proc, pid)[-1:] == (1,):
                found[container] = min(pid, found.get(container, pid))
        return found
