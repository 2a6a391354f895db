"""Notifications about jobs: the incident of a gang from the failure to its end, and notes outside of incidents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from gpu_recovery.core.events import Checked
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.notifications.acts import act_for
from gpu_recovery.core.notifications.template import (
    EVIDENCE_MAX,
    Part,
    Phase,
    Severity,
    clock,
    message,
    next_of,
    of_user,
    runbook,
    story,
    typed,
)

if TYPE_CHECKING:
    from gpu_recovery.core.commands import NotifyOperator
    from gpu_recovery.core.events import HangSuspected
    from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
    from gpu_recovery.core.job.record import Job, JobStatus
    from gpu_recovery.core.task import RankFailure

EARLIER_MAX = 3
"""Upper bound of the earlier failures in a message about a failed job."""
RECOVERY = (
    "recovering",
    (
        "The job then goes on from its last checkpoint on healthy instances.",
        "The next message comes when its training has gone on, or when an operator is needed. Further "
        "failures until then send no message.",
    ),
    "No action is needed. To follow the job, to read its output, or to cancel it:",
)
"""Words of the first message about a failure: the course of the job, what follows, and what an operator does."""
LAST_ATTEMPT = (
    "the job will end",
    (
        "The job then ends as FAILED, because this attempt was its last. It is not started again.",
        "The next message says that it has FAILED, and what the evidence and the checks have found.",
    ),
    "The job will not recover by itself. Read what went wrong, and submit the job again with the same checkpoint when "
    "the next message has named the cause. Until then nothing can be done:",
)
"""The same after the last attempt that the job may have."""
EVIDENCE_OF_MAX = 100
"""Upper bound of the instances that are read for the evidence of one message: one batch of reads."""


def recovery_started(
    job: Job,
    incident_id: str,
    reason: str,
    failure: RankFailure | None,
    stopped_by: datetime,
    checked_by: datetime,
    *,
    is_last: bool = False,
    reads_evidence: bool = True,
    spares_healthy: bool = True,
) -> NotifyOperator:
    """Return the message that a gang failed and its recovery begins, or begins again in the same incident.

    After the last attempt nothing recovers: the message says that the job is about to fail.

    Args:
        job: the record before the decision.
        incident_id: the incident of the message.
        reason: the reason of the decision.
        failure: the first failure of the attempt, None if unknown.
        stopped_by: deadline for the end of every rank.
        checked_by: deadline for every health check.
        is_last: whether the attempt is the last that the job may have.
        reads_evidence: whether logs and reports are read before any instance is checked.
        spares_healthy: whether only the instances that the evidence names are checked, if it names some.
    """
    course, follows, act = LAST_ATTEMPT if is_last else RECOVERY
    first = failure.instance_id if failure is not None else ""
    parts = {
        Part.WHAT: [f"Job {of_user(job)}, attempt {job.attempt} on {job.width} instance(s): {reason}."],
        Part.EVIDENCE: _failure_lines(failure) or [reason],
        Part.DONE: ["All ranks of the gang are being stopped, because they cannot continue without the failed rank."],
        Part.NEXT: [
            f"Every rank must have ended by {clock(stopped_by)}. A rank that still runs then is stopped again. After "
            "that, its instance is rebooted.",
            *_checks_to_come(job, checked_by, reads_evidence, spares_healthy and not is_last),
            *follows,
        ],
        Part.YOU: [
            act,
            typed(f"explain {job.job_id}"),
            *_log_commands(job, failure),
            typed(f"cancel {job.job_id}"),
        ],
        Part.IDS: _ids(job, incident_id),
    }
    subject = f"{job.job_id}: attempt {job.attempt} failed, {course}"
    return message(
        incident_id,
        Severity.SEV3,
        next_of(bool(job.incident_id)),
        subject,
        parts,
        job_id=job.job_id,
        evidence_of=_first_of(first, job.instances),
        evidence_since=failure.at if failure is not None else job.status_at,
    )


def recovered(job: Job, sentence: str, bill: Iterable[str] = ()) -> NotifyOperator:
    """Return the message that the training of the job has gone on after an incident.

    Args:
        job: the record before the decision.
        sentence: how we know that the training has gone on.
        bill: lines that say what was lost, by phase and cause.
    """
    parts = {
        Part.WHAT: [
            f"Job {of_user(job)} has recovered on {listed(job.instances)}: {sentence}.",
            *_cause_lines(job),
        ],
        Part.EVIDENCE: story(job.history, job.recovery_since),
        Part.DONE: ["Its ranks were started again, and continue from their last checkpoint.", _blamed_line(job), *bill],
        Part.NEXT: [
            "The incident is closed. Instances under repair return by themselves, or a message of their own follows."
        ],
        Part.YOU: ["No action is needed. The whole history:", typed(f"explain {job.job_id}")],
        Part.IDS: _ids(job, job.incident_id or ""),
    }
    subject = f"{job.job_id}: recovered on attempt {job.attempt}"
    return _resolved(job, subject, parts)


def closed(job: Job, reason: str) -> NotifyOperator:
    """Return the message that the job ended during an incident for another cause than a failure."""
    parts = {
        Part.WHAT: [f"Job {of_user(job)} has ended on attempt {job.attempt}: {reason}.", *_cause_lines(job)],
        Part.EVIDENCE: story(job.history, job.recovery_since or job.incident_at),
        Part.DONE: ["Its ranks have ended and its GPUs are free again."],
        Part.NEXT: [
            "The incident is closed. Instances under repair return by themselves, or a message of their own follows."
        ],
        Part.YOU: ["No action is needed. The whole history:", typed(f"explain {job.job_id}")],
        Part.IDS: _ids(job, job.incident_id or ""),
    }
    subject = f"{job.job_id}: has ended, nothing is left to recover"
    return _resolved(job, subject, parts)


def failed(
    job: Job,
    incident_id: str,
    reason: str,
    unconfirmed: Iterable[str],
    results: Mapping[str, Checked],
    diagnosis: DiagnosisResult | None = None,
) -> NotifyOperator:
    """Return the message that the job FAILED. The incident stays open, because the job needs an operator.

    Args:
        job: the record before the decision.
        incident_id: the incident of the message.
        reason: the reason of the decision.
        unconfirmed: instances on which a rank may still run.
        results: check results by instance id, empty without checks.
        diagnosis: the diagnosis result of the last attempt, None without one.
    """
    kept = [instance_id for instance_id in unconfirmed if instance_id]
    done = "Its ranks have ended and its GPUs are free again."
    if kept:
        done = f"Its GPUs are free again, except on {listed(kept)}: the end of a rank is not confirmed there."
    cause = [diagnosis.summary] if diagnosis is not None else []
    if diagnosis is not None and diagnosis.quoted and diagnosis.quoted not in diagnosis.summary:
        cause.insert(0, f"the program wrote: {diagnosis.quoted}")
    act = "Fix the cause. Then submit the job again with the same checkpoint, from which it continues:"
    if diagnosis is not None and (named := act_for(diagnosis)):
        act = f"{named} Then submit the job again with the same checkpoint, from which it continues:"
    parts = {
        Part.WHAT: [f"Job {of_user(job)} has FAILED on attempt {job.attempt}: {reason}."],
        Part.EVIDENCE: [*_failure_lines(job.failure), *cause, *_check_lines(results), *_earlier_failures(job)]
        or story(job.history, job.recovery_since or job.incident_at),
        Part.DONE: [done],
        Part.NEXT: ["The job is not tried again."],
        Part.YOU: [
            act,
            typed(f"explain {job.job_id}"),
            typed(f"diagnose {job.job_id}", "the cause, with its evidence"),
            *_log_commands(job, job.failure),
            *(typed(f"instances {name}", "it gets no work until its rank has ended") for name in kept[:3]),
            runbook("stuck-stopping") if kept else "",
        ],
        Part.IDS: _ids(job, incident_id),
    }
    subject = f"{job.job_id}: FAILED on attempt {job.attempt}"
    blamed = tuple(name for name, result in results.items() if result.outcome.blames_hardware)
    return message(
        incident_id,
        Severity.SEV2,
        next_of(bool(job.incident_id)),
        subject,
        parts,
        job_id=job.job_id,
        evidence_of=tuple(dict.fromkeys((*job.blamed, *blamed)))[:EVIDENCE_OF_MAX],
        evidence_since=job.recovery_since or job.incident_at,
    )


def started_again(job: Job) -> NotifyOperator:
    """Return the message that a user started a failed job of their own again, which closes its incident."""
    parts = {
        Part.WHAT: [f"Job {of_user(job)} was started again by a user after it had failed."],
        Part.EVIDENCE: [job.reason],
        Part.DONE: ["Its tasks are watched as its next attempt. The count of its attempts begins again."],
        Part.NEXT: ["The incident is closed. The next failure opens another."],
        Part.YOU: ["No action is needed. To follow the job:", typed(f"explain {job.job_id}")],
        Part.IDS: _ids(job, job.incident_id or ""),
    }
    subject = f"{job.job_id}: started again by a user"
    return message(job.incident_id or "", Severity.SEV4, Phase.RESOLVED, subject, parts, job_id=job.job_id)


# -- notes -------------------------------------------------------------------------------------------------------------


def would_have_acted(job: Job, would: str, failure: RankFailure | None) -> NotifyOperator:
    """Return the observe-only message: the action on a job that would have been done."""
    cause = "adoption is set to `observe`" if job.hands_off else "gpu-recovery is in observe-only mode"
    note_id = f"{job.job_id}/{job.version + 1}"
    parts = {
        Part.WHAT: [f"Job {of_user(job)}, attempt {job.attempt}: {would}."],
        Part.EVIDENCE: _failure_lines(failure) or [would],
        Part.DONE: [f"No action: {cause}."],
        Part.NEXT: ["The other ranks continue, or hang."],
        Part.YOU: [
            "Stop the other ranks if they hang. To permit recovery, deploy with gpu-recovery:adopt=recover, or with "
            "gpu-recovery:observe_only=false. The decisions so far:",
            typed(f"explain {job.job_id}"),
        ],
        Part.IDS: _ids(job, note_id),
    }
    subject = f"{job.job_id}: would be stopped (observed only)"
    return message(note_id, Severity.SEV3, Phase.NOTED, subject, parts, job_id=job.job_id)


def may_hang(job: Job, event: HangSuspected, stops_at: datetime | None, is_observed: bool = False) -> NotifyOperator:
    """Return the message that the node agents show a hang of a job that reports no progress.

    Args:
        job: the record before the decision.
        event: what the agents show.
        stops_at: time from which the gang is stopped if it still hangs; None if it is not stopped.
        is_observed: the stop is recorded and not carried out.
    """
    note_id = f"{job.job_id}/{job.version + 1}"
    follows = "The job is not stopped. There is no further message about this hang."
    if stops_at is not None and is_observed:
        follows = (
            f"The job is only observed. If nothing has changed at {clock(stops_at)}, a message says what would be done."
        )
    elif stops_at is not None:
        follows = (
            f"If nothing has changed at {clock(stops_at)}, the gang is stopped and diagnosed, and the job continues "
            "from its last checkpoint. A message of its own follows then."
        )
    parts = {
        Part.WHAT: [f"Job {of_user(job)}, attempt {job.attempt}, may hang since {clock(event.since)}."],
        Part.EVIDENCE: [f"{event.sentence}."],
        Part.DONE: ["No action. The job reports no progress, so only its instances show what it does."],
        Part.NEXT: [follows],
        Part.YOU: [
            "Look at its output. If it hangs, cancel it or stop one of its tasks:",
            typed(f"logs {job.job_id}"),
            *([typed(f"instances {event.instance_id}")] if event.instance_id else []),
            typed(f"cancel {job.job_id}"),
            "docs/hangs.md says how such a hang is judged.",
        ],
        Part.IDS: _ids(job, note_id),
    }
    subject = f"{job.job_id}: attempt {job.attempt} may hang"
    return message(note_id, Severity.SEV3, Phase.NOTED, subject, parts, job_id=job.job_id)


def contact_lost(job: Job, incident_id: str, instance_id: str, sentence: str, decided_at: datetime) -> NotifyOperator:
    """Return the message that a job is LOST because the heartbeat of a rank timed out."""
    parts = {
        Part.WHAT: [f"Job {of_user(job)}, attempt {job.attempt}, is LOST: its rank on {instance_id} does not report."],
        Part.EVIDENCE: [sentence],
        Part.DONE: [
            "No action. LOST does not mean FAILED: the rank may still run, so its GPUs stay claimed by the job."
        ],
        Part.NEXT: [
            "With a heartbeat of the same attempt the job is RUNNING again. If ECS reports the end of the rank, "
            "recovery begins at once.",
            f"At {clock(decided_at)} gpu-recovery asks ECS and EC2. If they do not find it running either, the gang is "
            "stopped, the instance is repaired, and the job is relaunched.",
        ],
        Part.YOU: [
            "No action is needed. To see the last reports of the instance, or to cancel the job:",
            typed(f"instances {instance_id}"),
            typed(f"cancel {job.job_id}"),
            runbook("stale-running-tasks"),
        ],
        Part.IDS: _ids(job, incident_id),
    }
    subject = f"{job.job_id}: LOST, a rank does not report"
    phase = next_of(bool(job.incident_id))
    return message(incident_id, Severity.SEV3, phase, subject, parts, job_id=job.job_id, instance_id=instance_id)


def contact_restored(job: Job, reason: str) -> NotifyOperator:
    """Return the message that every rank of a LOST job sends heartbeats again."""
    parts = {
        Part.WHAT: [f"Job {of_user(job)}, attempt {job.attempt}, is RUNNING again: {reason}."],
        Part.EVIDENCE: [f"it was LOST since {clock(job.status_at)}"],
        Part.DONE: ["No action: no rank was stopped."],
        Part.NEXT: ["The incident is closed."],
        Part.YOU: ["No action is needed. The whole history:", typed(f"explain {job.job_id}")],
        Part.IDS: _ids(job, job.incident_id or ""),
    }
    subject = f"{job.job_id}: reports again"
    return message(job.incident_id or "", Severity.SEV4, Phase.RESOLVED, subject, parts, job_id=job.job_id)


def agent_silent(job: Job, reason: str) -> NotifyOperator:
    """Return the message that only the agent is missing: the instance is alive, so the job counts as RUNNING."""
    parts = {
        Part.WHAT: [f"Job {of_user(job)}, attempt {job.attempt}, counts as RUNNING again: {reason}."],
        Part.EVIDENCE: [f"no report since {clock(job.status_at)} or earlier: {listed(job.silent)}"],
        Part.DONE: ["No action: no rank was stopped."],
        Part.NEXT: ["ECS still reports the end of its ranks. Heartbeats are used again as soon as one arrives."],
        Part.YOU: [
            "Check the agent on the instance: is its unit running, is its token valid?",
            *(typed(f"instances {name}") for name in job.silent[:3]),
        ],
        Part.IDS: _ids(job, job.incident_id or ""),
    }
    subject = f"{job.job_id}: node agent does not report, instance is alive"
    phase = Phase.RESOLVED if job.recovery_since is None else Phase.ESCALATED
    return message(job.incident_id or "", Severity.SEV4, phase, subject, parts, job_id=job.job_id)


def stopped_by_person(job: Job, failure: RankFailure, ends_as: JobStatus | None) -> NotifyOperator:
    """Return the message that a user stopped a rank in ECS, beside gpu-recovery, and what that does to the job.

    Args:
        job: the record before the decision.
        failure: the end of the rank.
        ends_as: the status in which the job ends because of the stop; None if it goes on.
    """
    note_id = f"{job.job_id}/{job.version + 1}"
    goes_on = ends_as is None
    done = f"The whole job ends as {ends_as}: its other ranks are stopped, and its GPUs are freed."
    if goes_on:
        done = "The gang is stopped, and continues from its last checkpoint. The attempt is not counted."
    parts = {
        Part.WHAT: [
            f"Rank {failure.rank} of job {of_user(job)}, attempt {job.attempt}, on "
            f"{failure.instance_id or 'an unknown instance'} was {failure.ending.sentence}."
        ],
        Part.EVIDENCE: _failure_lines(failure),
        Part.DONE: [done],
        Part.NEXT: ["It waits for its turn and for healthy GPUs." if goes_on else "The job is not tried again."],
        Part.YOU: [
            "To move a job to another instance, quarantine the instance, then suspend and resume the job. To relaunch "
            "jobs after such a stop, set relaunch_after_manual_stop in the policy.",
            typed(f"quarantine {failure.instance_id or 'INSTANCE'}"),
            typed(f"suspend {job.job_id}"),
            typed(f"resume {job.job_id}"),
        ],
        Part.IDS: _ids(job, note_id),
    }
    subject = f"{job.job_id}: a user stopped a rank, the job {'continues' if goes_on else f'is {ends_as}'}"
    return message(note_id, Severity.SEV3, Phase.NOTED, subject, parts, job_id=job.job_id)


def incompletely_adopted(job: Job, reason: str) -> NotifyOperator:
    """Return the message that a job of a user is not watched any more because some ranks were never seen."""
    note_id = f"{job.job_id}/{job.version + 1}"
    parts = {
        Part.WHAT: [f"Job {of_user(job)}, which a user started, is no longer watched: {reason}."],
        Part.EVIDENCE: [f"ranks were seen on {listed(job.instances)}"],
        Part.DONE: ["Its tasks were not stopped."],
        Part.NEXT: ["The job runs without recovery."],
        Part.YOU: [
            "WORLD_SIZE must be the number of tasks (instances), and RANK the task's number, from 0; torchrun's own "
            "WORLD_SIZE counts processes. To have the job recovered, start it again with these values. Its history:",
            typed(f"explain {job.job_id}"),
        ],
        Part.IDS: _ids(job, note_id),
    }
    subject = f"{job.job_id}: not every rank was seen, no longer watched"
    return message(note_id, Severity.SEV3, Phase.NOTED, subject, parts, job_id=job.job_id)


# -- pieces ------------------------------------------------------------------------------------------------------------


def _checks_to_come(job: Job, checked_by: datetime, reads_evidence: bool, spares_healthy: bool) -> list[str]:
    """Return which instances get a health check after the end of the ranks, as lines."""
    number = len(job.instances)
    every = "the instance gets a health check" if number == 1 else f"each of the {number} instances gets a health check"
    checked = f"{every}, done by {clock(checked_by)}. An instance that fails its check is repaired or taken out of use."
    if not reads_evidence:
        return [f"Then {checked}"]
    named = (
        "If they name faulty instances, at most half of the gang, only these are checked. "
        if spares_healthy and number > 1
        else ""
    )
    return [
        "Then the logs and the reports of ranks and instances are read. If they decide the cause and name no "
        f"instance, none is checked. {named}Otherwise {checked}"
    ]


def _failure_lines(failure: RankFailure | None) -> list[str]:
    if failure is None:
        return []
    code = "none" if failure.ending.exit_code is None else failure.ending.exit_code
    return [
        f"rank {failure.rank} on {failure.instance_id or 'an unknown instance'} {failure.ending.sentence}",
        f"exit code {code}, classified as {failure.ending.kind}, at {clock(failure.at)}",
    ]


def _log_commands(job: Job, failure: RankFailure | None) -> list[str]:
    """Return the command that shows the output of the rank that failed first."""
    rank = failure.rank if failure is not None else 0
    return [typed(f"logs {job.job_id} --rank {rank}", "the last output of its program")]


def _cause_lines(job: Job) -> list[str]:
    """Return the diagnosis result of the open recovery as a line."""
    past = job.conclusion
    return [f"Attempt {past.attempt}: {past.summary}."] if past is not None and job.recovery_since is not None else []


def _earlier_failures(job: Job) -> list[str]:
    """Return the failures of earlier attempts in the open recovery as lines, which sent no message of their own."""
    since = job.recovery_since
    if since is None:
        return []
    begun = [entry for entry in job.history if entry.at >= since and entry.attempt < job.attempt]
    last = {entry.attempt: entry for entry in begun if entry.event in ("RankFailed", "AllRanksStopped", "Diagnosed")}
    return [f"attempt {entry.attempt}, {entry.at:%H:%M:%S}: {entry.reason}" for entry in last.values()][-EARLIER_MAX:]


def _blamed_line(job: Job) -> str:
    """Return the suspected instances as a line; "" without any."""
    return f"Suspected: {listed(job.blamed)}. The evidence lists their repairs." if job.blamed else ""


def _first_of(first: str, instance_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the first EVIDENCE_OF_MAX instances, `first` before the others."""
    return tuple(name for name in dict.fromkeys((first, *instance_ids)) if name)[:EVIDENCE_OF_MAX]


def _resolved(job: Job, subject: str, parts: Mapping[Part, Iterable[str]]) -> NotifyOperator:
    """Return the message that closes the incident of the job."""
    return message(
        job.incident_id or "",
        Severity.SEV4,
        Phase.RESOLVED,
        subject,
        parts,
        job_id=job.job_id,
        evidence_of=job.blamed,
        evidence_since=job.recovery_since,
    )


def _check_lines(results: Mapping[str, Checked]) -> list[str]:
    """Return the check results as lines, unhealthy instances first, at most EVIDENCE_MAX results."""
    order = sorted(results, key=lambda name: (results[name].outcome is CheckOutcome.HEALTHY, name))
    shown = [
        f"check of {name}: {results[name].outcome}"
        + (f": {results[name].summary}" if results[name].summary else "")
        + (" (its repair has begun)" if results[name].repairing else "")
        for name in order[:EVIDENCE_MAX]
    ]
    return shown + ([f"and {len(order) - EVIDENCE_MAX} more checks"] if len(order) > EVIDENCE_MAX else [])


def _ids(job: Job, correlation_id: str) -> list[str]:
    return [
        f"job {of_user(job)}, attempt {job.attempt}, decision {job.job_id}/{job.version + 1}",
        f"instances {listed(job.instances)}",
        f"correlation id {correlation_id}",
    ]
