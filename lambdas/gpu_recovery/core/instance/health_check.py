"""The health check of an instance: requests, verdicts, and missing answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import DRAINED_BY_OTHERS, CheckOutcome, Verdict
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance import gpu_events, idle_check
from gpu_recovery.core.instance.deadlines import check_limit_s
from gpu_recovery.core.instance.effects import (
    WAITING_MAX,
    activate,
    check_report,
    gone,
    other_waiting_jobs,
    poke_if_usable,
    repair_ended,
    run_check,
    stop_check,
    verify,
)
from gpu_recovery.core.instance.escalation import escalate
from gpu_recovery.core.instance.fault_history import failure_of
from gpu_recovery.core.instance.faults import standing_fault, verdict_by
from gpu_recovery.core.instance.health_reports import after_passive_check, cleared_by_check
from gpu_recovery.core.instance.quarantine import repair_given_up
from gpu_recovery.core.instance.record import (
    CheckRun,
    Claim,
    Instance,
    InstanceStatus,
    RankOnInstance,
    RepairLevel,
    RepairNeed,
)
from gpu_recovery.core.notifications import instances
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, unless_pending

REMEMBERED_MAX = 8
"""Upper bound of the entries of `past_registrations`, `checked_for` and `ended_for` in an instance record."""
SENTENCE_MAX = 200
"""Upper bound of the characters of a check result that a job is told."""
NO_CHECK = Ignore("no check is under way")
"""The answer to an event about a check while no check is under way."""
_ASKED_BEFORE = Ignore("it was checked for this attempt, or a later one has it")


def check_requested(instance: Instance, event: events.CheckRequested, context: DecisionContext) -> Step | Ignore:
    """Check the instance for a failed attempt. If other jobs work on it, the check is passive: it only reads logs."""
    if _was_checked_before(instance, event):
        return _ASKED_BEFORE
    claims_left = _without_claim(instance, event.job_id)
    asker = (event.job_id, event.attempt) if event.awaited else ("", 0)
    run = CheckRun("", *asker, event.may_reboot, passive=bool(claims_left), since=event.since)
    own = f"{instance.instance_id}/"
    run = replace(run, focus=tuple(gpu.removeprefix(own) for gpu in event.focus if gpu.startswith(own)))
    if event.awaited and event.first != instance.instance_id:
        run = replace(run, put_down=failure_of(event))
    if event.suspect == instance.instance_id:
        run = replace(run, because=event.because, again=event.again)
    if event.named:
        run = replace(run, named=RankOnInstance(event.job_id, event.attempt))
    changes, orders = run_check(instance, run)
    active_changes, active = activate(instance)
    changes |= {
        **active_changes,
        "claims": claims_left,
        "reserved_for": reservation_for(instance, event),
        "need": None,
        "held": None,
        "checked_for": _checked_for(instance, event),
        "also_waiting": other_waiting_jobs(instance, event.job_id),
    }
    how = "failed on it" if event.awaited else "crashed on it and does not wait for the result"
    reason = f"checked because attempt {event.attempt} of {event.job_id} {how}"
    return Step(InstanceStatus.CHECKING, reason, changes, (*active, *orders))


def check_requested_while_checked(
    instance: Instance, event: events.CheckRequested, context: DecisionContext
) -> Step | Ignore:
    """Replace a passive check, or an idle check, by the check that the job itself asks for."""
    run = instance.check
    if run is None or not (run.passive or run.idle) or run.job_id or _was_checked_before(instance, event):
        return check_impossible(instance, event, context)
    step = check_requested(instance, event, context)
    if isinstance(step, Ignore):
        return step
    # The superseded check may have ended without a report of ECS yet.
    instead = replace(
        step.changes["check"],
        superseded=run.check_id,
        superseded_task_id=run.task_id,
        superseded_signed=run.signed,
    )
    return replace(
        step,
        changes={**step.changes, "check": instead},
        commands=(stop_check(run), *step.commands),
    )


def check_impossible(instance: Instance, event: events.CheckRequested, context: DecisionContext) -> Step | Ignore:
    """Answer a request at once if the instance cannot be checked for the job: its barrier must not wait."""
    if _was_checked_before(instance, event):
        return _ASKED_BEFORE
    blamed = instance.reboot is not None or instance.need is not None
    gone = instance.status is InstanceStatus.GONE
    outcome = CheckOutcome.REBOOT if blamed else CheckOutcome.GONE if gone else CheckOutcome.INCONCLUSIVE
    summary = f"the instance is {instance.status}: {instance.reason}"
    changes: dict[str, Any] = {
        "claims": _without_claim(instance, event.job_id),
        "checked_for": _checked_for(instance, event),
    }
    if not event.awaited:
        reserved_for = reservation_for(instance, event)
        return Step(instance.status, instance.reason, {**changes, "reserved_for": reserved_for})
    if blamed:
        others = other_waiting_jobs(instance, event.job_id)
        changes["also_waiting"] = (*others, RankOnInstance(event.job_id, event.attempt))[-WAITING_MAX:]
    order = commands.ReportCheck(event.job_id, event.attempt, outcome, summary, blamed)
    return Step(instance.status, instance.reason, changes, (order,))


def _was_checked_before(instance: Instance, event: events.CheckRequested) -> bool:
    """Return whether the attempt had its check already, or a later attempt of its job claims the instance."""
    claim = instance.claims.get(event.job_id)
    outdated = claim is not None and claim.attempt > event.attempt
    return outdated or attempt_id(event.job_id, event.attempt) in instance.checked_for


def reservation_for(instance: Instance, event: events.CheckRequested | events.RepairRequested) -> str:
    """Return the job that the instance is reserved for from now on.

    A job that waits for its request keeps the instance. A job that does not wait releases its reservation.
    """
    if event.awaited:
        return event.job_id
    return "" if instance.reserved_for == event.job_id else instance.reserved_for


def _checked_for(instance: Instance, event: events.CheckRequested) -> tuple[str, ...]:
    """Return the attempts that had the instance checked, including that of `event`."""
    return (*instance.checked_for, attempt_id(event.job_id, event.attempt))[-REMEMBERED_MAX:]


def _without_claim(instance: Instance, job_id: str) -> dict[str, Claim]:
    """Return the claims without that of `job_id`."""
    return {job: claim for job, claim in instance.claims.items() if job != job_id}


# -- end of the check --------------------------------------------------------------------------------------------------


def is_awaited(instance: Instance, event: events.CheckEnded | events.IdleCheckPreempted) -> bool:
    """Return whether `event` is about the current check, or the superseded check found the hardware faulty."""
    run = instance.check
    if run is None or isinstance(event, events.IdleCheckPreempted):
        return run is not None and event.check_id == run.check_id
    blames = event.check_id == run.superseded != "" and event.verdict.outcome.blames_hardware
    return blames or event.check_id == run.check_id


def check_ended(instance: Instance, event: events.CheckEnded, context: DecisionContext) -> Step | Ignore:
    """Handle the verdict: evidence against the hardware escalates, and so does the suspicion of a repeat offender.

    A fault that was found although the agent read no GPU Operational Event leaves an entry in the history.
    """
    step = _ended(instance, event, context)
    if isinstance(step, Ignore) or instance.check is None or instance.check.idle is not None:
        return step
    return gpu_events.with_missing_events(instance, step, event.verdict, context)


def _ended(instance: Instance, event: events.CheckEnded, context: DecisionContext) -> Step | Ignore:
    """Decide about the verdict. Evidence against the hardware escalates, and so does a repeat offender.

    Otherwise the instance is AVAILABLE again, or quarantined if evidence behind a held repair still stands. An
    inconclusive check does not revoke a fault that a health source reported in the same incident.
    """
    run = instance.check
    if run is None:
        return NO_CHECK
    verdict = idle_check.with_origin(run, event.verdict)
    changes: dict[str, Any] = {
        "check": None,
        "boot_id": verdict.boot_id or instance.boot_id,
        "booted_at": verdict.booted_at or instance.booted_at,
        **idle_check.result_after(instance, run, verdict, context.now),
    }
    verdict_text = f"{verdict.outcome}: {verdict.summary}"
    if instance.has_left:
        return gone(instance, f"its registration is {instance.ecs_status}; {verdict_text}", changes, context.now)
    if event.check_id != run.check_id:
        # The verdict counts as if it had come before the job's request: the instance's own check has no job's limits.
        step = _blamed(instance, replace(run, may_reboot=True), verdict, changes, context)
        return replace(step, commands=(stop_check(run), *step.commands))
    if verdict.outcome.blames_hardware:
        return _blamed(instance, run, verdict, changes, context)
    if idle_check.proves_nothing(run, verdict):
        return idle_check.ended_without_proof(instance, run, verdict.summary, context.now, changes)
    if run.because and run.may_reboot and not run.passive and verdict.outcome in _NOTHING_FOUND:
        # A reboot that did not help is repeated only if replacing is switched off.
        rung = RepairLevel.REPLACE if run.again and context.policy.replace else RepairLevel.REBOOT
        evidence = f"{run.because}; its check found nothing ({verdict_text})"
        report = CheckOutcome.SUSPECTED, run.because
        return _to_repair(instance, run, (rung, evidence), report, changes, context)
    fault = standing_fault(instance, run, context) if verdict.outcome is not CheckOutcome.HEALTHY else None
    if fault is not None:
        return _blamed(instance, run, verdict_by(fault, verdict), changes, context)
    outcome, summary = verdict.outcome, verdict.summary
    if run.passive and outcome is CheckOutcome.HEALTHY:
        outcome, summary = CheckOutcome.INCONCLUSIVE, f"other jobs run on it, so only its logs were read: {summary}"
    orders = (*check_report(run, outcome, summary), *_named_report(instance, run, verdict, event.at))
    known = run.idle is not None and instance.idle_check is not None and instance.idle_check.outcome == outcome
    if outcome is CheckOutcome.CONFIGURATION and not known:  # an idle check says so once, not in each period
        orders = (*orders, instances.misconfigured(instance, verdict.summary))
    healed = verdict.outcome is CheckOutcome.HEALTHY
    if not healed and _is_blamed(instance):
        return repair_given_up(instance, f"{verdict_text}; {_STILL_BLAMED}", context, changes, orders)
    if run.passive:
        changes["health"] = after_passive_check(instance.health)
    elif healed:
        changes["health"] = cleared_by_check(instance.health, event.at)
        changes |= idle_check.without_fault(instance, run) if run.idle is None else {}
    ended = repair_ended(instance, healed, f"{instance.instance_id} was checked again: {verdict_text}", context.now)
    return Step(
        InstanceStatus.AVAILABLE, verdict_text, {**changes, **_SETTLED}, (*orders, *ended, *poke_if_usable(instance))
    )


def _named_report(instance: Instance, run: CheckRun, verdict: Verdict, at: datetime) -> tuple[commands.TellJob, ...]:
    """Return the command that tells the job whose failure named the instance that the check found no fault."""
    if run.named is None or verdict.outcome not in _NOTHING_FOUND:
        return ()
    sentence = f"{verdict.outcome}: {verdict.summary}"[:SENTENCE_MAX]
    passed = events.NamedInstancePassed(
        at=at, attempt=run.named.attempt, instance_id=instance.instance_id, sentence=sentence
    )
    return (commands.TellJob(run.named.job_id, passed),)


_SETTLED: dict[str, Any] = {"held": None, "also_waiting": ()}
_NOTHING_FOUND = (CheckOutcome.HEALTHY, CheckOutcome.INCONCLUSIVE)
_STILL_BLAMED = "the fault that was found before, while its repair was blocked, still counts"
"""Addition to a reason if the evidence behind a held repair still stands."""


def _is_blamed(instance: Instance) -> bool:
    """Return whether the check re-validates evidence of a held repair. Only a passed check revokes that evidence."""
    held, blamed_at = instance.held, instance.blamed_at
    return held is not None and blamed_at is not None and blamed_at >= held.since


def _blamed(
    instance: Instance, run: CheckRun, verdict: Verdict, changes: dict[str, Any], context: DecisionContext
) -> Step:
    """Escalate the verdict, or hand the instance to an operator if the job may have no more repairs."""
    resets = verdict.reset and context.policy.gpu_reset
    verdict_text = f"{RepairLevel.RESET if resets else verdict.outcome}: {verdict.summary}"
    if not run.may_reboot:
        reported = check_report(run, verdict.outcome, verdict.summary)
        reason = f"{verdict_text}; nothing more is repaired for {run.job_id}"
        return repair_given_up(instance, reason, context, {**changes, "blamed_at": context.now}, reported)
    gravest = RepairLevel.REPLACE if verdict.outcome is CheckOutcome.REPLACE else RepairLevel.REBOOT
    rung = RepairLevel.RESET if verdict.reset else gravest
    return _to_repair(instance, run, (rung, verdict_text), (verdict.outcome, verdict.summary), changes, context)


def _to_repair(
    instance: Instance,
    run: CheckRun,
    wanted: tuple[RepairLevel, str],
    report: tuple[CheckOutcome, str],
    changes: dict[str, Any],
    context: DecisionContext,
) -> Step:
    """Escalate the instance and report the result to the job.

    Args:
        wanted: repair level and evidence.
        report: outcome and summary that the job receives.
    """
    waiting = run.waiting
    need = RepairNeed(
        *wanted,
        context.now,
        boot_id=changes["boot_id"],
        job_id=waiting.job_id if waiting else run.job_id,
        attempt=waiting.attempt if waiting else run.attempt,
    )
    step = escalate(instance, need, context, changes)
    repairing = step.changes.get("need") is not None
    return replace(step, commands=(*step.commands, *check_report(run, *report, repairing)))


def check_overdue(instance: Instance, event: events.InstanceDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Handle a check that gave no answer in time.

    A check that ECS never started is no evidence about the instance: another task uses the GPUs, the deployment lacks a
    permission, or others have drained the instance. A check that started and never ended is evidence against the
    instance.
    """
    run = instance.check
    if run is None:
        return NO_CHECK
    limit_s = check_limit_s(run, context.policy.check_timeout_s)
    limit_at = instance.status_at + duration(limit_s)
    if run.task_id and context.now < limit_at:
        return Step(instance.status, instance.reason, {"deadline_at": limit_at})  # it has started all the same
    if instance.has_left or run.orphaned_at is not None:
        return orphan_overdue(instance, run, context)
    reason = f"its health check gave no answer within {limit_s} s"
    refused = any(
        pending.command == commands.RunCheck(run.check_id) and pending.refusals for pending in instance.commands
    )
    drained = instance.drained_by_others and not run.task_id
    if (refused or drained) and instance.agent_connected:
        because = f": {run.refusal.reason}" if run.refusal is not None else ""
        reason = f"ECS never started its health check within {limit_s} s{because}"
        if drained:
            reason = f"its health check could not start: {DRAINED_BY_OTHERS}"
        fault = standing_fault(instance, run, context)
        if fault is not None or _is_blamed(instance):
            # Another task may hold the GPUs, so an operator decides about a reboot.
            still = fault.sentence if fault is not None else _STILL_BLAMED
            inconclusive = check_report(run, CheckOutcome.INCONCLUSIVE, reason)
            return repair_given_up(instance, f"{reason}; {still}", context, None, inconclusive)
        ended = repair_ended(instance, False, f"{instance.instance_id}: {reason}", context.now)
        if run.idle is not None:
            return idle_check.ended_without_proof(instance, run, reason, context.now, {"check": None, **_SETTLED})
        reports = (*check_report(run, CheckOutcome.INCONCLUSIVE, reason), instances.never_checked(instance, reason))
        orders = (*reports, *ended, *poke_if_usable(instance))
        unhandled = {"health": after_passive_check(instance.health)} if run.passive else {}
        return Step(InstanceStatus.AVAILABLE, reason, {"check": None, **unhandled, **_SETTLED}, orders)
    orders = (stop_check(run), *check_report(run, CheckOutcome.INCONCLUSIVE, reason))
    if run.passive and not _is_blamed(instance):  # it only reads logs, and another job works on the instance
        health = after_passive_check(instance.health)
        freed = (*orders, *poke_if_usable(instance))
        return Step(InstanceStatus.AVAILABLE, reason, {"check": None, "health": health, **_SETTLED}, freed)
    return repair_given_up(instance, reason, context, None, orders)


def orphan_overdue(instance: Instance, run: CheckRun, context: DecisionContext) -> Step:
    """Handle a check that gave no answer after the registration under it had ended.

    A check gives up by itself, unless its process hangs. Only a boot ends such a process, and ECS cannot stop it. If
    the node agent, which reports boots, has reported none, an operator gets the instance. Without a node agent a boot
    may have ended the check.
    """
    reason = "its registration ended under its health check, which gave no answer"
    told, since = instance.boot_heard_at, run.orphaned_at
    if instance.has_left or told is None or since is None or told > since:
        return orphan_ended(instance, run, reason, {}, context)
    reports = check_report(run, CheckOutcome.INCONCLUSIVE, reason)
    return repair_given_up(instance, f"{reason}: it may still run, and only a boot ends it", context, None, reports)


def orphan_ended(
    instance: Instance, run: CheckRun, reason: str, changes: dict[str, Any], context: DecisionContext
) -> Step:
    """Handle the end of an orphaned check without an answer: by itself, or by a boot.

    Its silence is no evidence against the instance. An instance that has registered again is checked again.
    """
    if instance.has_left:
        return gone(instance, reason, changes, context.now)
    reports = check_report(run, CheckOutcome.INCONCLUSIVE, reason)
    changes = {**changes, "deadline_at": context.now + duration(check_limit_s(run, context.policy.verify_timeout_s))}
    step = verify(instance, f"{reason}: checking once more", run.proof_needed, changes, run.repeats, run.since)
    return replace(step, commands=(*reports, *step.commands))


def poll_check(instance: Instance, event: events.InstanceLookDue, context: DecisionContext) -> Step | Ignore:
    """Poll the check, because the report of its end may have been lost.

    Nothing is asked about a check whose task is known to run, or that no answer of ECS has started yet.
    """
    if instance.check is None:
        return NO_CHECK
    if idle_check.is_stopped(instance.check):
        return idle_check.poll_stopped(instance, instance.check, event, context)
    check_id = instance.check.check_id
    to_start = any(pending.command == commands.RunCheck(check_id) for pending in instance.commands)
    asks = () if event.check_runs or to_start else unless_pending(instance, commands.ObserveCheck(check_id))
    return Step(instance.status, instance.reason, {}, asks)
