"""The command `make mutants`: tries a sample of mutants and writes the score into benchmarks/results.json.

A run without mutants says which tests execute which line. Then each mutant is put into a copy of the tree, and the
tests that execute its line run there until one fails. The run stops when all mutants of the sample are tried, or at its
limit of time. At the end the tests that found mutants run again without a mutant: they must pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, zip_longest
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks import results
from benchmarks.mutation.mutants import GROUPS, Mutant, sample
from benchmarks.mutation.score import Trial, figures, lines
from benchmarks.mutation.selection import Suite, batches
from benchmarks.mutation.tree import TESTS, copy_tree, environment, suite
from benchmarks.mutation.worker import BROKEN, FOUND, SURVIVED

ROOT = Path(__file__).parents[2]
MINUTES, MINUTES_LAST = 30.0, 2.0
"""Limit of a run, and the part of it that is left for the last run without a mutant."""
SIZES = {"core": 240, "elsewhere": 160}
"""Largest number of mutants of each group."""

EXTRA_S, FACTOR = 20, 4
"""Limit of processor time of a batch: so many seconds, and so many times the time of its tests without a mutant."""


class Worker:
    """A process that tries mutants in its copy of the tree. See `benchmarks.mutation.worker`."""

    def __init__(self, copy: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.mutation.worker"],
            cwd=copy,
            env=environment(copy),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of the process to a request.

        Raises:
            RuntimeError: the process has ended, or the tests could not be run.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"outcome": BROKEN, "detail": "the process ended"}
        if answer["outcome"] == BROKEN:
            raise RuntimeError(answer["detail"])
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def mixed(root: Path, seed: int, sizes: dict[str, int]) -> Iterator[tuple[str, Mutant, str]]:
    """Yield the sample of all groups in turns, so that a run that stops early has tried mutants of each group."""
    groups = [[(group, *drawn) for drawn in islice(sample(root, seed, group), sizes[group])] for group in GROUPS]
    for turn in zip_longest(*groups):
        yield from (drawn for drawn in turn if drawn is not None)


def limited(known: Suite, tests: Sequence[str]) -> dict[str, Any]:
    """Return a batch of tests for a worker, with its limit of processor time."""
    return {"tests": tests, "limit_s": int(EXTRA_S + FACTOR * sum(known.seconds[test] for test in tests))}


def attempt(worker: Worker, known: Suite, group: str, mutant: Mutant, source: str, number: int) -> Trial:
    """Try one mutant."""
    tests = known.tests_of(mutant.file, mutant.line)
    chosen = list(batches(mutant.file, tests, known.seconds))
    if not chosen:
        return Trial(group, mutant, SURVIVED, "", 0)
    request = {
        "file": mutant.file,
        "source": source,
        "number": number,
        "batches": [limited(known, batch) for batch in chosen],
    }
    answer = worker.ask(request)
    return Trial(group, mutant, answer["outcome"], answer["detail"], answer["tests"])


def failing_without_mutant(worker: Worker, known: Suite, trials: Sequence[Trial]) -> str:
    """Run the tests that found mutants without a mutant, and return the first that fails, or ""."""
    tests = sorted({trial.detail for trial in trials if trial.outcome == FOUND} & known.seconds.keys())
    if not tests:
        return ""
    answer = worker.ask({"batches": [limited(known, tests)]})
    return "" if answer["outcome"] == SURVIVED else str(answer["detail"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the report and write the score. Return 1 if a test fails without a mutant."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    for group, size in SIZES.items():
        parser.add_argument(f"--{group}", type=int, default=size, help=f"mutants of the group (default {size})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders of tests (default: those of the product)")
    parser.add_argument("--dry", action="store_true", help="do not write benchmarks/results.json")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    deadline = began + 60 * (options.minutes - min(MINUTES_LAST, options.minutes / 4))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Path(folder).resolve() / str(n) for n in range(options.workers)]
        for copy in copies:
            copy_tree(ROOT, copy)
        known = suite(ROOT, copies[0], options.workers, options.tests)
        print(f"{len(known.seconds)} tests; {time.monotonic() - began:.0f} s until the first mutant", flush=True)
        drawn = enumerate(mixed(ROOT, options.seed, {group: getattr(options, group) for group in GROUPS}), start=1)
        lock, trials = Lock(), list[Trial]()

        def try_many(worker: Worker) -> None:
            while time.monotonic() < deadline:
                with lock:
                    number, turn = next(drawn, (0, None))
                if turn is None:
                    return
                trial = attempt(worker, known, *turn, number)
                trials.append(trial)
                print(f"{number:4} {trial.outcome:<8} {trial.mutant}  {trial.detail}", flush=True)

        workers = [Worker(copy) for copy in copies]
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(try_many, workers))
        failing = failing_without_mutant(workers[0], known, trials)
        for worker in workers:
            worker.close()
    sources = {trial.mutant.file: (ROOT / trial.mutant.file).read_text(encoding="utf-8") for trial in trials}
    print("\n".join(lines(trials, sources)))
    if failing:
        print(f"the score is not written: without a mutant this test fails too: {failing}")
        return 1
    if not options.dry:
        minutes = round((time.monotonic() - began) / 60, 1)
        results.update("mutants", {"seed": options.seed, "minutes": minutes, **figures(trials)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
