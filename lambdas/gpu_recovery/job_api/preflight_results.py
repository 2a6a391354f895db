"""Results of the preflight of the present attempt, as the explanation of a job shows them.

The results are observations of the attempt. The explanation reads those of the first RANKS_MAX ranks, so that its cost
does not grow with the gang. Steps that passed or were not run are counted, all others are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gpu_recovery.core.diagnosis.observations import PreflightReport, StepResult
from gpu_recovery.core.diagnosis.preflight import differences, newest, proof_of
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import runs_preflight
from gpu_recovery.recovery import Recovery

RANKS_MAX = 256
"""Ranks whose results are read: three reads of 100 items at most."""
SHOWN_MAX = 64
"""Steps that are shown at most."""


def preflight_view(recovery: Recovery, job: Job) -> dict[str, Any] | None:
    """Return the results of the preflight; None if the job has none, or if no rank has an instance yet."""
    instances = tuple(dict.fromkeys(job.instances[:RANKS_MAX]))
    if not runs_preflight(job.spec, recovery.policy) or not any(instances):
        return None
    buffers = recovery.store.observations_of(job.job_id, job.attempt, tuple(filter(None, instances)))
    reports = newest((report for buffer in buffers.values() for report in buffer.reports), instances)
    steps = [(place, step) for place, report in reports.items() for step in report.steps]
    counted = (StepResult.PASSED, StepResult.NOT_RUN)
    passed, not_run = (Counter(step.name for _, step in steps if step.result is result) for result in counted)
    others = [
        {
            "rank": job.instances.index(place),
            "instance_id": place,
            "step": step.name,
            "result": step.result.value,
            "seconds": step.seconds,
            "sentence": f"{step.sentence} ({step.error})" if step.error else step.sentence,
        }
        for place, step in steps
        if step.result not in counted
    ]
    return {
        "attempt": job.attempt,
        "ranks": len(job.instances[:RANKS_MAX]),
        "reported": len(reports),
        "passed": dict(passed),
        "not_run": dict(not_run),
        "others": sorted(others, key=lambda entry: entry["rank"])[:SHOWN_MAX],
        "apart": _apart(reports),
    }


def _apart(reports: Mapping[str, PreflightReport]) -> dict[str, str]:
    """Return the instances that a failure of the attempt would have checked first, with the reason."""
    found = {place: difference.sentence for place, difference in differences(reports).items()}
    for place, report in reports.items():
        if (step := proof_of(report)) is not None:
            found[place] = f"its preflight failed: {step.name}: {step.sentence}"
    return dict(list(found.items())[:SHOWN_MAX])
