"""The ladder and its brakes: every repair begins here, or is held back here.

check -> reboot -> replace -> a person. `escalate` is the one door: it picks the rung (caps and cool-downs push up),
asks whether the repair may begin (nobody else works on the machine, the fleet's budget, the breaker, the kill switch),
and either begins it or holds it. What is held asks again at every look, with old evidence looked at afresh first, and
goes to a person when it has been held too long.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import repair_blocked_reason, with_blame
from gpu_recovery.core.health_signals import DepartureKind, HealthKind, HealthStatus
from gpu_recovery.core.instance.effects import activate, drain, run_check, verify
from gpu_recovery.core.instance.fault_history import percent, score_sentence
from gpu_recovery.core.instance.quarantine import remind_operators, repair_given_up
from gpu_recovery.core.instance.record import (
    IN_USE,
    CheckRun,
    Instance,
    InstanceStatus,
    RankOnInstance,
    Reboot,
    RepairHold,
    RepairLevel,
    RepairNeed,
)
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step

EVIDENCE_CHARACTERS_MAX = 500
"""What others say of a machine is kept in its record, and said again with every step."""
LEVEL_NAMES = {RepairLevel.CHECK: "its check", RepairLevel.REBOOT: "its reboot", RepairLevel.REPLACE: "its replacement"}


def escalate(
    instance: Instance,
    need: RepairNeed,
    given: DecisionContext,
    changes: dict[str, Any] | None = None,
    orders: tuple[Any, ...] = (),
) -> Step:
    """Begin what the instance needs, or hold it, or hand it to a person."""
    need = escalated(instance, replace(need, evidence=need.evidence[:EVIDENCE_CHARACTERS_MAX]), given)
    facts = dict(changes or {})
    if _is_blamed_anew(instance, need):
        facts["blamed_at"] = given.now
    if need.rung is RepairLevel.REPLACE and not given.policy.replace and need.source in tuple(HealthKind):
        # A watcher may take its word back; a person is asked only if it does not.
        return hold(instance, need, "replacing is switched off", given, facts, orders)
    if need.rung is RepairLevel.REPLACE and not given.policy.replace:
        reason = f"{need.evidence}; it must be replaced, and replacing is switched off"
        return repair_given_up(instance, reason, given, facts, orders)
    if need.rung is RepairLevel.REPLACE and is_on_a_new_host(instance, given):
        reason = f"{need.evidence}; another host was put under it less than {given.policy.relapse_window_s} s ago"
        return repair_given_up(instance, reason, given, facts, orders)
    rebooted = len(_recent(instance, given))
    if need.rung is RepairLevel.REPLACE and rebooted > given.policy.reboots_max:
        reason = f"{need.evidence}; it was rebooted {rebooted} times within {given.policy.reboot_window_s} s"
        return repair_given_up(instance, reason, given, facts, orders)
    why = blocked_reason(instance, need, given)
    if why:
        return hold(instance, need, why, given, facts, orders)
    return begin(instance, need, given, facts, orders)


def is_on_a_new_host(instance: Instance, given: DecisionContext) -> bool:
    """Whether it was stopped and started so lately that doing it again would cure nothing."""
    replaced_at = instance.replaced_at
    return replaced_at is not None and given.now - replaced_at < within(given.policy.relapse_window_s)


def _recent(instance: Instance, given: DecisionContext) -> tuple[datetime, ...]:
    """When it was rebooted, or stopped and started, as far back as its caps look."""
    return tuple(at for at in instance.reboots if given.now - at < within(given.policy.reboot_window_s))


def escalated(instance: Instance, need: RepairNeed, given: DecisionContext) -> RepairNeed:
    """The need on the rung that its instance's past asks for: what a reboot did not cure, a reboot does not cure.

    A reboot that is to end a rank is not a cure, so no past forbids it.
    """
    if need.rung is not RepairLevel.REBOOT or need.ends is not None:
        return need
    policy = given.policy
    recent = _recent(instance, given)
    if instance.departure is not None and instance.departure.kind is DepartureKind.RETIREMENT:
        why = "its host is to be retired, which no reboot cures"
    elif len(recent) >= policy.reboots_max:
        why = f"it was rebooted {len(recent)} time(s) within {policy.reboot_window_s} s"
    elif instance.healed_at is not None and given.now - instance.healed_at < within(policy.relapse_window_s):
        why = f"its last repair held for less than {policy.relapse_window_s} s"
    elif (lemon := percent(instance.past, given.now)) >= policy.lemon_replace:
        why = f"its lemon score is {lemon} %: {score_sentence(instance.past, given.now)}"
    else:
        return need
    return replace(need, rung=RepairLevel.REPLACE, evidence=f"{need.evidence}; {why}")


def blocked_reason(instance: Instance, need: RepairNeed, given: DecisionContext) -> str:
    """Why the need may not be met now; "" if it may. A check hurts nobody: where others work it is a passive one."""
    if need.rung is RepairLevel.CHECK:
        return ""
    others = claimants(instance, need)
    if others:
        return f"{', '.join(others)} must leave it first"
    if given.policy.observe_only and instance.status not in IN_USE:
        return "the system is observe-only"
    return _blocked_by_fleet(instance, need, given)


def _blocked_by_fleet(instance: Instance, need: RepairNeed, given: DecisionContext) -> str:
    """Why the fleet's brakes let no repair of the instance begin; "" if they do."""
    fleet = given.fleet_limits
    if _is_blamed_anew(instance, need):
        fleet = with_blame(fleet, instance.instance_id, instance.gpus_most, given.policy, given.now)
    replacing = need.rung is RepairLevel.REPLACE
    return repair_blocked_reason(fleet, instance.instance_id, given.policy, given.now, replacing=replacing)


def claimants(instance: Instance, need: RepairNeed) -> list[str]:
    """The jobs that work on the instance, but for the one whose rank the repair is to end."""
    ended = need.ends.job_id if need.ends is not None else ""
    return sorted(job_id for job_id in instance.claims if job_id != ended)


def _is_blamed_anew(instance: Instance, need: RepairNeed) -> bool:
    """Whether this is news for the breaker: not an announcement, not a rank that would not stop, not a known need."""
    evidence = need.source == "" or need.source in tuple(HealthKind)
    return evidence and need.rung is not RepairLevel.CHECK and need.ends is None and instance.need is None


# -- holding -----------------------------------------------------------------------------------------------------------


def hold(
    instance: Instance,
    need: RepairNeed,
    why: str,
    given: DecisionContext,
    changes: dict[str, Any],
    orders: tuple[Any, ...],
    poll_s: int = 0,
) -> Step:
    """Out of use until the need may be met. Claimants hear that they must leave; operators hear it once."""
    before = instance.held
    told = before.told if before is not None else ()
    # Nobody is asked to leave for a repair that may not begin, but what EC2 announces does not wait for our brakes.
    announced = need.source not in ("", *HealthKind)
    there = claimants(instance, need)
    stays = "" if announced or not there else _blocked_by_fleet(instance, need, given)
    news = [job_id for job_id in there if job_id not in told and not stays]
    why = stays or why
    held = RepairHold(before.since if before is not None else given.now, why, (*told, *news))
    leave = tuple(_ask_to_leave(instance, need, job_id, given) for job_id in news)
    reason = f"{need.evidence}; {LEVEL_NAMES[need.rung]} is held back: {why}"
    # At each look that finds it still held there is nothing to order: orders nobody carries out would pile up.
    drain_changes, draining = drain(instance) if instance.status is not InstanceStatus.QUARANTINED else ({}, ())
    held_changes = {
        "need": need,
        "held": held,
        "check": None,
        "reboot": None,
        "deadline_at": held.since + within(given.policy.repair_hold_timeout_s),
        "look_at": given.now + within(poll_s or given.policy.hold_retry_interval_s),
    }
    return Step(
        InstanceStatus.QUARANTINED,
        reason,
        {**drain_changes, **changes, **held_changes},
        (*orders, *draining, *leave),
    )


def _ask_to_leave(instance: Instance, need: RepairNeed, job_id: str, given: DecisionContext) -> commands.TellJob:
    sentence = f"{instance.instance_id} needs {LEVEL_NAMES[need.rung].removeprefix('its ')}: {need.evidence}"
    event = events.InstanceNeedsRepair(
        at=given.now, attempt=instance.claims[job_id].attempt, instance_id=instance.instance_id, sentence=sentence
    )
    return commands.TellJob(job_id, event)


def retry_held(instance: Instance, need: RepairNeed, given: DecisionContext) -> Step:
    """A need that is held: may it be met by now? Evidence that has grown old is looked at afresh first.

    Where the watcher has taken its word back while jobs were still leaving, only a check is left to be made.
    """
    if is_withdrawn(instance, need):
        if instance.claims:
            return _stay_held(instance, given)
        return check_instead(instance, f"{need.source} says that it is well again", {})
    # Of what EC2 says of the machine a check of its GPUs shows nothing; EC2 itself is asked each minute.
    stale = not need.source and given.now - need.seen_at >= within(given.policy.evidence_stale_s)
    if stale and need.rung is not RepairLevel.CHECK and need.ends is None and instance.agent_connected:
        fresh = replace(need, rung=RepairLevel.CHECK, evidence=f"{need.evidence} (some time ago)")
        return (
            escalate(instance, fresh, given)
            if not blocked_reason(instance, need, given)
            else _stay_held(instance, given)
        )
    return escalate(instance, need, given)


def _stay_held(instance: Instance, given: DecisionContext) -> Step:
    return Step(instance.status, instance.reason, {"look_at": given.now + within(given.policy.hold_retry_interval_s)})


def is_withdrawn(instance: Instance, need: RepairNeed) -> bool:
    """Whether the watcher on whose word the need rests, or the announcement it rests on, is no more."""
    if need.source in tuple(HealthKind):
        health = instance.health.get(need.source)
        return health is not None and health.status is HealthStatus.OK
    return bool(need.source) and (instance.departure is None or instance.departure.source != need.source)


def check_instead(instance: Instance, reason: str, changes: dict[str, Any]) -> Step:
    """What is held needs no repair any more: it works again once it passes a check, which whoever waits hears of."""
    return verify(instance, f"{reason}: it must pass a check first", False, {**changes, "need": None})


def held_too_long(instance: Instance, need: RepairNeed, held: RepairHold, given: DecisionContext) -> Step:
    """Nothing has let the repair begin: a person decides."""
    limit = given.policy.repair_hold_timeout_s
    reason = f"{need.evidence}; {LEVEL_NAMES[need.rung]} was held back for {limit} s: {held.sentence}"
    return repair_given_up(instance, reason, given)


# -- beginning ---------------------------------------------------------------------------------------------------------


def begin(
    instance: Instance, need: RepairNeed, given: DecisionContext, changes: dict[str, Any], orders: tuple[Any, ...]
) -> Step:
    """The need is met: on its rung."""
    if need.rung is RepairLevel.CHECK:
        return _check(instance, need, changes, orders)
    reboot = Reboot(given.now, need.boot_id or instance.boot_id, need.job_id, need.attempt, need.ends)
    return repair(instance, need, reboot, f"{need.evidence}; {_DOING[need.rung]}", given, changes, orders)


_DOING = {RepairLevel.REBOOT: "rebooting", RepairLevel.REPLACE: "replacing"}


def _check(instance: Instance, need: RepairNeed, changes: dict[str, Any], orders: tuple[Any, ...]) -> Step:
    waiting = RankOnInstance(need.job_id, need.attempt) if need.job_id else None
    run_changes, checks = run_check(instance, CheckRun("", waiting=waiting, passive=bool(instance.claims)))
    active_changes, active = activate(instance)
    all_changes = {"need": None, **changes, **active_changes, **run_changes}
    return Step(InstanceStatus.CHECKING, f"{need.evidence}; checking it", all_changes, (*orders, *active, *checks))


def repair(
    instance: Instance,
    need: RepairNeed,
    reboot: Reboot,
    reason: str,
    given: DecisionContext,
    changes: dict[str, Any],
    orders: tuple[Any, ...],
) -> Step:
    """Drain, then reboot or replace; the epoch rises so that no claim from before can be mistaken for one after."""
    policy, epoch = given.policy, instance.epoch + 1
    replacing = need.rung is RepairLevel.REPLACE
    limit = policy.replace_timeout_s if replacing else policy.reboot_timeout_s
    timed = replace(reboot, deadline_at=reboot.deadline_at or given.now + within(limit))
    drain_changes, draining = drain(instance)
    all_changes = {
        **drain_changes,
        **changes,
        "epoch": epoch,
        "need": need,
        "check": None,
        "reboot": timed,
        "reboots": (*_recent(instance, given), given.now),
    }
    order = commands.ReplaceInstance(epoch) if replacing else commands.RebootInstance(epoch)
    status = InstanceStatus.REPLACING if replacing else InstanceStatus.REBOOTING
    return Step(status, reason, all_changes, (*draining, order, *orders))


def deadline_of_quarantined(
    instance: Instance, event: events.InstanceDeadlineReached, given: DecisionContext
) -> Step | Ignore:
    """What is held was held too long; what waits for a person is said again."""
    if instance.held is not None and instance.need is not None:
        return held_too_long(instance, instance.need, instance.held, given)
    return remind_operators(instance, given)


def poll_held(instance: Instance, event: events.InstanceLookDue, given: DecisionContext) -> Step | Ignore:
    """May what is held begin by now?"""
    if instance.held is None or instance.need is None:
        return Ignore("nothing is held back")
    return retry_held(instance, instance.need, given)
