"""States of PyTorch as files of a shard, in one process: every form of a tensor, plans that are kept, clear errors."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_run.memory_checkpoint import MemoryCheckpoint, MemoryCheckpointError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of this process alone."""
    import torch.distributed as dist  # noqa: PLC0415

    store = tmp_path_factory.mktemp("store") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of the rank."""
    monkeypatch.setenv("JOB_ID", "job")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The metadata of each plan that DCP has made."""
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415

    made, save = [], dcp.save

    def counted(*args: Any, **settings: Any) -> Any:
        made.append(save(*args, **settings))
        return made[-1]

    monkeypatch.setattr(dcp, "save", counted)
    return made


def memory_in(folder: Path) -> MemoryCheckpoint:
    return MemoryCheckpoint(folder=str(folder), keep_free_bytes=0)


def state(step: int) -> dict[str, Any]:
    """A state with tensors of all forms, of which each value depends on the step."""
    import torch  # noqa: PLC0415

    random = torch.Generator().manual_seed(step)
    plain = torch.randn(7, 5, generator=random)
    return {
        "model": {
            "float32": plain,
            "bfloat16": plain.bfloat16(),
            "float8": plain.to(torch.float8_e4m3fn),
            "complex": torch.complex(plain, plain + 1),
            "conjugate": torch.complex(plain, plain + 1).conj(),
            "bool": plain > 0,
            "transposed": plain.T,
            "every second": plain[:, ::2],
            "expanded": plain[:1].expand(3, 5),
            "parameter": torch.nn.Parameter(plain * 2),
            "scalar": plain[0, 0],
            "empty": torch.empty(0, 4),
        },
        "list": [plain.double(), {"inner": plain.half()}, "text", Marked(step)],
        "step": step,
    }


def target() -> dict[str, Any]:
    """A state to load into. Values of an expanded tensor cannot be filled in place."""
    found = state(0)
    found["model"]["expanded"] = found["model"]["expanded"].clone()
    return found


def same(ours: Any, theirs: Any) -> bool:
    """Whether two values are the same, bit for bit."""
    import torch  # noqa: PLC0415

    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[name], theirs[name]) for name in ours)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if not isinstance(ours, torch.Tensor):
        return bool(ours == theirs)
    raw = [each.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8) for each in (ours, theirs)]
    return ours.dtype == theirs.dtype and ours.shape == theirs.shape and torch.equal(*raw)


def test_every_form_of_a_tensor_is_loaded_bit_for_bit_by_the_next_attempt(tmp_path: Path) -> None:
    """The process that saved is gone, without an end. All it left are the files."""
    memory = memory_in(tmp_path)
    for step in (1, 2):
        memory.save(step, state(step))
    memory.wait()
    loaded = target()
    assert memory_in(tmp_path).load(loaded) == 2
    assert same(loaded, state(2))


def test_the_training_may_change_the_state_when_the_save_returns(tmp_path: Path) -> None:
    """The copy is taken before the return, and a later save does not change what an earlier one has written."""
    import torch  # noqa: PLC0415

    memory, weights = memory_in(tmp_path), torch.zeros(300_000)
    for step in (1, 2, 3):
        weights.fill_(step)
        memory.save(step, {"weights": weights})
        weights.fill_(-1)
    memory.wait()
    assert memory_in(tmp_path).load({"weights": weights}) == 3
    assert torch.equal(weights, torch.full((300_000,), 3.0))


def test_a_plan_and_its_memory_are_kept_until_the_form_of_the_state_changes(tmp_path: Path, plans: list[Any]) -> None:
    """A load at the start makes them, so the first save has only to copy."""
    import torch  # noqa: PLC0415

    memory = memory_in(tmp_path)
    assert memory.load(state(0)) is None
    kept: Any = memory._states
    copied_to = kept._memory
    for step in (1, 2):
        memory.save(step, state(step))
    assert len(plans) == 1 and kept._memory is copied_to
    larger = {**state(3), "more": torch.ones(100_000)}
    memory.save(3, larger)
    memory.save(4, larger)
    memory.wait()
    assert len(plans) == 2 and kept._memory.size > copied_to.size
    loaded = {**target(), "more": torch.zeros(100_000)}
    assert memory_in(tmp_path).load(loaded) == 4
    assert same(loaded, larger)


def test_a_pytorch_that_does_not_tell_the_places_is_refused_by_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch 2.11 gives its own file writer a copy of the metadata. A load would find no places."""
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415

    save = dcp.save
    monkeypatch.setattr(dcp, "save", lambda *args, **more: dataclasses.replace(save(*args, **more), storage_data=None))
    memory = memory_in(tmp_path)
    assert memory.load(target()) is None
    memory.save(1, state(1))
    with pytest.raises(MemoryCheckpointError, match=r"PyTorch 2\.\S+ does not tell where the parts of a state are"):
        memory.wait()
    assert not list(tmp_path.glob("job/*/rank-*"))


def test_a_pytorch_that_is_too_old_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program hears of it before it trains."""
    import torch  # noqa: PLC0415

    monkeypatch.setattr(torch, "__version__", "2.9.1+cu130")
    with pytest.raises(MemoryCheckpointError, match=r"need PyTorch 2\.11, not 2\.9\.1"):
        memory_in(tmp_path)


def test_files_that_cannot_be_read_leave_the_durable_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error within DCP is no `Exception`, and must not end the training. Another release may have other files."""
    from gpu_recovery_run.memory_checkpoint import tensor_files  # noqa: PLC0415

    memory = memory_in(tmp_path)
    memory.save(1, state(1))
    memory.wait()
    monkeypatch.setattr(tensor_files, "PLAN", "other")
    assert memory_in(tmp_path).load(target()) is None


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_tensor_that_cannot_be_loaded_in_place_fails_the_save(tmp_path: Path, is_planned: bool) -> None:
    """A failure of the load would come too late. The form of a state may also change without a new plan."""
    import torch  # noqa: PLC0415

    memory, dense = memory_in(tmp_path), torch.eye(3)
    if is_planned:
        memory.save(1, {"weights": dense})
    memory.save(2, {"weights": dense.to_sparse()})
    with pytest.raises(MemoryCheckpointError, match=r"cannot load weights in place|weights has another form"):
        memory.wait()
    assert len(list(tmp_path.glob("job/*/rank-*"))) == is_planned


class Marked:
    """Values that are no plain tensors are pickled."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marked) and other.value == self.value

    def __hash__(self) -> int:
        return self.value


@pytest.mark.parametrize("code", [0, 2])
def test_the_memory_is_pinned_until_it_is_released(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """CUDA must not keep an address that the kernel gives to others. Without pinned memory a save is only slower."""
    import torch  # noqa: PLC0415
    from gpu_recovery_run.memory_checkpoint.host_memory import HostMemory  # noqa: PLC0415

    calls: list[tuple[Any, ...]] = []

    class Cudart:
        """Tells what is pinned."""

        def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
            calls.append(("pin", address, size, flags))
            return code

        def cudaHostUnregister(self, address: int) -> None:
            calls.append(("unpin", address))

    monkeypatch.setattr(torch.cuda, "cudart", Cudart)
    for is_closed in (True, False):
        memory = HostMemory(5000, is_pinned=True)
        address = memory.tensor(0, 1, torch.uint8, (1,)).data_ptr()
        if is_closed:
            memory.close()
        del memory
        pinned, *unpinned = calls
        assert pinned == ("pin", address, 5000, 1) and unpinned == ([] if code else [("unpin", address)])
        calls.clear()
    assert ("cannot be pinned (CUDA error 2)" in caplog.text) is bool(code)


IMPORTS = """
import sys, torch, torch.distributed as dist
from gpu_recovery_run.memory_checkpoint import MemoryCheckpoint
dist.init_process_group("gloo", init_method="file://" + sys.argv[1] + "/store", rank=0, world_size=1)
memory = MemoryCheckpoint(folder=sys.argv[1], keep_free_bytes=0)
state, before = {"weights": torch.ones(3), "step": 1}, set(sys.modules)
memory.save(1, state)
memory.wait()
print([name for name in sys.modules if name not in before and name.startswith("torch.distributed")])
"""


def test_a_save_imports_nothing_of_distributed_pytorch(tmp_path: Path) -> None:
    """The imports take seconds. They are done when the program makes the MemoryCheckpoint."""
    command = [sys.executable, "-c", IMPORTS, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "[]", ended.stdout + ended.stderr[-2000:]


def test_a_reader_takes_only_the_part_that_the_state_needs() -> None:
    """With other shards than saved, DCP asks for a part of a saved tensor."""
    import torch  # noqa: PLC0415
    from gpu_recovery_run.memory_checkpoint.tensor_files import Place, ShardReader  # noqa: PLC0415
    from torch.distributed.checkpoint.metadata import MetadataIndex  # noqa: PLC0415
    from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem  # noqa: PLC0415

    saved, filled, index = torch.arange(20).reshape(4, 5), torch.zeros(2, 3, dtype=torch.int64), MetadataIndex("w")

    class Planner:
        """Gives the whole tensor."""

        def resolve_tensor(self, item: Any) -> Any:
            return filled

        def commit_tensor(self, item: Any, tensor: Any) -> None:
            assert tensor.data_ptr() == filled.data_ptr()

    class Shards:
        """One file, which begins with eight other bytes."""

        own = Path()

        def open(self, shard: int, name: str) -> Any:
            assert (shard, name) == (3, "tensors-0")
            return io.BytesIO(bytes(8) + saved.numpy().tobytes())

    item = ReadItem(LoadItemType.TENSOR, index, torch.Size([0, 0]), index, torch.Size([1, 2]), torch.Size([2, 3]))
    reader = ShardReader(Shards(), None)
    metadata: Any = type("Metadata", (), {"storage_data": {index: Place(3, "tensors-0", 8, (4, 5), torch.int64)}})
    reader.set_up_storage_reader(metadata, True)
    reader.read_data(LoadPlan([item]), Planner())
    assert torch.equal(filled, saved[1:3, 2:5])
