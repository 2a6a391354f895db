"""Runner: sends policies through failure traces in parallel processes. Slow policies may run in segments."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.policy import Policy, PolicyRun
from simulator.goodput.segments import joined, segments_of

Pair = tuple[Policy, FailureTrace]
"""A policy and the failure trace that it goes through."""


def play(pairs: Sequence[Pair], workers: int, segments: int = 1) -> list[PolicyRun]:
    """Run each policy on its trace and return the results in the same order.

    Args:
        pairs: policies and traces.
        workers: processes to use.
        segments: number of segments for the traces of slow policies, which take minutes.

    Raises:
        SegmentsDoNotFit: a trace cannot be cut into this number of segments.
    """
    cut = [segments_of(trace, segments) if policy.is_slow else (trace,) for policy, trace in pairs]
    parts = [(policy, segment) for (policy, _), trace_parts in zip(pairs, cut, strict=True) for segment in trace_parts]
    runs = iter(_run_all(parts, workers))
    return [joined([next(runs) for _ in trace_parts]) for trace_parts in cut]


def _run_all(pairs: Sequence[Pair], workers: int) -> list[PolicyRun]:
    if workers <= 1 or len(pairs) <= 1:
        return [_run(pair) for pair in pairs]
    with ProcessPoolExecutor(min(workers, len(pairs))) as pool:
        return list(pool.map(_run, pairs))


def _run(pair: Pair) -> PolicyRun:
    policy, trace = pair
    return policy.run(trace)
