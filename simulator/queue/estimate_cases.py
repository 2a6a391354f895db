"""Cases of what users say about run times, and the waiting times under each discipline in each case."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from simulator.queue.disciplines import ProductionRules, StrictFifo
from simulator.queue.job_trace import DAY_S, OVERESTIMATE_MAX, TraceJob
from simulator.queue.replay import Discipline, RunTimeHistory, waits_of
from simulator.queue.report import BIG_GPUS

HOUR_S = 3_600
USUAL_LIMITS_S = (HOUR_S, 4 * HOUR_S, 12 * HOUR_S, DAY_S, 3 * DAY_S, 7 * DAY_S)
"""Limits that users choose from in the case `rounded`. A longer job gives its run time in whole days."""
LONGEST_S = 7 * DAY_S
"""Limit of every job in the case `all_7_days`. A longer job gives its run time: a replay stops no job."""
CASES = ("uniform_1_to_5", "exact", "times_5", "rounded", "half_silent", "all_7_days")
DRAWN = ("uniform_1_to_5", "half_silent")
"""Cases in which estimates are drawn, so that a seed makes a difference."""


def with_estimates(jobs: Iterable[TraceJob], case: str, seed: int = 0) -> list[TraceJob]:
    """Return the jobs with the estimates of a case. In `half_silent` a half of the jobs, drawn, has none."""
    draw = random.Random(seed)
    estimated = []
    for job in jobs:
        factor, silent = draw.uniform(1.0, OVERESTIMATE_MAX), draw.random() >= 0.5
        estimates: dict[str, float | None] = {
            "uniform_1_to_5": job.runs_s * factor,
            "exact": job.runs_s,
            "times_5": job.runs_s * OVERESTIMATE_MAX,
            "rounded": next(
                (limit for limit in USUAL_LIMITS_S if job.runs_s <= limit), -(-job.runs_s // DAY_S) * DAY_S
            ),
            "half_silent": None if silent else job.runs_s * factor,
            "all_7_days": max(LONGEST_S, job.runs_s),
        }
        estimated.append(replace(job, estimate_s=estimates[case]))
    return estimated


def ratios(
    jobs: Sequence[TraceJob], gpus: int, disciplines: Iterable[Callable[[int], Discipline]]
) -> dict[str, dict[str, float]]:
    """Return the mean wait and the longest wait of a big job by discipline, as shares of those of strict FIFO.

    Only the production rules know earlier run times. The other disciplines have the estimates of the users alone.
    """
    found: dict[str, tuple[float, float]] = {}
    for of in (StrictFifo, *disciplines):
        discipline = of(gpus)
        waits = waits_of(jobs, discipline, RunTimeHistory() if isinstance(discipline, ProductionRules) else None)
        big = max(waits[job.number] for job in jobs if job.size >= BIG_GPUS)
        found[discipline.name] = statistics.fmean(waits), big
    mean, longest = found.pop(StrictFifo.name)
    return {
        name: {"mean": round(own_mean / mean, 3), "big": round(own_longest / longest, 2)}
        for name, (own_mean, own_longest) in found.items()
    }
