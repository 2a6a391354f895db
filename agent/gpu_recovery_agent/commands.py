"""Suspend and stop: signals for the processes of an attempt, and for nobody else.

A server's order names an attempt. Which process that is, is told by a file that anybody in a container may have
written; so the process itself must bear witness: it lives since the very tick, and it began with that job and attempt
in its environment. Whoever cannot be asked is not signalled.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_recovery_agent import clock
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.responses import ServerCommand
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.ranks import LiveRank, carries
from gpu_recovery_agent.state import AgentState

WRAPPER_OUTLIVES_S = 10.0
"""After its command was killed the wrapper writes the exit; one that does not even end then is killed itself."""


@dataclass
class _Stopping:
    """A process that has got SIGTERM, and what follows when it does not end."""

    live: LiveRank
    kill_at: float
    killed: bool = False


class CommandRunner:
    """Carries out each order once for each process, however often it is repeated, also after a new start."""

    def __init__(
        self,
        host_proc: Path,
        state: AgentState,
        journal: AgentLog,
        *,
        now: Callable[[], float] = clock.uptime_s,
        kill: Callable[[int, int], None] = os.kill,
        kill_group: Callable[[int, int], None] = os.killpg,
        reader: processes.Reader | None = None,
    ) -> None:
        self._proc, self._state, self._log, self._now = host_proc, state, journal, now
        self._kill, self._kill_group, self._reader = kill, kill_group, reader
        self._stopping: dict[str, _Stopping] = {}

    def add(self, orders: Sequence[ServerCommand], running: Iterable[LiveRank]) -> None:
        """Takes the orders of an answer, about the ranks that run now."""
        ranks = [(live, live.rank) for live in running if live.rank]
        for order in orders:
            for live, rank in ranks:
                if (rank.job, rank.attempt) == (order.job, order.attempt):
                    self._run(order, live)

    def run_due(self) -> None:
        """Kills what had its time. To be called often: it never waits."""
        for key, stopping in list(self._stopping.items()):
            if not self._is_the_same(stopping.live):
                del self._stopping[key]
            elif self._now() >= stopping.kill_at:
                if stopping.killed:
                    self._signal(stopping.live.pid, signal.SIGKILL, "the wrapper did not end")
                else:
                    self._kill_command(stopping.live)
                    stopping.killed = True
                stopping.kill_at = self._now() + WRAPPER_OUTLIVES_S

    def _run(self, order: ServerCommand, live: LiveRank) -> None:
        key = f"{order.id} {live.pid} {live.ticks}"
        obeyed_at = self._state.executed.get(key)
        if obeyed_at is None:
            if not self._is_the_same(live):
                return
            if not carries(self._proc, live.pid, live.rank, self._reader):
                text = f"order {order.id}: process {live.pid} does not show that it is of job {order.job}; left alone"
                self._log.once(key, text)
                return
            obeyed_at = self._now()
            self._state.executed[key] = obeyed_at
            self._state.save()
            what = f"order {order.id} to {order.kind} job {order.job}, attempt {order.attempt}"
            self._signal(live.pid, signal.SIGTERM, what)
            if order.kind == "stop":  # for the wrapper of rank 0 SIGTERM is a notice: what is stopped has no grace
                for group in self._groups_apart(live):
                    self._signal(group, signal.SIGTERM, what, self._kill_group)
        if order.kind == "stop" and key not in self._stopping:
            self._stopping[key] = _Stopping(live, obeyed_at + order.grace_s)

    def _kill_command(self, live: LiveRank) -> None:
        """Kills the groups of the wrapper's children. The wrapper stays, and writes down how they ended."""
        groups, wrapper = self._groups_apart(live), processes.read(self._proc, live.pid)
        if not groups and wrapper and wrapper.group == live.pid:
            groups = {live.pid}  # it leads its own group and has nobody in another: a shell with its pipeline
        for group in groups:
            self._signal(group, signal.SIGKILL, "its time is over", self._kill_group)
        if not groups:
            self._signal(live.pid, signal.SIGKILL, "its time is over")

    def _groups_apart(self, live: LiveRank) -> set[int]:
        """The groups of a process's children that are not its own, nor anybody's who must not be signalled."""
        found = (processes.read(self._proc, pid) for pid in processes.pids(self._proc))
        process = processes.read(self._proc, live.pid)
        groups = {one.group for one in found if one and one.parent == live.pid}
        return groups - {process.group if process else 0, os.getpgrp(), 0, 1}

    def _is_the_same(self, live: LiveRank) -> bool:
        process = processes.read(self._proc, live.pid)
        return process is not None and process.is_alive and process.ticks == live.ticks

    def _signal(self, pid: int, number: int, why: str, kill: Callable[[int, int], None] | None = None) -> None:
        try:
            (kill or self._kill)(pid, number)
        except ProcessLookupError:
            return
        except PermissionError:
            self._log.once(f"signal {pid}", f"{why}: process {pid} may not be signalled by this user")
            return
        self._log.write(f"{why}: {signal.Signals(number).name} to {pid}")
