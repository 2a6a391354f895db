"""Assessment of a failure and of the health checks that follow it.

`purpose_of` decides at the first failed rank for which purpose the gang is stopped. `assess` decides when every check
has its result whether the job continues, and which of its instances it waits for. The transitions are in `stopping.py`
and `recovering.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gpu_recovery.core.events import Checked
from gpu_recovery.core.health_check import DRAINED_BY_OTHERS, CheckOutcome
from gpu_recovery.core.identifiers import LISTED_MAX
from gpu_recovery.core.job.record import LIVE, TERMINAL, CloseCause, Job, JobStatus, StopPurpose
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.task import Ending, EndingKind, RankFailure

CURED_BY_RESTART = frozenset({EndingKind.CRASHED, EndingKind.HOST_FAULT})
"""Kinds of ending that a restart usually cures on GPUs that pass their check (Unicron: 73 % of task failures)."""
ASKS_FOR_SUSPENSION = 75
"""Exit code of a rank that asks for its own suspension (`go_suspend()`): EX_TEMPFAIL of sysexits.h."""


@frozen_dataclass()
class Assessment:
    """Whether the job continues, why, and which of its instances are under repair meanwhile.

    Attributes:
        waits: what the job waits for, as an addition to the reason; "" if only for its place in the queue.
        in_doubt: the job would end without a decided diagnosis. The evidence is then collected a second time.
    """

    continues: bool
    reason: str
    repairing: tuple[str, ...] = ()
    in_doubt: bool = False
    waits: str = ""


def purpose_of(failure: RankFailure, policy: RecoveryPolicy) -> tuple[StopPurpose, CloseCause | None]:
    """Return why the gang is stopped if `failure` is its first failure, and the uncounted cause or None."""
    kind, code = failure.ending.kind, failure.ending.exit_code
    if kind is EndingKind.STOPPED_BY_PERSON:
        relaunches = policy.relaunch_after_manual_stop and not failure.ending.is_by_service
        return (StopPurpose.RELAUNCH, CloseCause.INTERRUPTED) if relaunches else (StopPurpose.CANCEL, None)
    if kind is EndingKind.SHORT_OF_RESOURCES:
        return StopPurpose.RELAUNCH, CloseCause.INSUFFICIENT_RESOURCES
    if kind is EndingKind.FAILED and code == ASKS_FOR_SUSPENSION:
        return StopPurpose.SUSPEND, CloseCause.SUSPENDED
    if policy.diagnose_exit_code_1_only:
        return (StopPurpose.DIAGNOSE if code == 1 or failure.ending.is_preflight else StopPurpose.FAIL), None
    if kind in (EndingKind.INTERRUPTED, EndingKind.STOPPED_BY_US):
        return StopPurpose.RELAUNCH, CloseCause.INTERRUPTED
    return StopPurpose.DIAGNOSE, None


def incident_since(before: Job, after: Job, now: datetime) -> datetime | None:
    """Return when the job's current incident began, or None if the job is in no incident.

    Args:
        before: the record before the change of status.
        after: the record after the change of status.
        now: the start of the incident if this change opens it.
    """
    over = (JobStatus.RUNNING, JobStatus.SUSPENDED, JobStatus.SUCCEEDED, JobStatus.CANCELED)
    if before.status in TERMINAL or after.status in over:
        return None
    begins = before.status in LIVE and _opens_incident(after)
    return before.incident_at or (now if begins else None)


def _opens_incident(job: Job) -> bool:
    """Return whether the end or the stop of the gang in `job` opens an incident: a recovery or a failure follows.

    No incident begins if a user ended the gang, if the gang was never placed, or if it reached its time limit.
    """
    if job.stop_purpose is StopPurpose.FAIL:
        return job.failure is not None
    return job.stop_purpose in (StopPurpose.DIAGNOSE, StopPurpose.RELAUNCH) and (
        job.stop_cause is not CloseCause.INSUFFICIENT_RESOURCES
    )


def is_retried(ending: Ending | None, policy: RecoveryPolicy) -> bool:
    """Return whether another attempt follows this ending if the GPUs pass their check. None: no rank ended.

    A rank with a failed preflight has not started its program. So its exit is no exit of the program.
    """
    if ending is not None and ending.kind is EndingKind.FAILED and not ending.is_preflight:
        return policy.retry_exits
    return policy.retry_crashes and (ending is None or ending.is_preflight or ending.kind in CURED_BY_RESTART)


def assess(job: Job, results: Mapping[str, Checked], policy: RecoveryPolicy) -> Assessment:
    """Assess the whole gang from its health checks, within the limit of counted attempts.

    Args:
        results: check results by instance id. An instance that gave no answer is missing.
    """
    checks = _checks_sentence(job, results)
    if not job.attempts_left(policy):
        return Assessment(
            False, f"attempt {job.attempt} was the last of {job.attempts_max(policy)}: {job.stop_reason} ({checks})"
        )
    faulty = tuple(i for i in job.instances if i in results and results[i].outcome.blames_hardware)
    suspected = tuple(i for i in job.instances if i in results and results[i].outcome is CheckOutcome.SUSPECTED)
    if not faulty and not suspected:
        return _without_evidence(job, checks, policy)
    beyond_repair = tuple(i for i in faulty if not (results[i].repairing or job.repaired.get(i, False)))
    beyond_repair += tuple(i for i in faulty if job.repaired.get(i) is False)
    if policy.relaunch_on_same_instances and beyond_repair:
        return Assessment(
            False, f"{beyond_repair[0]} cannot be repaired and the job waits for its own instances ({checks})"
        )
    repairing = tuple(i for i in (*faulty, *suspected) if results[i].repairing and i not in job.repaired)
    finding = f"faulty GPUs found ({checks})"
    if not faulty:
        finding = (
            f"{suspected[0]} is left out although its check found nothing: {results[suspected[0]].summary} ({checks})"
        )
    return Assessment(True, finding, repairing, waits="; waiting for healthy instances")


def _checks_sentence(job: Job, results: Mapping[str, Checked]) -> str:
    """Return the check results as a sentence of bounded length, because a gang may have thousands of healthy instances.

    Results other than HEALTHY come first.
    """
    outcome = {i: results[i].outcome if i in results else "no answer" for i in job.instances}
    order = sorted(job.instances, key=lambda i: outcome[i] == CheckOutcome.HEALTHY)
    shown = order if len(order) <= LISTED_MAX else [i for i in order if outcome[i] != CheckOutcome.HEALTHY][:LISTED_MAX]
    words = [f"{i or 'an unknown instance'}: {outcome[i]}{_drained(results.get(i))}" for i in shown]
    if len(order) > len(shown):
        words.append(f"{len(order) - len(shown)} more" if shown else f"all {len(order)}: {CheckOutcome.HEALTHY}")
    return "; ".join(words)


def _drained(result: Checked | None) -> str:
    """Return the addition to a check result that others prevented by draining the instance; "" if none did."""
    return f" ({DRAINED_BY_OTHERS})" if result is not None and DRAINED_BY_OTHERS in result.summary else ""


def _without_evidence(job: Job, checks: str, policy: RecoveryPolicy) -> Assessment:
    """Assess an attempt without a faulty instance: continue if a restart usually cures such an ending, else fail."""
    ending = job.failure.ending if job.failure else None
    reason = f"no faulty instance found ({checks}); {job.stop_reason}"
    if job.diagnosed is not None and job.diagnosed.needs_person:
        return Assessment(False, f"{reason}; {job.diagnosed.summary}; an operator must fix the cause first")
    if job.diagnosed is not None and job.diagnosed.repeated:
        return Assessment(False, f"{reason}; {job.diagnosed.summary}; it would fail again")
    if is_retried(ending, policy):
        why = "which a restart usually cures"
        if ending is not None and ending.kind is EndingKind.FAILED:
            why = "and its program had not started" if ending.is_preflight else "and exits are retried"
        return Assessment(True, f"{reason}, {why}")
    diagnosis = job.diagnosed
    if diagnosis is None:
        return Assessment(False, reason, in_doubt=True)
    return Assessment(
        diagnosis.allows_restart or diagnosis.suspects_instance,
        f"{reason}; {diagnosis.summary}",
        in_doubt=not diagnosis.decided,
    )
