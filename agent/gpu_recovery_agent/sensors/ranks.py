"""Compares the files of the ranks with the processes: which ranks run, and which ended.

A file is only a claim. Its process counts as running only if it belongs to this boot and started at the tick that the
file names: a pid may have been reused since. A rank in a container knows its pid in its own namespace. The sensor
finds it by that pid and its start time, which is the same in all namespaces.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from gpu_recovery_agent.files import read_object
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.files import (
    EXIT_SUFFIX,
    REFUSED_SUFFIX,
    Exit,
    RankIdentity,
    RunningFile,
    exit_in,
    running_in,
)
from gpu_recovery_agent.sensors import processes

SEARCHES_AT_ONCE, SEARCH_EVERY = 5, 30
"""A process that is not found is searched for in this many polls, then only every so many: a search reads all of
/proc.
"""

FileSignature = tuple[int, int, int]


@dataclass(frozen=True)
class LiveRank:
    """A rank with a running process. `pid` belongs to the agent's own namespace."""

    rank: RankIdentity | None
    log: int | None
    pid: int
    ticks: int


@dataclass(frozen=True)
class ExitFile:
    """An exit that the server has not acknowledged yet, and its file."""

    path: Path
    signature: FileSignature
    exit: Exit


@dataclass
class _Known:
    """A file as it was read. `seen` is the process that was found for it."""

    signature: FileSignature
    claim: RunningFile | None = None
    exit: Exit | None = None
    seen: LiveRank | None = None
    searches: int = field(default=0)


class RankSensor:
    """Reads each file once, and checks its process at every poll."""

    def __init__(
        self, folder: Path, host_proc: Path, boot_id: str, log: AgentLog, reader: processes.Reader | None = None
    ) -> None:
        self._folder, self._proc, self._boot_id, self._log = folder, host_proc, boot_id, log
        self._reader = reader
        self._namespace = processes.pid_namespace(host_proc, "self")
        self._known: dict[str, _Known] = {}

    def poll(self) -> tuple[list[LiveRank], list[ExitFile]]:
        """Return the running ranks and the exits to report, each in the order of the file names."""
        files = self._files()
        for name in set(self._known) - set(files):
            del self._known[name]
        for name, signature in files.items():
            if name not in self._known or self._known[name].signature != signature:
                self._known[name] = self._read(name, signature)
        ended = {name.removesuffix(EXIT_SUFFIX) for name, known in self._known.items() if known.exit}
        live, exits = [], []
        for name in sorted(self._known):
            known = self._known[name]
            if known.exit is not None:
                exits.append(ExitFile(self._folder / name, known.signature, known.exit))
            elif known.claim is not None and name.removesuffix(".json") not in ended:
                process = self._process(known, known.claim)
                live += [process] if process else []
        return live, exits

    def remove(self, ended: ExitFile) -> None:
        """Remove an exit that the server acknowledged, unless its file was replaced meanwhile."""
        try:
            if _signature(os.stat(ended.path, follow_symlinks=False)) == ended.signature:
                ended.path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            self._log.once(ended.path.name, f"{ended.path} was told and cannot be removed: {error.strerror}")

    def put_aside(self, refused: ExitFile) -> None:
        """Rename an exit that the server refuses, so that it is not read again."""
        aside = refused.path.with_name(refused.path.name.removesuffix(EXIT_SUFFIX) + REFUSED_SUFFIX)
        try:
            refused.path.replace(aside)
        except OSError as error:
            self._log.once(refused.path.name, f"{refused.path} cannot be put aside: {error.strerror}")
            self._known[refused.path.name] = _Known(refused.signature)

    def _files(self) -> dict[str, FileSignature]:
        signatures = {}
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".json") and not entry.name.startswith("."):
                        signatures[entry.name] = _signature(entry.stat(follow_symlinks=False))
        except FileNotFoundError:
            pass  # no rank ran here yet, or a file was removed meanwhile: the next poll reads the rest
        except OSError as error:
            self._log.once("running folder", f"{self._folder} cannot be read: {error.strerror}")
        return signatures

    def _read(self, name: str, signature: FileSignature) -> _Known:
        try:
            content = read_object(self._folder / name)
            if name.endswith(EXIT_SUFFIX):
                return _Known(signature, exit=exit_in(content))
            return _Known(signature, claim=running_in(content))
        except FileNotFoundError:
            return _Known((0, 0, 0))
        except (OSError, ValueError) as error:
            self._log.once(name, f"{self._folder / name} is passed over: {error}")
            return _Known(signature)

    def _process(self, known: _Known, claim: RunningFile) -> LiveRank | None:
        if claim.boot_id is not None and claim.boot_id != self._boot_id:
            return None
        ticks = known.seen.ticks if known.seen else claim.ticks
        pid = known.seen.pid if known.seen else self._pid(known, claim)
        process = processes.read(self._proc, pid) if pid is not None else None
        if process is None or not process.is_alive or ticks not in (None, process.ticks):
            return None
        known.seen = known.seen or LiveRank(claim.rank, claim.log, process.pid, process.ticks)
        return known.seen

    def _pid(self, known: _Known, claim: RunningFile) -> int | None:
        if claim.pid_namespace in (None, self._namespace) or claim.ticks is None:
            return claim.pid
        known.searches += 1
        if known.searches > SEARCHES_AT_ONCE and known.searches % SEARCH_EVERY:
            return None
        candidates = [pid for pid in processes.pids(self._proc) if self._is_meant(pid, claim)]
        return min(
            candidates, key=lambda pid: (not carries(self._proc, pid, claim.rank, self._reader), pid), default=None
        )

    def _is_meant(self, pid: int, claim: RunningFile) -> bool:
        process = processes.read(self._proc, pid)
        if process is None or process.ticks != claim.ticks:
            return False
        inner = processes.namespace_pids(self._proc, pid)
        namespace = processes.pid_namespace(self._proc, pid)
        return len(inner) > 1 and inner[-1] == claim.pid and namespace in (None, claim.pid_namespace)


def carries(host_proc: Path, pid: int, rank: RankIdentity | None, reader: processes.Reader | None = None) -> bool:
    """Return whether a process began with this job and attempt in its environment. A file cannot fake that."""
    environment = (reader or processes.Direct(host_proc)).environment(pid) if rank else None
    if rank is None or environment is None:
        return False
    return environment.get("JOB_ID") == rank.job and (environment.get("ATTEMPT", "").lstrip("0") or "0") == str(
        rank.attempt
    )


def _signature(status: os.stat_result) -> FileSignature:
    return status.st_ino, status.st_mtime_ns, status.st_size
