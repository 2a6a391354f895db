"""How long jobs waited under each discipline, as numbers and in words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from simulator.queue.disciplines import BestEffort, Easy, Ours, StrictFifo
from simulator.queue.job_trace import TraceJob
from simulator.queue.replay import Discipline, RunTimeHistory, waits_of

BIG_GPUS = 16
"""A job of so many GPUs is big: those that strict order serves and that everything else may starve."""
ATTRIBUTION = "Philly traces: Microsoft, github.com/msr-fiddle/philly-traces, CC-BY-4.0"
BY_HISTORY = "ours_by_history"
"""Ours where no user says anything: what is known of a job is how long those of its kind ran before it."""
TITLES = {
    "strict_fifo": "strict FIFO",
    "best_effort": "best effort",
    "easy": "EASY (textbook)",
    "ours": "ours",
    BY_HISTORY: "ours, by history",
}


def compared(jobs: Sequence[TraceJob], gpus: int) -> dict[str, Any]:
    """Waits in seconds of `jobs` under each discipline on one pool of `gpus` GPUs. ValueError if a job is larger."""
    largest = max(job.size for job in jobs)
    if largest > gpus:
        raise ValueError(f"the largest job wants {largest} GPUs, and there are {gpus}")
    return {
        "jobs": len(jobs),
        "big_jobs": sum(job.size >= BIG_GPUS for job in jobs),
        "gpus": gpus,
        "source": ATTRIBUTION,
        "policies": [
            *(_figures(jobs, one) for one in (StrictFifo(gpus), BestEffort(gpus), Easy(gpus), Ours(gpus))),
            _figures(jobs, Ours(gpus), RunTimeHistory()) | {"name": BY_HISTORY},
        ],
    }


def _figures(jobs: Sequence[TraceJob], discipline: Discipline, past: RunTimeHistory | None = None) -> dict[str, Any]:
    waited = waits_of(jobs, discipline, past)
    big = [waited[job.number] for job in jobs if job.size >= BIG_GPUS]
    in_order = sorted(waited)
    return {
        "name": discipline.name,
        "mean_wait_s": round(statistics.fmean(waited), 1),
        "p95_wait_s": round(in_order[math.ceil(0.95 * len(in_order)) - 1], 1),
        "big_max_wait_s": round(max(big, default=0.0), 1),
    }


def in_words(found: dict[str, Any]) -> str:
    """The table that a person reads."""
    first = found["policies"][0]
    lines = [
        f"{found['jobs']} jobs, {found['big_jobs']} of them of {BIG_GPUS} GPUs or more, on {found['gpus']} GPUs",
        "",
        f"{'':<16} {'mean wait':>12} {'p95 wait':>12} {'worst wait of a big job':>26}",
    ]
    for one in found["policies"]:
        mean = f"{one['mean_wait_s'] / 60:.0f} min"
        p95 = f"{one['p95_wait_s'] / 60:.0f} min"
        worst = f"{one['big_max_wait_s'] / 3_600:.1f} h"
        ratios = f"({_ratio(one, first, 'mean_wait_s')} and {_ratio(one, first, 'big_max_wait_s')} of strict FIFO's)"
        lines.append(f"{TITLES[one['name']]:<16} {mean:>12} {p95:>12} {worst:>26}  {ratios}")
    return "\n".join([*lines, "", f"Source: {found['source']}"])


def _ratio(one: dict[str, Any], first: dict[str, Any], name: str) -> str:
    return f"{one[name] / first[name]:.2f}" if first[name] else "-"
