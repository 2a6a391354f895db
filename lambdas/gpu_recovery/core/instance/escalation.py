"""Escalation: the choice of the repair level, and the limits that hold a repair back.

The repair levels are check, reset, reboot, replace, operator. Every repair begins in `escalate`. It picks the level,
which the fault history and the reboot limits can raise. Then it tests whether the repair may begin: no other job works
on the instance, and repair budget, circuit breaker and pause allow it. A repair that may not begin is held. A held
repair is tried again at every poll, and old evidence is re-validated first. After the hold timeout it goes to an
operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import repair_blocked_reason, repair_turn_reason, with_blame
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
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step

EVIDENCE_CHARACTERS_MAX = 500
"""Upper bound of the characters of evidence from health sources. The record saves the evidence, and every step repeats
it."""
HELD_RETRIES_PER_S, HELD_RETRY_S_MAX = 10, 600
"""Tries of held repairs in a second that the reconciler can make beside its other work, and the longest interval."""
LEVEL_NAMES = {
    RepairLevel.CHECK: "its check",
    RepairLevel.RESET: "the reset of its GPUs",
    RepairLevel.REBOOT: "its reboot",
    RepairLevel.REPLACE: "its replacement",
}
"""Names of the repair levels in sentences."""


def escalate(
    instance: Instance,
    need: RepairNeed,
    context: DecisionContext,
    changes: dict[str, Any] | None = None,
    orders: tuple[Any, ...] = (),
) -> Step:
    """Begin the repair that the instance needs, hold it, or hand the instance to an operator.

    Args:
        need: the needed repair.
        changes: further changes of the record.
        orders: further commands.
    """
    need = escalated(instance, replace(need, evidence=need.evidence[:EVIDENCE_CHARACTERS_MAX]), context)
    facts = dict(changes or {})
    if _is_blamed_anew(instance, need):
        facts["blamed_at"] = context.now
    if need.rung is RepairLevel.REPLACE and not context.policy.replace and need.source in tuple(HealthKind):
        # The health source may withdraw its report; an operator is asked only if it does not.
        return hold(instance, need, "replacing is switched off", context, facts, orders)
    if need.rung is RepairLevel.REPLACE and not context.policy.replace:
        reason = f"{need.evidence}; it must be replaced, and replacing is switched off"
        return repair_given_up(instance, reason, context, facts, orders)
    if need.rung is RepairLevel.REPLACE and is_on_a_new_host(instance, context):
        reason = f"{need.evidence}; it was moved to another host less than {context.policy.relapse_window_s} s ago"
        return repair_given_up(instance, reason, context, facts, orders)
    rebooted = len(_recent(instance, context))
    if need.rung is RepairLevel.REPLACE and rebooted > context.policy.reboots_max:
        reason = (
            f"{need.evidence}; it was rebooted or replaced {rebooted} times within {context.policy.reboot_window_s} s"
        )
        return repair_given_up(instance, reason, context, facts, orders)
    why = blocked_reason(instance, need, context)
    if why:
        return hold(instance, need, why, context, facts, orders)
    return begin(instance, need, context, facts, orders)


def is_on_a_new_host(instance: Instance, context: DecisionContext) -> bool:
    """Return whether the instance was moved to another host less than `relapse_window_s` ago.

    Another stop and start would cure nothing then.
    """
    replaced_at = instance.replaced_at
    return replaced_at is not None and context.now - replaced_at < duration(context.policy.relapse_window_s)


def _recent(instance: Instance, context: DecisionContext) -> tuple[datetime, ...]:
    """Return the times of reboots and replacements within `reboot_window_s`."""
    return tuple(at for at in instance.reboots if context.now - at < duration(context.policy.reboot_window_s))


def escalated(instance: Instance, need: RepairNeed, context: DecisionContext) -> RepairNeed:
    """Return the need at the level that the fault history asks for: a reboot that did not help is not repeated.

    A reboot that only ends a rank is no cure, so the fault history does not change it.
    """
    if need.rung is RepairLevel.RESET and (why := no_reset_reason(instance, context)):
        need = replace(need, rung=RepairLevel.REBOOT, evidence=f"{need.evidence}; {why}")
    if need.rung is not RepairLevel.REBOOT or need.ends is not None:
        return need
    policy = context.policy
    recent = _recent(instance, context)
    if instance.departure is not None and instance.departure.kind is DepartureKind.RETIREMENT:
        why = "its host is to be retired, which no reboot cures"
    elif len(recent) >= policy.reboots_max:
        why = f"it was rebooted or replaced {len(recent)} time(s) within {policy.reboot_window_s} s"
    elif instance.healed_at is not None and context.now - instance.healed_at < duration(policy.relapse_window_s):
        why = f"its last repair held for less than {policy.relapse_window_s} s"
    elif (lemon := percent(instance.past, context.now)) >= policy.lemon_replace:
        why = f"its lemon score is {lemon} %: {score_sentence(instance.past, context.now)}"
    else:
        return need
    return replace(need, rung=RepairLevel.REPLACE, evidence=f"{need.evidence}; {why}")


def no_reset_reason(instance: Instance, context: DecisionContext) -> str:
    """Return why a reboot takes the place of a reset of the GPUs; "" if the reset may be tried.

    Only the node agent can reset GPUs. A reset ends no rank, and is not repeated for the next fault.
    """
    policy = context.policy
    if not policy.gpu_reset:
        return "resets of GPUs are switched off"
    if instance.silent_since is not None or not instance.agent_connected:
        return "its agent cannot reset the GPUs now"
    if instance.ranks_to_end or instance.orphaned_ranks:
        return "only a reboot ends the ranks on it"
    if instance.departure is not None and instance.departure.kind is DepartureKind.RETIREMENT:
        return "its host is to be retired"
    if instance.reset_at is not None and context.now - instance.reset_at < duration(policy.relapse_window_s):
        return f"its GPUs were reset less than {policy.relapse_window_s} s ago"
    return ""


def blocked_reason(instance: Instance, need: RepairNeed, context: DecisionContext) -> str:
    """Return why the repair may not begin now; "" if it may.

    A check is always allowed: on an instance with other jobs it is passive.
    """
    if need.rung is RepairLevel.CHECK:
        return ""
    others = claimants(instance, need)
    if others:
        return f"{', '.join(others)} must leave it first"
    if context.policy.observe_only and instance.status not in IN_USE:
        return "gpu-recovery is in observe-only mode"
    return _blocked_by_fleet(instance, need, context)


def _blocked_by_fleet(instance: Instance, need: RepairNeed, context: DecisionContext) -> str:
    """Return why the fleet limits block a repair of the instance; "" if they do not."""
    fleet = context.fleet_limits
    if _is_blamed_anew(instance, need):
        fleet = with_blame(fleet, instance.instance_id, instance.gpus_most, context.policy, context.now)
    replacing = need.rung is RepairLevel.REPLACE
    return repair_blocked_reason(fleet, instance.instance_id, context.policy, context.now, replacing=replacing)


def claimants(instance: Instance, need: RepairNeed) -> list[str]:
    """Return the jobs that work on the instance, except those with a rank that the repair ends.

    No job can take a rank away that no stop has ended, such as an orphan: the repair itself ends it if its job has
    asked for that. A job that is only observed asks for nothing.
    """
    ended = {rank.job_id for rank in instance.ranks_to_end}
    if need.ends is not None:
        ended.add(need.ends.job_id)
    return sorted(job_id for job_id in instance.claims if job_id not in ended)


def _is_blamed_anew(instance: Instance, need: RepairNeed) -> bool:
    """Return whether the circuit breaker counts this need as new evidence.

    It does not count an announced interruption, a rank that does not stop, or a need that is already known.
    """
    evidence = need.source == "" or need.source in tuple(HealthKind)
    return evidence and need.rung is not RepairLevel.CHECK and need.ends is None and instance.need is None


# -- holding -----------------------------------------------------------------------------------------------------------


def hold(
    instance: Instance,
    need: RepairNeed,
    why: str,
    context: DecisionContext,
    changes: dict[str, Any],
    orders: tuple[Any, ...],
    poll_s: int = 0,
) -> Step:
    """Hold the repair: the instance is out of use until the repair may begin.

    Jobs with claims are asked once to leave. Operators are notified once (`notifications.py`).

    Args:
        why: why the repair may not begin.
        poll_s: seconds until the next try; 0 for the usual interval.
    """
    before = instance.held
    already_asked = before.told if before is not None else ()
    # No job is asked to leave for a blocked repair. An interruption that EC2 announced does not wait for fleet limits.
    announced = need.source not in ("", *HealthKind)
    claiming = claimants(instance, need)
    blocked = "" if announced or not claiming else _blocked_by_fleet(instance, need, context)
    to_ask = [job_id for job_id in claiming if job_id not in already_asked and not blocked]
    why = blocked or why
    present = before or RepairHold(context.now, why)
    held = replace(_with_timeout_from(present, instance, why, context), sentence=why, told=(*already_asked, *to_ask))
    leave = tuple(_ask_to_leave(instance, need, job_id, context) for job_id in to_ask)
    reason = f"{need.evidence}; {LEVEL_NAMES[need.rung]} is blocked: {why}"
    drain_changes, draining = _drain_for_hold(instance, need, waits_for_jobs=bool(claiming) and not blocked)
    held_changes = {
        "need": need,
        "held": held,
        "check": None,
        "reboot": None,
        "deadline_at": held.timeout_from + duration(context.policy.repair_hold_timeout_s),
        "look_at": context.now + duration(poll_s or _retry_interval_s(context)),
    }
    return Step(
        InstanceStatus.QUARANTINED,
        reason,
        {**drain_changes, **changes, **held_changes},
        (*orders, *draining, *leave),
    )


def _drain_for_hold(
    instance: Instance, need: RepairNeed, *, waits_for_jobs: bool
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return the changes and commands that drain an instance whose repair is held; none if it is drained already.

    A reset needs the node agent, which ECS stops on a drained instance if the agent is a daemon. So the instance is not
    drained while a reset only waits until the jobs have left.

    Args:
        waits_for_jobs: only jobs on the instance block the repair.
    """
    if need.rung is RepairLevel.RESET and waits_for_jobs:
        return {}, ()
    # A further poll of a held repair adds no command: commands that are not carried out would pile up.
    if instance.status is InstanceStatus.QUARANTINED and instance.drained:
        return {}, ()
    return drain(instance)


def _retry_interval_s(context: DecisionContext) -> int:
    """Return the seconds to the next try of a held repair. In a large fleet thousands may be held at once.

    So the tries of the whole fleet stay below `HELD_RETRIES_PER_S` up to 6,000 instances.
    """
    instances = context.fleet.gpu_instances if context.fleet is not None else 0
    return max(context.policy.hold_retry_interval_s, min(instances // HELD_RETRIES_PER_S, HELD_RETRY_S_MAX))


def _with_timeout_from(held: RepairHold, instance: Instance, why: str, context: DecisionContext) -> RepairHold:
    """Return the hold with the time from which its timeout counts.

    A repair that only waits for its turn is not forgotten while other repairs of the fleet begin. So a fault of many
    instances may be repaired for longer than `repair_hold_timeout_s`.
    """
    fleet = context.fleet
    if fleet is None or not fleet.repairs:
        return held
    if why != repair_turn_reason(fleet, instance.instance_id, context.policy, context.now):
        return held
    return replace(held, counted_from=max(fleet.repairs[-1], held.timeout_from))


def _ask_to_leave(instance: Instance, need: RepairNeed, job_id: str, context: DecisionContext) -> commands.TellJob:
    """Return the command that asks a job to leave the instance for the repair."""
    sentence = f"{instance.instance_id} needs {LEVEL_NAMES[need.rung].removeprefix('its ')}: {need.evidence}"
    event = events.InstanceNeedsRepair(
        at=context.now, attempt=instance.claims[job_id].attempt, instance_id=instance.instance_id, sentence=sentence
    )
    return commands.TellJob(job_id, event)


def retry_held(instance: Instance, need: RepairNeed, context: DecisionContext) -> Step:
    """Try the held repair again. Old evidence is re-validated by a check first.

    If the health source has withdrawn its report, the repair is replaced by a check after all jobs have left.
    """
    if is_withdrawn(instance, need):
        if instance.claims:
            return _stay_held(instance, context)
        return check_instead(instance, f"{need.source} reports it as healthy again", {})
    # A check of the GPUs cannot re-validate a report of EC2; EC2 itself is polled every minute.
    stale = not need.source and context.now - need.seen_at >= duration(context.policy.evidence_stale_s)
    # An orphan holds GPUs that a check would need.
    checkable = instance.agent_connected and not instance.orphaned_ranks
    if stale and need.rung is not RepairLevel.CHECK and need.ends is None and checkable:
        fresh = replace(need, rung=RepairLevel.CHECK, evidence=f"{need.evidence} (some time ago)")
        why = blocked_reason(instance, need, context)
        return escalate(instance, fresh, context) if not why else _stay_held(instance, context, why)
    return escalate(instance, need, context)


def _stay_held(instance: Instance, context: DecisionContext, why: str = "") -> Step:
    """Return the step that leaves the repair held until the next try. `why`: why it may not begin."""
    changes: dict[str, Any] = {"look_at": context.now + duration(_retry_interval_s(context))}
    if instance.held is not None and why:
        held = _with_timeout_from(instance.held, instance, why, context)
        changes |= {"held": held, "deadline_at": held.timeout_from + duration(context.policy.repair_hold_timeout_s)}
    return Step(instance.status, instance.reason, changes)


def is_withdrawn(instance: Instance, need: RepairNeed) -> bool:
    """Return whether the health report or the announcement behind the need has been withdrawn."""
    if need.source in tuple(HealthKind):
        health = instance.health.get(need.source)
        return health is not None and health.status is HealthStatus.OK
    return bool(need.source) and (instance.departure is None or instance.departure.source != need.source)


def check_instead(instance: Instance, reason: str, changes: dict[str, Any]) -> Step:
    """Return the step that replaces a held repair by a check. The jobs that wait learn its result."""
    return verify(instance, f"{reason}: it must pass a check first", False, {**changes, "need": None})


def held_too_long(instance: Instance, need: RepairNeed, held: RepairHold, context: DecisionContext) -> Step:
    """Hand the instance to an operator, because its repair was held until the hold timeout."""
    limit = context.policy.repair_hold_timeout_s
    reason = f"{need.evidence}; {LEVEL_NAMES[need.rung]} was blocked for {limit} s: {held.sentence}"
    return repair_given_up(instance, reason, context)


# -- beginning ---------------------------------------------------------------------------------------------------------


def begin(
    instance: Instance, need: RepairNeed, context: DecisionContext, changes: dict[str, Any], orders: tuple[Any, ...]
) -> Step:
    """Begin the repair at the level of the need."""
    if need.rung is RepairLevel.CHECK:
        return _check(instance, need, changes, orders)
    reboot = Reboot(context.now, need.boot_id or instance.boot_id, need.job_id, need.attempt, need.ends)
    return repair(instance, need, reboot, f"{need.evidence}; {_DOING[need.rung]}", context, changes, orders)


_DOING = {
    RepairLevel.RESET: "resetting its GPUs",
    RepairLevel.REBOOT: "rebooting",
    RepairLevel.REPLACE: "replacing",
}
"""Descriptions of the repairs in sentences."""


def _check(instance: Instance, need: RepairNeed, changes: dict[str, Any], orders: tuple[Any, ...]) -> Step:
    """Begin the lowest level, a check."""
    waiting = RankOnInstance(need.job_id, need.attempt) if need.job_id else None
    run_changes, checks = run_check(
        instance, CheckRun("", waiting=waiting, passive=bool(instance.claims), level=instance.failed_level)
    )
    active_changes, active = activate(instance)
    all_changes = {"need": None, **changes, **active_changes, **run_changes}
    return Step(InstanceStatus.CHECKING, f"{need.evidence}; checking it", all_changes, (*orders, *active, *checks))


def repair(
    instance: Instance,
    need: RepairNeed,
    reboot: Reboot,
    reason: str,
    context: DecisionContext,
    changes: dict[str, Any],
    orders: tuple[Any, ...],
) -> Step:
    """Reset the GPUs of the instance, or drain the instance and then reboot or replace it.

    A reset does not drain the instance, because ECS stops an agent there that is a daemon. The driver refuses a reset
    under a process. The epoch rises, so that a placement or a command from before the repair is refused. The stored
    claims stay.
    """
    epoch = instance.epoch + 1
    status, order, limit = _REPAIRS[need.rung]
    timed = replace(reboot, deadline_at=reboot.deadline_at or context.now + duration(limit(context.policy)))
    resets = need.rung is RepairLevel.RESET
    begun = {"reset_at": context.now} if resets else {"reboots": (*_recent(instance, context), context.now)}
    drain_changes, draining = ({}, ()) if resets else drain(instance)
    all_changes = {
        **drain_changes,
        **changes,
        "epoch": epoch,
        "need": need,
        "check": None,
        "reboot": timed,
        **begun,
    }
    return Step(status, reason, all_changes, (*draining, order(epoch), *orders))


_REPAIRS: dict[RepairLevel, tuple[InstanceStatus, Callable[[int], Any], Callable[[RecoveryPolicy], int]]] = {
    RepairLevel.RESET: (InstanceStatus.RESETTING, commands.ResetGpus, lambda policy: policy.reset_timeout_s),
    RepairLevel.REBOOT: (InstanceStatus.REBOOTING, commands.RebootInstance, lambda policy: policy.reboot_timeout_s),
    RepairLevel.REPLACE: (InstanceStatus.REPLACING, commands.ReplaceInstance, lambda policy: policy.replace_timeout_s),
}
"""Status, command and time limit in seconds of each repair."""


def deadline_of_quarantined(
    instance: Instance, event: events.InstanceDeadlineReached, context: DecisionContext
) -> Step | Ignore:
    """Hand a repair that was held too long to an operator; remind operators of an instance that needs them."""
    if instance.held is not None and instance.need is not None:
        return held_too_long(instance, instance.need, instance.held, context)
    return remind_operators(instance, context)


def poll_held(instance: Instance, event: events.InstanceLookDue, context: DecisionContext) -> Step | Ignore:
    """Try a held repair again."""
    if instance.held is None or instance.need is None:
        return Ignore("no repair is blocked")
    return retry_held(instance, instance.need, context)
