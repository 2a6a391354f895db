"""Distributed trainer on PyTorch: DistributedDataParallel over gloo, on the CPU (`TRAINER=torch`).

The environment, output, checkpoints and exit codes are those of `sandbox.trainers.plain_python`. Only this module and
`suspendable` import torch. The checkpoint of rank 0 is the valid copy. DistributedDataParallel copies its weights to
the other ranks, and a broadcast copies its step.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from gpu_recovery_client import training
from torch.nn.parallel import DistributedDataParallel

from sandbox.trainers.plain_python import (
    EXIT_ABORTED,
    FEATURES,
    LEARNING_RATE,
    SHARD,
    TRUE_WEIGHTS,
    TrainerSettings,
    say,
    stop_on_sigterm,
)
from sandbox.trainers.suspendable import suspended


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the shard of a rank at a step: inputs (SHARD, FEATURES) and labels (SHARD, 1), the same at every call."""
    source = torch.Generator().manual_seed(rank * 1_000_003 + step)
    x = torch.randn(SHARD, FEATURES, generator=source)
    labels = (x @ torch.tensor(TRUE_WEIGHTS) > 0).float().unsqueeze(1)
    return x, labels


def save(path: Path, step: int, model: torch.nn.Module) -> None:
    """Replace the checkpoint in one step. Plain SGD has no optimizer state to save."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    torch.save({"step": step, "model": model.state_dict()}, draft)
    draft.replace(path)


def train(settings: TrainerSettings) -> None:
    """Train from the last checkpoint to `total_steps`."""
    path = settings.checkpoint.with_suffix(".pt")
    torch.manual_seed(0)
    model = torch.nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    first = torch.zeros(1, dtype=torch.int64)
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        first[0] = state["step"]
    dist.broadcast(first, src=0)
    parallel = DistributedDataParallel(model)
    if first.item():
        say(f"resumed from step {int(first.item())}")
    for step in range(int(first.item()) + 1, settings.total_steps + 1):
        began = time.monotonic()
        x, labels = batch(settings.rank, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(parallel(x), labels)
        loss.backward()
        optimizer.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        say(f"step {step} loss {shown.item() / settings.world_size:.6f}")
        leave = suspended()
        is_due = step % settings.checkpoint_every == 0 or step == settings.total_steps or leave
        if settings.rank == 0 and is_due:
            save(path, step, model)
        if leave:
            dist.barrier()  # wait until rank 0 has saved
            say(f"suspended after step {step}")
            training.go_suspend()
        time.sleep(max(0.0, settings.step_s - (time.monotonic() - began)))


def main() -> int:
    """Train with the settings of the environment. Returns the exit code, as `plain_python.main` does."""
    stop_on_sigterm()
    settings = TrainerSettings.from_env(os.environ)
    say(f"rank {settings.rank} of {settings.world_size}, {settings.attempt_id}, torch {torch.__version__}")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{settings.master_addr}:{settings.master_port}",
        rank=settings.rank,
        world_size=settings.world_size,
        timeout=timedelta(seconds=settings.collective_timeout_s),
    )
    try:
        train(settings)
    except RuntimeError as failure:  # gloo reports a lost peer or a timeout as a plain RuntimeError
        say(f"rank {settings.rank} aborts: {failure}")
        return EXIT_ABORTED
    dist.destroy_process_group()
    say(f"trained to step {settings.total_steps}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
