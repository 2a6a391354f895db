"""The elastic job of docs/training.md, as it is documented: torchrun with four processes, three, and four again."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.job.rank_overrides import MASTER_PORT, rank_environment
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.job_api.job_spec import parse_spec
from gpu_recovery_client.job_document import PlainYaml

from sandbox import processes
from tests.sandbox.ministack_server import ROOT
from tests.sandbox.patience import PATIENCE_S, wait_until
from tests.sandbox.trainers.test_plain_python import EXIT_SUSPENDED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
WRAPPER = (sys.executable, "-c", "from gpu_recovery_run.rank.wrapper import main; main()")
"""What the command `gpu-recovery-run` of the wheel runs."""
ENDLESS = 1_000_000
"""Number of steps that an attempt does not reach."""
NEVER = ENDLESS
"""Number of steps between two checkpoints, where only the suspension saves."""


def documented_job() -> JobSpec:
    """The job of docs/training.md, read as the job API reads it."""
    section = (ROOT / "docs/training.md").read_text().partition("\n## A job of a variable width\n")[2]
    spec = parse_spec(yaml.load(section.partition("```yaml\n")[2].partition("```")[0], PlainYaml))
    assert (spec.nnodes_min, spec.nnodes) == (3, 4)
    return spec


def spec_of(folder: Path, total_steps: int, checkpoint_every: int) -> JobSpec:
    """The documented job, with one process per instance and a training that fits a test."""
    env = {
        "TOTAL_STEPS": str(total_steps),
        "CHECKPOINT_EVERY": str(checkpoint_every),
        "STEP_SECONDS": "0.02",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    own = {"checkpoint_dir": str(folder / "checkpoints"), "suspend_grace_s": 100, "stop_timeout_s": 120}
    return replace(documented_job(), gpus_per_node=1, env=env, **own)


class Attempt:
    """One attempt: a rank for each instance of its plan, with the variables that the control plane gives to a rank."""

    def __init__(self, folder: Path, number: int, width: int, spec: JobSpec) -> None:
        self.folder, self.number = folder, number
        folder.mkdir(exist_ok=True)
        instances = tuple(f"i-{rank}" for rank in range(width))
        self.plan = Plan("elastic-1", number, instances, port_offset=processes.free_port() - MASTER_PORT)
        self.ranks = [self._start(rank, spec) for rank in range(width)]

    def _start(self, rank: int, spec: JobSpec) -> subprocess.Popen[bytes]:
        own = {"GPUTASKER_RUNNING_TASKS_DIR": str(self.folder / "ranks"), "XDG_RUNTIME_DIR": str(self.folder)}
        environment = processes.clean_environment(own | rank_environment(spec, self.plan, rank, "127.0.0.1", ""))
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        with self._log(rank).open("wb") as out:
            wrapper, *command = spec.command
            assert wrapper == "gpu-recovery-run"
            return subprocess.Popen([*WRAPPER, *command], env=environment, cwd=ROOT, stdout=out, stderr=out)

    def _log(self, rank: int) -> Path:
        return self.folder / f"attempt-{self.number}-rank-{rank}"

    def output(self) -> str:
        return "".join(self._log(rank).read_text(errors="replace") for rank in range(len(self.ranks)))

    def losses(self) -> dict[int, float]:
        """The loss by step."""
        found = re.findall(r"^step (\d+) width \d+ loss (\S+)$", self.output(), re.M)
        return {int(step): float(loss) for step, loss in found}

    def widths(self) -> set[str]:
        """The numbers of processes among which steps were divided."""
        return set(re.findall(r"^step \d+ width (\d+) ", self.output(), re.M))

    def saved(self) -> dict[int, str]:
        """The checksum of each saved state, by step."""
        return {int(step): of for step, of in re.findall(r"^saved step (\d+): (\w{16})$", self.output(), re.M)}

    def resumed(self) -> set[tuple[int, str, int, str]]:
        """Of each process that loaded a checkpoint: its rank, the number of processes, the step and the checksum."""
        found = re.findall(r"^process (\d+) of (\d+) resumed from step (\d+): (\w{16})$", self.output(), re.M)
        return {(int(rank), width, int(step), of) for rank, width, step, of in found}

    def trains_beyond(self, step: int) -> None:
        """Until a step after this one is done. An attempt that ends before is the error."""

        def reached() -> bool:
            assert all(one.poll() is None for one in self.ranks), self.output()
            return max(self.losses(), default=0) > step

        wait_until(reached, self.output)

    def exit_codes(self) -> list[int]:
        return [one.wait(timeout=PATIENCE_S) for one in self.ranks]

    def kill(self) -> None:
        """End all processes: the guard of a killed wrapper ends what torchrun started."""
        for one in self.ranks:
            one.kill()
            one.wait()


@pytest.fixture
def attempts() -> Iterator[list[Attempt]]:
    """Attempts, whose processes end with the test."""
    found: list[Attempt] = []
    yield found
    for each in found:
        each.kill()


def test_a_training_goes_on_with_three_processes_and_with_four_again(tmp_path: Path, attempts: list[Attempt]) -> None:
    """Each attempt loads the state bit for bit, and all losses are those of one process that was never stopped.

    An instance is lost, so the second attempt begins at the last checkpoint. The growth asks rank 0 to save, so the
    third attempt repeats no step.
    """
    folder = tmp_path / "job"
    attempts.append(first := Attempt(folder, 1, 4, spec_of(folder, ENDLESS, checkpoint_every=5)))
    first.trains_beyond(6)
    first.ranks[2].kill()
    assert all(first.exit_codes()), "the others notice the loss and end"
    last_saved = max(first.saved())

    attempts.append(second := Attempt(folder, 2, 3, spec_of(folder, ENDLESS, NEVER)))
    second.trains_beyond(last_saved + 3)
    second.ranks[0].terminate()
    assert second.exit_codes() == [EXIT_SUSPENDED] * 3, second.output()
    left_after = max(second.losses())

    end = left_after + 10
    attempts.append(third := Attempt(folder, 3, 4, spec_of(folder, end, NEVER)))
    assert third.exit_codes() == [0] * 4, third.output()

    assert (first.widths(), second.widths(), third.widths()) == ({"4"}, {"3"}, {"4"})
    assert second.resumed() == {(rank, "3", last_saved, first.saved()[last_saved]) for rank in range(3)}
    assert third.resumed() == {(rank, "4", left_after, second.saved()[left_after]) for rank in range(4)}
    assert list(second.losses()) == list(range(last_saved + 1, left_after + 1))
    assert list(third.losses()) == list(range(left_after + 1, end + 1))

    attempts.append(alone := Attempt(tmp_path / "alone", 1, 1, spec_of(tmp_path / "alone", end, NEVER)))
    assert alone.exit_codes() == [0], alone.output()
    expected = alone.losses()
    assert list(expected) == list(range(1, end + 1))
    for attempt in (first, second, third):
        for step, loss in attempt.losses().items():
            assert loss == pytest.approx(expected[step], abs=1e-9), (attempt.number, step)
