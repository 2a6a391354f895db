"""The files of a shard with PyTorch: the bytes of the tensors, as they are in memory.

    plan            DCP's metadata, pickled: the tensors of the state, and the file that has each part
    tensors-<n>     the parts that this process saves, in sequence
    objects         the values that are no plain tensors, pickled

PyTorch's distributed checkpoint (DCP) plans which process saves which part. So each tensor is saved once in the job,
and sharded tensors are saved as shards. Only a program that has torch imports this module.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem, SavePlan
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from .host_memory import HostMemory
from .states import Shards

PLAN, OBJECTS, TENSORS = "plan", "objects", "tensors-"
FILES = 4
"""Files of tensors in a shard. Each is written, and verified, by a thread of its own."""
ALIGNMENT = 64
_WRITE = 64 * 1024 * 1024
"""Bytes that are written at once."""


class Place(NamedTuple):
    """Where a part of the state is: the shard, the file, and for a plain tensor its place and its form."""

    shard: int
    file: str
    offset: int = 0
    shape: tuple[int, ...] = ()
    dtype: Any = None

    @property
    def size(self) -> int:
        """The bytes of the tensor."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


class Layout:
    """Where the parts are that one process saves: in its files, and in the copy in the host's memory.

    The copy has the contents of the files, one file after the other.
    """

    def __init__(self, shard: int, plan: SavePlan, planner: Any) -> None:
        self._items = plan.items
        sizes = [0] * FILES
        self.places: dict[MetadataIndex, Place] = {}
        self.has_cuda = False
        for item in plan.items:
            part = planner.resolve_data(item)
            if isinstance(part, torch.Tensor) and part.layout is not torch.strided:
                raise ValueError(f"DCP cannot load {item.index.fqn} in place, a tensor with the layout {part.layout}")
            if not _is_plain(part):
                self.places[item.index] = Place(shard, OBJECTS)
                continue
            number = sizes.index(min(sizes))
            place = Place(shard, f"{TENSORS}{number}", sizes[number], tuple(part.shape), part.dtype)
            sizes[number] += -(-place.size // ALIGNMENT) * ALIGNMENT
            self.places[item.index] = place
            self.has_cuda = self.has_cuda or part.is_cuda
        self._files = {f"{TENSORS}{number}": (sum(sizes[:number]), size) for number, size in enumerate(sizes)}
        self.size = sum(sizes)

    def copy(self, planner: Any, memory: HostMemory) -> bytes:
        """Copy the tensors of the state into `memory`, and return the pickled objects. Returns when all are copied."""
        objects: dict[MetadataIndex, bytes] = {}
        devices = set()
        for item in self._items:
            part, place = planner.resolve_data(item), self.places[item.index]
            if place.file == OBJECTS:
                objects[item.index] = _raw(part)
                continue
            if not _is_plain(part) or (tuple(part.shape), part.dtype) != (place.shape, place.dtype):
                raise ValueError(f"{item.index.fqn} has another form than before")
            start = self._files[place.file][0] + place.offset
            memory.tensor(start, place.size, place.dtype, place.shape).copy_(part.detach(), non_blocking=part.is_cuda)
            if part.is_cuda:
                devices.add(part.device)
        for device in devices:
            torch.cuda.current_stream(device).synchronize()
        return pickle.dumps(objects)

    def write(self, folder: Path, memory: HostMemory, objects: bytes, plan: bytes) -> None:
        """Write the files of the shard from the copy."""
        folder.mkdir(parents=True)
        contents = {name: memory.bytes(start, size) for name, (start, size) in self._files.items() if size}
        contents.update({OBJECTS: memoryview(objects), PLAN: memoryview(plan)})
        with ThreadPoolExecutor(FILES, "memory-checkpoint-write") as threads:
            list(threads.map(lambda name: _write(folder / name, contents[name]), contents))


class PlanWriter(StorageWriter):  # type: ignore[misc]
    """Gives each part of a plan of DCP its place, and writes nothing. `finish` completes the metadata in place."""

    def __init__(self, shard: int) -> None:
        super().__init__()
        self._shard = shard
        self.layout: Layout | None = None

    def reset(self, checkpoint_id: Any = None) -> None:
        """There is nothing to forget."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """There is no storage."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Keep the plan."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Keep the plans."""
        return plans

    def write_data(self, plan: SavePlan, planner: Any) -> Any:
        """Return the places of the parts of this process."""
        self.layout = Layout(self._shard, plan, planner)
        sizes = {index: place.size if place.dtype else 0 for index, place in self.layout.places.items()}
        done: Any = Future()
        done.set_result([WriteResult(index, sizes[index], place) for index, place in self.layout.places.items()])
        return done

    def finish(self, metadata: Metadata, results: Iterable[Iterable[WriteResult]]) -> None:
        """Put the places of all processes into the metadata, which DCP gives to all processes."""
        metadata.storage_data = {each.index: each.storage_data for listed in results for each in listed}

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Every name is as good."""
        return True


class ShardReader(StorageReader):  # type: ignore[misc]
    """Reads the parts that this process needs, from the memory of the processes that hold them.

    Args:
        shards: the shards of the generation.
        memory: memory of the host that is free, for one tensor at a time.
    """

    def __init__(self, shards: Shards, memory: HostMemory | None) -> None:
        super().__init__()
        self._shards, self._memory = shards, memory
        self._places: dict[MetadataIndex, Place] = {}

    def reset(self, checkpoint_id: Any = None) -> None:
        """There is nothing to forget."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the metadata in the own shard."""
        with open(self._shards.own / PLAN, "rb") as file:
            return pickle.load(file)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Take the places of the parts."""
        self._places = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Keep the plan."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Keep the plans."""
        return plans

    def read_data(self, plan: LoadPlan, planner: Any) -> Any:
        """Fill the tensors of the state, file by file."""
        wanted: dict[tuple[int, str], list[ReadItem]] = {}
        for item in plan.items:
            place = self._places[item.storage_index]
            wanted.setdefault((place.shard, place.file), []).append(item)
        for (shard, name), items in sorted(wanted.items()):
            with self._shards.open(shard, name) as file:
                if name == OBJECTS:
                    self._read_objects(file, items, planner)
                else:
                    self._read_tensors(file, items, planner)
        done: Any = Future()
        done.set_result(None)
        return done

    def _read_objects(self, file: BinaryIO, items: list[ReadItem], planner: Any) -> None:
        objects = pickle.load(file)
        for item in items:
            raw = io.BytesIO(objects[item.storage_index])
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, raw)
            else:
                _fill(planner, item, torch.load(raw, map_location="cpu", weights_only=False))

    def _read_tensors(self, file: BinaryIO, items: list[ReadItem], planner: Any) -> None:
        for item in sorted(items, key=lambda item: self._places[item.storage_index].offset):
            place = self._places[item.storage_index]
            if self._memory is None or self._memory.size < place.size:
                self._memory = HostMemory(place.size, is_pinned=False)
            file.seek(place.offset)
            _read(file, self._memory.bytes(0, place.size))
            _fill(planner, item, self._memory.tensor(0, place.size, place.dtype, place.shape))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Every name is as good."""
        return True


def _is_plain(part: Any) -> bool:
    """Return whether the bytes of a tensor, its shape and its type are all of it."""
    return (
        type(part) in (torch.Tensor, torch.nn.Parameter)
        and part.layout is torch.strided
        and not part.is_quantized
        and part.device.type != "meta"
    )


def _raw(part: Any) -> bytes:
    if isinstance(part, io.BytesIO):
        return part.getvalue()
    raw = io.BytesIO()
    torch.save(part, raw)
    return raw.getvalue()


def _fill(planner: Any, item: ReadItem, saved: Any) -> None:
    """Copy the part of a saved tensor that the state needs."""
    for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
        saved = saved.narrow(dimension, start, length)
    target = planner.resolve_tensor(item).detach()
    if target.size() != saved.size():
        raise ValueError(f"{item.dest_index.fqn} has the shape {tuple(target.size())}, not {tuple(saved.size())}")
    target.copy_(saved)
    planner.commit_tensor(item, target)


def _read(file: BinaryIO, into: memoryview) -> None:
    while into:
        count = file.readinto(into)  # type: ignore[attr-defined]
        if not count:
            raise ValueError("a file of a shard is too short")
        into = into[count:]


def _write(path: Path, content: memoryview) -> None:
    with open(path, "wb", buffering=0) as file:
        while content:
            content = content[file.write(content[:_WRITE]) :]
