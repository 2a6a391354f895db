"""What waits for people, and what people say: quarantine and release."""

from __future__ import annotations

from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.effects import activate, check_report, drain, poke_scheduler, repair_ended, verify
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step


def quarantine(
    instance: Instance,
    reason: str,
    given: DecisionContext,
    changes: dict[str, Any] | None = None,
    orders: tuple[Any, ...] = (),
) -> Step:
    """To a person: nothing is placed on it, operators are told, and are reminded until somebody acts."""
    drain_changes, draining = drain(instance)
    settled = {
        "check": None,
        "reboot": None,
        "need": None,
        "held": None,
        "withdrawn": False,
        "reserved_for": "",
        "also_waiting": (),
        "look_at": None,
        "deadline_at": given.now + within(given.policy.quarantine_reminder_s),
    }
    return Step(
        InstanceStatus.QUARANTINED, reason, {**settled, **drain_changes, **(changes or {})}, (*orders, *draining)
    )


def repair_given_up(
    instance: Instance,
    reason: str,
    given: DecisionContext,
    changes: dict[str, Any] | None = None,
    orders: tuple[Any, ...] = (),
) -> Step:
    """To a person after a repair that failed or may not begin: the job that waits for it hears so."""
    ended = repair_ended(instance, False, f"{instance.instance_id}: {reason}", given.now)
    return quarantine(instance, reason, given, changes, (*orders, *ended))


def quarantine_requested(
    instance: Instance, event: events.QuarantineRequested, given: DecisionContext
) -> Step | Ignore:
    """A person takes it out of use. What runs on it goes on; whoever waits for its check or repair hears the end."""
    if event.at < instance.status_at:
        return Ignore("it has moved since that was asked: ask again")
    if instance.status is InstanceStatus.QUARANTINED and instance.held is None:
        return Ignore("it is quarantined already")
    reason = f"quarantined by {event.by}" + (f": {event.because}" if event.because else "")
    orders: tuple[Any, ...] = ()
    if instance.check is not None:
        stopped = check_report(instance.check, CheckOutcome.INCONCLUSIVE, reason)
        orders = (commands.StopCheck(instance.check.check_id), *stopped)
    withdrawn = instance.status is InstanceStatus.AVAILABLE and not instance.avoid_reason
    return repair_given_up(instance, reason, given, {"withdrawn": withdrawn}, orders)


def released(instance: Instance, event: events.ReleaseRequested, given: DecisionContext) -> Step | Ignore:
    """A person vouches for it: it must pass a check first, unless it was only withdrawn and a job works on it still."""
    if event.at < instance.status_at:
        return Ignore("it was quarantined after that")
    ended = repair_ended(instance, False, f"{instance.instance_id} was released by {event.by}", given.now)
    if instance.withdrawn and instance.claims:
        changes, orders = activate(instance)
        freed = {"withdrawn": False, **changes}
        reason = f"released by {event.by}: a job still works on it, so it is not checked"
        return Step(InstanceStatus.AVAILABLE, reason, freed, (*orders, *ended, poke_scheduler(instance)))
    # What the machine logged before is what it was quarantined for: the person has seen to that.
    settled = {"reboot": None, "need": None, "also_waiting": (), "withdrawn": False}
    step = verify(instance, f"released by {event.by}: it must pass a check first", False, settled, since=event.at)
    return Step(step.status, step.reason, step.changes, (*step.commands, *ended))


def remind_operators(instance: Instance, given: DecisionContext) -> Step:
    """Nobody has acted yet: say it again."""
    changes = {"deadline_at": given.now + within(given.policy.quarantine_reminder_s)}
    return Step(instance.status, instance.reason, changes)
