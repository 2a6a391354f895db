"""Samples what each rank does: its GPUs, its processes, the bytes of its instance and its output.

There is one sample for each reading of NVML. `activity_history.py` says what follows from the samples.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_recovery_agent import clock
from gpu_recovery_agent.rank.files import stem_of
from gpu_recovery_agent.rank.paths import output_path
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.activity_history import ActivityHistory, Sample, Values
from gpu_recovery_agent.sensors.gpu_health import gpus_in
from gpu_recovery_agent.sensors.host_counters import UNKNOWN, HostCounters
from gpu_recovery_agent.sensors.ranks import LiveRank

BYTES_PER_MB, MILLIJOULES_PER_JOULE, MILLIWATTS_PER_WATT = 1e6, 1e3, 1e3
JOBS_MAX = 64
"""Jobs whose longest pause and last history are remembered for their next attempts."""
Process = tuple[int, int]
"""Pid and start ticks of the process of a rank."""


@dataclass
class _Watched:
    """What is known of one process of a rank. `line_mark` is the time of its last line, as its file has it."""

    history: ActivityHistory
    gpus: set[int] = field(default_factory=set)
    cpu_ticks: int | None = None
    energy_mj: dict[int, int] = field(default_factory=dict)
    line_mark: int | None = None


class ActivitySensor:
    """The activity of the ranks on this instance, from one `sample` to the next."""

    def __init__(
        self,
        running_folder: Path,
        host_proc: Path,
        counters: Callable[[], HostCounters],
        now: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        self._folder, self._proc, self._counters, self._now = running_folder, host_proc, counters, now
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._watched: dict[Process, _Watched] = {}
        self._pauses: dict[str, float] = {}
        self._former: dict[str, ActivityHistory] = {}
        self._before, self._at = UNKNOWN, now()

    def sample(self, ranks: Iterable[LiveRank], reading: Mapping[str, Any] | None) -> None:
        """Add a sample of each rank.

        Args:
            ranks: the ranks with a process. A held rank is left out: its process is its wrapper.
            reading: the reading of NVML that was just made; None if NVML does not answer.
        """
        live = {(rank.pid, rank.ticks): rank for rank in ranks if not rank.held}
        at = self._now()
        seconds, self._at = at - self._at, at
        self._forget(live)
        if not live:
            self._before = UNKNOWN
            return
        counters, before = self._counters(), self._before
        self._before = counters
        fabric = _rate(counters.fabric, before.fabric, seconds * BYTES_PER_MB)
        traffic = _rate(counters.traffic, before.traffic, seconds * BYTES_PER_MB)
        tree = _Tree(self._proc)
        gpus = [gpu for gpu in gpus_in(dict(reading or {})) if isinstance(gpu.get("index"), int)]
        for name, rank in live.items():
            pids = tree.below(rank.pid)
            watched = self._watch(name, rank)
            self._assign(watched, pids, gpus, is_alone=len(live) == 1)
            mine = [gpu for gpu in gpus if gpu["index"] in watched.gpus]
            complete = len(mine) == len(watched.gpus) and bool(mine)
            used = tree.cpu_ticks(pids)
            cores = _rate(used, watched.cpu_ticks, seconds * self._ticks_per_s)
            watched.cpu_ticks = used
            watched.history.add(
                Sample(
                    seconds,
                    _mean([gpu.get("utilization") for gpu in mine]) if complete else None,
                    _power_w(watched, mine, seconds) if complete else None,
                    cores / len(mine) if complete and cores is not None else None,
                    fabric,
                    traffic,
                    tree.waits_for_io(pids),
                    self._has_written(watched, rank),
                )
            )

    def values(self, rank: LiveRank) -> Values | None:
        """Return the values of a rank for the report (`activity_history.FIELDS`); None if they are not known."""
        watched = self._watched.get((rank.pid, rank.ticks))
        return watched.history.values() if watched is not None and not rank.held else None

    def _watch(self, name: Process, rank: LiveRank) -> _Watched:
        if name not in self._watched:
            job = rank.rank.job if rank.rank is not None else ""
            history = ActivityHistory(self._pauses.get(job, 0.0), self._former.get(job))
            self._watched[name] = _Watched(history)
            if job:
                _remember(self._former, job, history)
        watched = self._watched[name]
        if rank.rank is not None and watched.history.pause_s:
            _remember(self._pauses, rank.rank.job, watched.history.pause_s)
        return watched

    def _forget(self, live: Mapping[Process, LiveRank]) -> None:
        for name in self._watched.keys() - live.keys():
            del self._watched[name]

    def _assign(self, watched: _Watched, pids: set[int], gpus: Sequence[Mapping[str, Any]], *, is_alone: bool) -> None:
        """Add the GPUs that processes of the rank use. A GPU stays with a rank whose process on it has ended.

        If no process of a GPU has a name here, and the rank is alone on the instance, all GPUs are its own.
        """
        watched.gpus |= {
            gpu["index"] for gpu in gpus if any(process.get("pid") in pids for process in gpu.get("processes") or [])
        }
        if not watched.gpus and is_alone:
            watched.gpus |= {gpu["index"] for gpu in gpus}

    def _has_written(self, watched: _Watched, rank: LiveRank) -> bool | None:
        """Return whether the rank has written a line since the last sample; None if nothing tells."""
        if rank.rank is None and rank.log is None:
            return None
        stem = str(rank.log) if rank.log is not None or rank.rank is None else stem_of(rank.rank)
        try:
            status = os.stat(output_path(self._folder, stem), follow_symlinks=False)
        except OSError:
            return None  # a rank without its wrapper
        if not stat.S_ISREG(status.st_mode) or status.st_mtime_ns == 0:
            return None  # no line has come yet, or the wrapper does not read the output
        mark, watched.line_mark = watched.line_mark, status.st_mtime_ns
        return mark != status.st_mtime_ns


def _remember(values: dict[str, Any], job: str, value: Any) -> None:
    """Set the value of a job. Those of the jobs that were set last stay."""
    values.pop(job, None)
    values[job] = value
    if len(values) > JOBS_MAX:
        del values[next(iter(values))]


class _Tree:
    """All processes of the instance by their parents, as one look at /proc finds them."""

    def __init__(self, host_proc: Path) -> None:
        found = (processes.read(host_proc, pid) for pid in processes.pids(host_proc))
        self._processes = {process.pid: process for process in found if process is not None}
        self._children: dict[int, list[int]] = {}
        for process in self._processes.values():
            self._children.setdefault(process.parent, []).append(process.pid)

    def below(self, pid: int) -> set[int]:
        """Return the process and all its descendants."""
        reached, left = set[int](), [pid]
        while left:
            one = left.pop()
            if one in self._processes and one not in reached:
                reached.add(one)
                left += self._children.get(one, ())
        return reached

    def cpu_ticks(self, pids: set[int]) -> int | None:
        """Return the processor time of these processes in clock ticks; None if there is none of them."""
        return sum(self._processes[pid].cpu_ticks for pid in pids) if pids else None

    def waits_for_io(self, pids: set[int]) -> bool | None:
        """Return whether one of these processes waits in the kernel without being interruptible."""
        return any(self._processes[pid].state == processes.WAITS for pid in pids) if pids else None


def _power_w(watched: _Watched, gpus: Sequence[Mapping[str, Any]], seconds: float) -> float | None:
    """Return the mean power of the GPUs of a rank in watts.

    It comes from the energy that each GPU has used since the last sample. A GPU without this counter has its present
    power.
    """
    powers: list[float | None] = []
    for gpu in gpus:
        index, energy, power_mw = gpu["index"], gpu.get("energy_mj"), gpu.get("power_mw")
        if type(energy) is int:
            powers.append(_rate(energy, watched.energy_mj.get(index), seconds * MILLIJOULES_PER_JOULE))
            watched.energy_mj[index] = energy
        else:
            powers.append(power_mw / MILLIWATTS_PER_WATT if type(power_mw) is int else None)
    return _mean(powers)


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None without values, or if one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _rate(now: int | None, before: int | None, per: float) -> float | None:
    """Return the rise of a counter divided by `per`; None if it is unknown or has been reset."""
    return (now - before) / per if now is not None and before is not None and now >= before and per > 0 else None
