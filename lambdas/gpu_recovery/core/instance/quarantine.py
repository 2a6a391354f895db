"""Quarantine: instances that need an operator, and the requests of operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.effects import (
    activate,
    check_report,
    drain,
    poke_scheduler,
    repair_ended,
    stop_check,
    verify,
)
from gpu_recovery.core.instance.record import CheckRun, EcsStatus, Instance, InstanceStatus
from gpu_recovery.core.instance.record_parts import Quarantine
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, replace_fields


def quarantine(
    instance: Instance,
    reason: str,
    context: DecisionContext,
    changes: dict[str, Any] | None = None,
    orders: tuple[Any, ...] = (),
) -> Step:
    """Quarantine the instance: no task is placed on it, and operators are notified and reminded until they act."""
    drain_changes, draining = drain(instance)
    settled = {
        "quarantine": Quarantine(context.now, reason),
        "check": None,
        "reboot": None,
        "need": None,
        "held": None,
        "withdrawn": False,
        "reserved_for": "",
        "also_waiting": (),
        "look_at": None,
        "deadline_at": context.now + duration(context.policy.quarantine_reminder_s),
    }
    return Step(
        InstanceStatus.QUARANTINED, reason, {**settled, **drain_changes, **(changes or {})}, (*orders, *draining)
    )


def repair_given_up(
    instance: Instance,
    reason: str,
    context: DecisionContext,
    changes: dict[str, Any] | None = None,
    orders: tuple[Any, ...] = (),
) -> Step:
    """Quarantine the instance after a repair that failed or may not begin, and report that to the waiting jobs."""
    ended = repair_ended(instance, False, f"{instance.instance_id}: {reason}", context.now)
    return quarantine(instance, reason, context, changes, (*orders, *ended))


def quarantine_requested(
    instance: Instance, event: events.QuarantineRequested, context: DecisionContext
) -> Step | Ignore:
    """Quarantine the instance on request of an operator.

    Its jobs continue. Jobs that wait for its check or repair are notified.
    """
    if event.at < instance.status_at:
        return Ignore("its status has changed since the request: send the request again")
    reason = f"quarantined by {event.by}" + (f": {event.because}" if event.because else "")
    by_operator = Quarantine(context.now, reason, event.by)
    if instance.needs_operator and (instance.quarantine is None or instance.quarantine.by):
        return Ignore("it is quarantined already")
    if instance.needs_operator:  # from now on a stop and start does not end it either
        reason = f"{reason}; before that: {instance.reason}"
        # In observe-only mode a new registration was not drained for the quarantine of gpu-recovery.
        changes, draining = drain(instance) if instance.ecs_status != EcsStatus.DRAINING else ({}, ())
        return Step(instance.status, reason, {**changes, "quarantine": replace(by_operator, reason=reason)}, draining)
    orders: tuple[Any, ...] = ()
    orphan: CheckRun | None = None
    if instance.check is not None:
        stopped = check_report(instance.check, CheckOutcome.INCONCLUSIVE, reason)
        orders = (stop_check(instance.check), *stopped)
        orphan = _orphan_of(instance.check)
    withdrawn = instance.status is InstanceStatus.AVAILABLE and not instance.avoid_reason
    sentence = f"{instance.instance_id}: {reason}"
    ended = repair_ended(instance, False, sentence, context.now, by_operator=True)
    changes = {"quarantine": by_operator, "withdrawn": withdrawn, "check": orphan}
    return quarantine(instance, reason, context, changes, (*orders, *ended))


def quarantined_again(
    instance: Instance, standing: Quarantine, facts: dict[str, Any], context: DecisionContext
) -> Step:
    """Keep an instance quarantined that registered again after it had gone. Its new registration is drained, too.

    Args:
        instance: the record.
        standing: its quarantine.
        facts: the facts of the registration, as changes of the record.
        context: the time and the policy.
    """
    reason = f"registered again after it had gone, and stays quarantined: {standing.reason}"
    return quarantine(replace_fields(instance, facts), reason, context, {**facts, "quarantine": standing})


def _orphan_of(run: CheckRun) -> CheckRun | None:
    """Return what is left of a check that ECS cannot stop, because its registration ended; None if ECS can."""
    if run.orphaned_at is None:
        return None
    return CheckRun(run.check_id, task_id=run.task_id, signed=run.signed, orphaned_at=run.orphaned_at)


def released(instance: Instance, event: events.ReleaseRequested, context: DecisionContext) -> Step | Ignore:
    """Release the instance on request of an operator: it must pass a check first.

    An instance that was withdrawn without evidence and has a job on it is not checked, unless a rank may run on it
    unknown to ECS.
    """
    standing = instance.quarantine
    if event.at < instance.status_at or (standing is not None and event.at < standing.since):
        return Ignore("it was quarantined after that")
    ended = repair_ended(instance, False, f"{instance.instance_id} was released by {event.by}", context.now)
    if instance.withdrawn and instance.claims and not instance.orphaned_ranks:
        changes, orders = activate(instance)
        freed = {"quarantine": None, "withdrawn": False, **changes}
        reason = f"released by {event.by}: a job still runs on it, so it is not checked"
        return Step(InstanceStatus.AVAILABLE, reason, freed, (*orders, *ended, poke_scheduler(instance)))
    # The operator has dealt with what the instance logged before, so the check does not read it.
    settled = {"quarantine": None, "reboot": None, "need": None, "also_waiting": (), "withdrawn": False}
    if instance.check is not None and instance.check.orphaned_at is not None:
        ends_at = instance.check.orphaned_at + duration(context.policy.verify_timeout_s)
        if context.now < ends_at:
            # A second check would share the GPUs with the first. It begins when the first has ended (`verified`).
            waits = {**settled, "check": replace(instance.check, since=event.at), "deadline_at": ends_at}
            reason = (
                f"released by {event.by}: an earlier check may still run, unknown to ECS; then it must pass another"
            )
            return Step(InstanceStatus.VERIFYING, reason, waits, ended)
    step = verify(instance, f"released by {event.by}: it must pass a check first", False, settled, since=event.at)
    return Step(step.status, step.reason, step.changes, (*step.commands, *ended))


def released_while_gone(instance: Instance, event: events.ReleaseRequested, context: DecisionContext) -> Step | Ignore:
    """End the quarantine of an instance that has left the cluster: it is checked if it registers again."""
    if instance.quarantine is None:
        return Ignore("it is not quarantined")
    if event.at < instance.quarantine.since:
        return Ignore("it was quarantined after that")
    reason = f"released by {event.by} after it had left the cluster: it is checked if it registers again"
    return Step(instance.status, reason, {"quarantine": None})


def remind_operators(instance: Instance, context: DecisionContext) -> Step:
    """Set the next reminder, because no operator has acted yet. The notification follows from the change."""
    changes = {"deadline_at": context.now + duration(context.policy.quarantine_reminder_s)}
    return Step(instance.status, instance.reason, changes)
