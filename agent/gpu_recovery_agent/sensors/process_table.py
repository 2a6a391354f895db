"""The processes of one look at /proc, by their start: all searches of a look share one scan."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gpu_recovery_agent.sensors import processes


class ProcessView(NamedTuple):
    """How a process is seen from its own PID namespace.

    `pid` is its number there, None if it is in the namespace of the agent. `namespace` is None without permission to
    read it. `user` is the user whose files it creates.
    """

    pid: int | None
    namespace: int | None
    user: int | None


class ProcessTable:
    """Reads /proc at the first question, and each process in detail at most once. Use it for one look only."""

    def __init__(self, host_proc: Path, reader: processes.Reader | None = None) -> None:
        self._proc, self._reader = host_proc, reader or processes.Direct(host_proc)
        self._by_start: dict[int, list[int]] | None = None
        self._views: dict[int, ProcessView] = {}
        self._environments: dict[int, dict[str, str] | None] = {}

    def started_at(self, ticks: int) -> list[int]:
        """Return the pids of the processes that began at this clock tick since the boot."""
        if self._by_start is None:
            self._by_start = {}
            for pid in processes.pids(self._proc):
                if process := processes.read(self._proc, pid):
                    self._by_start.setdefault(process.ticks, []).append(pid)
        return self._by_start.get(ticks, [])

    def view(self, pid: int) -> ProcessView:
        """Return how a process is seen from its own namespace."""
        if pid not in self._views:
            numbers = processes.namespace_pids(self._proc, pid)
            own = numbers[-1] if len(numbers) > 1 else None
            namespace = processes.pid_namespace(self._proc, pid)
            self._views[pid] = ProcessView(own, namespace, processes.user(self._proc, pid))
        return self._views[pid]

    def environment(self, pid: int) -> dict[str, str] | None:
        """Return the rank variables that a process began with; None if they cannot be read."""
        if pid not in self._environments:
            self._environments[pid] = self._reader.environment(pid)
        return self._environments[pid]
