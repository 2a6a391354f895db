"""Report of the waiting times under each discipline, as numbers and as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from simulator.queue.baselines import Conservative, Multifactor
from simulator.queue.disciplines import BestEffort, Easy, ProductionRules, StrictFifo
from simulator.queue.job_trace import TraceJob
from simulator.queue.replay import Discipline, RunTimeHistory, waits_of

BIG_GPUS = 16
"""Lower bound of the GPUs of a big job. Strict FIFO serves big jobs in their turn; the others may starve them."""
ATTRIBUTION = "Philly traces: Microsoft, github.com/msr-fiddle/philly-traces, CC-BY-4.0"
"""Source and licence of the trace."""
BY_HISTORY = "ours_by_history"
"""Name of the production rules without users' estimates.

They know the usual run times of earlier jobs of the same owner and size alone. `ours` knows both.
"""
TITLES = {
    "strict_fifo": "strict FIFO",
    "best_effort": "best effort",
    "easy": "EASY (textbook)",
    "conservative": "conservative",
    "multifactor": "multifactor",
    "ours": "ours",
    BY_HISTORY: "ours, by history",
}
"""Titles of the disciplines in the text report."""


def compared(jobs: Sequence[TraceJob], gpus: int) -> dict[str, Any]:
    """Return the waiting times of `jobs`, in seconds, under each discipline on one pool of `gpus` GPUs.

    Raises:
        ValueError: a job is larger than the pool.
    """
    largest = max(job.size for job in jobs)
    if largest > gpus:
        raise ValueError(f"the largest job wants {largest} GPUs, and there are {gpus}")
    silent = [replace(job, estimate_s=None) for job in jobs]
    return {
        "jobs": len(jobs),
        "big_jobs": sum(job.size >= BIG_GPUS for job in jobs),
        "gpus": gpus,
        "source": ATTRIBUTION,
        "policies": [
            *(
                _figures(jobs, discipline)
                for discipline in (
                    StrictFifo(gpus),
                    BestEffort(gpus),
                    Easy(gpus),
                    Conservative(gpus),
                    Multifactor(gpus),
                )
            ),
            _figures(jobs, ProductionRules(gpus), RunTimeHistory()),
            _figures(silent, ProductionRules(gpus), RunTimeHistory()) | {"name": BY_HISTORY},
        ],
    }


def _figures(jobs: Sequence[TraceJob], discipline: Discipline, history: RunTimeHistory | None = None) -> dict[str, Any]:
    waited = waits_of(jobs, discipline, history)
    big = [waited[job.number] for job in jobs if job.size >= BIG_GPUS]
    ascending = sorted(waited)
    return {
        "name": discipline.name,
        "mean_wait_s": round(statistics.fmean(waited), 1),
        "p95_wait_s": round(ascending[math.ceil(0.95 * len(ascending)) - 1], 1),
        "big_max_wait_s": round(max(big, default=0.0), 1),
    }


def in_words(result: dict[str, Any]) -> str:
    """Return the comparison as a text table."""
    first = result["policies"][0]
    lines = [
        f"{result['jobs']} jobs, {result['big_jobs']} of them of {BIG_GPUS} GPUs or more, on {result['gpus']} GPUs",
        "",
        f"{'':<16} {'mean wait':>12} {'p95 wait':>12} {'worst wait of a big job':>26}",
    ]
    for policy in result["policies"]:
        mean = f"{policy['mean_wait_s'] / 60:.0f} min"
        p95 = f"{policy['p95_wait_s'] / 60:.0f} min"
        worst = f"{policy['big_max_wait_s'] / 3_600:.1f} h"
        ratios = (
            f"({_ratio(policy, first, 'mean_wait_s')} and {_ratio(policy, first, 'big_max_wait_s')} of strict FIFO's)"
        )
        lines.append(f"{TITLES[policy['name']]:<16} {mean:>12} {p95:>12} {worst:>26}  {ratios}")
    return "\n".join([*lines, "", f"Source: {result['source']}"])


def _ratio(policy: dict[str, Any], first: dict[str, Any], name: str) -> str:
    return f"{policy[name] / first[name]:.2f}" if first[name] else "-"
