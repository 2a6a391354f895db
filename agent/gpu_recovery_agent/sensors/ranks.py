"""Compares the files of the ranks with the processes: which ranks run, and which ended.

A file is only a claim. Its process counts as running only if it belongs to this boot, started at the tick that the
file names, and creates its files as the user who owns this file: a pid may have been reused since. A rank in a
container knows its pid in its own namespace. The sensor finds it by that pid and its start time, which is the same in
all namespaces. An exit counts unless another user's process is known as that rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.files import (
    REFUSED_SUFFIX,
    RUNNING_SUFFIX,
    Exit,
    RankIdentity,
    RunningFile,
    exit_in,
    exit_stem,
    running_in,
    whole,
)
from gpu_recovery_agent.rank.hold import hold_s
from gpu_recovery_agent.rank.paths import output_path
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.process_table import ProcessTable
from gpu_recovery_agent.sensors.rank_folder import FileChanged, FileSignature, is_unchanged, list_files, read_file

SEARCHES_AT_ONCE, SEARCH_EVERY = 5, 30
"""A process that is not found is searched for in this many polls, then only every so many: a search reads all of
/proc.
"""

OWNERS_MAX = 1_024
"""Largest number of ranks whose user is remembered; the ranks that ran longest ago are forgotten first."""


@dataclass(frozen=True)
class LiveRank:
    """A rank with a running process. `pid` belongs to the agent's own namespace.

    `holds` and `held` are as in its file (`rank.files.RunningFile`). The process of a held rank is its wrapper.
    """

    rank: RankIdentity | None
    log: int | None
    pid: int
    ticks: int
    holds: bool = False
    held: bool = False


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
        self._running: set[str] = set()
        self._owners: dict[tuple[str, int, int], int] = {}

    def poll(self) -> tuple[list[LiveRank], list[ExitFile]]:
        """Return the running ranks and the exits to report, each in the order of the file names."""
        files = list_files(self._folder, self._log, self._running)
        for name in set(self._known) - set(files):
            del self._known[name]
        for name, signature in files.items():
            if name not in self._known or self._known[name].signature != signature:
                self._known[name] = self._read(name, signature)
        table, live = ProcessTable(self._proc, self._reader), dict[str, LiveRank]()
        for name, known in sorted(self._known.items()):
            if known.claim is not None and (process := self._process(name, known, known.claim, table)):
                live[name] = process
        self._running = set(live)
        for name in set(self._known) - set(live):
            self._remove_leftover(name, self._known[name])
        self._remember_owners(live)
        exits = self._exits()
        ended = {(exit_stem(one.path.name), one.signature.owner) for one in exits}
        running = [
            process
            for name, process in live.items()
            if process.held or (name.removesuffix(RUNNING_SUFFIX), self._known[name].signature.owner) not in ended
        ]
        return running, exits

    def remove(self, ended: ExitFile) -> None:
        """Remove an exit that the server acknowledged, unless its file was replaced meanwhile."""
        try:
            if is_unchanged(ended.path, ended.signature):
                ended.path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            self._log.once(ended.path.name, f"{ended.path} was reported and cannot be removed: {error.strerror}")

    def put_aside(self, refused: ExitFile) -> None:
        """Rename an exit that the server or this sensor refuses, so that it is not read again.

        Does nothing if the file was replaced meanwhile.
        """
        aside = refused.path.with_name(f"{exit_stem(refused.path.name)}{REFUSED_SUFFIX}")
        try:
            if is_unchanged(refused.path, refused.signature):
                refused.path.replace(aside)
        except OSError as error:
            self._log.once(refused.path.name, f"{refused.path} cannot be moved aside: {error.strerror}")
            self._known[refused.path.name] = _Known(refused.signature)

    def _remove_leftover(self, name: str, known: _Known) -> None:
        """Remove a running file whose process has ended: its wrapper was killed and could not remove it.

        A file without a boot and a start time is left alone: only the program that wrote it knows whether it is over.
        """
        claim = known.claim
        if claim is None or claim.boot_id is None or claim.ticks is None:
            return
        if claim.boot_id == self._boot_id:
            if known.seen is None and (claim.pid_namespace is None or claim.pid_namespace != self._namespace):
                return  # a process of a container that was not found may still run
            pid = known.seen.pid if known.seen else claim.pid
            process = processes.read(self._proc, pid)
            if process is None and (self._proc / str(pid)).exists():
                return  # it cannot be read
            if process is not None and process.is_alive and process.ticks == claim.ticks:
                return  # it runs, as another user than the owner of the file
        try:
            if is_unchanged(self._folder / name, known.signature):
                (self._folder / name).unlink()
                output_path(self._folder, name.removesuffix(RUNNING_SUFFIX)).unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            self._log.once(
                name, f"{self._folder / name} names an ended process and cannot be removed: {error.strerror}"
            )

    def _remember_owners(self, live: Iterable[str]) -> None:
        """Remember the user of each running rank. A second user gets no rank whose first user still runs it."""
        users: dict[tuple[str, int, int], list[int]] = {}
        for name in live:
            known = self._known[name]
            if known.claim and known.claim.rank:
                users.setdefault(_of_attempt(known.claim.rank), []).append(known.signature.owner)
        for rank, found in users.items():
            owner = self._owners.pop(rank, found[0])
            self._owners[rank] = owner if owner in found else found[0]
        while len(self._owners) > OWNERS_MAX:
            del self._owners[next(iter(self._owners))]

    def _exits(self) -> list[ExitFile]:
        """Return the exits to report. An exit of another user than its rank's is put aside."""
        exits = []
        for name, known in sorted(self._known.items()):
            if known.exit is None:
                continue
            ended, user = ExitFile(self._folder / name, known.signature, known.exit), known.signature.owner
            owner = self._owners.get(_of_attempt(known.exit.rank), user)
            if owner == user:
                exits.append(ended)
            else:
                self._log.write(f"{ended.path} is of user {user}, its rank ran as user {owner}: it is moved aside")
                self.put_aside(ended)
        return exits

    def _read(self, name: str, signature: FileSignature) -> _Known:
        try:
            content = read_file(self._folder / name, signature)
            if exit_stem(name) is not None:
                return _Known(signature, exit=exit_in(content))
            return _Known(signature, claim=running_in(content))
        except (FileNotFoundError, FileChanged):
            return _Known(signature)  # the next look lists the new file with another signature, and reads it
        except (OSError, ValueError) as error:
            self._log.once(name, f"{self._folder / name} is ignored: {error}")
            return _Known(signature)

    def _process(self, name: str, known: _Known, claim: RunningFile, table: ProcessTable) -> LiveRank | None:
        if claim.boot_id is not None and claim.boot_id != self._boot_id:
            return None
        ticks = known.seen.ticks if known.seen else claim.ticks
        pid = known.seen.pid if known.seen else self._pid(known, claim, table)
        process = processes.read(self._proc, pid) if pid is not None else None
        if process is None or not process.is_alive or ticks not in (None, process.ticks):
            return None
        if known.seen is None:
            user, owner = table.view(process.pid).user, known.signature.owner
            if user is None:
                return None  # it has ended meanwhile
            if user != owner:
                text = f"user {owner} owns it, and process {process.pid} is of user {user}"
                self._log.once(name, f"{self._folder / name} is ignored: {text}")
                return None
            known.seen = LiveRank(claim.rank, claim.log, process.pid, process.ticks, claim.holds, claim.held)
        return known.seen

    def _pid(self, known: _Known, claim: RunningFile, table: ProcessTable) -> int | None:
        if claim.pid_namespace in (None, self._namespace) or claim.ticks is None:
            return claim.pid
        known.searches += 1
        if known.searches > SEARCHES_AT_ONCE and known.searches % SEARCH_EVERY:
            return None
        candidates = []
        for pid in table.started_at(claim.ticks):
            view = table.view(pid)
            is_meant = view.pid == claim.pid and view.namespace in (None, claim.pid_namespace)
            if is_meant and view.user == known.signature.owner:
                candidates.append(pid)
        return min(candidates, key=lambda pid: (not _names(table.environment(pid), claim.rank), pid), default=None)


def carries(host_proc: Path, pid: int, rank: RankIdentity | None, reader: processes.Reader | None = None) -> bool:
    """Return whether a process began with this job and attempt in its environment. A file cannot fake that."""
    return rank is not None and _names((reader or processes.Direct(host_proc)).environment(pid), rank)


def _names(environment: dict[str, str] | None, rank: RankIdentity | None) -> bool:
    """Return whether an environment names the job and the attempt of a rank.

    A wrapper that holds ranks also runs later attempts of its job than the attempt of its environment.
    """
    if rank is None or environment is None or environment.get("JOB_ID") != rank.job:
        return False
    attempt = whole(environment.get("ATTEMPT") or 0)
    return attempt == rank.attempt or (attempt is not None and attempt < rank.attempt and hold_s(environment) > 0)


def _of_attempt(rank: RankIdentity) -> tuple[str, int, int]:
    return rank.job, rank.attempt, rank.rank
