"""Carrying out the order to find out why an attempt failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import missed_event
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp

if TYPE_CHECKING:
    from gpu_recovery.execution.evidence import LogTail


def gather_evidence(kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Hear every witness of the attempt and tell the job what they come to. Void once the job waits for it no more."""
    order: commands.GatherEvidence = pending.command
    if order.attempt != job.attempt or job.status is not JobStatus.DIAGNOSING:
        return DONE
    conclusion = diagnose_attempt(kit, job, order.attempt, kit.actions.log_tail)
    news: list[events.JobEvent] = []
    if conclusion is not None:
        news.append(events.Diagnosed(at=kit.now, attempt=order.attempt, conclusion=conclusion))
    if job.heard_again == order.attempt:
        news += _checks_event(kit, job, order.attempt)
    return CommandResult(tuple(FollowUp(job.job_id, one) for one in news))


def _checks_event(kit: ExecutionContext, job: Job, attempt: int) -> tuple[events.JobEvent, ...]:
    """The word of the checks, which the job has put off until its witnesses were heard again."""
    plan, progress = kit.store.load_plan(job.job_id, attempt), kit.store.load_progress(job.job_id, attempt)
    if plan is None or progress is None:
        return ()
    news = missed_event(job.status, progress, plan, kit.now, contact_restored=True)
    return () if news is None else (news,)


def diagnose_attempt(kit: ExecutionContext, job: Job, attempt: int, log_tail: LogTail) -> DiagnosisResult | None:
    """What the witnesses of an attempt come to; None where nothing is kept of it or nothing was found."""
    # Not before a gang has failed: the rules and the words of logs are a fifth of a function's start.
    from gpu_recovery.execution import evidence  # noqa: PLC0415

    plan = kit.store.load_plan(job.job_id, attempt)
    if plan is None:
        return None
    heard = evidence.collect_evidence(kit.store, log_tail, kit.policy, job, plan, kit.now)
    return evidence.diagnosis_result_of(heard, heard.diagnosis(kit.policy, kit.now), plan)
