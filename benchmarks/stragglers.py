"""Benchmark of the guard that names stragglers: false alarms and detection in random windows, with intervals.

A window has calls of one method by equal workers. In the windows that measure detection, one worker is slower. All
random numbers are seeded.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpu_recovery.core.diagnosis.outliers import beyond_sigma, compare, mean
from gpu_recovery.core.diagnosis.thresholds import Thresholds

from benchmarks.intervals import wilson

BY = Thresholds()
"""The default thresholds of the diagnosis."""
SLOW = 1.5
"""Factor by which a straggler is slower."""
STAGES, STAGED_MIN = 4, 16
"""Stages of the pipeline in the windows with stages, and the fewest workers that are measured with stages."""
CALLS = (1, 4, 16)
"""Calls of each worker in a window."""
WINDOWS: Mapping[int, int] = {4: 8_000, 8: 5_000, 16: 3_000, 64: 1_000, 256: 400}
"""Random windows for each number of workers."""
RESULTS = (
    "guard_false_alarms",
    "guard_found",
    "guard_decides",
    "staged_false_alarms",
    "staged_found",
    "two_sigma_false_alarms",
)
"""Results that are counted."""
SKEWNESS = 1.1
"""Skewness of the seconds of a step in trace SE of ByteDance's StragglerAnalysis, which has uneven sequences."""
_SHAPE = 4 / SKEWNESS**2

NOISES: Mapping[str, Callable[[random.Random], float]] = {
    "even calls, 0.5 %": lambda drawn: drawn.lognormvariate(0, 0.005),
    "uneven sequences, 14 %": lambda drawn: drawn.lognormvariate(0, 0.14),
    "uneven sequences, 14 %, skewed": lambda drawn: (
        1 + 0.14 * (drawn.gammavariate(_SHAPE, 1) - _SHAPE) / math.sqrt(_SHAPE)
    ),
}
"""Seconds of one call of a worker with a mean of 1 s, by the kind of noise.

The noise is that of StragglerAnalysis: 0.5 % with even sequences, 14 % with uneven sequences.
"""


def straggler_figures(windows: Mapping[int, int] = WINDOWS, calls: Iterable[int] = CALLS) -> dict[str, Any]:
    """Return the rates for each kind of noise, number of calls and number of workers, in percent of windows."""
    return {
        noise: {
            f"{made} calls": {f"{count} workers": rates(noise, made, count, times) for count, times in windows.items()}
            for made in calls
        }
        for noise in NOISES
    }


def rates(noise: str, calls: int, workers: int, windows: int) -> dict[str, Any]:
    """Return false alarms and detection of the guard, and false alarms of the 2σ rule.

    Returns:
        Percentages, with the ends of a 95 % interval (Wilson score). `guard_decides` is the percentage of windows
        without a straggler in which the calls were enough to find a straggler. `staged` compares workers by stage.
    """
    counts = count_windows(noise, calls, workers, windows)
    figures: dict[str, Any] = {"windows": windows}
    staged = ("staged_false_alarms", "staged_found") if workers >= STAGED_MIN else ()
    for name in ("guard_false_alarms", "guard_found", *staged):
        low, high = wilson(counts[name], windows)
        figures[name] = round(100 * counts[name] / windows, 3)
        figures[f"{name}_95"] = [round(100 * low, 3), round(100 * high, 3)]
    for name in ("guard_decides", "two_sigma_false_alarms"):
        figures[name] = round(100 * counts[name] / windows, 1)
    return figures


def count_windows(noise: str, calls: int, workers: int, windows: int) -> dict[str, int]:
    """Return the number of windows with each result."""
    drawn, draw = random.Random(f"{noise}/{calls}/{workers}"), NOISES[noise]
    counts = dict.fromkeys(RESULTS, 0)
    stages = {f"w{n}": n * STAGES // workers for n in range(workers)} if workers >= STAGED_MIN else None
    for _ in range(windows):
        window = {f"w{n}": [draw(drawn) for _ in range(calls)] for n in range(workers)}
        equal = compare(window, BY)
        counts["guard_false_alarms"] += bool(equal.slow)
        counts["guard_decides"] += equal.decides
        means = {name: mean(of_worker) for name, of_worker in window.items()}
        counts["two_sigma_false_alarms"] += bool(beyond_sigma(means, BY.sigma))
        slow = {**window, "w1": [SLOW * seconds for seconds in window["w1"]]}
        counts["guard_found"] += "w1" in compare(slow, BY).slow
        if stages:
            counts["staged_false_alarms"] += bool(compare(window, BY, stages).slow)
            counts["staged_found"] += "w1" in compare(slow, BY, stages).slow
    return counts


if __name__ == "__main__":
    print(json.dumps(straggler_figures(), indent=2))
