"""A program for the ranks of a test: it trains, and rank 1 of the first attempt ends with an error when it may.

The first attempt trains without end, and each later attempt does 200 steps: 20 s, in which the test looks at it. Once
the file `looked` is in the folder, the steps that are left take no time.

It may have a standby process: it calls `wait_for_start` before it reads the variables of its rank.

Environment: CHECKPOINT_DIR, a folder that all ranks and the test share; ERROR, the line that the rank writes before it
ends. The rank ends once the file `go` is in the folder. The files `crashed` and `trains` then hold two times in Unix
seconds: of the end, and of the first finished step of the second attempt.
"""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path

from gpu_recovery_client import training

from sandbox.trainers import plain_python

training.wait_for_start()
LATER_STEPS = 200
FOLDER, ATTEMPT, RANK = Path(os.environ["CHECKPOINT_DIR"]), os.environ["ATTEMPT"], os.environ["RANK"]


def _crash() -> None:
    while not (FOLDER / "go").exists():
        time.sleep(0.05)
    print(os.environ["ERROR"], flush=True)
    (FOLDER / "crashed").write_text(str(time.time()))
    os._exit(1)


def _trained() -> int:
    """Return the last step that the attempts before have saved. No rank of theirs runs any more."""
    settings = plain_python.TrainerSettings.from_env(os.environ)
    return plain_python.Checkpoint.load(settings.checkpoint).step


def _pause(seconds: float) -> None:
    """Wait until the next step, unless the test has seen enough."""
    if not (FOLDER / "looked").exists():
        time.sleep(seconds)


def main() -> None:
    """Train as `plain_python` does."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ["TOTAL_STEPS"] = "1000000" if ATTEMPT == "1" else str(_trained() + LATER_STEPS)
    compute, steps = plain_python.shard_gradient, [0]

    def noted(weights: list[float], rank: int, step: int) -> tuple[list[float], float]:
        steps[0] += 1
        if (ATTEMPT, RANK, steps[0]) == ("2", "0", 2):
            (FOLDER / "trains").write_text(str(time.time()))
        return compute(weights, rank, step)

    plain_python.shard_gradient = noted
    plain_python.train = partial(plain_python.train, pause=_pause)
    if (ATTEMPT, RANK) == ("1", "1"):
        threading.Thread(target=_crash, daemon=True).start()
    plain_python.main()


if __name__ == "__main__":
    main()
