"""Benchmark of the state machine of jobs: time of one decision, in this process."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from gpu_recovery.core.events import AllRanksRunning, AttemptLaunched, JobPlaced
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.policy import PRESETS, Preset

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = PRESETS[Preset.ADAPTIVE]
DECISIONS = 2_000


def decision_figures(decisions: int = DECISIONS) -> dict[str, Any]:
    """Return the mean time of a decision, in microseconds."""
    return {"decide_us": _decide_us(decisions)}


def _decide_us(decisions: int) -> float:
    queued = state_machine.created("bench-1", _spec(2), POLICY, NOW).record
    events = (
        JobPlaced(at=NOW, attempt=0, version=queued.version, instances=("i-1", "i-2"), epochs=(0, 0)),
        AttemptLaunched(at=NOW, attempt=1),
        AllRanksRunning(at=NOW, attempt=1),
    )
    began = time.perf_counter()
    for _ in range(decisions // len(events)):
        record = queued
        for event in events:
            record = state_machine.decide(record, event, POLICY, NOW).record
    return round((time.perf_counter() - began) / (decisions // len(events) * len(events)) * 1e6, 1)


def _spec(nnodes: int) -> JobSpec:
    return JobSpec("bench", nnodes, 8, "gpu-training", "trainer")
