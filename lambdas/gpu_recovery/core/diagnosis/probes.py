"""Next probe of an undecided diagnosis: the cheapest probe that separates the first two causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.hypothesis import Hypothesis
from gpu_recovery.core.diagnosis.observations import ProbeReport
from gpu_recovery.core.diagnosis.taxonomy import Cause, Probe

SHOWS: Mapping[Probe, frozenset[Cause]] = {
    Probe.SELF_REPORT: frozenset(
        {
            Cause.WORKER_HANG,
            Cause.WORKER_STARTUP,
            Cause.WORKER_ERROR,
            Cause.CPU_CONTENTION,
            Cause.GPU_MEMORY,
            Cause.HOST_MEMORY,
            Cause.EVENT_UNDELIVERED,
            Cause.EVENT_UNPROCESSED,
            Cause.GPU_NOT_RELEASED,
            Cause.LOCK_HELD,
            Cause.STRAGGLER,
            Cause.UNEVEN_STAGE,
            Cause.NUMERICAL,
            Cause.APPLICATION,
            Cause.CONFIGURATION,
        }
    ),
    Probe.KERNEL_LOG: frozenset(
        {
            Cause.GPU_FAULT,
            Cause.NODE_FAULT,
            Cause.HOST_MEMORY,
            Cause.DRIVER,
            Cause.WORKER_CRASH,
        }
    ),
    Probe.DCGM: frozenset({Cause.GPU_FAULT, Cause.GPU_CONTEXT, Cause.DRIVER, Cause.STRAGGLER, Cause.NUMERICAL}),
    Probe.PAIRWISE: frozenset({Cause.NETWORK, Cause.NETWORK_SLOW, Cause.RDMA, Cause.CALLER, Cause.METADATA_SERVER}),
    Probe.REBOOT: frozenset({Cause.GPU_CONTEXT, Cause.NODE_FAULT, Cause.WORKER_CRASH}),
}
"""Causes that each probe can show or rule out."""


def next_probe(ranked: Sequence[Hypothesis], case: Case) -> Probe | None:
    """Cheapest probe that has not run yet and shows exactly one of the first two causes. None if no such probe is left.

    With a single cause the probe must show that cause. Without any hypothesis it is the cheapest probe of all. The
    order of `Probe` is the order of cost.
    """
    made = {report.probe for report in case.all(ProbeReport)}
    left = [probe for probe in Probe if probe not in made]
    causes = list(dict.fromkeys(hypothesis.cause for hypothesis in ranked))[:2]
    if not causes:
        return left[0] if left else None
    for probe in left:
        if len({cause in SHOWS[probe] for cause in causes}) == len(causes) and any(
            cause in SHOWS[probe] for cause in causes
        ):
            return probe
    return None
