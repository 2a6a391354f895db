"""A rank that trains without a word, and whose GPU shows in NVML what the rank does. `WHAT` says what it does then.

The ranks train until the file `turn` exists. In the first attempt they then do what `WHAT` says:

- `hangs`: the last rank sleeps for ever before its next collective, and all others wait for it in the collective.
- `saves`: all ranks write a long checkpoint, until the file `saved` exists.

The GPU of an instance is the file of the NVML of the agent's tests. Its values are those of the H200 of docs/hangs.md.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from pynvml import NVML_ERROR_NOT_SUPPORTED

from sandbox.trainers.plain_python import VECTOR, RankGroup, TrainerSettings, stop_on_sigterm

STEP_S, CHUNK_BYTES = 0.3, 1 << 18
LAST_STEPS = 10
FOREVER_S = 86_400.0
NVML_FILE = "nvml.json"


@dataclass(frozen=True)
class Load:
    """What a GPU shows: its utilization in percent, and its power in watts."""

    utilization: int
    power_w: int


TRAINS, SPINS, SAVES, SLEEPS = Load(97, 692), Load(100, 127), Load(3, 129), Load(0, 127)
"""The kernels of a step; a collective that waits; a checkpoint; a rank that sleeps."""


def show(instance: Path, load: Load, *pids: int) -> None:
    """Let NVML show a load of the GPU of an instance, and its processes.

    This GPU has no energy counter, which the agent then replaces by the present power.
    """
    gpu = {
        "utilization": load.utilization,
        "power": load.power_w * 1_000,
        "processes": list(pids),
        "raises": {"nvmlDeviceGetTotalEnergyConsumption": NVML_ERROR_NOT_SUPPORTED},
    }
    draft = instance / f"{NVML_FILE}.new"
    draft.write_text(json.dumps({"gpus": [gpu]}))
    draft.replace(instance / NVML_FILE)


class Rank:
    """This process, its group and its GPU. `folder` has the files by which the test directs the job."""

    def __init__(self, folder: Path, instance: Path) -> None:
        self._folder, self._instance = folder, instance
        self._settings = TrainerSettings.from_env(os.environ)
        self._group = RankGroup(self._settings)

    def step(self) -> bool:
        """Train one step. Return whether a rank has seen the file `turn`, which all ranks then know."""
        self._does(TRAINS)
        time.sleep(STEP_S)
        self._does(SPINS)
        turn = float((self._folder / "turn").exists())
        return self._group.mean([turn] * VECTOR)[0] > 0

    def hangs(self) -> None:
        """Sleep for ever in the last rank; the other ranks wait for it in their next collective."""
        if self._settings.rank == self._settings.world_size - 1:
            self._does(SLEEPS)
            time.sleep(FOREVER_S)
        self.step()

    def saves(self) -> None:
        """Use the processor, and no GPU, until the file `saved` exists."""
        self._does(SAVES)
        while not (self._folder / "saved").exists():
            zlib.compress(os.urandom(CHUNK_BYTES), 9)
            time.sleep(STEP_S / 10)

    def _does(self, load: Load) -> None:
        show(self._instance, load, os.getpid())


def main() -> None:
    """Train, do what `WHAT` says, and train some more steps. The second attempt does only the last."""
    stop_on_sigterm()
    rank = Rank(Path(sys.argv[1]), Path(os.environ["SANDBOX_INSTANCE"]))
    if os.environ["ATTEMPT"] == "1":
        while not rank.step():
            pass
        {"hangs": rank.hangs, "saves": rank.saves}[os.environ["WHAT"]]()
    for _ in range(LAST_STEPS):
        rank.step()


if __name__ == "__main__":
    main()
