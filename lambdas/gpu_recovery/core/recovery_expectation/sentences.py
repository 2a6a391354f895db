"""What users read about the expectation of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.recovery_expectation.expectation import (
    PUBLISHED_WEIGHT,
    Alternative,
    Contract,
    Expectation,
    Lengths,
)
from gpu_recovery.core.recovery_expectation.published_times import CHECKPOINT_S, Setup

CHANGE_SENTENCES = {
    "spare": "keep one idle spare instance",
    "progress_reports": "report progress (reports_progress: true), so that a hang is noticed within two minutes",
    "restart_in_place": "restart in place (restart_in_place: true, with node agents)",
    "warm_spare": "keep one warm spare (warm_spares: 1, with restart in place and node agents)",
    "memory_checkpoints": "save memory checkpoints in each step",
}
"""What each change is, as a part of a sentence."""


def minutes(seconds: float) -> str:
    """Return seconds as minutes, such as `12.5 min`."""
    return f"{seconds / 60:.1f} min"


def contract_of(spec: JobSpec) -> Contract:
    """Return the contract of a job in seconds."""
    limits = (spec.max_down_minutes, spec.max_lost_minutes)
    down_s, lost_s = (None if limit is None else limit * 60.0 for limit in limits)
    return Contract(down_s, lost_s)


def times_sentence(measured: int) -> str:
    """Return which times were used."""
    if not measured:
        return "times of a recovery: published times, because this fleet has measured none yet"
    share = round(100 * measured / (measured + PUBLISHED_WEIGHT))
    return f"times of a recovery: {share} % of the weight for {measured} recoveries of this fleet, the rest published"


def sentences(found: Expectation, setup: Setup, spec: JobSpec, rate_sentence: str) -> tuple[str, ...]:
    """Return what to expect, whether the contract is met, and what would meet it, with the sources of the figures.

    Args:
        found: the expectation.
        setup: the job and its surroundings.
        spec: the specification of the job.
        rate_sentence: which failure rate was used.
    """
    low, high = found.incidents_range
    lengths = found.lengths
    return (
        f"about {found.incidents:.1f} incident(s) in {found.days:.3g} days (90 % range {low:.1f} to {high:.1f})",
        f"per incident: down {_quantiles(lengths.down_p50_s, lengths.down_p95_s)}, "
        f"lost {_quantiles(lengths.lost_p50_s, lengths.lost_p95_s)}",
        *_verdict(found, contract_of(spec)),
        f"failure rate: {rate_sentence}",
        times_sentence(found.measured),
        *_assumed(setup, spec),
    )


def _quantiles(p50_s: float, p95_s: float) -> str:
    return f"{minutes(p50_s)} in half of the cases, {minutes(p95_s)} at most in 95 %"


def _verdict(found: Expectation, contract: Contract) -> Iterator[str]:
    limits = (
        ("max_down_minutes", contract.down_s, found.lengths.down_kept),
        ("max_lost_minutes", contract.lost_s, found.lengths.lost_kept),
    )
    told = [
        f"{name} {limit_s / 60:.0f} is kept in {100 * kept:.0f} % of the incidents"
        for name, limit_s, kept in limits
        if limit_s is not None
    ]
    if found.lengths.is_met:
        yield f"the recovery contract is met: {', '.join(told)}"
        return
    yield f"the recovery contract is not met in 95 % of the incidents: {', '.join(told)}"
    for alternative in found.alternatives:
        yield f"this would meet it: {what(alternative)}; then {_p95(alternative.lengths)}"
    if found.best is not None:
        yield f"no change that is known here would meet it; with all of them, {_p95(found.best)}"


def what(alternative: Alternative) -> str:
    """Return the changes of an alternative."""
    changes: Sequence[str] = [CHANGE_SENTENCES[name] for name in alternative.changes]
    if alternative.checkpoint_every_s is not None:
        changes = [*changes, f"save a checkpoint every {alternative.checkpoint_every_s / 60:g} min"]
    return ", and ".join(changes)


def _p95(lengths: Lengths) -> str:
    return f"95 % are down for at most {minutes(lengths.down_p95_s)} and lose at most {minutes(lengths.lost_p95_s)}"


def _assumed(setup: Setup, spec: JobSpec) -> Iterator[str]:
    if spec.checkpoint_every_s is None:
        yield f"a checkpoint every {CHECKPOINT_S / 60:g} min is assumed: state checkpoint_every_s"
    if not setup.reports_progress and spec.reports_progress is None:
        yield "no progress reports are assumed: state reports_progress: true if the program reports progress"
    if not setup.spares:
        yield "no spare instance is idle now"
    elif spec.nnodes_min is None:
        yield f"{setup.spares} spare instance(s) are idle now"
    else:
        yield f"{setup.spares} instance(s) beyond the least width of {spec.nnodes_min} are idle now: they are spares"
