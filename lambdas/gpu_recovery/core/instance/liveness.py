"""Transitions of an instance on a heartbeat timeout, a heartbeat after it, and a new boot.

`core/liveness.py` computes when a heartbeat counts as missing.

A missing heartbeat takes nothing away: nothing new is placed on the instance, and its jobs are notified. Another boot
that is reported after a reboot was requested proves the reboot; the health check must still pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.heartbeat import BY_DAEMON, Heartbeat
from gpu_recovery.core.instance.effects import poke_scheduler, verify
from gpu_recovery.core.instance.health_check import orphan_ended
from gpu_recovery.core.instance.record import EcsStatus, Instance, InstanceStatus, ListedInstance
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step


def is_missing_heartbeat_expected(
    instance: ListedInstance, beat: Heartbeat, now: datetime, policy: RecoveryPolicy
) -> bool:
    """Return whether ECS itself has stopped the agent of the instance, so that its silence says nothing.

    ECS stops the tasks of a service on an instance that is DRAINING, and so an agent that runs as a daemon service. It
    starts the agent again when the instance is ACTIVE. That takes a moment, so a change of the status, such as the end
    of a repair, begins the heartbeat timeout again.
    """
    if BY_DAEMON not in beat.heard:
        return False
    if instance.drained or instance.ecs_status == EcsStatus.DRAINING:
        return True
    return beat.seen_at < instance.status_at and now - instance.status_at <= duration(policy.heartbeat_stale_s)


def heartbeat_timed_out(instance: Instance, event: events.InstanceSilent, context: DecisionContext) -> Step | Ignore:
    """Record the missing heartbeat and notify the jobs with ranks that used to report from the instance."""
    if instance.silent_since is not None:
        return Ignore("its missing heartbeat is known already")
    sentence = f"last report at {event.seen_at:%H:%M:%S} UTC"
    notices = tuple(
        commands.TellJob(
            job_id,
            events.RankSilent(
                at=context.now,
                attempt=attempt,
                instance_id=instance.instance_id,
                seen_at=event.seen_at,
                sentence=sentence,
            ),
        )
        for job_id, attempt in _claimed(instance, event.heard)
    )
    return Step(instance.status, instance.reason, {"silent_since": event.seen_at}, notices)


def heartbeat_received(instance: Instance, event: events.InstanceHeard, context: DecisionContext) -> Step | Ignore:
    """Record the heartbeat and notify the jobs.

    The time is recorded even if no timeout was known, so that a late InstanceSilent event is recognised as outdated.
    """
    notices: tuple[Any, ...] = tuple(
        commands.TellJob(job_id, events.RankHeard(at=event.at, attempt=attempt, instance_id=instance.instance_id))
        for job_id, attempt in _claimed(instance, event.heard)
    )
    if instance.status is InstanceStatus.AVAILABLE and instance.silent_since is not None:
        notices = (*notices, poke_scheduler(instance))
    return Step(instance.status, instance.reason, {"silent_since": None, "heard_at": event.at}, notices)


def booted(instance: Instance, event: events.InstanceBooted, context: DecisionContext) -> Step | Ignore:
    """Record a boot of any cause: the ranks that ran under the earlier boot have ended."""
    if event.boot_id == instance.boot_id:
        return Ignore("this boot is known")
    changes: dict[str, Any] = {
        "boot_id": event.boot_id,
        "booted_at": event.booted_at,
        "boot_heard_at": event.booted_at,
    }
    if _ends_orphaned_check(instance, event):
        changes["check"] = None
    reason = f"{instance.reason}{_earlier_log_note(event)}"
    if instance.status is InstanceStatus.AVAILABLE:
        reason = event.sentence or instance.reason
    return Step(instance.status, reason, changes, _ended(instance, event))


def booted_while_checked(instance: Instance, event: events.InstanceBooted, context: DecisionContext) -> Step | Ignore:
    """Record a boot during the check. A check that ECS no longer accounts for is over by this boot."""
    step, run = booted(instance, event, context), instance.check
    if isinstance(step, Ignore) or run is None or not _ends_orphaned_check(instance, event):
        return step
    why = f"a boot at {event.booted_at:%H:%M:%S} UTC has ended its health check, unknown to ECS"
    after = orphan_ended(instance, run, f"{why}{_earlier_log_note(event)}", dict(step.changes), context)
    return replace(after, commands=(*step.commands, *after.commands))


def _ends_orphaned_check(instance: Instance, event: events.InstanceBooted) -> bool:
    """Return whether the boot came after the end of the registration under the check, which it therefore ended."""
    run = instance.check
    return run is not None and run.orphaned_at is not None and event.booted_at > run.orphaned_at


def booted_while_verified(instance: Instance, event: events.InstanceBooted, context: DecisionContext) -> Step | Ignore:
    """Check again after a boot during the check, because its result is about the earlier boot."""
    step, run = booted(instance, event, context), instance.check
    if isinstance(step, Ignore) or run is None:
        return step
    if run.orphaned_at is not None:
        return booted_while_checked(instance, event, context)
    if event.booted_at <= instance.status_at:
        return step
    booted_at = f"{event.booted_at:%H:%M:%S} UTC"
    why = f"it has booted again under its check, at {booted_at}: checking once more{_earlier_log_note(event)}"
    again = verify(instance, why, run.proof_needed, dict(step.changes), run.repeats, run.since)
    return Step(again.status, again.reason, again.changes, (*step.commands, *again.commands))


def booted_under_repair(instance: Instance, event: events.InstanceBooted, context: DecisionContext) -> Step | Ignore:
    """Verify the repair if this boot came after the request.

    The boot time is by our clock, so a later boot is not an effect of clock skew.
    """
    step = booted(instance, event, context)
    reboot = instance.reboot
    if isinstance(step, Ignore) or reboot is None or event.booted_at <= reboot.asked_at:
        return step
    if instance.status is InstanceStatus.REPLACING and not reboot.started:
        return step
    since = f"since {event.booted_at:%H:%M:%S} UTC{_earlier_log_note(event)}"
    why = f"its agent reports another boot, {event.boot_id}, {since}"
    back = verify(instance, why, True, dict(step.changes))
    return Step(back.status, back.reason, back.changes, (*step.commands, *back.commands))


def _earlier_log_note(event: events.InstanceBooted) -> str:
    """Return the kernel log of the earlier boot as an addition to a reason; "" if there is none."""
    return f"; {event.sentence}" if event.sentence else ""


def _claimed(instance: Instance, reported: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the job id and attempt of each reported rank that has a claim here.

    Another attempt of a job is another gang.
    """
    return sorted(
        (job_id, claim.attempt) for job_id, claim in instance.claims.items() if reported.get(job_id) == claim.attempt
    )


def _ended(instance: Instance, event: events.InstanceBooted) -> tuple[commands.ConfirmEnd, ...]:
    """Return the commands that confirm the end of the ranks of the earlier boot: reported ranks, and orphans."""
    sentence = "ended when its instance booted again"
    ended = dict.fromkeys(_claimed(instance, event.ended))
    if instance.orphans is not None and event.booted_at > instance.orphans.since:
        ended |= dict.fromkeys((rank.job_id, rank.attempt) for rank in instance.orphaned_ranks)
    return tuple(commands.ConfirmEnd(job_id, attempt, sentence) for job_id, attempt in ended)
