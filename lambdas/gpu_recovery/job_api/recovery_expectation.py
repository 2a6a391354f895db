"""What a submission says about the recovery contract of its job. Only a job with a contract costs the reads.

The model is imported with the first such job. If the event history does not answer, the published figures are used and
the answer says so: a submission is never refused or delayed for a figure.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from gpu_recovery.core.cluster_snapshot import is_usable
from gpu_recovery.core.event_history.recorded_event import RecordedEventUnreadable
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.downtime import has_contract
from gpu_recovery.core.job.held_ranks import container_hold_s
from gpu_recovery.core.job.record import Job
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.history_queries import figures_by_day, fleet_total, latest_incidents
from gpu_recovery.ports.errors import StorageFailed, Unavailable

if TYPE_CHECKING:
    from gpu_recovery.core.recovery_expectation.expectation import Lengths
    from gpu_recovery.core.recovery_expectation.failure_rate import FailureRate
    from gpu_recovery.core.recovery_expectation.published_times import Recovery, Setup

DAYS = 28
"""Days of the fleet's own figures."""


def expectation_view(dependencies: Dependencies, job: Job) -> dict[str, Any] | None:
    """Return what a job with a recovery contract may expect of its failures; None for a job without a contract."""
    if not has_contract(job.spec):
        return None
    from gpu_recovery.core.recovery_expectation import expectation, sentences  # noqa: PLC0415
    from gpu_recovery.core.recovery_expectation.failure_rate import RateSource  # noqa: PLC0415

    now, spec = dependencies.recovery.clock(), job.spec
    idle, unread = _idle(dependencies, job)
    setup = _setup(dependencies, job, idle)
    rate, measured, problem = _own_figures(dependencies, now)
    days = spec.max_runtime_s / 86_400 if spec.max_runtime_s else expectation.DEFAULT_DAYS
    found = expectation.expectation(setup, sentences.contract_of(spec), rate, measured, days)
    told = sentences.sentences(found, setup, spec, rate.sentence(spec.gpus_per_node))
    low, high = found.incidents_range
    return {
        "days": round(days, 3),
        "incidents": round(found.incidents, 3),
        "incidents_low": round(low, 3),
        "incidents_high": round(high, 3),
        "rate_per_1000_instance_days": round(rate.per_1000_instance_days(spec.gpus_per_node), 3),
        "rate_source": RateSource.UNREAD if problem else rate.source,
        "own_incidents": rate.incidents,
        "own_gpu_days": round(rate.gpu_days, 1),
        "own_recoveries": found.measured,
        "spares": setup.spares,
        "checkpoint_every_s": setup.checkpoint_s,
        "reports_progress": setup.reports_progress,
        "is_met": found.lengths.is_met,
        **_lengths_view(found.lengths),
        "alternatives": [
            {
                "changes": list(alternative.changes),
                "checkpoint_every_s": alternative.checkpoint_every_s,
                "sentence": sentences.what(alternative),
                **_lengths_view(alternative.lengths),
            }
            for alternative in found.alternatives
        ],
        "sentences": [*told, *filter(None, (unread, problem))],
    }


def _lengths_view(lengths: Lengths) -> dict[str, float]:
    return {name: round(value, 4) for name, value in asdict(lengths).items()}


def _idle(dependencies: Dependencies, job: Job) -> tuple[int, str]:
    """Return how many idle instances the job may use, and a sentence if they could not be read."""
    store, spec = dependencies.recovery.store, job.spec
    try:
        with store.reading_for_figures():
            instances = list(store.instances_in((InstanceStatus.AVAILABLE,), []))
    except Unavailable as error:
        return 0, f"the idle instances could not be read, so no spare is assumed: {error}"
    idle = sum(
        is_usable(instance) and instance.group == spec.group and instance.gpus_to_give(0) >= spec.gpus_per_node
        for instance in instances
    )
    return idle, ""


def _setup(dependencies: Dependencies, job: Job, idle: int) -> Setup:
    """Return the job and its surroundings, with so many idle instances.

    Idle instances beyond the least width are spares: an elastic job continues at once on fewer instances. A warm spare
    needs an instance that the job leaves free at its largest width.
    """
    from gpu_recovery.core.recovery_expectation.published_times import CHECKPOINT_S, Setup  # noqa: PLC0415

    spec, recovery = job.spec, dependencies.recovery
    warm = recovery.policy.warm_spares if spec.warm_spares is None else spec.warm_spares
    in_place = container_hold_s(spec, recovery.policy) > 0
    return Setup(
        spec.nnodes,
        spec.gpus_per_node,
        spares=max(0, idle - spec.width_min),
        in_place=in_place,
        warm_spares=min(warm, max(0, idle - spec.nnodes)) if in_place else 0,
        reports_progress=spec.is_reporting_progress,
        checkpoint_s=CHECKPOINT_S if spec.checkpoint_every_s is None else float(spec.checkpoint_every_s),
    )


def _own_figures(dependencies: Dependencies, now: datetime) -> tuple[FailureRate, list[Recovery], str]:
    """Return the failure rate and the recoveries of the fleet, and a sentence if they could not be read."""
    from gpu_recovery.core.recovery_expectation.expectation import MEASURED_MAX, measured_recoveries  # noqa: PLC0415
    from gpu_recovery.core.recovery_expectation.failure_rate import FailureRate  # noqa: PLC0415

    try:
        by_day, until = figures_by_day(dependencies.history, DAYS, now)
        incidents, _ = latest_incidents(dependencies.history, MEASURED_MAX, "closed")
    except (Unavailable, StorageFailed, RecordedEventUnreadable) as error:
        problem = f"the figures of this fleet could not be read, so published figures are used: {error}"
        return FailureRate(missing="the figures of this fleet could not be read"), [], problem
    total = fleet_total(by_day)
    since = now - timedelta(days=DAYS)
    recoveries = measured_recoveries(incident for incident in incidents if incident.opened_at >= since)
    rate = FailureRate() if until is None else FailureRate(total.incidents, total.held / 24, min(DAYS, len(by_day)))
    return rate, recoveries, ""
