"""What to look at next when a verdict is undecided: the cheapest probe that tells the first two hypotheses apart."""

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
"""Which causes a probe can show or rule out. The order is that of their costs."""


def next_probe(ranked: Sequence[Hypothesis], case: Case) -> Probe | None:
    """The cheapest probe that was not made yet and shows one of the first two but not the other; None if there is none.

    With one hypothesis it must show that one; with none it is the cheapest of all.
    """
    made = {one.probe for one in case.all(ProbeReport)}
    left = [probe for probe in Probe if probe not in made]
    causes = list(dict.fromkeys(one.cause for one in ranked))[:2]
    if not causes:
        return left[0] if left else None
    for probe in left:
        if len({cause in SHOWS[probe] for cause in causes}) == len(causes) and any(c in SHOWS[probe] for c in causes):
            return probe
    return None
