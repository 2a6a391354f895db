"""Restart in place: the next attempt starts in the containers of the attempt before.

While the job is STOPPING with its ranks held, the evidence is collected. If the diagnosis restarts the job without the
check of all instances, the next attempt uses the containers. If the job was stopped because one instance leaves it, or
is gone, no evidence is needed: the others restart in place. If the diagnosis is undecided, the reports of the node
agents since the failure decide, as in `gang_check.py`. Instances with a fault are replaced: only their ranks become new
tasks. In every other case the containers are stopped in ECS, and the recovery goes on as without held ranks. The check
of all instances reserves all GPUs, so it cannot run beside held tasks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.job import gang_check, remedy_outcomes, repeat_offender
from gpu_recovery.core.job.completion import unless_suspended
from gpu_recovery.core.job.diagnosing import diagnosed
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.held_ranks import stop_containers
from gpu_recovery.core.job.record import Job, JobStatus, StopPurpose
from gpu_recovery.core.job.stopping import check_request, relaunch
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, PendingCommand, Step, replace_fields

IN_PLACE = "restarted in place"
"""How a reason names a restart in the containers of the attempt before."""


def all_held(job: Job, event: events.AllRanksHeld, context: DecisionContext) -> Step | Ignore:
    """Collect the evidence of a gang whose processes have ended, while its containers wait."""
    if not job.holding:
        return Ignore("the containers are being stopped")
    if job.stop_purpose is StopPurpose.RELAUNCH:
        return _without_the_leaving(job, context)
    if event.without_evidence:
        return stop_containers(job, f"{job.reason}; it shows no cause, so every instance is checked", context)
    if job.held_attempt == job.attempt:
        return Ignore("the evidence is being collected")
    ends = repeat_offender.with_first_end(job, event.own_ends, context.policy)
    suspect = repeat_offender.find_suspect(job, ends, context.policy)
    if suspect.instance_id and not suspect.named:
        return stop_containers(job, _suspected(suspect.instance_id, suspect.reason), context)
    changes = {
        "held_attempt": job.attempt,
        "first_ends": ends,
        "deadline_at": context.now + duration(context.policy.hold_confirm_s),
    }
    reason = "every process has ended and the containers wait: reading the evidence"
    return Step(JobStatus.STOPPING, reason, changes, (commands.GatherEvidence(job.attempt),))


def _without_the_leaving(job: Job, context: DecisionContext) -> Step:
    """Restart in place a job that must leave one instance. Nothing has failed, so no evidence is needed."""
    step = unless_suspended(job, relaunch(job, context))
    again = _in_place(job, step, set(job.let_go))
    if again is None:
        return stop_containers(job, f"{job.stop_reason}; the containers are not used again", context)
    reason = f"{again.reason}; the other ranks are {IN_PLACE}"
    return replace(again, reason=reason, changes={**again.changes, "held_attempt": job.attempt})


def diagnosed_while_held(job: Job, event: events.Diagnosed, context: DecisionContext) -> Step | Ignore:
    """Restart the job in place if the diagnosis restarts it without the check of all instances."""
    if not job.holding or job.held_attempt != job.attempt:
        return Ignore("not every rank of it has ended")
    step = diagnosed(as_ended(job, None, context), event, context, IN_PLACE)
    left_out = _checked(step) | set(step.changes.get("left_out", job.left_out)) if isinstance(step, Step) else set()
    return _in_place(job, step, left_out) or stop_containers(
        job, f"{event.conclusion.summary}; the containers are not used again", context
    )


def seen_while_held(job: Job, event: events.PassiveEvidenceCollected, context: DecisionContext) -> Step | Ignore:
    """Restart the job in place if the node agents show that no check of all instances is needed.

    The instance on which the gang failed first keeps its container until the scheduler has placed the next attempt:
    without another instance the rank there starts in place as well.
    """
    if not job.holding or job.held_attempt != job.attempt:
        return Ignore("not every rank of it has ended")
    ended = as_ended(job, event.conclusion, context)
    request = check_request(ended, 0, context)
    if request.suspect:
        return stop_containers(job, _suspected(request.suspect, request.because), context)
    told = f"; {event.conclusion.summary}" if event.conclusion is not None else ""
    if why := gang_check.why_gang_is_checked(ended, event.evidence, context):
        return stop_containers(job, f"{job.stop_reason}{told}; the gang is checked: {why}", context)
    step = gang_check.continued(ended, event.evidence, request, context, IN_PLACE)
    if event.conclusion is not None:
        told_of = {"conclusion": event.conclusion, **remedy_outcomes.keep_diagnosis_open(job)}
        step = replace(step, changes={**told_of, **step.changes})
    return _in_place(job, step, _checked(step)) or stop_containers(
        job, f"{job.stop_reason}{told}; the containers are not used again", context
    )


def _suspected(instance_id: str, reason: str) -> str:
    """Return why the containers are stopped for a repeat offender: its check and its repair come first."""
    return f"{instance_id} is suspected: {reason}"


def as_ended(job: Job, conclusion: DiagnosisResult | None, context: DecisionContext) -> Job:
    """Return the job as if its containers had ended too, and its instances were about to be checked.

    Args:
        job: the job, whose ranks are held.
        conclusion: the diagnosis result of the attempt that the job does not know yet, or None.
        context: the policy and the time.
    """
    check = PendingCommand("", commands.CheckInstances(job.attempt, check_request(job, 0, context)), context.now)
    changes: dict[str, Any] = {"status": JobStatus.DIAGNOSING, "commands": (*job.commands, check)}
    return replace_fields(job, changes if conclusion is None else {**changes, "conclusion": conclusion})


def _checked(step: Step) -> set[str]:
    """Return the instances that the step has checked in the background."""
    return {order.instance_id for order in step.commands if isinstance(order, commands.TellInstance)}


def _in_place(job: Job, step: Step | Ignore, left_out: set[str]) -> Step | None:
    """Return the step of a restart, changed to use the containers again; None if it uses none.

    Args:
        left_out: the instances whose containers are not used again.
    """
    let_go = tuple(instance for instance in job.instances if instance in left_out)
    if isinstance(step, Ignore) or step.status is not JobStatus.RECOVERING or len(let_go) == len(job.instances):
        return None
    changes: dict[str, Any] = {**step.changes, "holding": False, "let_go": let_go}
    return Step(step.status, step.reason, changes, _orders(step, let_go))


def _orders(step: Step, let_go: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the commands of a restart, without the release of the instances that the next attempt may use.

    A check takes over the claim of its instance, so it waits for the end of the task there.
    """
    orders: list[Any] = []
    checked = _checked(step)
    for order in step.commands:
        if isinstance(order, commands.ReleaseInstances):
            released = tuple(instance for instance in order.instances if instance in let_go and instance not in checked)
            orders += [replace(order, instances=released)] if released else []
        elif isinstance(order, commands.TellInstance) and isinstance(order.event, events.CheckRequested):
            one = (order.instance_id,)
            orders.append(commands.ReleaseInstances(one, attempt=order.event.attempt, check=order.event))
        else:
            orders.append(order)
    return tuple(orders)
