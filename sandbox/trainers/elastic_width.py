"""PyTorch training whose number of processes may change with each attempt: an elastic job.

The command of the job, with one process per GPU:

    gpu-recovery-run -- sh -c 'exec torchrun --nnodes=$NNODES --node-rank=$NODE_RANK \\
      --nproc-per-node=$GPUS_PER_NODE --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT \\
      -m sandbox.trainers.elastic_width'

The global batch is the same at every width. Each step has GLOBAL_BATCH samples, and the number of the step names them.
Each process takes every n-th of them, where n is the present number of processes. So each sample is used once at every
width, and neither the learning rate nor the number of steps depends on the width.

The checkpoint holds the model, the optimizer and the step. It fits every number of processes, because each process of
DistributedDataParallel has the whole model. The program ends at a suspension request, as `suspendable` does: the growth
of an elastic job begins with one.

Each process prints a checksum of the state that it has loaded, and the first process one of each state that it saves.
Another width adds the gradients in another order, so the losses of two widths differ in their last bits. The training
is in double precision, so that only these bits differ.

Environment: as for `suspendable`.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gpu_recovery_run import training
from torch.nn.parallel import DistributedDataParallel

from sandbox.trainers.suspendable import save, suspended

FEATURES, GLOBAL_BATCH = 16, 96


def batch(step: int, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs (n, FEATURES) and targets (n, 1) of a process: every `width`-th sample of the step from `rank` on.

    A sample is a function of its number, so no state of a data loader is needed.
    """
    numbers = range((step - 1) * GLOBAL_BATCH, step * GLOBAL_BATCH)[rank::width]
    x = torch.stack([torch.randn(FEATURES, generator=torch.Generator().manual_seed(number)) for number in numbers])
    return x, (x[:, :1] * x[:, 1:2]).sign()


def checksum(step: int, model: Any, optimizer: Any) -> str:
    """Return 16 hexadecimal digits that depend on every bit of the state of a training."""
    digest = hashlib.sha256(str(step).encode())
    moments = [value for _, each in sorted(optimizer.state_dict()["state"].items()) for value in each.values()]
    for value in (*model.state_dict().values(), *moments):
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:16]


def train(path: Path, total_steps: int, step_s: float, checkpoint_every: int) -> None:
    """Train from the last checkpoint to `total_steps`, with a pause of `step_s` seconds after each step."""
    rank, width = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = 0
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
        print(f"process {rank} of {width} resumed from step {first}: {checksum(first, model, optimizer)}", flush=True)
    parallel = DistributedDataParallel(model)
    for step in range(first + 1, total_steps + 1):
        x, target = batch(step, rank, width)
        optimizer.zero_grad()
        squares = torch.nn.functional.mse_loss(parallel(x), target, reduction="sum")
        # DDP takes the mean over the processes, whose numbers of samples may differ. This is the mean over the samples.
        (squares * width / GLOBAL_BATCH).backward()
        optimizer.step()
        training.progress()
        total = squares.detach()
        dist.all_reduce(total)
        leave = suspended()
        if rank == 0:
            print(f"step {step} width {width} loss {total.item() / GLOBAL_BATCH:.12f}", flush=True)
            if leave or step % checkpoint_every == 0 or step == total_steps:
                save(path, {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
                print(f"saved step {step}: {checksum(step, model, optimizer)}", flush=True)
        if leave:
            dist.barrier()  # wait for the save, because the first exit ends all other processes
            training.go_suspend()
        time.sleep(step_s)


def main() -> None:
    """Train with the settings of the environment."""
    for name, alone in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        os.environ.setdefault(name, alone)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
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
