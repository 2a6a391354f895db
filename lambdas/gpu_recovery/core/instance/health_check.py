"""The health check of an instance: who may ask for it, what its verdict leads to, and what if there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.effects import (
    WAITING_MAX,
    activate,
    check_report,
    other_waiting_jobs,
    poke_if_usable,
    repair_ended,
    run_check,
)
from gpu_recovery.core.instance.escalation import escalate
from gpu_recovery.core.instance.fault_history import failure_of
from gpu_recovery.core.instance.faults import standing_fault, verdict_by
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
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, unless_pending

REMEMBERED_MAX = 8
"""How many of its past registrations and of the attempts that had it checked a record remembers."""
NO_CHECK = Ignore("no check is under way")
_ASKED_BEFORE = Ignore("it was checked for this attempt, or a later one has it")


def check_requested(instance: Instance, event: events.CheckRequested, given: DecisionContext) -> Step | Ignore:
    """A job's attempt has failed on it. Where others work on it too, the check only reads what the machine logged."""
    if _was_checked_before(instance, event):
        return _ASKED_BEFORE
    left = _without_claim(instance, event.job_id)
    asker = (event.job_id, event.attempt) if event.awaited else ("", 0)
    run = CheckRun("", *asker, event.may_reboot, passive=bool(left), since=event.since)
    own = f"{instance.instance_id}/"
    run = replace(run, focus=tuple(one.removeprefix(own) for one in event.focus if one.startswith(own)))
    if event.awaited and event.first != instance.instance_id:
        run = replace(run, put_down=failure_of(event))
    if event.suspect == instance.instance_id:
        run = replace(run, because=event.because, again=event.again)
    changes, orders = run_check(instance, run)
    active_changes, active = activate(instance)
    changes |= {
        **active_changes,
        "claims": left,
        "reserved_for": reservation_for(instance, event),
        "need": None,
        "held": None,
        "checked_for": _checked_for(instance, event),
        "also_waiting": other_waiting_jobs(instance, event.job_id),
    }
    how = "failed on it" if event.awaited else "crashed on it and waits for no answer"
    reason = f"checked because attempt {event.attempt} of {event.job_id} {how}"
    return Step(InstanceStatus.CHECKING, reason, changes, (*active, *orders))


def check_requested_while_checked(
    instance: Instance, event: events.CheckRequested, given: DecisionContext
) -> Step | Ignore:
    """A check that only reads logs beside a job gives way to that job's own."""
    run = instance.check
    if run is None or not run.passive or run.job_id or _was_checked_before(instance, event):
        return check_impossible(instance, event, given)
    step = check_requested(instance, event, given)
    if isinstance(step, Ignore):
        return step
    # Its own check may have ended by now, and ECS has not said so yet.
    instead = replace(step.changes["check"], superseded=run.check_id)
    return replace(
        step, changes={**step.changes, "check": instead}, commands=(commands.StopCheck(run.check_id), *step.commands)
    )


def check_impossible(instance: Instance, event: events.CheckRequested, given: DecisionContext) -> Step | Ignore:
    """A check is asked for while the instance cannot be checked for this job: the barrier must not wait for it."""
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
    """Whether the attempt has had its check, or a later attempt of its job has taken the instance since."""
    claim = instance.claims.get(event.job_id)
    outdated = claim is not None and claim.attempt > event.attempt
    return outdated or attempt_id(event.job_id, event.attempt) in instance.checked_for


def reservation_for(instance: Instance, event: events.CheckRequested | events.RepairRequested) -> str:
    """For whom it is kept: the job that waits for what it asked for goes on there; one that does not gives it back."""
    if event.awaited:
        return event.job_id
    return "" if instance.reserved_for == event.job_id else instance.reserved_for


def _checked_for(instance: Instance, event: events.CheckRequested) -> tuple[str, ...]:
    return (*instance.checked_for, attempt_id(event.job_id, event.attempt))[-REMEMBERED_MAX:]


def _without_claim(instance: Instance, job_id: str) -> dict[str, Claim]:
    return {job: claim for job, claim in instance.claims.items() if job != job_id}


# -- how it ends -------------------------------------------------------------------------------------------------------


def is_awaited(instance: Instance, event: events.CheckEnded) -> bool:
    """Whether `event` is about the check under way, or blames the machine by the check that this one superseded."""
    run = instance.check
    if run is None:
        return False
    blames = event.check_id == run.superseded != "" and event.verdict.outcome.blames_hardware
    return blames or event.check_id == run.check_id


def check_ended(instance: Instance, event: events.CheckEnded, given: DecisionContext) -> Step | Ignore:
    """Evidence against the machine leads up the ladder; anything else leaves it in use.

    A check that could not tell takes nothing back that a watcher has reported in the same incident.
    """
    run, verdict = instance.check, event.verdict
    if run is None:
        return NO_CHECK
    changes: dict[str, Any] = {
        "check": None,
        "boot_id": verdict.boot_id or instance.boot_id,
        "booted_at": verdict.booted_at or instance.booted_at,
    }
    told = f"{verdict.outcome}: {verdict.summary}"
    if event.check_id != run.check_id:
        # As if it had been heard before the job asked: the machine's own check is under no job's limits.
        step = _blamed(instance, replace(run, may_reboot=True), verdict, changes, given)
        return replace(step, commands=(commands.StopCheck(run.check_id), *step.commands))
    if verdict.outcome.blames_hardware:
        return _blamed(instance, run, verdict, changes, given)
    if run.because and run.may_reboot and not run.passive and verdict.outcome in _NOTHING_FOUND:
        # What a reboot has not cured is rebooted once more only where there is nothing better.
        rung = RepairLevel.REPLACE if run.again and given.policy.replace else RepairLevel.REBOOT
        evidence = f"{run.because}; its check found nothing ({told})"
        said = CheckOutcome.SUSPECTED, run.because
        return _to_repair(instance, run, (rung, evidence), said, changes, given)
    fault = standing_fault(instance, run, given) if verdict.outcome is not CheckOutcome.HEALTHY else None
    if fault is not None:
        return _blamed(instance, run, verdict_by(fault, verdict), changes, given)
    outcome, summary = verdict.outcome, verdict.summary
    if run.passive and outcome is CheckOutcome.HEALTHY:
        outcome, summary = CheckOutcome.INCONCLUSIVE, f"others work on it, so only its logs were read: {summary}"
    orders = check_report(run, outcome, summary)
    if outcome is CheckOutcome.CONFIGURATION:
        orders = (*orders, instances.misconfigured(instance, verdict.summary))
    healed = verdict.outcome is CheckOutcome.HEALTHY
    if not healed and _is_blamed(instance):
        return repair_given_up(instance, f"{told}; {_STILL_BLAMED}", given, changes, orders)
    ended = repair_ended(instance, healed, f"{instance.instance_id} was checked afresh: {told}", given.now)
    return Step(InstanceStatus.AVAILABLE, told, {**changes, **_SETTLED}, (*orders, *ended, *poke_if_usable(instance)))


_SETTLED: dict[str, Any] = {"held": None, "also_waiting": ()}
_NOTHING_FOUND = (CheckOutcome.HEALTHY, CheckOutcome.INCONCLUSIVE)
_STILL_BLAMED = "what it was blamed for while its repair was held back still stands"


def _is_blamed(instance: Instance) -> bool:
    """Whether the check looks afresh at evidence that has been waiting: only a pass takes that back."""
    held, blamed_at = instance.held, instance.blamed_at
    return held is not None and blamed_at is not None and blamed_at >= held.since


def _blamed(
    instance: Instance, run: CheckRun, verdict: Verdict, changes: dict[str, Any], given: DecisionContext
) -> Step:
    told = f"{verdict.outcome}: {verdict.summary}"
    if not run.may_reboot:
        reported = check_report(run, verdict.outcome, verdict.summary)
        reason = f"{told}; nothing more is repaired for {run.job_id}"
        return repair_given_up(instance, reason, given, {**changes, "blamed_at": given.now}, reported)
    rung = RepairLevel.REPLACE if verdict.outcome is CheckOutcome.REPLACE else RepairLevel.REBOOT
    return _to_repair(instance, run, (rung, told), (verdict.outcome, verdict.summary), changes, given)


def _to_repair(
    instance: Instance,
    run: CheckRun,
    wanted: tuple[RepairLevel, str],
    said: tuple[CheckOutcome, str],
    changes: dict[str, Any],
    given: DecisionContext,
) -> Step:
    """Through the one door: `wanted` are the rung and the evidence, `said` is what the job hears of it."""
    waiting = run.waiting
    need = RepairNeed(
        *wanted,
        given.now,
        boot_id=changes["boot_id"],
        job_id=waiting.job_id if waiting else run.job_id,
        attempt=waiting.attempt if waiting else run.attempt,
    )
    step = escalate(instance, need, given, changes)
    repairing = step.changes.get("need") is not None
    return replace(step, commands=(*step.commands, *check_report(run, *said, repairing)))


def check_overdue(instance: Instance, event: events.InstanceDeadlineReached, given: DecisionContext) -> Step | Ignore:
    """A check that never started says something about who uses the GPUs; one that never ended, about the machine."""
    run = instance.check
    if run is None:
        return NO_CHECK
    reason = f"its health check gave no answer within {given.policy.check_timeout_s} s"
    refused = any(one.command == commands.RunCheck(run.check_id) and one.refusals for one in instance.commands)
    if refused and instance.agent_connected:
        reason = f"ECS never started its health check within {given.policy.check_timeout_s} s"
        fault = standing_fault(instance, run, given)
        if fault is not None or _is_blamed(instance):
            # Somebody else holds the GPUs, so nothing is rebooted under them without a person's word.
            still = fault.sentence if fault is not None else _STILL_BLAMED
            inconclusive = check_report(run, CheckOutcome.INCONCLUSIVE, reason)
            return repair_given_up(instance, f"{reason}; {still}", given, None, inconclusive)
        ended = repair_ended(instance, False, f"{instance.instance_id}: {reason}", given.now)
        told = (*check_report(run, CheckOutcome.INCONCLUSIVE, reason), instances.never_checked(instance, reason))
        orders = (*told, *ended, *poke_if_usable(instance))
        return Step(InstanceStatus.AVAILABLE, reason, {"check": None, **_SETTLED}, orders)
    orders = (commands.StopCheck(run.check_id), *check_report(run, CheckOutcome.INCONCLUSIVE, reason))
    if run.passive and not _is_blamed(instance):  # it only reads logs, and somebody's job goes on beside it
        return Step(InstanceStatus.AVAILABLE, reason, {"check": None, **_SETTLED}, (*orders, *poke_if_usable(instance)))
    return repair_given_up(instance, reason, given, None, orders)


def poll_check(instance: Instance, event: events.InstanceLookDue, given: DecisionContext) -> Step | Ignore:
    """Perhaps its end was told and lost."""
    if instance.check is None:
        return NO_CHECK
    look = commands.ObserveCheck(instance.check.check_id)
    return Step(instance.status, instance.reason, {}, unless_pending(instance, look))
