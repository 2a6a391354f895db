"""What the instance's own agent tells by its heartbeats: that it is there, that it is not, that it has booted.

Silence takes nothing away: nothing new is placed on the instance, and its jobs learn that nothing is heard of their
rank. Another boot, reported after one was asked for, is proof that the machine has rebooted; the check must still pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.instance.effects import poke_scheduler, verify
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step


def heartbeat_timed_out(instance: Instance, event: events.InstanceSilent, given: DecisionContext) -> Step | Ignore:
    """Nothing is heard of it any more: those of its jobs that used to be heard of there are told."""
    if instance.silent_since is not None:
        return Ignore("it is known to be silent")
    sentence = f"last heard of at {event.seen_at:%H:%M:%S} UTC"
    told = tuple(
        commands.TellJob(
            job_id,
            events.RankSilent(
                at=given.now,
                attempt=attempt,
                instance_id=instance.instance_id,
                seen_at=event.seen_at,
                sentence=sentence,
            ),
        )
        for job_id, attempt in _claimed(instance, event.heard)
    )
    return Step(instance.status, instance.reason, {"silent_since": event.seen_at}, told)


def heartbeat_received(instance: Instance, event: events.InstanceHeard, given: DecisionContext) -> Step | Ignore:
    """It is heard of again. Kept even if the silence was not known: whoever tells of it late must find it over."""
    told: tuple[Any, ...] = tuple(
        commands.TellJob(job_id, events.RankHeard(at=event.at, attempt=attempt, instance_id=instance.instance_id))
        for job_id, attempt in _claimed(instance, event.heard)
    )
    if instance.status is InstanceStatus.AVAILABLE and instance.silent_since is not None:
        told = (*told, poke_scheduler(instance))
    return Step(instance.status, instance.reason, {"silent_since": None, "heard_at": event.at}, told)


def booted(instance: Instance, event: events.InstanceBooted, given: DecisionContext) -> Step | Ignore:
    """It has booted, for whatever reason: the ranks that were heard of under the boot before have ended."""
    if event.boot_id == instance.boot_id:
        return Ignore("this boot is known")
    changes = {"boot_id": event.boot_id, "booted_at": event.booted_at, "boot_heard_at": event.booted_at}
    reason = f"{instance.reason}{_is_from_earlier_boot(event)}"
    if instance.status is InstanceStatus.AVAILABLE:
        reason = event.sentence or instance.reason
    return Step(instance.status, reason, changes, _ended(instance, event))


def booted_while_verified(instance: Instance, event: events.InstanceBooted, given: DecisionContext) -> Step | Ignore:
    """Booted again since its check began, by whomever: what that check finds, or found, is about another boot."""
    step, run = booted(instance, event, given), instance.check
    if isinstance(step, Ignore) or run is None or event.booted_at <= instance.status_at:
        return step
    booted_at = f"{event.booted_at:%H:%M:%S} UTC"
    why = f"it has booted again under its check, at {booted_at}: checking once more{_is_from_earlier_boot(event)}"
    again = verify(instance, why, run.proof_needed, dict(step.changes), run.repeats, run.since)
    return Step(again.status, again.reason, again.changes, (*step.commands, *again.commands))


def booted_under_repair(instance: Instance, event: events.InstanceBooted, given: DecisionContext) -> Step | Ignore:
    """Is it the boot that was asked for? Its time is reckoned by our clock, so a later one is no matter of skew."""
    step = booted(instance, event, given)
    reboot = instance.reboot
    if isinstance(step, Ignore) or reboot is None or event.booted_at <= reboot.asked_at:
        return step
    if instance.status is InstanceStatus.REPLACING and not reboot.started:
        return step
    since = f"since {event.booted_at:%H:%M:%S} UTC{_is_from_earlier_boot(event)}"
    why = f"its agent reports another boot, {event.boot_id}, {since}"
    back = verify(instance, why, True, dict(step.changes))
    return Step(back.status, back.reason, back.changes, (*step.commands, *back.commands))


def _is_from_earlier_boot(event: events.InstanceBooted) -> str:
    return f"; {event.sentence}" if event.sentence else ""


def _claimed(instance: Instance, reported: Mapping[str, int]) -> list[tuple[str, int]]:
    """Of the ranks that were heard of, those that have their GPUs here: another attempt of a job is another gang."""
    return sorted(
        (job_id, claim.attempt) for job_id, claim in instance.claims.items() if reported.get(job_id) == claim.attempt
    )


def _ended(instance: Instance, event: events.InstanceBooted) -> tuple[commands.ConfirmEnd, ...]:
    sentence = "ended when its instance booted again"
    return tuple(commands.ConfirmEnd(job_id, attempt, sentence) for job_id, attempt in _claimed(instance, event.ended))
