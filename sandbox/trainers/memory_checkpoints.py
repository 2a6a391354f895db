"""PyTorch training with checkpoints in the memory of the instances, and durable checkpoints less often.

    gpu-recovery-run -- python -m sandbox.trainers.memory_checkpoints                       one process per instance
    gpu-recovery-run -- torchrun ... -m sandbox.trainers.memory_checkpoints                 several

The training uses DistributedDataParallel over gloo, on the CPU; with `FSDP=1` each process has a part of the weights.
Both kinds of checkpoint hold the same state. After a crash, or the loss of one instance, the training continues from
the newest step in the memory of the others. The data of a step depends only on the step's number. So the losses and the
weights are bit for bit those of an uninterrupted run.

Environment: CHECKPOINT_DIR, TOTAL_STEPS (200), STEP_SECONDS (0.05), MEMORY_EVERY (5), CHECKPOINT_EVERY (50), and the
variables of a rank. GPU_RECOVERY_MEMORY_DIR is the memory folder.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from gpu_recovery_run.memory_checkpoint import MemoryCheckpoint, MemoryCheckpointError
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

FEATURES, SHARD = 16, 64


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs (SHARD, FEATURES) and targets (SHARD, 1) of a process at a step, the same at every call."""
    source = torch.Generator().manual_seed(rank * 1_000_003 + step)
    x = torch.randn(SHARD, FEATURES, generator=source)
    return x, (x[:, :1] * x[:, 1:2]).sign()


def newest(folder: Path) -> int:
    """Return the step of the newest whole durable checkpoint; -1 if there is none. DCP writes .metadata last."""
    return max((int(each.parent.name) for each in folder.glob("*/.metadata")), default=-1)


def whole_state(model: Any, optimizer: Any, step: int) -> dict[str, Any]:
    """Return what a checkpoint holds. The same call gives the form that a load fills."""
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": step}


def train(folder: Path, total_steps: int, step_s: float, memory_every: int, durable_every: int) -> None:
    """Train from the newest checkpoint to `total_steps`, with a pause of `step_s` seconds after each step."""
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    if os.environ.get("FSDP"):
        model = fully_shard(model)
    else:  # without unused parameters DDP orders its buckets anew after the first step, and sums then round otherwise
        model = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    memory = MemoryCheckpoint()
    durable, state = newest(folder), whole_state(model, optimizer, 0)
    first, source = memory.load(state, newer_than=durable), "memory"
    if first is None and durable >= 0:
        dcp.load(state, checkpoint_id=folder / str(durable))
        first, source = durable, "the durable checkpoint"
    if first is not None:
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        print(f"resumed from step {first}, {source}", flush=True)

    for step in range((first or 0) + 1, total_steps + 1):
        x, target = batch(dist.get_rank(), step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item().hex()}", flush=True)
        if step % memory_every == 0:
            try:
                memory.save(step, whole_state(model, optimizer, step))
            except MemoryCheckpointError as error:  # every process raises it, and the training goes on
                print(f"no memory checkpoint of step {step}: {error}", flush=True)
        if step % durable_every == 0:
            dcp.save(whole_state(model, optimizer, step), checkpoint_id=folder / str(step))
        time.sleep(step_s)
    memory.close(finished=True)


def main() -> None:
    """Train with the settings of the environment."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # with GPUs: "cpu:gloo,cuda:nccl"
    train(
        Path(os.environ["CHECKPOINT_DIR"]) / os.environ["JOB_ID"],
        int(os.environ.get("TOTAL_STEPS", "200")),
        float(os.environ.get("STEP_SECONDS", "0.05")),
        int(os.environ.get("MEMORY_EVERY", "5")),
        int(os.environ.get("CHECKPOINT_EVERY", "50")),
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
