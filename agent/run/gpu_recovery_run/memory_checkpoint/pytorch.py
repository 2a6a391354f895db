"""Memory checkpoints with PyTorch: the process group, and states that PyTorch's distributed checkpoint (DCP) plans.

DCP plans which process saves which part, once for all states of the same form. A save then copies the own parts into
memory of the host that is kept, and a thread writes them from there. On a load, a process reads the parts that it
needs from the memory of the processes that hold them.

Only a program that has torch imports this module.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from .errors import MemoryCheckpointError
from .states import Shards, State

OLDEST = (2, 11)
"""The oldest version of PyTorch that is supported. Older ones are not tested."""
TIMEOUT_S = 600.0
"""Seconds that a process waits for the others. A process that has ended is noticed at once."""


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

    Raises:
        MemoryCheckpointError: PyTorch is too old.
    """

    def __init__(self, group: Any) -> None:
        import torch  # noqa: PLC0415

        found = re.match(r"(\d+)\.(\d+)", torch.__version__)
        if found and (int(found[1]), int(found[2])) < OLDEST:
            needed = ".".join(map(str, OLDEST))
            raise MemoryCheckpointError(f"memory checkpoints need PyTorch {needed}, not {torch.__version__}")
        from . import host_memory, tensor_files  # noqa: PLC0415 - its imports take seconds, and a save must not wait for them

        self._files, self._host, self._group = tensor_files, host_memory, group
        self._form: list[Any] | None = None
        self._layout: Any = None
        self._memory: Any = None
        self._plan = b""

    def size(self, state: State) -> int:
        """Return the bytes of the shards of this process, and its part of what all processes hold alike."""
        return int(_bytes(state, self._group.size)) + 1024 * 1024

    def prepare(self, state: State) -> None:
        """Plan the saves of such a state, and get the memory for its copy."""
        self._planner(state)

    def stage(self, state: State, folder: Path) -> Callable[[], None]:
        """Copy the parts of this process to the host's memory now, and write them later."""
        planner = self._planner(state)
        layout, memory, plan = self._layout, self._memory, self._plan
        objects = layout.copy(planner, memory)
        return lambda: layout.write(folder, memory, objects, plan)

    def read(self, state: State, shards: Shards) -> None:
        """Load the state in place."""
        import torch.distributed.checkpoint as dcp  # noqa: PLC0415

        with _failures():
            reader = self._files.ShardReader(shards, self._memory)
            dcp.load(state, storage_reader=reader, process_group=self._group.group)

    def _planner(self, state: State) -> Any:
        """Return DCP's planner with the state. Plan anew if the form of the state is another in any process."""
        from torch.distributed.checkpoint import DefaultSavePlanner  # noqa: PLC0415
        from torch.distributed.checkpoint.stateful import Stateful  # noqa: PLC0415

        values = {name: each.state_dict() if isinstance(each, Stateful) else each for name, each in state.items()}
        planner = DefaultSavePlanner()
        planner.set_up_planner(values, is_coordinator=self._group.rank == 0)
        form = [planner.mappings, *_forms(planner.state_dict)]
        if not all(self._group.gather(self._form == form)):
            self._form = None
            self._make_plan(values)
            self._form = form
        return planner

    def _make_plan(self, values: dict[str, Any]) -> None:
        import torch  # noqa: PLC0415
        import torch.distributed.checkpoint as dcp  # noqa: PLC0415

        writer = self._files.PlanWriter(self._group.rank)
        with _failures():
            metadata: Any = dcp.save(values, storage_writer=writer, process_group=self._group.group)
        layout: Any = writer.layout
        found = getattr(metadata, "storage_data", None) or {}
        if any(found.get(index) != place for index, place in layout.places.items()):
            raise MemoryCheckpointError(f"PyTorch {torch.__version__} does not tell where the parts of a state are")
        self._layout, self._plan = layout, pickle.dumps(metadata)
        if self._memory is None or self._memory.size < layout.size:
            if self._memory:
                self._memory.close()
                self._memory = None
            self._memory = self._host.HostMemory(layout.size, is_pinned=layout.has_cuda)


def _forms(state: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return what DCP's plan of a flat state depends on. It is compared at each save, because a plan takes long."""
    import torch  # noqa: PLC0415

    forms: list[tuple[Any, ...]] = []
    for name, value in state.items():
        if hasattr(value, "placements"):
            forms.append((name, value.dtype, value.shape, value.placements, value.device_mesh))
        elif isinstance(value, torch.Tensor):
            forms.append((name, value.dtype, value.shape))
        else:  # only a ShardedTensor has a form
            forms.append((name, value.metadata() if hasattr(value, "local_shards") else None))
    return forms


@contextmanager
def _failures() -> Iterator[None]:
    """Raise an error of DCP as a MemoryCheckpointError. DCP's is no `Exception`."""
    from torch.distributed.checkpoint.api import CheckpointException  # noqa: PLC0415

    try:
        yield
    except CheckpointException as error:
        said = "; ".join(f"rank {rank}: {each[0]!r:.500}" for rank, each in sorted(error.failures.items())[:4])
        raise MemoryCheckpointError(said) from error


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
