"""A process that is killed at any line of a save: all others, and the next attempt, still have a whole generation."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_recovery_run.memory_checkpoint as package
import pytest
from gpu_recovery_run.memory_checkpoint import MemoryCheckpoint, MemoryCheckpointError

from tests.agent.memory_checkpoint.gang import KILLED, folder_of, kill_self, run
from tests.agent.memory_checkpoint.test_memory_checkpoint import loading, value
from tests.tiers import scaled

THREE, VICTIM = range(3), 1
CODE = os.path.dirname(package.__file__)


class Lines:
    """Calls `at` before each line of the package that runs for the first time, in any thread of this process."""

    def __init__(self, at: Callable[[int], object]) -> None:
        self.seen: list[tuple[str, int]] = []
        self._at = at

    def begin(self) -> None:
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def _trace(self, frame: Any, kind: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        line = (frame.f_code.co_filename, frame.f_lineno)
        if kind == "line" and line not in self.seen:
            self.seen.append(line)
            self._at(len(self.seen))
        return self._trace


def saving_twice(at: Callable[[int], object]) -> Callable[[MemoryCheckpoint], int]:
    """Save step 1, and step 2 with `at` at each line of the victim. The server's threads begin with each connection."""

    def program(memory: MemoryCheckpoint) -> int:
        rank = memory._group.rank
        memory.save(1, value(rank, 1))
        memory.wait()
        lines = Lines(at)
        if rank == VICTIM:
            lines.begin()
        try:
            memory.save(2, value(rank, 2))
            memory.wait()
        except (MemoryCheckpointError, RuntimeError):
            return -1
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        memory.close()
        return len(lines.seen)

    return program


def lines_of_a_save(root: Path) -> int:
    """The number of different lines that one process runs for a save and the copy of its neighbour."""
    return int(run(root, saving_twice(lambda number: None), THREE)[VICTIM])


@pytest.mark.slow
@pytest.mark.parametrize("is_lost", [False, True], ids=["in place", "swapped"])
def test_killed_at_any_line_of_a_save_the_job_goes_on_from_one_of_both_steps(tmp_path: Path, is_lost: bool) -> None:
    """All ranks load the same step, each its own state of it. The instance of the killed process may be lost, too."""
    number = lines_of_a_save(tmp_path / "count")
    assert number > 100
    steps = set()
    for point in range(1, number + 1, scaled(fast=15, default=15, full=1)):
        root = tmp_path / str(point)
        ended = run(root, saving_twice(lambda n, point=point: n >= point and kill_self()), THREE)
        assert ended[VICTIM] == KILLED, point
        if is_lost:
            shutil.rmtree(folder_of(root, VICTIM))
        (step, is_own), *others = run(root, loading, THREE)
        assert step in (1, 2) and is_own and others == [(step, True)] * 2, (point, step, others)
        steps.add(step)
        shutil.rmtree(root)
    assert steps == {1, 2}
