"""Texts about a downtime: its bill, and the message that a recovery contract is not kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from gpu_recovery.core.identifiers import attempt_id, listed
from gpu_recovery.core.job.downtime import BrokenLimit, DownPhase, Downtime, broken_limits, has_contract
from gpu_recovery.core.notifications.template import Part, Phase, Severity, clock, message, of_user, typed

if TYPE_CHECKING:
    from gpu_recovery.core.commands import NotifyOperator
    from gpu_recovery.core.job.record import Job
    from gpu_recovery.core.job.spec import JobSpec

PHASE_NAMES = {
    DownPhase.NOTICE: "to notice the failure",
    DownPhase.STOP: "to stop the ranks",
    DownPhase.CHECK: "to find and check the cause",
    DownPhase.REPAIR: "to repair an instance",
    DownPhase.WAIT: "to wait for free instances",
    DownPhase.START: "to start the ranks",
    DownPhase.FIRST_STEP: "until the training went on",
    DownPhase.SUSPENDED: "suspended, which does not count",
}
"""What a phase of a downtime is for, as a part of a sentence."""
LIMIT_NAMES = {"max_down_minutes": "down", "max_lost_minutes": "lost"}
"""What a limit of a contract bounds."""


def length(seconds: int) -> str:
    """Return a length of time as text, such as `12 min 5 s`."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def bill_lines(spec: JobSpec, down: Downtime, now: datetime) -> tuple[str, ...]:
    """Return what a downtime has cost until `now` or its end: by phase, the cause, repeated work, and the contract."""
    phases = [f"{length(seconds)} {PHASE_NAMES[DownPhase(name)]}" for name, seconds in down.by_phase(now).items()]
    shown = f": {', '.join(phases)}" if phases else ""
    repeated = "How much work is done again is not known: the program reports no progress, or no checkpoint of it."
    if down.repeated_s is not None:
        repeated = f"Work of {length(down.repeated_s)} since the last checkpoint is done again."
    return (
        f"The job was down for {length(down.down_s(now))}{shown}. Cause: {down.cause.value}.",
        *((repeated,) if not down.is_open else ()),
        *((contract_line(spec, down, now),) if has_contract(spec) else ()),
    )


def contract_line(spec: JobSpec, down: Downtime, now: datetime) -> str:
    """Return whether the contract of a job is kept, with the figures."""
    broken = broken_limits(spec, down, now)
    if broken:
        return f"The recovery contract is not kept: {_broken(broken)}."
    limits = (("down", spec.max_down_minutes, down.down_s(now)), ("lost", spec.max_lost_minutes, down.lost_s(now)))
    used = [f"{name} for {length(seconds)} of {most} min" for name, most, seconds in limits if most is not None]
    return f"The recovery contract is kept: {', '.join(used)}."


def limit_sentence(job: Job, down: Downtime, now: datetime) -> str:
    """Return the reason of the decision that a limit has passed: the limit, and what the job waits for."""
    broken = broken_limits(job.spec, down, now)
    figures = _broken(broken) if broken else f"down for {length(down.down_s(now))}, as long as is allowed"
    return f"recovery contract not kept ({figures}); {job.reason}"


def limit_passed(job: Job, down: Downtime, now: datetime) -> NotifyOperator:
    """Return the message that a limit has passed while the job is down.

    Args:
        job: the record before the decision.
        down: the open downtime.
        now: time of the decision.
    """
    waits = PHASE_NAMES[down.phase]
    following = ["The recovery goes on. The message at its end has the whole bill."]
    if job.deadline_at is not None:
        following.append(f"The present step ({job.status}) gives up at {clock(job.deadline_at)} at the latest.")
    repairing = [typed(f"instances {name}", "it is under repair") for name in job.repairing[:3]]
    parts = {
        Part.WHAT: [
            f"Job {of_user(job)} is down for longer than its recovery contract allows. It waits {waits}: {job.reason}."
        ],
        Part.EVIDENCE: bill_lines(job.spec, down, now),
        Part.DONE: ["Nothing but this message: a contract changes no decision of the recovery."],
        Part.NEXT: following,
        Part.YOU: [*_advice(down.phase), typed(f"explain {job.job_id}"), *repairing],
        Part.IDS: _ids(job, down),
    }
    return _message(job, down, f"{job.job_id}: recovery contract not kept, still down", parts)


def limit_exceeded(job: Job, down: Downtime, reason: str, now: datetime) -> NotifyOperator:
    """Return the message that a downtime that is over exceeded the contract. No other message is sent at its end.

    Args:
        job: the record before the decision.
        down: the downtime, which has ended.
        reason: what shows that the job trains again.
        now: time of the decision.
    """
    parts = {
        Part.WHAT: [f"Job {of_user(job)} trains again, later than its recovery contract allows: {reason}."],
        Part.EVIDENCE: bill_lines(job.spec, down, now),
        Part.DONE: ["Its ranks were started again, and continue from their last checkpoint."],
        Part.NEXT: ["Nothing follows. The next downtime has a bill of its own."],
        Part.YOU: ["No action is needed. The whole history:", typed(f"explain {job.job_id}")],
        Part.IDS: _ids(job, down),
    }
    return _message(job, down, f"{job.job_id}: recovery contract not kept", parts)


def _broken(broken: Iterable[BrokenLimit]) -> str:
    return ", ".join(
        f"{LIMIT_NAMES[each.name]} for {length(each.needed_s)}, {each.limit_s // 60} min are allowed" for each in broken
    )


def _advice(phase: DownPhase) -> list[str]:
    if phase is DownPhase.WAIT:
        return [
            "A free instance ends the wait: end or suspend another job, or add an instance. What the job waits for:"
        ]
    if phase is DownPhase.REPAIR:
        return ["A spare instance ends the wait for the repair. The decisions so far:"]
    return ["No action is needed unless the step does not end. The decisions so far:"]


def _incident(job: Job, down: Downtime) -> str:
    return job.incident_id or down.incident_id or attempt_id(job.job_id, down.attempt)


def _ids(job: Job, down: Downtime) -> list[str]:
    return [
        f"job {of_user(job)}, attempt {job.attempt}, decision {job.job_id}/{job.version + 1}",
        f"instances {listed(job.instances)}",
        f"correlation id {_incident(job, down)}",
    ]


def _message(job: Job, down: Downtime, subject: str, parts: Mapping[Part, Iterable[str]]) -> NotifyOperator:
    phase = Phase.ESCALATED if job.incident_id else Phase.NOTED
    return message(_incident(job, down), Severity.SEV3, phase, subject, parts, job_id=job.job_id)
