"""Checkpoints in the memory of the instances of a job, for a restart that loses only a few steps."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from .. import training
from . import peers
from .errors import MemoryCheckpointError, NoRoom, PeerRefused
from .folder import MemoryFolder
from .generations import Generation, holders, newest_first, next_session, ring
from .states import State, States

FOLDER, DEFAULT_FOLDER = "GPU_RECOVERY_MEMORY_DIR", "/dev/shm/gpu-recovery"
KEEP_FREE_BYTES = 256 * 1024 * 1024
"""Room in the memory folder that a save never takes. NCCL and data loaders use /dev/shm, too."""
BROKEN = (OSError, ValueError, PeerRefused)
_log = logging.getLogger(__name__)


class Group(Protocol):
    """All processes of the job. PyTorch's is `pytorch.ProcessGroup`."""

    rank: int
    size: int

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank. Raises an error if a process is gone."""


class _Member(NamedTuple):
    """A process of the job as the others know it."""

    instance: int
    address: tuple[str, int]
    folder: str


class MemoryCheckpoint:
    """Saves the state of a job into the memory of its instances, and loads the newest whole generation of it.

    Each process writes its shard into the memory folder of its instance, and sends a copy to the next instance of a
    ring. So after the loss of one instance every shard exists on another. All methods but `wait` are collective: every
    process calls them in the same order, with the same step.

    Args:
        group: all processes of the job. By default those of PyTorch's process group, which must be initialized.
        states: how a state becomes files. By default PyTorch's distributed checkpoint (DCP).
        folder: memory that outlives the process. By default GPU_RECOVERY_MEMORY_DIR, or /dev/shm/gpu-recovery.
        host: the address at which this process serves the others. By default the one that reaches MASTER_ADDR.
        keep_free_bytes: room in the folder that a save never takes.

    The environment has JOB_ID, ATTEMPT, NODE_RANK and MASTER_ADDR, as in every rank.

    Raises:
        MemoryCheckpointError: JOB_ID is missing, or the folder is not this user's alone.
    """

    def __init__(
        self,
        group: Group | None = None,
        states: States | None = None,
        *,
        folder: str | None = None,
        host: str | None = None,
        keep_free_bytes: int = KEEP_FREE_BYTES,
    ) -> None:
        if group is None:
            from .pytorch import ProcessGroup  # noqa: PLC0415 - torch is where the program has it

            group = ProcessGroup()
        if states is None:
            from .pytorch import DistributedStates  # noqa: PLC0415

            states = DistributedStates(group)
        self._group, self._states, self._keep_free = group, states, keep_free_bytes
        root = Path(folder or os.environ.get(FOLDER) or DEFAULT_FOLDER)
        self._folder = MemoryFolder(root, os.environ.get("JOB_ID", ""))
        for name in self._folder.remove_abandoned(time.time()):
            _log.warning("removed the memory checkpoints of %s, which no process uses", name)
        self._open_run(host or _own_address(), training.rank(), _whole(os.environ.get("ATTEMPT")))
        self._thread: threading.Thread | None = None
        self._error: MemoryCheckpointError | None = None
        self._saved: Generation | None = None

    def _open_run(self, host: str, instance: int, attempt: int) -> None:
        names = sorted({name for name, _ in self._folder.inventory()})
        found = self._group.gather((instance, names, attempt, secrets.token_hex(4), secrets.token_bytes(32)))
        session = next_session((name for each in found for name in each[1]), max(each[2] for each in found))
        self._run, self._token = (session, found[0][3]), found[0][4]
        copies = ring([each[0] for each in found])
        self._keeps = [rank for rank, keeper in enumerate(copies) if keeper == self._group.rank]
        self._keeper = copies[self._group.rank]
        self._server = peers.PeerServer(host, self._token, self._folder, self._run, self._keeps)
        self._members = [
            _Member(*each) for each in self._group.gather((instance, self._server.address, str(self._folder.root)))
        ]
        if self._keeper is None and self._group.rank == 0:
            _log.warning("the job has one instance: its memory checkpoints have no copy on another instance")

    def save(self, step: int, state: State) -> None:
        """Save the state after `step`, mostly in the background. Returns when the state has been copied.

        Waits first until the save before has ended. While this save runs, the generation before it stays.

        Raises:
            NoRoom: an instance has no room for another generation. Nothing was changed.
            MemoryCheckpointError: the save before has failed. This one is not begun.
        """
        self.wait()
        generation = Generation(self._run[0], step, self._group.size, self._run[1])
        last = self._folder.size(self._saved, self._group.rank) if self._saved else 0
        asked = self._group.gather((step, max(last, self._states.size(state)), self._folder.free_bytes()))
        if len({each[0] for each in asked}) > 1:
            raise MemoryCheckpointError(f"the processes save different steps: {[each[0] for each in asked]}")
        self._check_room([each[1] for each in asked], [each[2] for each in asked])
        draft = self._folder.draft(generation, self._group.rank)
        write: Callable[[], None]
        try:
            write = self._states.stage(state, draft)
        except Exception as error:  # noqa: BLE001 - the others have begun the save, and must hear of it
            write = partial(_fail, error)
        self._thread = threading.Thread(
            target=self._finish, args=(generation, draft, write), name="memory-checkpoint-save", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the save that runs has ended. Raises its MemoryCheckpointError, once."""
        if self._thread:
            self._thread.join()
            self._thread = None
        if self._error:
            error, self._error = self._error, None
            raise error

    @property
    def saved_step(self) -> int | None:
        """The step of the newest generation that is whole on all instances, with all copies."""
        return self._saved.step if self._saved else None

    def load(self, state: State, newer_than: int = -1) -> int | None:
        """Load the newest generation of which every shard is on some instance, and return its step.

        Args:
            state: is filled, as `torch.distributed.checkpoint.load` does it.
            newer_than: the step of the durable checkpoint. The processes may see different ones; the newest counts.

        Returns None if there is no such generation, or if it has another number of processes or cannot be read. Then
        the durable checkpoint must be loaded, because `state` may be filled in part. The generations that were not
        loaded are removed.
        """
        try:
            self.wait()
        except MemoryCheckpointError as error:
            _log.warning("%s", error)
        durable = max(self._group.gather(newer_than))
        found = holders(self._group.gather(self._folder.inventory()), self._group.size, durable)
        loaded = next((each for each in newest_first(found) if self._load(each, found[each], state)), None)
        self._folder.keep_only(loaded)
        self._prepare(state)
        self._group.gather(None)  # no process saves before all have removed the older generations
        return loaded.step if loaded else None

    def _prepare(self, state: State) -> None:
        try:
            self._states.prepare(state)
        except MemoryCheckpointError as error:  # a save raises it, in all processes
            _log.warning("memory checkpoints of this state cannot be saved: %s", error)

    def close(self, *, finished: bool = False) -> None:
        """Wait for the save that runs, and stop serving the others.

        finished: the job has succeeded, and the memory is released. Otherwise the generations stay for a next attempt.
        """
        try:
            self.wait()
        except MemoryCheckpointError as error:
            _log.warning("%s", error)
        self._group.gather(None)  # the others may still read here
        self._server.close()
        if finished:
            self._folder.remove_all()
        self._folder.close()

    def _check_room(self, sizes: list[int], free: list[int]) -> None:
        """Raise NoRoom in every process if an instance has no room for the shards and the copies it will hold."""
        copies = ring([member.instance for member in self._members])
        needed: dict[int, int] = {}
        for rank, size in enumerate(sizes):
            for holder in (rank, copies[rank]):
                if holder is not None:
                    instance = self._members[holder].instance
                    needed[instance] = needed.get(instance, 0) + size
        for rank, member in enumerate(self._members):
            if free[rank] - needed[member.instance] < self._keep_free:
                raise NoRoom(
                    f"{member.folder} of instance {member.instance} has {free[rank]} bytes free. A generation "
                    f"needs {needed[member.instance]} there, and {self._keep_free} must stay free"
                )

    def _finish(self, generation: Generation, draft: Path, write: Any) -> None:
        """Write the own shard, send its copy, and agree with the others whether the generation is whole."""
        try:
            problem = self._write(generation, draft, write)
            problems = {rank: said for rank, said in enumerate(self._group.gather(problem)) if said}
        except Exception as error:  # noqa: BLE001 - a process is gone; the caller's thread raises it
            self._error = MemoryCheckpointError(f"step {generation.step} is not in memory: {error}")
            return
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        if problems:
            self._folder.remove(generation)
            said = "; ".join(f"rank {rank}: {text}" for rank, text in sorted(problems.items())[:4])
            self._error = MemoryCheckpointError(f"step {generation.step} is not in memory: {said}")
        else:
            self._folder.remove_older(generation)
            self._saved = generation

    def _write(self, generation: Generation, draft: Path, write: Any) -> str:
        rank = self._group.rank
        try:
            write()
            self._folder.seal(draft, generation, rank)
            if self._keeper is not None:
                peers.put(self._members[self._keeper].address, self._token, self._folder, generation, rank)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others must hear of it
            return f"{type(error).__name__}: {error}"
        return ""

    def _load(self, generation: Generation, shards: Mapping[int, list[int]], state: State) -> bool:
        problem = self._obtain(generation, shards[self._group.rank])
        if not self._agreed(generation, problem):
            return False
        problem, opener = "", partial(self._open, generation)
        try:
            self._states.read(state, _Shards(self._folder.shard(generation, self._group.rank), opener))
        except Exception as error:  # noqa: BLE001 - the others must hear of it; the durable checkpoint is left
            problem = f"{type(error).__name__}: {error}"
        return self._agreed(generation, problem)

    def _agreed(self, generation: Generation, problem: str) -> bool:
        problems = [f"rank {rank}: {said}" for rank, said in enumerate(self._group.gather(problem)) if said]
        if problems and self._group.rank == 0:
            _log.warning("step %d cannot be loaded from memory: %s", generation.step, "; ".join(problems[:4]))
        return not problems

    def _obtain(self, generation: Generation, ranks: list[int]) -> str:
        """Have the own shard intact in the own folder. Return the problem, or "" if there is none."""
        own = self._group.rank
        if self._folder.is_intact(generation, own):
            return ""
        problem = "the shard is corrupt"
        here = self._members[own].instance
        for rank in ranks:
            if self._members[rank].instance != here:
                try:
                    peers.get(self._members[rank].address, self._token, self._folder, generation, own)
                except BROKEN as error:
                    problem = f"the copy of rank {rank}: {error}"
                else:
                    return ""
        return problem

    def _open(self, generation: Generation, shard: int, name: str) -> BinaryIO:
        """Open a file of a shard that the process `shard` has verified."""
        if self._members[shard].instance == self._members[self._group.rank].instance:
            return open(self._folder.shard(generation, shard) / name, "rb")
        return peers.open_remote(self._members[shard].address, self._token, generation, shard, name)


class _Shards(NamedTuple):
    own: Path
    open: Callable[[int, str], BinaryIO]


def _own_address() -> str:
    """Return the address of this instance on the way to MASTER_ADDR. No packet is sent."""
    master = os.environ.get("MASTER_ADDR") or "127.0.0.1"
    family, _, _, _, target = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def _fail(error: Exception) -> None:
    raise error


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
