"""What a failure and the checks that follow it mean for the job: the judgement, apart from the mechanics of moving.

`purpose_of` answers when the first rank fails: what is the gang stopped for? `assess` answers when the barrier is
down: does the job go on, and which instances does it leave to be repaired?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from gpu_recovery.core.events import Checked
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.identifiers import LISTED_MAX
from gpu_recovery.core.job.record import LIVE, TERMINAL, CloseCause, Job, JobStatus, StopPurpose
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.task import EndingKind, RankFailure

CURED_BY_RESTART = frozenset({EndingKind.CRASHED, EndingKind.HOST_FAULT})
"""Kinds of ending that, on GPUs which pass their check, a restart usually cures (Unicron: 73 % of task failures)."""
ASKS_FOR_SUSPENSION = 75
"""The exit code of a rank that asks for its own suspension (`go_suspend()`): EX_TEMPFAIL of sysexits.h."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """Whether the job goes on, why, and the instances that are being repaired meanwhile.

    in_doubt: it would end because nothing is known that would let it go on.
    """

    continues: bool
    reason: str
    repairing: tuple[str, ...] = ()
    in_doubt: bool = False


def purpose_of(failure: RankFailure, policy: RecoveryPolicy) -> tuple[StopPurpose, CloseCause | None]:
    """What the gang is stopped for when `failure` is its first, and the uncounted cause if it has one."""
    kind, code = failure.ending.kind, failure.ending.exit_code
    if kind is EndingKind.STOPPED_BY_PERSON:
        return StopPurpose.CANCEL, None
    if kind is EndingKind.SHORT_OF_RESOURCES:
        return StopPurpose.RELAUNCH, CloseCause.INSUFFICIENT_RESOURCES
    if kind is EndingKind.FAILED and code == ASKS_FOR_SUSPENSION:
        return StopPurpose.SUSPEND, CloseCause.SUSPENDED
    if policy.diagnose_exit_code_1_only:
        return (StopPurpose.DIAGNOSE if code == 1 else StopPurpose.FAIL), None
    if kind in (EndingKind.INTERRUPTED, EndingKind.STOPPED_BY_US):
        return StopPurpose.RELAUNCH, CloseCause.INTERRUPTED
    return StopPurpose.DIAGNOSE, None


def incident_since(before: Job, after: Job, now: datetime) -> datetime | None:
    """When the incident began that the job is in once it has moved from `before`'s status; None if it is in none."""
    over = (JobStatus.RUNNING, JobStatus.SUSPENDED, JobStatus.SUCCEEDED, JobStatus.CANCELED)
    if before.status in TERMINAL or after.status in over:
        return None
    begins = before.status in LIVE and _opens_incident(after)
    return before.incident_at or (now if begins else None)


def _opens_incident(job: Job) -> bool:
    """Whether a gang that is stopped, or has ended, as `job` says leaves work to be recovered or given up.

    A gang that a person ended does not, nor one that never had its place, nor one that ran into its time limit.
    """
    if job.stop_purpose is StopPurpose.FAIL:
        return job.failure is not None
    return job.stop_purpose in (StopPurpose.DIAGNOSE, StopPurpose.RELAUNCH) and (
        job.stop_cause is not CloseCause.INSUFFICIENT_RESOURCES
    )


def is_retried(kind: EndingKind | None, policy: RecoveryPolicy) -> bool:
    """Whether an attempt that ended so on GPUs that pass their check is followed by another; None: none ended."""
    if kind is EndingKind.FAILED:
        return policy.retry_exits
    return policy.retry_crashes and (kind is None or kind in CURED_BY_RESTART)


def assess(job: Job, results: Mapping[str, Checked], policy: RecoveryPolicy) -> Assessment:
    """The verdict over the whole gang, `results` being by instance id; an instance without one could not be told."""
    told = _checks_sentence(job, results)
    if not job.attempts_left(policy):
        return Assessment(
            False, f"attempt {job.attempt} was the last of {job.attempts_max(policy)}: {job.stop_reason} ({told})"
        )
    faulty = tuple(i for i in job.instances if i in results and results[i].outcome.blames_hardware)
    suspected = tuple(i for i in job.instances if i in results and results[i].outcome is CheckOutcome.SUSPECTED)
    if not faulty and not suspected:
        return _without_evidence(job, told, policy)
    beyond_repair = tuple(i for i in faulty if not (results[i].repairing or job.repaired.get(i, False)))
    beyond_repair += tuple(i for i in faulty if job.repaired.get(i) is False)
    if policy.relaunch_on_same_instances and beyond_repair:
        return Assessment(
            False, f"{beyond_repair[0]} cannot be repaired and the job waits for its own instances ({told})"
        )
    repairing = tuple(i for i in (*faulty, *suspected) if results[i].repairing and i not in job.repaired)
    found = f"faulty GPUs found ({told})"
    if not faulty:
        found = f"{suspected[0]} is left out though its check found nothing: {results[suspected[0]].summary} ({told})"
    return Assessment(True, f"{found}; waiting for healthy instances", repairing)


def _checks_sentence(job: Job, results: Mapping[str, Checked]) -> str:
    """The checks in a sentence, those that matter first: a gang may have thousands of healthy ones."""
    outcome = {i: results[i].outcome if i in results else "no answer" for i in job.instances}
    order = sorted(job.instances, key=lambda i: outcome[i] == CheckOutcome.HEALTHY)
    shown = order if len(order) <= LISTED_MAX else [i for i in order if outcome[i] != CheckOutcome.HEALTHY][:LISTED_MAX]
    words = [f"{i or 'an unknown instance'}: {outcome[i]}" for i in shown]
    return "; ".join(words) + (f"; {len(order) - len(shown)} more" if len(order) > len(shown) else "")


def _without_evidence(job: Job, told: str, policy: RecoveryPolicy) -> Assessment:
    """No instance is to blame: retry what a restart usually cures, fail what it does not."""
    kind = job.failure.ending.kind if job.failure else None
    reason = f"no instance is to blame ({told}); {job.stop_reason}"
    if is_retried(kind, policy):
        why = "and exits are retried" if kind is EndingKind.FAILED else "which a restart usually cures"
        return Assessment(True, f"{reason}, {why}")
    found = job.diagnosed
    if found is None:
        return Assessment(False, reason, in_doubt=True)
    return Assessment(
        found.allows_restart or found.blames_instance, f"{reason}; {found.summary}", in_doubt=not found.decided
    )
