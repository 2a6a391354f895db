"""The PyTorch example, run as it is described: two processes over gloo, suspended and begun again."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.sandbox.patience import wait_until
from tests.sandbox.trainers.test_plain_python import EXIT_SUSPENDED, Run, Wrapped, started

__all__ = ["started"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
STEPS = 60
SETTINGS = {"TOTAL_STEPS": str(STEPS), "STEP_SECONDS": "0.3", "CHECKPOINT_EVERY": "1000", "SUSPEND_GRACE_S": "20"}


class Example(Wrapped):
    module = "sandbox.trainers.suspendable"

    def losses(self, rank: int) -> dict[int, float]:
        """Only the first process prints."""
        assert rank == 0
        return super().losses(rank)


class ExampleOfTheDemo(Wrapped):
    module = "sandbox.trainers.pytorch_ddp"


@pytest.mark.parametrize("kind", [Example, ExampleOfTheDemo])
def test_a_suspended_training_loses_no_step_and_ends_with_the_same_weights(
    tmp_path: Path, started: list[Run], kind: type[Wrapped]
) -> None:
    """The notice reaches the first process only; all leave after the same step, and none is trained twice."""
    import torch  # noqa: PLC0415

    steps: list[int] = []
    for attempt in (1, 2):
        run = kind(tmp_path / "suspended", attempt, **SETTINGS)
        started.append(run)
        wait_until(lambda run=run: len(run.losses(0)) > 4)
        run.ranks[0].terminate()
        assert run.exit_codes() == [EXIT_SUSPENDED] * 2, run.output(0) + run.output(1)
        steps += run.losses(0)
        assert f"suspended after step {steps[-1]}" in run.output(0)
    last = kind(tmp_path / "suspended", 3, **SETTINGS)
    started.append(last)
    assert last.exit_codes() == [0, 0], last.output(0)
    assert re.findall(r"^resumed from step (\d+)$", last.output(0), re.M) == [str(steps[-1])]
    assert [*steps, *last.losses(0)] == list(range(1, STEPS + 1))
    whole = kind(tmp_path / "whole", **SETTINGS | {"STEP_SECONDS": "0"})
    started.append(whole)
    assert whole.exit_codes() == [0, 0], whole.output(0)
    ours, theirs = (torch.load(run.checkpoint.with_suffix(".pt"), weights_only=True) for run in (last, whole))
    assert ours["step"] == theirs["step"] == STEPS
    for name, weights in theirs["model"].items():
        assert torch.equal(ours["model"][name], weights), name
