"""Registration of an instance: what ECS reports about it, and EC2's report that it is off.

ECS reports every placement and every disconnect of an agent, so most of its reports change only the saved facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import DRAINED_BY_OTHERS, CheckOutcome
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.instance.deadlines import DRAINED_CHECK_S, DRAINED_VERIFY_S, check_limit_s
from gpu_recovery.core.instance.effects import check_report, drain, gone, poke_scheduler, verify
from gpu_recovery.core.instance.health_check import REMEMBERED_MAX
from gpu_recovery.core.instance.quarantine import quarantined_again
from gpu_recovery.core.instance.record import (
    ENDED_REGISTRATION,
    IN_USE,
    CheckRun,
    EcsStatus,
    Instance,
    InstanceStatus,
    Orphans,
    RankOnInstance,
)
from gpu_recovery.core.instance.record_parts import free_gpus, whole_gpus_free
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, replace_fields, unless_pending


def ecs_facts(instance: Instance, event: events.InstanceObserved) -> dict[str, Any]:
    """Return the facts that ECS reports, as changes of the record."""
    past, last = instance.past_registrations, instance.container_instance_id
    if last not in ("", event.container_instance_id):
        past = (*past, last)[-REMEMBERED_MAX:]
    shared = _gpus_shared(instance, event)
    return {
        "container_instance_id": event.container_instance_id,
        "past_registrations": past,
        "ecs_status": event.ecs_status,
        "ecs_version": event.ecs_version,
        "agent_connected": event.agent_connected,
        "gpus": event.gpus,
        "gpus_free": whole_gpus_free(event.gpus, event.gpus_free, shared),
        "gpus_shared": shared,
        "gpus_most": max(instance.gpus_most, event.gpus),
        "availability_zone": event.availability_zone,
        "group": event.group,
        "rack": event.rack,
    }


def _gpus_shared(instance: Instance, event: events.InstanceObserved) -> int:
    """Return the number of GPUs that containers share by MPS.

    An observation without sharing modes leaves the known number, unless it is about a new registration.
    """
    if event.gpus_shared is not None:
        return event.gpus_shared
    return instance.gpus_shared if event.container_instance_id == instance.container_instance_id else 0


def observed(instance: Instance, event: events.InstanceObserved, context: DecisionContext) -> Step | Ignore:
    """Record the facts of ECS. Wake the scheduler if more of the instance can be used now.

    While the instance is verified, the return of its ECS agent is recorded. A check that ended before that return may
    be about an earlier boot (`repair_proof.is_outlived`).
    """
    if _is_over(event) and event.container_instance_id == instance.container_instance_id:
        return _registration_ended(instance, event, context)
    if _is_over(event):
        return Ignore("about a registration this instance no longer has")
    if event.ecs_status == EcsStatus.DRAINING and _is_being_activated(instance):
        event = replace(event, ecs_status=instance.ecs_status)
    returned = event.agent_connected and not instance.agent_connected
    active = event.ecs_status == EcsStatus.ACTIVE != instance.ecs_status
    usable = returned or active or _has_more_free(instance, event) or bool(event.ranks)
    orders: tuple[Any, ...] = (
        (poke_scheduler(instance),) if usable and instance.status is InstanceStatus.AVAILABLE else ()
    )
    changes, new_registration = ecs_facts(instance, event), _is_new_registration(instance, event)
    if (returned or new_registration) and instance.check is not None and instance.status is InstanceStatus.VERIFYING:
        changes["check"] = replace(instance.check, agent_back_at=event.at)
    if new_registration:
        changes |= _orphaned_check(changes.get("check", instance.check), context.now)
        # Without this command, ECS would count the tasks of the old registration as running for ever.
        orders = (*orders, commands.DeregisterInstance(instance.container_instance_id))
        if instance.status is InstanceStatus.QUARANTINED:  # ECS places on the new registration, unless it is drained
            drain_changes, draining = drain(replace_fields(instance, changes))
            changes, orders = {**changes, **drain_changes}, (*orders, *draining)
    if new_registration and instance.claims and not instance.orphaned_ranks:
        # Tasks of the old registration stay with it, and nothing says that their processes have ended.
        changes |= _check_beside_orphans(instance.status, changes.get("check", instance.check))
        changes["orphans"] = orphans_of(instance, context.now)
        orders = (*orders, *_ask_ec2(instance))
    if event.ranks:
        changes["orphans"] = _without_ranks(changes.get("orphans", instance.orphans), event.ranks)
    reason, drained_by_others = _drained_or_active(instance, event, context)
    if event.ranks and instance.status is InstanceStatus.AVAILABLE and not drained_by_others:
        reason = "registered again, and ECS shows its ranks there"
    return Step(instance.status, reason, {**changes, **drained_by_others}, orders)


def _is_being_activated(instance: Instance) -> bool:
    """Return whether a command to activate the instance is pending. Until it is executed, the drain is still ours."""
    return any(isinstance(pending.command, commands.ActivateInstance) for pending in instance.commands)


def _drained_or_active(
    instance: Instance, event: events.InstanceObserved, context: DecisionContext
) -> tuple[str, dict[str, Any]]:
    """Return the reason and the changes after others have drained the instance, or have made it ACTIVE again.

    A check that has not started waits `DRAINED_CHECK_S` or `DRAINED_VERIFY_S` for such an instance, and its whole time
    after that.
    """
    drained = event.ecs_status == EcsStatus.DRAINING and not instance.drained
    verifies = instance.status is InstanceStatus.VERIFYING
    if drained == instance.drained_by_others or not (verifies or instance.status in IN_USE):
        return instance.reason, {}
    changes: dict[str, Any] = {}
    checks = verifies or instance.status is InstanceStatus.CHECKING
    if instance.check is not None and not instance.check.task_id and checks:
        policy = context.policy
        limit_s = check_limit_s(instance.check, policy.verify_timeout_s if verifies else policy.check_timeout_s)
        limit_at = instance.status_at + duration(limit_s)
        waits_until = context.now + duration(DRAINED_VERIFY_S if verifies else DRAINED_CHECK_S)
        changes["deadline_at"] = min(limit_at, waits_until) if drained else limit_at
    if not drained:
        return f"it is {event.ecs_status} in ECS again", changes
    what = "its health check cannot start" if changes else "no new work is placed on it"
    return f"{DRAINED_BY_OTHERS}: {what}", changes


def _registration_ended(instance: Instance, event: events.InstanceObserved, context: DecisionContext) -> Step | Ignore:
    """Record the end of the registration. Without claims, and without a check that may run on, the instance is gone.

    A forced deregistration ends no process: ECS only stops to account for the ranks ("orphaned", API reference of
    DeregisterContainerInstance). So the claims stay, and EC2 is asked whether the instance runs.
    """
    reason = f"its registration is {event.ecs_status}"
    facts = ecs_facts(instance, event)
    if not instance.claims:
        if not _check_may_run(instance, context):
            return gone(instance, reason, facts, context.now, instance.standing_quarantine)
        return _left_to_its_check(instance, reason, facts, context)
    if instance.orphaned_ranks:
        return Ignore("it is known already that its ranks may run without a registration")
    facts |= {"orphans": orphans_of(instance, context.now), **_orphaned_check(instance.check, context.now)}
    facts |= _check_beside_orphans(instance.status, facts.get("check", instance.check))
    if instance.under_repair:  # the boot of the repair ends the ranks
        return Step(instance.status, instance.reason, facts)
    asking = f"{reason}; asking EC2 whether its ranks can still run"
    if instance.needs_operator:  # why a person is needed stays known
        asking = f"{instance.reason}; {reason}"
    return Step(instance.status, asking, facts, _ask_ec2(instance))


def orphans_of(instance: Instance, since: datetime) -> Orphans:
    """Return the ranks with a claim on the instance as orphans of a registration that ended at `since`."""
    return Orphans(since, tuple(RankOnInstance(job_id, claim.attempt) for job_id, claim in instance.claims.items()))


def _without_ranks(orphans: Orphans | None, ranks: Mapping[str, int]) -> Orphans | None:
    """Return the orphans without the ranks of a later registration; None if no orphan is left.

    Args:
        orphans: the orphans of the record.
        ranks: attempts by job id.
    """
    if orphans is None:
        return None
    left = tuple(rank for rank in orphans.ranks if ranks.get(rank.job_id) != rank.attempt)
    return replace(orphans, ranks=left) if left else None


def _check_may_run(instance: Instance, context: DecisionContext) -> bool:
    """Return whether a health check may use the GPUs: it runs, or ECS may have received the request to start it.

    A check without a registration has given up after `verify_timeout_s`. In quarantine no deadline ends it.
    """
    run = instance.check
    if run is None or run.passive:
        return False
    if run.orphaned_at is not None and context.now >= run.orphaned_at + duration(context.policy.verify_timeout_s):
        return False
    return bool(run.task_id) or any(pending.command == commands.RunCheck(run.check_id) for pending in instance.commands)


def _orphaned_check(run: CheckRun | None, since: datetime) -> dict[str, Any]:
    """Return the change that marks the running check as an orphan of a registration that ended at `since`."""
    if run is None or not run.task_id or run.passive or run.orphaned_at is not None:
        return {}
    return {"check": replace(run, orphaned_at=since)}


def _check_beside_orphans(status: InstanceStatus, run: CheckRun | None) -> dict[str, Any]:
    """Return the change that keeps the check of a release off the GPUs of the orphans: it only reads the boot.

    Any other check beside a rank is passive from its beginning.
    """
    if run is None or run.task_id or status is not InstanceStatus.VERIFYING:
        return {}
    return {"check": replace(run, passive=True)}


def _left_to_its_check(
    instance: Instance, reason: str, facts: dict[str, Any], context: DecisionContext
) -> Step | Ignore:
    """Keep the instance until its check has ended, so that no task shares the GPUs if it registers again.

    The job that asked for the check does not wait for it. If EC2 shows the instance off, the instance is gone.
    """
    if instance.registration_over or instance.check is None:
        return Ignore("it is known already that its check may run without a registration")
    orders = check_report(instance.check, CheckOutcome.GONE, reason)
    run = _orphaned_check(instance.check, context.now).get("check", instance.check)
    changes = {**facts, "check": replace(run, job_id="", attempt=0), "reserved_for": ""}
    return Step(instance.status, f"{reason}; its health check may still run, unknown to ECS", changes, orders)


def _ask_ec2(instance: Instance) -> tuple[Any, ...]:
    """Return the command that asks EC2 about the instance, unless it is pending."""
    return unless_pending(instance, commands.ObserveInstance())


def _has_more_free(instance: Instance, event: events.InstanceObserved) -> bool:
    """Return whether the scheduler could place on more GPUs than before.

    GPUs that a task has left and a job still claims do not count; the release of the claim wakes the scheduler.
    """
    unclaimed = instance.gpus_unclaimed
    free = whole_gpus_free(event.gpus, event.gpus_free, _gpus_shared(instance, event))
    return free_gpus(unclaimed + event.gpus - instance.gpus, free) > free_gpus(unclaimed, instance.gpus_free)


def observed_under_repair(
    instance: Instance, event: events.InstanceObserved, context: DecisionContext
) -> Step | Ignore:
    """Verify the repair if the instance seems to be back: its agent reconnected, or `reboot_settle_s` have passed."""
    step = observed(instance, event, context)
    reboot = instance.reboot
    if isinstance(step, Ignore) or step.status is InstanceStatus.GONE or reboot is None or _is_over(event):
        return step
    if not event.agent_connected:
        changes = {**step.changes, "reboot": replace(reboot, disconnected=True)}
        return replace(step, reason="its agent is gone: the repair is under way", changes=changes)
    if instance.status is InstanceStatus.REPLACING and not reboot.started:
        return step
    # An agent whose instance was deregistered by force may register anew without a boot.
    new_registration = _is_new_registration(instance, event) and not instance.orphaned_ranks
    returned = reboot.disconnected or new_registration
    if not returned and _is_repair_pending(instance):
        # EC2 throttles the request, or its outcome will be told. The time to settle begins when the request is made.
        return replace(step, changes={**step.changes, "reboot": replace(reboot, looked_at=context.now)})
    settled = context.now - (reboot.looked_at or reboot.asked_at) >= duration(context.policy.reboot_settle_s)
    if not (returned or settled):
        return step
    why = "its agent is back" if returned else "its agent never disconnected"
    back = verify(instance, f"{why}: looking for proof of the repair", True, dict(step.changes))
    return replace(back, commands=(*step.commands, *back.commands))


def _is_repair_pending(instance: Instance) -> bool:
    """Return whether the request for the repair is still to be made."""
    orders = (commands.RebootInstance(instance.epoch), commands.ReplaceInstance(instance.epoch))
    return any(pending.command in orders for pending in instance.commands)


def _is_over(event: events.InstanceObserved) -> bool:
    """Return whether the status ends the registration.

    An unknown status does not: it would release GPUs while ranks still hold them.
    """
    return event.ecs_status in ENDED_REGISTRATION


def may_replace(instance: Instance, event: events.InstanceObserved) -> bool:
    """Return whether an observation of another registration can make that registration the recorded one.

    A registration without its agent replaces none, except with ranks that ECS shows there, and only if the recorded
    registration has ended or has no agent either.
    """
    if event.agent_connected:
        return True
    return bool(event.ranks) and (instance.registration_over or not instance.agent_connected)


def _is_new_registration(instance: Instance, event: events.InstanceObserved) -> bool:
    """Return whether the event is about another registration than the recorded one."""
    return instance.container_instance_id not in ("", event.container_instance_id)


# -- leaving and coming back -------------------------------------------------------------------------------------------


def ec2_state_seen(instance: Instance, event: events.MachineSeen, context: DecisionContext) -> Step | Ignore:
    """Record that EC2 shows the instance off: its ranks have ended, even if ECS never reports that."""
    if not event.state.is_off:
        return Ignore(f"it is {event.state}")
    standing, left_for_ever = instance.standing_quarantine, event.state is Ec2InstanceState.TERMINATED
    # Started again, it is on another host. So only an operator's own quarantine lasts.
    kept = standing if standing is not None and standing.by and not left_for_ever else None
    step = gone(instance, f"EC2 shows it {event.state}", {}, context.now, kept)
    if not left_for_ever or not instance.container_instance_id:
        return step
    order = commands.DeregisterInstance(instance.container_instance_id)
    return replace(step, commands=(*step.commands, order))


def off_after_leaving(instance: Instance, event: events.MachineSeen, context: DecisionContext) -> Step | Ignore:
    """End a quarantine that no operator asked for: EC2 shows the instance off after its registration has ended.

    ECS may report the end of the registration first. A terminated instance keeps no quarantine at all.
    """
    if instance.quarantine is None:
        return Ignore("it has left the cluster")
    if not event.state.is_off:
        return Ignore(f"it is {event.state}")
    reason = f"EC2 shows it {event.state}"
    if event.state is not Ec2InstanceState.TERMINATED:
        if instance.quarantine.by:
            return Ignore("an operator asked for its quarantine, so a stop does not end it")
        reason = f"{reason}: it is checked if it registers again"
    return Step(instance.status, reason, {"quarantine": None})


def came_back(instance: Instance, event: events.InstanceObserved, context: DecisionContext) -> Step | Ignore:
    """Check an instance that registered again after it had left, because its state is unknown.

    If its quarantine still stands, it is quarantined without a check. An instance that the system drained and a user
    stopped and started is still DRAINING.
    """
    ours = event.ecs_status == EcsStatus.DRAINING and instance.drained
    if not (event.ecs_status == EcsStatus.ACTIVE or ours) or not event.agent_connected:
        return Step(InstanceStatus.GONE, instance.reason, ecs_facts(instance, event))
    if instance.quarantine is not None:
        return quarantined_again(instance, instance.quarantine, ecs_facts(instance, event), context)
    return verify(instance, "registered again after it had left", False, ecs_facts(instance, event))
