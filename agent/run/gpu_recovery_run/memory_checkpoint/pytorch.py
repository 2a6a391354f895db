"""Memory checkpoints with PyTorch: the process group, and states as PyTorch's distributed checkpoint (DCP) writes them.

Every process saves with DCP's own writer into its own folder, so each tensor is saved once in the job and sharded
tensors are saved as shards. DCP's metadata says which file has which part. On a load, a process reads the parts that
it needs from the memory of the processes that hold them.

Only a program that has torch imports this module.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from .states import Shards, State

METADATA = ".metadata"
TIMEOUT_S = 600.0
"""Seconds that a process waits for the others. A process that has ended is noticed at once."""
_FILE = re.compile(r"__(\d+)_\d+\.distcp")


class ProcessGroup:
    """All processes of PyTorch's default group, in a gloo group of their own. Creating it is collective."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        import torch.distributed as dist  # noqa: PLC0415

        self.group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank."""
        import torch.distributed as dist  # noqa: PLC0415

        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self.group)
        return found


class DistributedStates:
    """States of `torch.distributed.checkpoint`. What it can save and load in place, this can, too.

    Args:
        group: the `ProcessGroup` of the job.
        stager: a stager of DCP, which copies a state before the training changes it. By default a copy in pageable
            memory of the host.
    """

    def __init__(self, group: Any, stager: Any | None = None) -> None:
        self._group, self._stager = group, stager

    def size(self, state: State) -> int:
        """Return the bytes of the shards of this process, and its part of what all processes hold alike."""
        return int(_bytes(state, self._group.size)) + 1024 * 1024

    def stage(self, state: State, folder: Path) -> Callable[[], None]:
        """Copy the state to the host's memory now. DCP writes the copy in a thread of its own."""
        import torch.distributed.checkpoint as dcp  # noqa: PLC0415

        writer = dcp.FileSystemWriter(folder, sync_files=False)
        saving: Any = dcp.async_save(
            dict(state), storage_writer=writer, process_group=self._group.group, async_stager=self._stager
        )
        if hasattr(saving, "staging_completion"):  # the stager copies in the background
            saving.staging_completion.result()
            saving = saving.upload_completion

        def write() -> None:
            metadata = saving.result()
            with open(folder / METADATA, "wb") as file:
                pickle.dump(metadata, file)

        return write

    def read(self, state: State, shards: Shards) -> None:
        """Load the state in place."""
        import torch.distributed.checkpoint as dcp  # noqa: PLC0415

        dcp.load(state, storage_reader=_reader(shards), process_group=self._group.group)


def _bytes(value: Any, processes: int) -> float:
    """Return the bytes of tensors in a state: sharded ones as they are here, others divided by the processes."""
    import torch  # noqa: PLC0415

    if isinstance(value, dict):
        return sum((_bytes(each, processes) for each in value.values()), 0.0)
    if isinstance(value, (list, tuple)):
        return sum((_bytes(each, processes) for each in value), 0.0)
    if hasattr(value, "to_local"):
        local = value.to_local()
        return float(local.numel() * local.element_size())
    if isinstance(value, torch.Tensor):
        return float(value.numel() * value.element_size() / processes)
    return 0.0


def _reader(shards: Shards) -> Any:
    """Return a reader of DCP that finds the file of each process in the memory of that process."""
    from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader  # noqa: PLC0415

    class MemoryFiles(FileSystem):  # type: ignore[misc]
        """The files of a generation."""

        @contextmanager
        def create_stream(self, path: Any, mode: str) -> Any:
            """Open a file of a process for reading, where it is."""
            name = Path(path).name
            owner = _FILE.fullmatch(name)
            with shards.open(int(owner[1]), name) if owner else open(path, mode) as stream:
                yield stream

    reader = FileSystemReader(shards.own)
    reader.fs = MemoryFiles()
    return reader
