"""What is measured: every metric of ours, its unit and its meaning, and which of them a decision implies.

Functions send them (`aws/decision_log.py`), the dashboard and the alarms show them (`infra/`). Both read names here,
so that nothing is shown that nobody sends. Values are raw, one per occurrence: CloudWatch makes p50 and p90 of them.
They carry no dimensions of their own, because each combination of dimensions is paid for as a metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from gpu_recovery.core.commands import NotifyOperator, RebootInstance
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus, StopPurpose
from gpu_recovery.core.state_machine import Decision, EventOutcome

NAMESPACE = "GpuRecovery"
"""The namespace of the metrics in CloudWatch."""
SERVICE = "gpu-recovery"
"""The value of their only dimension, `service`."""


class Unit(StrEnum):
    """Units as CloudWatch spells them."""

    COUNT = "Count"
    SECONDS = "Seconds"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class MetricType:
    """A metric: the unit of its values, and what one value says."""

    unit: Unit
    meaning: str


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One value of the metric `name`."""

    name: str
    value: float = 1.0

    @property
    def unit(self) -> Unit:
        """The unit that the table gives the metric; KeyError if it is not in the table."""
        return METRICS[self.name].unit


def status_metric(status: JobStatus | InstanceStatus) -> str:
    """The name of the metric that counts how often this status was entered."""
    return f"{type(status).__name__.removesuffix('Status')}{status.value.title().replace('_', '')}"


PHASES: dict[JobStatus, str] = {
    JobStatus.STOPPING: "StopSeconds",
    JobStatus.DIAGNOSING: "CheckSeconds",
    JobStatus.RECOVERING: "WaitSeconds",
    JobStatus.PENDING_RESOURCES: "WaitSeconds",
    JobStatus.SUBMITTING: "LaunchSeconds",
    JobStatus.SUBMITTED: "StartSeconds",
}
"""The statuses that a recovery goes through, and the metric that says how long each lasted."""

JOBS_ENTERED = tuple(status_metric(status) for status in JobStatus)
INSTANCES_ENTERED = tuple(status_metric(status) for status in InstanceStatus)

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
    "RecoveriesCanceled": MetricType(Unit.COUNT, "an incident ended because a person canceled the job"),
    "LostSeconds": MetricType(Unit.SECONDS, "how long a job was LOST: until it was heard of, or decided about"),
    "InstancesSilent": MetricType(Unit.COUNT, "the agent of an instance was not heard of any more"),
    "DeafSeconds": MetricType(
        Unit.SECONDS, "how long too many instances have been silent at once, each minute they are"
    ),
    "RecoveryAgeSeconds": MetricType(Unit.SECONDS, "how long an incident that is still open has lasted, at each look"),
    "OverdueSeconds": MetricType(Unit.SECONDS, "how long after its deadline the reconciler opened a record"),
    "GpuHoursLost": MetricType(
        Unit.NONE, "GPUs of the job x hours from the failure until it ran again or was given up"
    ),
    "Reboots": MetricType(Unit.COUNT, "the reboot of an instance was ordered"),
    "FalseReboots": MetricType(
        Unit.COUNT, "a reboot ended without any finding against the hardware before or after it"
    ),
    "RepairsHeld": MetricType(
        Unit.COUNT, "the repair of an instance was held back: by the brakes, or until its jobs leave"
    ),
    "BreakerOpened": MetricType(
        Unit.COUNT, "the breaker opened: so many instances looked bad that no repair may begin"
    ),
    "BreakerOpenSeconds": MetricType(Unit.SECONDS, "how long the breaker has been open, each minute while it is"),
    "PausedSeconds": MetricType(Unit.SECONDS, "how long a person has had recovery paused, each minute while it is"),
    "UnderRepair": MetricType(
        Unit.COUNT, "instances that count against the budget of repairs, each minute while there are any"
    ),
    "VerdictsHeld": MetricType(
        Unit.COUNT, "the remedy of a diagnosis held: an attempt after it lasted, or the job was done"
    ),
    "VerdictsFailed": MetricType(
        Unit.COUNT, "it did not: the job failed again for the same cause or at the same place"
    ),
    "NoticesSent": MetricType(Unit.COUNT, "a message to operators was published"),
    "NoticesFailed": MetricType(
        Unit.COUNT, "a message to operators could not be published; it is kept and tried again"
    ),
    "Unsaid": MetricType(
        Unit.COUNT, "an event of ours or a call for the scheduler could not be sent; it is tried again"
    ),
}


def of_decision(before: Job | Instance | None, decision: Decision[Any]) -> list[MetricValue]:
    """What `decision` about the record `before` (None: it is the first about a new record) measures."""
    after = decision.record
    if decision.outcome is not EventOutcome.APPLIED:
        return []
    counted = [MetricValue(status_metric(after.status))] if before is None or before.status is not after.status else []
    if isinstance(before, Job):
        return counted + _of_job(before, after)
    if isinstance(before, Instance):
        return counted + _of_instance(before, decision)
    return counted


def of_due_record(record: Job | Instance, now: datetime) -> list[MetricValue]:
    """What the reconciler sees when it opens a record that is due: how late it is, how old its incident."""
    found = []
    if record.deadline_at is not None and record.deadline_at <= now:
        found.append(MetricValue("OverdueSeconds", _seconds(record.deadline_at, now)))
    if isinstance(record, Job) and record.incident_at is not None and record.status not in TERMINAL:
        found.append(MetricValue("RecoveryAgeSeconds", _seconds(record.incident_at, now)))
    return found


def of_fleet(fleet: Fleet, now: datetime) -> list[MetricValue]:
    """What the brakes show each minute; nothing while they hold nothing: a metric costs by the hour it is sent in."""
    found = []
    if fleet.opened_at is not None:
        found.append(MetricValue("BreakerOpenSeconds", _seconds(fleet.opened_at, now)))
    if fleet.pause is not None:
        found.append(MetricValue("PausedSeconds", _seconds(fleet.pause.at, now)))
    if fleet.deaf is not None:
        found.append(MetricValue("DeafSeconds", _seconds(fleet.deaf.since, now)))
    if fleet.repairing:
        found.append(MetricValue("UnderRepair", len(fleet.repairing)))
    return found


def of_notification(command: Any, said: bool) -> list[MetricValue]:
    """What trying to tell somebody else (one of `acts.WORDS`) came to."""
    if isinstance(command, NotifyOperator):
        return [MetricValue("NoticesSent" if said else "NoticesFailed")]
    return [] if said else [MetricValue("Unsaid")]


def _of_job(before: Job, after: Job) -> list[MetricValue]:
    found = _of_verdicts(before, after)
    if before.status is after.status:
        return found
    now = after.status_at
    if before.status is JobStatus.LOST:
        found.append(MetricValue("LostSeconds", _seconds(before.status_at, now)))
    failed_at = after.failure.at if after.failure is not None and before.failure is None else None
    if failed_at is not None and after.stop_purpose is not StopPurpose.CANCEL:
        found.append(MetricValue("DetectionSeconds", _seconds(failed_at, now)))
    if before.incident_at is not None and before.status in PHASES:
        found.append(MetricValue(PHASES[before.status], _seconds(before.status_at, now)))
    # Each decision adds the share since the one before it: no share waits for an end that may take days.
    lost_since = before.status_at if before.incident_at is not None else failed_at
    in_incident = before.incident_at is not None or after.incident_at is not None
    if in_incident and lost_since is not None and (hours := _gpu_hours(before, lost_since, now)):
        found.append(MetricValue("GpuHoursLost", hours))
    return found + _of_incident(before, after)


def _of_verdicts(before: Job, after: Job) -> list[MetricValue]:
    """What has become known of diagnoses since; of what cannot be told, nothing."""
    new = [one.held for one in after.verdicts if one not in before.verdicts]
    return [MetricValue("VerdictsHeld" if held else "VerdictsFailed") for held in new if held is not None]


def _of_incident(before: Job, after: Job) -> list[MetricValue]:
    began = before.incident_at or after.incident_at
    if began is None or before.status in TERMINAL:
        return []
    found = [MetricValue("RecoveriesStarted")] if before.incident_at is None else []
    match after.status:
        case JobStatus.RUNNING | JobStatus.SUCCEEDED:
            return [
                *found,
                MetricValue("RecoveriesSucceeded"),
                MetricValue("RecoverySeconds", _seconds(began, after.status_at)),
            ]
        case JobStatus.FAILED:
            return [*found, MetricValue("RecoveriesFailed")]
        case JobStatus.CANCELED:
            return [*found, MetricValue("RecoveriesCanceled")]
    return found


def _of_instance(before: Instance, decision: Decision[Instance]) -> list[MetricValue]:
    after, found = decision.record, list[MetricValue]()
    ordered = any(isinstance(one.command, RebootInstance) for one in decision.commands)
    if ordered and not _asks_again(before, after):
        found.append(MetricValue("Reboots"))
    if _was_false(before, after):
        found.append(MetricValue("FalseReboots"))
    if before.silent_since is None and after.silent_since is not None:
        found.append(MetricValue("InstancesSilent"))
    if before.held is None and after.held is not None:
        found.append(MetricValue("RepairsHeld"))
    if decision.fleet is not None and _opened_breaker(decision.fleet, before, after):
        found.append(MetricValue("BreakerOpened"))
    return found


def _opened_breaker(fleet: Fleet, before: Instance, after: Instance) -> bool:
    """Whether it was this decision that opened the breaker, and not an older one about the same instance."""
    moved_at = after.status_at if after.status is not before.status else None
    blamed_at = after.blamed_at if after.blamed_at != before.blamed_at else None
    return fleet.opened_at is not None and fleet.opened_at in (moved_at, blamed_at)


def _asks_again(before: Instance, after: Instance) -> bool:
    """Whether this order repeats one that was never heard: it keeps the deadline of the reboot it repeats."""
    old, new = before.reboot, after.reboot
    return old is not None and new is not None and old.deadline_at == new.deadline_at


def _was_false(before: Instance, after: Instance) -> bool:
    """Whether a reboot has just ended that no finding called for: asked for because a rank could not be stopped, and
    the check after it passed.

    A reboot for a finding (a check or a signal) that then passes has cured what was found, and says nothing against
    itself. One that ends in quarantine was no false one either, whatever it was asked for; and one that was `started`
    was no reboot, but a stop and a start for another host.
    """
    reboot = before.reboot
    back = before.status is InstanceStatus.VERIFYING and after.status is InstanceStatus.AVAILABLE
    return back and reboot is not None and reboot.ends is not None and not reboot.started


def _gpu_hours(job: Job, since: datetime, now: datetime) -> float:
    return job.spec.nnodes * job.spec.gpus_per_node * _seconds(since, now) / 3600


def _seconds(since: datetime, now: datetime) -> float:
    """Never negative: ECS dates what happened by other clocks than ours."""
    return max(0.0, (now - since).total_seconds())
