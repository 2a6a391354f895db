"""Metrics: name, unit and meaning of each metric, and the metrics of a decision.

`aws/decision_log.py` sends the metrics; the dashboard and the alarms (`infra/`) show them. Both use the names of this
module, so every metric that is shown is also sent. Values are raw, one value per occurrence: CloudWatch computes p50
and p90. Metrics have no further dimensions, because CloudWatch charges each combination of dimensions as a metric.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gpu_recovery.core.commands import NotifyOperator, RebootInstance
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus, StopPurpose
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.state_machine import Decision, EventOutcome

if TYPE_CHECKING:
    from gpu_recovery.core.queue.totals import PriorityTotals

NAMESPACE = "GpuRecovery"
"""The namespace of the metrics in CloudWatch."""
SERVICE = "gpu-recovery"
"""Value of the only dimension of the metrics, `service`."""


class Unit(StrEnum):
    """Units of metrics, as CloudWatch spells them."""

    COUNT = "Count"
    SECONDS = "Seconds"
    NONE = "None"


@frozen_dataclass()
class MetricType:
    """A metric: the unit of its values, and the meaning of one value."""

    unit: Unit
    meaning: str


@frozen_dataclass()
class MetricValue:
    """One value of the metric `name`."""

    name: str
    value: float = 1.0

    @property
    def unit(self) -> Unit:
        """The unit of the metric in METRICS.

        Raises:
            KeyError: METRICS has no such metric.
        """
        return METRICS[self.name].unit


def status_metric(status: JobStatus | InstanceStatus) -> str:
    """Return the name of the metric that counts the entries into this status."""
    return f"{type(status).__name__.removesuffix('Status')}{status.value.title().replace('_', '')}"


PHASES: dict[JobStatus, str] = {
    JobStatus.STOPPING: "StopSeconds",
    JobStatus.DIAGNOSING: "CheckSeconds",
    JobStatus.RECOVERING: "WaitSeconds",
    JobStatus.PENDING_RESOURCES: "WaitSeconds",
    JobStatus.SUBMITTING: "LaunchSeconds",
    JobStatus.SUBMITTED: "StartSeconds",
}
"""Metric of the seconds spent in each status that a recovery passes."""

JOBS_ENTERED = tuple(status_metric(status) for status in JobStatus)
"""Metrics that count the entries into each job status."""
INSTANCES_ENTERED = tuple(status_metric(status) for status in InstanceStatus)
"""Metrics that count the entries into each instance status."""

TOTALS = {
    (state, what, priority): f"{state.title()}{what.title()}{priority.name.title().replace('_', '')}"
    for state in ("running", "queued")
    for what in ("jobs", "instances", "gpus")
    for priority in sorted(Priority, reverse=True)
}
"""Metric of each total of the queue, such as `QueuedGpusHigh`, by state, thing and priority."""

METRICS: dict[str, MetricType] = {
    **{status_metric(status): MetricType(Unit.COUNT, f"a job became {status}") for status in JobStatus},
    **{status_metric(status): MetricType(Unit.COUNT, f"an instance became {status}") for status in InstanceStatus},
    "DetectionSeconds": MetricType(Unit.SECONDS, "from a rank's end, as ECS dates it, to the decision about its gang"),
    "RecoverySeconds": MetricType(Unit.SECONDS, "from the order to stop the gang until every rank ran again"),
    "StopSeconds": MetricType(Unit.SECONDS, "of a recovery: until the end of every rank was confirmed"),
    "CheckSeconds": MetricType(Unit.SECONDS, "of a recovery: until every instance had its health check"),
    "WaitSeconds": MetricType(Unit.SECONDS, "of a recovery: until healthy instances were there, repaired or others"),
    "LaunchSeconds": MetricType(Unit.SECONDS, "of a recovery: until every rank had its task"),
    "StartSeconds": MetricType(Unit.SECONDS, "of a recovery: from then until every rank ran"),
    "RecoveriesStarted": MetricType(Unit.COUNT, "an incident began: a gang was stopped or had ended by a failure"),
    "RecoveriesSucceeded": MetricType(Unit.COUNT, "an incident ended with the job running, or done"),
    "RecoveriesFailed": MetricType(Unit.COUNT, "an incident ended with the job FAILED"),
    "RecoveriesCanceled": MetricType(Unit.COUNT, "an incident ended because a user canceled the job"),
    "LostSeconds": MetricType(Unit.SECONDS, "how long a job was LOST: until it reported again, or was decided"),
    "InstancesSilent": MetricType(Unit.COUNT, "the heartbeat of the agent of an instance timed out"),
    "DeafSeconds": MetricType(Unit.SECONDS, "the duration of a reporting outage, each minute while it lasts"),
    "RecoveryAgeSeconds": MetricType(Unit.SECONDS, "the age of an open incident, at each poll"),
    "OverdueSeconds": MetricType(Unit.SECONDS, "how long after its deadline the reconciler processed a record"),
    "GpuHoursLost": MetricType(Unit.NONE, "GPUs of the job x hours from the failure until it ran again or ended"),
    "Reboots": MetricType(Unit.COUNT, "the reboot of an instance was ordered"),
    "FalseReboots": MetricType(
        Unit.COUNT, "a reboot ended without any finding against the hardware before or after it"
    ),
    "RepairsHeld": MetricType(
        Unit.COUNT, "the repair of an instance was blocked: by the fleet limits, or until its jobs leave"
    ),
    "BreakerOpened": MetricType(
        Unit.COUNT, "the circuit breaker opened: so many instances were suspected that no repair may begin"
    ),
    "BreakerOpenSeconds": MetricType(
        Unit.SECONDS, "how long the circuit breaker has been open, each minute while it is open"
    ),
    "PausedSeconds": MetricType(
        Unit.SECONDS, "how long recovery has been paused by an operator, each minute while it is paused"
    ),
    "UnderRepair": MetricType(
        Unit.COUNT, "instances that count against the repair budget, each minute while there are any"
    ),
    "VerdictsHeld": MetricType(
        Unit.COUNT, "the remedy of a diagnosis held: an attempt after it ran stably, or the job succeeded"
    ),
    "VerdictsFailed": MetricType(
        Unit.COUNT, "the remedy of a diagnosis failed: the job failed again for the same cause or at the same place"
    ),
    "NoticesSent": MetricType(Unit.COUNT, "a message to operators was published"),
    "NoticesFailed": MetricType(
        Unit.COUNT, "a message to operators could not be published; it stays saved and is tried again"
    ),
    "PlacementsFailed": MetricType(
        Unit.COUNT,
        "the scheduler could not give a job its place, or a command of the job failed; it is tried again",
    ),
    **{
        name: MetricType(Unit.COUNT, f"{what} that are {state} at {priority.name}, each minute while there are any")
        for (state, what, priority), name in TOTALS.items()
    },
    "SnapshotFailed": MetricType(
        Unit.COUNT, "a console snapshot could not be written; it is tried again in the next run"
    ),
    "GpuSamplesFailed": MetricType(
        Unit.COUNT, "a sample of the GPU history could not be written, and is missing in the charts"
    ),
    "Unsaid": MetricType(
        Unit.COUNT, "an event of ours or a call for another function could not be sent; it is tried again"
    ),
}


def of_decision(before: Job | Instance | None, decision: Decision[Any]) -> list[MetricValue]:
    """Return the metrics of a decision. `before` is the record before it, None for a new record."""
    after = decision.record
    if decision.outcome is not EventOutcome.APPLIED:
        return []
    entered = [MetricValue(status_metric(after.status))] if before is None or before.status is not after.status else []
    if isinstance(before, Job):
        return entered + _of_job(before, after)
    if isinstance(before, Instance):
        return entered + _of_instance(before, decision)
    return entered


def of_due_record(record: Job | Instance, now: datetime) -> list[MetricValue]:
    """Return the metrics of a due record that the reconciler processes: seconds overdue, age of its incident."""
    values = []
    if record.deadline_at is not None and record.deadline_at <= now:
        values.append(MetricValue("OverdueSeconds", _seconds(record.deadline_at, now)))
    if isinstance(record, Job) and record.incident_at is not None and record.status not in TERMINAL:
        values.append(MetricValue("RecoveryAgeSeconds", _seconds(record.incident_at, now)))
    return values


def of_fleet(fleet: Fleet, now: datetime) -> list[MetricValue]:
    """Return the metrics of the fleet record for one minute.

    The list is empty while no limit of the fleet is active, because CloudWatch charges a metric for each hour with a
    value.
    """
    values = []
    if fleet.opened_at is not None:
        values.append(MetricValue("BreakerOpenSeconds", _seconds(fleet.opened_at, now)))
    if fleet.pause is not None:
        values.append(MetricValue("PausedSeconds", _seconds(fleet.pause.at, now)))
    if fleet.deaf is not None:
        values.append(MetricValue("DeafSeconds", _seconds(fleet.deaf.since, now)))
    if fleet.repairing:
        values.append(MetricValue("UnderRepair", len(fleet.repairing)))
    return values


def of_queue(totals: Iterable[PriorityTotals]) -> list[MetricValue]:
    """Return the metrics of the queue for one minute.

    Numbers of 0 are left out, because CloudWatch charges a metric for each hour with a value.
    """
    values = {
        TOTALS[state, what, of_priority.priority]: number
        for of_priority in totals
        for state, total in (("running", of_priority.running), ("queued", of_priority.queued))
        for what, number in (("jobs", total.jobs), ("instances", total.instances), ("gpus", total.gpus))
    }
    return [MetricValue(name, number) for name, number in values.items() if number]


def of_notification(command: Any, sent: bool) -> list[MetricValue]:
    """Return the metrics of a command that sends a message out of the system. `sent`: whether it was sent."""
    if isinstance(command, NotifyOperator):
        return [MetricValue("NoticesSent" if sent else "NoticesFailed")]
    return [] if sent else [MetricValue("Unsaid")]


def of_failed_placement() -> list[MetricValue]:
    """Return the metric of a job that the scheduler could not give its place, or whose command failed."""
    return [MetricValue("PlacementsFailed")]


def of_failed_snapshot() -> list[MetricValue]:
    """Return the metric of a console snapshot that could not be written."""
    return [MetricValue("SnapshotFailed")]


def of_failed_gpu_sample() -> list[MetricValue]:
    """Return the metric of a sample of the GPU history that could not be written."""
    return [MetricValue("GpuSamplesFailed")]


def _of_job(before: Job, after: Job) -> list[MetricValue]:
    values = _of_diagnosis_results(before, after)
    if before.status is after.status:
        return values
    now = after.status_at
    if before.status is JobStatus.LOST:
        values.append(MetricValue("LostSeconds", _seconds(before.status_at, now)))
    failed_at = after.failure.at if after.failure is not None and before.failure is None else None
    if failed_at is not None and after.stop_purpose is not StopPurpose.CANCEL:
        values.append(MetricValue("DetectionSeconds", _seconds(failed_at, now)))
    if before.incident_at is not None and before.status in PHASES:
        values.append(MetricValue(PHASES[before.status], _seconds(before.status_at, now)))
    # Each decision adds the hours since the previous decision, because an incident may last for days.
    lost_since = before.status_at if before.incident_at is not None else failed_at
    in_incident = before.incident_at is not None or after.incident_at is not None
    if in_incident and lost_since is not None and (hours := _gpu_hours(before, lost_since, now)):
        values.append(MetricValue("GpuHoursLost", hours))
    return values + _of_incident(before, after)


def _of_diagnosis_results(before: Job, after: Job) -> list[MetricValue]:
    """Return a metric for each diagnosis result that the decision confirmed or refuted."""
    new = [verdict.held for verdict in after.verdicts if verdict not in before.verdicts]
    return [MetricValue("VerdictsHeld" if held else "VerdictsFailed") for held in new if held is not None]


def _of_incident(before: Job, after: Job) -> list[MetricValue]:
    began = before.incident_at or after.incident_at
    if began is None or before.status in TERMINAL:
        return []
    started = [MetricValue("RecoveriesStarted")] if before.incident_at is None else []
    match after.status:
        case JobStatus.RUNNING | JobStatus.SUCCEEDED:
            return [
                *started,
                MetricValue("RecoveriesSucceeded"),
                MetricValue("RecoverySeconds", _seconds(began, after.status_at)),
            ]
        case JobStatus.FAILED:
            return [*started, MetricValue("RecoveriesFailed")]
        case JobStatus.CANCELED:
            return [*started, MetricValue("RecoveriesCanceled")]
    return started


def _of_instance(before: Instance, decision: Decision[Instance]) -> list[MetricValue]:
    after, values = decision.record, list[MetricValue]()
    reboots = any(isinstance(pending.command, RebootInstance) for pending in decision.commands)
    if reboots and not _repeats_reboot(before, after):
        values.append(MetricValue("Reboots"))
    if _was_false_reboot(before, after):
        values.append(MetricValue("FalseReboots"))
    if before.silent_since is None and after.silent_since is not None:
        values.append(MetricValue("InstancesSilent"))
    if before.held is None and after.held is not None:
        values.append(MetricValue("RepairsHeld"))
    if decision.fleet is not None and _opened_breaker(decision.fleet, before, after):
        values.append(MetricValue("BreakerOpened"))
    return values


def _opened_breaker(fleet: Fleet, before: Instance, after: Instance) -> bool:
    """Return whether this decision opened the breaker, and not an earlier decision about the same instance."""
    moved_at = after.status_at if after.status is not before.status else None
    blamed_at = after.blamed_at if after.blamed_at != before.blamed_at else None
    return fleet.opened_at is not None and fleet.opened_at in (moved_at, blamed_at)


def _repeats_reboot(before: Instance, after: Instance) -> bool:
    """Return whether the reboot command repeats a lost request. A repeat keeps the deadline of the first request."""
    old, new = before.reboot, after.reboot
    return old is not None and new is not None and old.deadline_at == new.deadline_at


def _was_false_reboot(before: Instance, after: Instance) -> bool:
    """Return whether a false reboot ended: a rank could not be stopped, and the check after the reboot passed.

    A reboot because of a finding (a check or a health report) is never false: the passing check shows the cure. A
    reboot that ends in quarantine is not false either. A repair that was `started` is not a reboot, but a stop and a
    start on another host.
    """
    reboot = before.reboot
    back = before.status is InstanceStatus.VERIFYING and after.status is InstanceStatus.AVAILABLE
    return back and reboot is not None and reboot.ends is not None and not reboot.started


def _gpu_hours(job: Job, since: datetime, now: datetime) -> float:
    return job.width * job.spec.gpus_per_node * _seconds(since, now) / 3600


def _seconds(since: datetime, now: datetime) -> float:
    """Return the seconds from `since` to `now`, at least 0, because ECS takes its times from other clocks than ours."""
    return max(0.0, (now - since).total_seconds())
