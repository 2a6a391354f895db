"""Runs the server's commands: signals the processes of one attempt only, or writes orders for their wrappers.

A command names an attempt. The process id comes from a file that any process in a container can write. So the process
itself must confirm it: its start ticks match, and its initial environment holds that job and attempt. If the agent
cannot read that environment, it sends no signal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_recovery_agent import clock
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.hold import HOLD, START
from gpu_recovery_agent.rank_orders import RankOrders
from gpu_recovery_agent.responses import ServerCommand
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.processes import ProcessInfo
from gpu_recovery_agent.sensors.ranks import LiveRank, carries
from gpu_recovery_agent.signals import SignalSender
from gpu_recovery_agent.state import AgentState

WRAPPER_OUTLIVES_S = 10.0
"""Seconds that the wrapper has to write the exit after its command was killed. Then the wrapper is killed too."""


@dataclass
class _Stopping:
    """A process that received SIGTERM, and when it receives SIGKILL."""

    live: LiveRank
    kill_at: float
    killed: bool = False


class CommandRunner:
    """Runs each command once per process, also when the server repeats it and after a restart of the agent."""

    def __init__(
        self,
        host_proc: Path,
        state: AgentState,
        log: AgentLog,
        *,
        now: Callable[[], float] = clock.uptime_s,
        signals: SignalSender | None = None,
        reader: processes.Reader | None = None,
        orders: RankOrders | None = None,
    ) -> None:
        self._proc, self._state, self._log, self._now = host_proc, state, log, now
        self._signals, self._reader = signals or SignalSender(host_proc, log), reader
        self._orders = orders or RankOrders(None, log)
        self._stopping: dict[str, _Stopping] = {}

    def add(self, commands: Sequence[ServerCommand], running: Iterable[LiveRank]) -> None:
        """Start the commands of a response.

        Args:
            commands: the commands that the server sent.
            running: the ranks that run now.
        """
        ranks = [(live, live.rank) for live in running if live.rank]
        for command in commands:
            for live, rank in ranks:
                if (rank.job, rank.attempt) == (command.job, command.attempt):
                    if command.kind in (HOLD, START):
                        self._orders.write(command, live, rank)
                    else:
                        self._run(command, live)

    def run_due(self) -> None:
        """Kill each process after its grace period. Call often: it never waits."""
        for key, stopping in list(self._stopping.items()):
            if not self._is_same_process(stopping.live):
                del self._stopping[key]
            elif self._now() >= stopping.kill_at:
                if stopping.killed:
                    self._signal(stopping.live, signal.SIGKILL, "the wrapper did not end")
                else:
                    self._kill_command(stopping.live)
                    stopping.killed = True
                stopping.kill_at = self._now() + WRAPPER_OUTLIVES_S

    def _run(self, command: ServerCommand, live: LiveRank) -> None:
        key = f"{command.id} {live.pid} {live.ticks}"
        executed_at = self._state.executed.get(key)
        if executed_at is None:
            if not self._is_same_process(live):
                return
            if not carries(self._proc, live.pid, live.rank, self._reader):
                text = f"order {command.id}: process {live.pid} may not belong to job {command.job}; not signalled"
                self._log.once(key, text)
                return
            executed_at = self._now()
            self._state.executed[key] = executed_at
            self._state.save()
            what = f"order {command.id} to {command.kind} job {command.job}, attempt {command.attempt}"
            self._signal(live, signal.SIGTERM, what)
            if command.kind == "stop":  # the wrapper of rank 0 takes SIGTERM as a notice; a stop has no grace
                for member in self._groups_apart(live):
                    self._signal(member, signal.SIGTERM, what)
        if command.kind == "stop" and key not in self._stopping:
            self._stopping[key] = _Stopping(live, executed_at + command.grace_s)

    def _kill_command(self, live: LiveRank) -> None:
        """Kill the process groups of the wrapper's children. The wrapper stays alive and writes how they ended."""
        groups, wrapper = self._groups_apart(live), processes.read(self._proc, live.pid)
        if not groups and wrapper and wrapper.ticks == live.ticks and wrapper.group == live.pid:
            groups = [wrapper]  # a shell with its pipeline: it leads its own group and has no children in another group
        for member in groups:
            self._signal(member, signal.SIGKILL, "the order has expired")
        if not groups:
            self._signal(live, signal.SIGKILL, "the order has expired")

    def _groups_apart(self, live: LiveRank) -> list[ProcessInfo]:
        """Return a member of each group that may be signalled: groups of the process's children.

        Its own group and the agent's group are left out.
        """
        every = (processes.read(self._proc, pid) for pid in processes.pids(self._proc))
        process = processes.read(self._proc, live.pid)
        members = {child.group: child for child in every if child and child.is_alive and child.parent == live.pid}
        apart = {process.group if process else 0, os.getpgrp(), 0, 1}
        return [member for group, member in sorted(members.items()) if group not in apart]

    def _is_same_process(self, live: LiveRank) -> bool:
        process = processes.read(self._proc, live.pid)
        return process is not None and process.is_alive and process.ticks == live.ticks

    def _signal(self, target: LiveRank | ProcessInfo, number: int, why: str) -> None:
        """Signal the process of a rank, or the process group of another process."""
        try:
            if isinstance(target, LiveRank):
                self._signals.to_process(target.pid, target.ticks, number)
            else:
                self._signals.to_group(target, number)
        except ProcessLookupError:
            return
        except PermissionError:
            self._log.once(f"signal {target.pid}", f"{why}: process {target.pid} may not be signalled by this user")
            return
        what = target.pid if isinstance(target, LiveRank) else f"group {target.group}"
        self._log.write(f"{why}: {signal.Signals(number).name} to {what}")
