"""The demonstration's trainer, as the processes it really is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import processes
from sandbox.trainers import plain_python
from sandbox.trainers.plain_python import (
    EXIT_ABORTED,
    EXIT_TERMINATED,
    FEATURES,
    LEARNING_RATE,
    Checkpoint,
    shard_gradient,
)
from tests.sandbox.ministack_server import ROOT
from tests.sandbox.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow
EXIT_SUSPENDED = 75
SLOWLY = {"STEP_SECONDS": "0.3"}
"""A run of 40 steps takes 12 s, so that it does not end before a test interrupts it."""


class Run:
    """One attempt of a two-rank job in `folder`; each rank's output is a file. `module` is what runs in each, `wrapper`
    what runs it."""

    module = "sandbox.trainers.plain_python"
    wrapper: tuple[str, ...] = ()

    def __init__(self, folder: Path, attempt: int = 1, ranks: tuple[int, ...] = (0, 1), **settings: str) -> None:
        self.folder, self.attempt = folder, attempt
        self.checkpoint = folder / "checkpoints/sft-1/checkpoint.json"
        shared = {
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(processes.free_port()),
            "JOB_ID": "sft-1",
            "ATTEMPT": str(attempt),
            "CHECKPOINT_DIR": str(folder / "checkpoints"),
            "TOTAL_STEPS": "40",
            "STEP_SECONDS": "0.02",
            "CHECKPOINT_EVERY": "4",
            "COLLECTIVE_TIMEOUT_S": "30",
        } | settings
        self.ranks = [self._start(r, processes.clean_environment(shared | {"RANK": str(r)})) for r in ranks]

    def _start(self, rank: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with self._log(rank).open("wb") as out:
            return subprocess.Popen(
                [*self.wrapper, sys.executable, "-m", self.module], env=environment, cwd=ROOT, stdout=out, stderr=out
            )

    def _log(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}-attempt-{self.attempt}"

    def output(self, rank: int) -> str:
        return self._log(rank).read_text()

    def losses(self, rank: int) -> dict[int, float]:
        """The loss by step, as the rank printed it."""
        found = re.findall(r"^step (\d+) loss ([\d.]+)$", self.output(rank), re.M)
        return {int(step): float(loss) for step, loss in found}

    def exit_codes(self) -> list[int]:
        return [process.wait(timeout=PATIENCE_S) for process in self.ranks]


class Wrapped(Run):
    """Under `gpu-recovery-run`, which has its files in the job's folder too."""

    wrapper = (sys.executable, "-c", "from gpu_recovery_agent.rank.wrapper import main; main()", "--")

    def __init__(self, folder: Path, attempt: int = 1, **settings: str) -> None:
        folder.mkdir(exist_ok=True)
        own = {"GPUTASKER_RUNNING_TASKS_DIR": str(folder / "ranks"), "XDG_RUNTIME_DIR": str(folder), **settings}
        super().__init__(folder, attempt, **own)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Run]]:
    """Collects runs; whatever still runs at the end of the test is ended."""
    runs: list[Run] = []
    yield runs
    for process in [process for run in runs for process in run.ranks]:
        process.kill()
        process.wait()


def launch(started: list[Run], folder: Path, attempt: int = 1, ranks: tuple[int, ...] = (0, 1), **settings: str) -> Run:
    folder.mkdir(exist_ok=True)
    started.append(Run(folder, attempt, ranks, **settings))
    return started[-1]


def test_two_ranks_train_one_model(tmp_path: Path, started: list[Run]) -> None:
    """Both ranks see the same loss at every step, it falls, and both end with exit code 0."""
    run = launch(started, tmp_path)
    assert run.exit_codes() == [0, 0]
    losses = run.losses(0)
    assert list(losses) == list(range(1, 41))
    assert run.losses(1) == losses
    assert losses[40] < losses[1] / 2
    assert Checkpoint.load(run.checkpoint).step == 40


def test_every_step_takes_the_mean_over_both_shards(tmp_path: Path, started: list[Run]) -> None:
    """The losses are those of one process that sees both ranks' samples."""
    run = launch(started, tmp_path, TOTAL_STEPS="5", STEP_SECONDS="0")
    weights, expected = [0.0] * FEATURES, {}
    for step in range(1, 6):
        (first, loss_0), (second, loss_1) = (shard_gradient(weights, rank, step) for rank in (0, 1))
        weights = [w - LEARNING_RATE * (a + b) / 2 for w, a, b in zip(weights, first, second, strict=True)]
        expected[step] = pytest.approx((loss_0 + loss_1) / 2, abs=1e-6)
    assert run.exit_codes() == [0, 0]
    assert run.losses(1) == expected


def test_a_killed_run_resumes_from_its_checkpoint_and_ends_the_same(tmp_path: Path, started: list[Run]) -> None:
    """Attempt 2 starts at a step above 0, and its weights equal those of a run that was never stopped."""
    first = launch(started, tmp_path / "killed", **SLOWLY)
    wait_until(lambda: len(first.losses(1)) > 6)
    for process in first.ranks:
        process.kill()
    assert first.exit_codes() == [-signal.SIGKILL] * 2
    second = launch(started, tmp_path / "killed", attempt=2)
    assert second.exit_codes() == [0, 0]
    (resumed,) = {re.search(r"^resumed from step (\d+)$", second.output(rank), re.M)[1] for rank in (0, 1)}
    assert int(resumed) >= 4 and min(second.losses(1)) == int(resumed) + 1
    whole = launch(started, tmp_path / "whole", STEP_SECONDS="0")
    assert whole.exit_codes() == [0, 0]
    assert json.loads(second.checkpoint.read_text()) == json.loads(whole.checkpoint.read_text())


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_peer_ends_the_other_with_an_abort(
    tmp_path: Path, started: list[Run], victim: int, fault: signal.Signals
) -> None:
    """A rank whose peer is dead or frozen waits for the collective's timeout and then aborts."""
    run = launch(started, tmp_path, COLLECTIVE_TIMEOUT_S="3", TOTAL_STEPS="100000")
    wait_until(lambda: run.losses(victim))
    os.kill(run.ranks[victim].pid, fault)
    assert run.ranks[1 - victim].wait(timeout=PATIENCE_S) == EXIT_ABORTED
    assert "collective timed out" in run.output(1 - victim)


def test_sigterm_ends_a_rank_even_while_it_waits_for_a_peer(tmp_path: Path, started: list[Run]) -> None:
    """Exit code 143, in the middle of a collective that would hang for half a minute."""
    run = launch(started, tmp_path, TOTAL_STEPS="100000")
    wait_until(lambda: run.losses(0))
    run.ranks[1].kill()
    wait_until(lambda: "waits in all-reduce" in run.output(0))
    run.ranks[0].terminate()
    assert run.ranks[0].wait(timeout=PATIENCE_S) == EXIT_TERMINATED


def test_a_straggler_of_another_attempt_is_not_let_in(tmp_path: Path, started: list[Run]) -> None:
    """Rank 0 of attempt 2 ignores a rank 1 of attempt 1 and waits for its own."""
    port = str(processes.free_port())
    old = launch(started, tmp_path / "old", ranks=(1,), MASTER_PORT=port, COLLECTIVE_TIMEOUT_S="3")
    new = launch(started, tmp_path / "new", attempt=2, ranks=(0,), MASTER_PORT=port)
    assert old.exit_codes() == [EXIT_ABORTED]  # turned away: its peer is gone as far as it can tell
    peer = launch(started, tmp_path / "new", attempt=2, ranks=(1,), MASTER_PORT=port)
    assert new.exit_codes() + peer.exit_codes() == [0, 0]
    assert list(peer.losses(1)) == list(range(1, 41))


def test_a_suspended_run_loses_no_step_and_ends_the_same(tmp_path: Path, started: list[Run]) -> None:
    """Rank 0 alone is told, both leave after the same step, saved by nothing but the suspension; twice."""
    steps: list[int] = []
    for attempt in (1, 2):
        run = Wrapped(tmp_path / "suspended", attempt, **SLOWLY, CHECKPOINT_EVERY="1000", SUSPEND_GRACE_S="20")
        started.append(run)
        wait_until(lambda run=run: len(run.losses(1)) > 4)
        run.ranks[0].terminate()
        assert run.exit_codes() == [EXIT_SUSPENDED] * 2
        assert run.losses(0) == run.losses(1)
        steps += run.losses(0)
        assert f"suspended after step {steps[-1]}" in run.output(0)
        assert Checkpoint.load(run.checkpoint).step == steps[-1]
    last = Wrapped(tmp_path / "suspended", 3, CHECKPOINT_EVERY="1000")
    started.append(last)
    assert last.exit_codes() == [0, 0]
    assert [*steps, *last.losses(0)] == list(range(1, 41))
    whole = launch(started, tmp_path / "whole", STEP_SECONDS="0")
    assert whole.exit_codes() == [0, 0]
    assert json.loads(last.checkpoint.read_text()) == json.loads(whole.checkpoint.read_text())


class Left(Exception):
    """Instead of the end of the process."""


@pytest.mark.parametrize(("rank", "expected"), [(0, ["all-reduce", "save", "all-reduce"]), (1, ["all-reduce"] * 2)])
def test_nobody_leaves_before_rank_0_has_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, expected: list[str]
) -> None:
    """The first to leave may have all the others ended: each waits for an all-reduce that rank 0 joins last."""
    done: list[str] = []

    class Peers:
        def broadcast(self, vector: list[float]) -> list[float]:
            return vector

        def mean(self, vector: list[float]) -> list[float]:
            assert len(vector) == plain_python.VECTOR
            done.append("all-reduce")
            return [*vector[:-1], 0.5]  # rank 0's word, halved as a mean of two is

    def leave() -> None:
        raise Left

    monkeypatch.setattr(plain_python.training, "go_suspend", leave)
    monkeypatch.setattr(plain_python.Checkpoint, "save", lambda *_: done.append("save"))
    environment = {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
        "JOB_ID": "sft-1",
        "CHECKPOINT_DIR": str(tmp_path),
        "CHECKPOINT_EVERY": "1000",
    }
    monkeypatch.setattr(plain_python.training, "receive_suspend_command", lambda: False)
    with pytest.raises(Left):
        plain_python.train(plain_python.TrainerSettings.from_env(environment), Peers())  # type: ignore[arg-type]
    assert done == expected


def test_a_job_without_a_folder_of_checkpoints_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of `submit --help` names none. Its checkpoint is among the temporary files of the instance."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    launched = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "JOB_ID": "sft-1"}
    assert plain_python.TrainerSettings.from_env(launched).checkpoint == tmp_path / "sft-1/checkpoint.json"
