"""Benchmark of the queue under different estimates: `python -m benchmarks.queue_estimates --trace FILE`.

It replays three windows of the Philly trace for each case of users' estimates, and writes the waiting times of each
discipline, as shares of those of strict FIFO, to benchmarks/results.json under the name `queue_estimates`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import results
from simulator.queue.baselines import Conservative, Multifactor
from simulator.queue.disciplines import Easy, ProductionRules
from simulator.queue.estimate_cases import CASES, DRAWN, ratios, with_estimates
from simulator.queue.job_trace import Selection, read

WINDOWS = {
    "first_30_days": (None, 600),
    "from_13_october": (datetime(2017, 10, 13), 600),
    "from_12_november": (datetime(2017, 11, 12), 400),
}
"""The replayed windows of 30 days: their begin, None for the first job of the trace, and the GPUs of the cluster.

The rules were chosen on the first two windows. The third was replayed afterwards. Fewer jobs came in that month, so its
cluster is smaller.
"""
SEEDS = (0, 1, 2)
"""Seeds of the drawn estimates. The other cases have no draw and are replayed once."""

DISCIPLINES = {of.name: of for of in (Easy, Conservative, Multifactor, ProductionRules)}


def _of_case(trace: Path, disciplines: Sequence[str], window: str, case: str, seed: int) -> dict[str, dict[str, float]]:
    start, gpus = WINDOWS[window]
    jobs = read(trace, Selection(start=start))
    return ratios(with_estimates(jobs, case, seed), gpus, [DISCIPLINES[name] for name in disciplines])


def estimate_figures(
    trace: Path, workers: int = 1, windows: Sequence[str] = (), disciplines: Sequence[str] = ()
) -> dict[str, Any]:
    """Return mean and longest wait of a big job by window, case and discipline: the mean and the highest over seeds.

    Args:
        trace: the Philly trace.
        workers: number of processes.
        windows, disciplines: names of those that are replayed; by default, all.
    """
    windows, disciplines = windows or tuple(WINDOWS), disciplines or tuple(DISCIPLINES)
    runs = [
        (window, case, seed) for window in windows for case in CASES for seed in (SEEDS if case in DRAWN else SEEDS[:1])
    ]
    with ProcessPoolExecutor(workers) as pool:
        answers = list(pool.map(_of_case, [trace] * len(runs), [disciplines] * len(runs), *zip(*runs, strict=True)))
    return {
        window: {
            case: _over_seeds([answer for run, answer in zip(runs, answers, strict=True) if run[:2] == (window, case)])
            for case in CASES
        }
        for window in windows
    }


def merged(known: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the known figures with the new figures in their places."""
    return known | {
        key: merged(known.get(key, {}), figures) if isinstance(figures, dict) else figures
        for key, figures in new.items()
    }


def _over_seeds(answers: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "mean": round(sum(answer[name]["mean"] for answer in answers) / len(answers), 3),
            "big": max(answer[name]["big"] for answer in answers),
        }
        for name in answers[0]
    }


def main() -> None:
    """Replay the cases, print the figures and write them to results.json, beside the figures that were not replayed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True, help="the Philly trace")
    parser.add_argument("--workers", type=int, default=1, help="processes; default 1")
    parser.add_argument("--windows", nargs="*", choices=WINDOWS, default=(), help="default all")
    parser.add_argument("--disciplines", nargs="*", choices=DISCIPLINES, default=(), help="default all")
    args = parser.parse_args()
    figures = estimate_figures(args.trace, args.workers, args.windows, args.disciplines)
    print(json.dumps(figures, indent=2))
    known = results.read().get("queue_estimates", {})
    results.update("queue_estimates", merged(known, figures))


if __name__ == "__main__":
    main()
