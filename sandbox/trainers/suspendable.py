"""PyTorch training that can be suspended. Your own training needs its function `suspended` and its checkpoint.

    gpu-recovery-run -- python -m sandbox.trainers.suspendable                              one process per instance
    gpu-recovery-run -- torchrun ... -m sandbox.trainers.suspendable                        several
    gpu-recovery-run --simulate 5 -- python -m sandbox.trainers.suspendable                 a rehearsal, alone

The training uses DistributedDataParallel over gloo, on the CPU. After each step the first process checks for the notice
and broadcasts the result, so that every process decides the same. The first process saves this step, all processes wait
for the save, and `go_suspend` ends them. The checkpoint includes the optimizer, and the data of a step depends only on
the step's number. So a run that was suspended any number of times ends with the same weights as an uninterrupted run.

Environment: CHECKPOINT_DIR (else the system's folder for temporary files), TOTAL_STEPS (200), STEP_SECONDS (0.05),
CHECKPOINT_EVERY (50). The control plane or torchrun set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; without these
variables the process trains alone.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from gpu_recovery_client import training
from torch.nn.parallel import DistributedDataParallel

FEATURES, SHARD = 16, 64
SEED_STRIDE = 1_000_003


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs (SHARD, FEATURES) and targets (SHARD, 1) of a process at a step, the same at every call."""
    source = torch.Generator().manual_seed(rank * SEED_STRIDE + step)
    x = torch.randn(SHARD, FEATURES, generator=source)
    return x, (x[:, :1] * x[:, 1:2]).sign()


def save(path: Path, state: dict[str, object]) -> None:
    """Replace the checkpoint in one step, so that a kill leaves the old or the new checkpoint whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def suspended() -> bool:
    """Whether the job shall be suspended: the first process checks and broadcasts the result. A collective call."""
    notified = torch.zeros(1)
    if dist.get_rank() == 0 and training.receive_suspend_command():
        notified[0] = 1
    dist.broadcast(notified, src=0)
    return bool(notified.item())


def train(path: Path, total_steps: int, step_s: float, checkpoint_every: int) -> None:
    """Train from the last checkpoint to `total_steps`, with a pause of `step_s` seconds after each step."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = 0
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
        print(f"resumed from step {first}", flush=True)
    parallel = DistributedDataParallel(model)
    for step in range(first + 1, total_steps + 1):
        x, target = batch(dist.get_rank(), step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(parallel(x), target)
        loss.backward()
        optimizer.step()
        training.progress()
        leave = suspended()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
            if leave or step % checkpoint_every == 0 or step == total_steps:
                save(path, {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
        if leave:
            dist.barrier()  # wait for the save, because the first exit ends all other processes
            if dist.get_rank() == 0:
                print(f"suspended after step {step}", flush=True)
            training.go_suspend()
        time.sleep(step_s)


def main() -> None:
    """Train with the settings of the environment."""
    for name, alone in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        os.environ.setdefault(name, alone)
    torch.set_num_threads(1)
    training.set_watchdog_time(600)
    dist.init_process_group("gloo")
    train(
        Path(os.environ.get("CHECKPOINT_DIR") or tempfile.gettempdir())
        / os.environ.get("JOB_ID", "alone")
        / "checkpoint.pt",
        int(os.environ.get("TOTAL_STEPS", "200")),
        float(os.environ.get("STEP_SECONDS", "0.05")),
        int(os.environ.get("CHECKPOINT_EVERY", "50")),
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
