"""Memory checkpoints with PyTorch: four processes over gloo, the loss of an instance, and the same losses as before."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.patience import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
ROOT = Path(__file__).parents[3]
RANKS, STEPS = 4, 24
DURABLE_EVERY = 10


class Training:
    """One attempt: four ranks on four instances, each with a memory folder of its own."""

    def __init__(self, folder: Path, attempt: int, **settings: str) -> None:
        self.folder, self.attempt = folder, attempt
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        folder.mkdir(exist_ok=True)
        self.ranks = [self._start(rank, port, settings) for rank in range(RANKS)]

    def _start(self, rank: int, port: str, settings: dict[str, str]) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "JOB_ID": "toy",
            "ATTEMPT": str(self.attempt),
            "RANK": str(rank),
            "NODE_RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "NNODES": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "OMP_NUM_THREADS": "1",
            "CHECKPOINT_DIR": str(self.folder / "durable"),
            "GPU_RECOVERY_MEMORY_DIR": str(self.memory(rank)),
            "TOTAL_STEPS": str(STEPS),
            "MEMORY_EVERY": "3",
            "CHECKPOINT_EVERY": str(DURABLE_EVERY),
            **settings,
        }
        with self._log(rank).open("wb") as log:
            command = [sys.executable, "-m", "sandbox.trainers.memory_checkpoints"]
            return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def _log(self, rank: int) -> Path:
        return self.folder / f"attempt-{self.attempt}-rank-{rank}.log"

    def memory(self, rank: int) -> Path:
        """The memory folder of the instance of a rank."""
        return self.folder / f"memory-{rank}"

    def output(self, rank: int) -> str:
        return self._log(rank).read_text(errors="replace")

    def losses(self, rank: int) -> dict[int, str]:
        """The loss of each step, bit for bit."""
        return {int(step): loss for step, loss in re.findall(r"^step (\d+) loss (\S+)$", self.output(rank), re.M)}

    def weights(self, step: int) -> dict[str, object]:
        """The model and the optimizer in the durable checkpoint of a step."""
        import torch  # noqa: PLC0415
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # noqa: PLC0415

        whole = self.folder / f"{step}.pt"
        dcp_to_torch_save(self.folder / "durable/toy" / str(step), whole)
        return torch.load(whole, weights_only=False)

    def wait(self) -> list[int]:
        return [each.wait(120) for each in self.ranks]

    def kill(self) -> None:
        for each in self.ranks:
            each.kill()
            each.wait()


@pytest.fixture
def started() -> Iterator[list[Training]]:
    """Trainings, whose processes end with the test."""
    found: list[Training] = []
    yield found
    for each in found:
        each.kill()


@pytest.mark.parametrize("sharded", ["", "1"], ids=["ddp", "fsdp"])
def test_after_the_loss_of_an_instance_the_training_goes_on_from_memory_with_the_same_losses(
    tmp_path: Path, started: list[Training], sharded: str
) -> None:
    """A rank is killed and its memory is gone. The next attempt starts after the durable step, bit for bit."""
    whole = Training(tmp_path / "whole", 1, STEP_SECONDS="0", FSDP=sharded)
    started.append(whole)
    assert whole.wait() == [0] * RANKS, whole.output(0)

    first = Training(tmp_path / "job", 1, STEP_SECONDS="0.3", FSDP=sharded)
    started.append(first)
    wait_until(lambda: any((first.memory(3) / "toy").glob("*-000000000015-*/rank-3")))
    first.ranks[2].kill()
    assert all(first.wait()), "the others notice the loss and end"
    shutil.rmtree(first.memory(2))

    second = Training(tmp_path / "job", 2, STEP_SECONDS="0", FSDP=sharded)
    started.append(second)
    assert second.wait() == [0] * RANKS, second.output(0)
    for rank in range(RANKS):
        (step,) = map(int, re.findall(r"^resumed from step (\d+), memory$", second.output(rank), re.M))
        assert step > DURABLE_EVERY and step % 3 == 0
        assert second.losses(rank) == {n: loss for n, loss in whole.losses(rank).items() if n > step}
        assert list(second.memory(rank).iterdir()) == [], "the memory is released at the end"
    assert equal(second.weights(20), whole.weights(20))


def equal(ours: object, theirs: object) -> bool:
    """Whether two states are the same, bit for bit."""
    import torch  # noqa: PLC0415

    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(equal(ours[name], theirs[name]) for name in ours)
    return torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else ours == theirs
