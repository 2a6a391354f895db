"""Execute the command to diagnose a failed attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import missed_event
from gpu_recovery.core.job import in_place
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import DecisionContext, PendingCommand
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp
from gpu_recovery.execution.passive_evidence import collect_passive_evidence
from gpu_recovery.execution.task_ownership import with_unrecorded_tasks

if TYPE_CHECKING:
    from gpu_recovery.execution.evidence import LogTail


def gather_evidence(context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
    """Collect the evidence of the attempt and deliver the diagnosis result to the job.

    The command is void if the job no longer waits for it.
    """
    command: commands.GatherEvidence = pending.command
    is_held = job.status is JobStatus.STOPPING and job.holding and job.held_attempt == job.attempt
    if command.attempt != job.attempt or not (job.status is JobStatus.DIAGNOSING or is_held):
        return DONE
    plan = context.store.load_plan(job.job_id, job.attempt) if is_held else None
    if plan is not None:
        with_unrecorded_tasks(context, job, plan)  # the launcher may have died before it recorded its tasks
    diagnosis_result = diagnose_attempt(context, job, command.attempt, context.actions.log_tail)
    if is_held:
        return CommandResult((FollowUp(job.job_id, _event_while_held(context, job, diagnosis_result)),))
    found_events: list[events.JobEvent] = []
    if diagnosis_result is not None:
        found_events.append(events.Diagnosed(at=context.now, attempt=command.attempt, conclusion=diagnosis_result))
    if job.heard_again == command.attempt:
        found_events += _checks_event(context, job, command.attempt)
    else:
        found_events += _passive_event(context, job, command.attempt)
    return CommandResult(tuple(FollowUp(job.job_id, event) for event in found_events))


def _event_while_held(context: ExecutionContext, job: Job, result: DiagnosisResult | None) -> events.JobEvent:
    """Return the event that decides whether the held containers of the attempt are used again.

    A decided diagnosis decides, else the passive evidence. Without either the containers are stopped.
    """
    plan = context.store.load_plan(job.job_id, job.attempt)
    if plan is not None and not all(plan.task_ids):  # a container without a known task cannot be used again
        return events.AllRanksHeld(at=context.now, attempt=job.attempt, without_evidence=True)
    evidence = None
    if result is None or not result.decided:
        ended = in_place.as_ended(job, result, DecisionContext(context.policy, context.now))
        evidence = collect_passive_evidence(context, ended, plan) if plan is not None else None
    if evidence is not None:
        return events.PassiveEvidenceCollected(
            at=context.now, attempt=job.attempt, evidence=evidence, conclusion=result
        )
    if result is not None:
        return events.Diagnosed(at=context.now, attempt=job.attempt, conclusion=result)
    return events.AllRanksHeld(at=context.now, attempt=job.attempt, without_evidence=True)


def _checks_event(context: ExecutionContext, job: Job, attempt: int) -> tuple[events.JobEvent, ...]:
    """Return the event of finished checks that the job deferred until its evidence was collected again."""
    plan, progress = context.store.load_plan(job.job_id, attempt), context.store.load_progress(job.job_id, attempt)
    if plan is None or progress is None:
        return ()
    event = missed_event(job.status, progress, plan, context.now, evidence_recollected=True)
    return () if event is None else (event,)


def _passive_event(context: ExecutionContext, job: Job, attempt: int) -> tuple[events.JobEvent, ...]:
    """Return the event of the passive evidence; nothing if it would decide nothing."""
    plan = context.store.load_plan(job.job_id, attempt)
    evidence = collect_passive_evidence(context, job, plan) if plan is not None else None
    if evidence is None:
        return ()
    return (events.PassiveEvidenceCollected(at=context.now, attempt=attempt, evidence=evidence),)


def diagnose_attempt(context: ExecutionContext, job: Job, attempt: int, log_tail: LogTail) -> DiagnosisResult | None:
    """Return the diagnosis result of an attempt; None if no plan is stored or the rules find nothing.

    Args:
        log_tail: reads the last lines of a task's log.
    """
    # Imported here and not at the top: the rules and log signatures take a fifth of a function's cold start.
    from gpu_recovery.execution import evidence  # noqa: PLC0415

    plan = context.store.load_plan(job.job_id, attempt)
    if plan is None:
        return None
    collected = evidence.collect_evidence(
        context.store, log_tail, context.policy, job, plan, context.now, context.for_each
    )
    return evidence.diagnosis_result_of(collected, collected.diagnosis(context.policy, context.now), plan)
