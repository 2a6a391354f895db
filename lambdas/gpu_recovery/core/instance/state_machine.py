"""The state machine of an instance: its transition table, and the decision about an event.

An instance works (AVAILABLE) until a job that failed on it asks for a check, or a health source reports it impaired.
Evidence against its hardware escalates (`escalation.py`): reboot, replacement, operator. The instance works again only
after proof of the repair and a passed check (`repair.py`).

DRAINING keeps ECS from placing, so it is used during reboot, replacement and quarantine. A check needs placement. So
the instance is ACTIVE in ECS while it is checked, and our own records keep jobs away.

A quarantine without a held repair ends by a release. It outlasts the registration of the instance (`quarantine.py`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from gpu_recovery.core import commands, events
from gpu_recovery.core.errors import IllegalTransition
from gpu_recovery.core.fleet import (
    Fleet,
    with_blame,
    with_repair_begun,
    with_repair_ended,
    with_repair_undone,
    with_repairs_reported,
    with_replacement_begun,
)
from gpu_recovery.core.instance import (
    escalation,
    gpu_events,
    gpu_reset,
    health_check,
    health_reports,
    idle_check,
    interruptions,
    liveness,
    quarantine,
    registration,
    repair,
    repair_record,
)
from gpu_recovery.core.instance.deadlines import deadlines
from gpu_recovery.core.instance.effects import poke_scheduler
from gpu_recovery.core.instance.fault_history import updated_history
from gpu_recovery.core.instance.notifications import begins_idle_repair, with_notifications
from gpu_recovery.core.instance.record import BEING_REPAIRED, PRESENT, EcsStatus, Instance, InstanceStatus
from gpu_recovery.core.instance.registration import may_replace
from gpu_recovery.core.notifications.fleet import of_breaker
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.published_events import with_instance_facts
from gpu_recovery.core.replay_facts import instance_facts
from gpu_recovery.core.state_machine import (
    Decision,
    DecisionContext,
    EventOutcome,
    Ignore,
    Step,
    Transition,
    apply_step,
    ignored,
    replace_fields,
    transition_for,
    with_checked_target,
)

BEGINS_NO_REPAIR = (
    events.InstanceObserved,
    events.CheckRequested,
    events.MachineSeen,
    events.ReleaseRequested,
    events.InstanceSilent,
    events.InstanceHeard,
    events.InstanceBooted,
    events.GpuEventsReported,
    events.IdleCheckDue,
    events.IdleCheckPreempted,
)
"""Events that begin no repair, so they are decided without the fleet limits."""


def registered(
    instance_id: str, event: events.InstanceObserved, policy: RecoveryPolicy, now: datetime
) -> Decision[Instance]:
    """Return the decision that creates the record of an instance that ECS has reported, and wakes the scheduler."""
    blank = Instance(instance_id=instance_id, status_at=now, version=0)
    status = InstanceStatus.AVAILABLE if event.ecs_status == EcsStatus.ACTIVE else InstanceStatus.GONE
    step = Step(
        status, f"registered with {event.gpus} GPU(s)", registration.ecs_facts(blank, event), (poke_scheduler(blank),)
    )
    return _with_effects(blank, event, step, DecisionContext(policy, now))


def needs_fleet_limits(instance: Instance, event: events.InstanceEvent) -> bool:
    """Return whether the decision about `event` needs the fleet's record: a repair may begin or end."""
    return instance.under_repair or not isinstance(event, BEGINS_NO_REPAIR)


def decide(
    instance: Instance, event: events.InstanceEvent, policy: RecoveryPolicy, now: datetime, fleet: Fleet | None = None
) -> Decision[Instance]:
    """Return the decision about `event` for `instance`. Pure: equal arguments give an equal decision.

    Args:
        fleet: the fleet's record, required if `needs_fleet_limits` says so. The decision then carries the fleet's
            record to save with it.

    Raises:
        IllegalTransition: neither table has a row for the status and the event, the row does not declare the returned
            status, or `fleet` is missing.
    """
    outdated = _outdated_reason(instance, event)
    if outdated:
        return Decision(instance, (), outdated, EventOutcome.OUTDATED)
    context = DecisionContext(policy, now, fleet)
    transition = transition_for(TRANSITIONS, IGNORED, instance.status, event)
    step = transition.decide(instance, event, context) if isinstance(transition, Transition) else transition
    if isinstance(step, Ignore):
        return Decision(instance, (), step.reason, EventOutcome.IGNORED)
    if isinstance(transition, Transition):
        with_checked_target(transition, instance.status, event, step)
    if policy.observe_only:
        from gpu_recovery.core.instance.observe_only import withheld  # noqa: PLC0415 - a mode of few deployments

        step = withheld(instance, event, step, context)
    return _with_effects(instance, event, step, context)


def _outdated_reason(instance: Instance, event: events.InstanceEvent) -> str:
    """Return why the event is outdated, or "" if it applies to the current record."""
    match event:
        case events.InstanceObserved():
            return _outdated_observation(instance, event)
        case events.MachineSeen() if event.at < _off_counts_from(instance):
            return "older than its present status"
        case events.HealthReported() if event.kind in instance.health:
            report = instance.health[event.kind]
            told = (event.since, event.status, event.sentence[: escalation.EVIDENCE_CHARACTERS_MAX])
            repeats = told == (report.since, report.status, report.sentence)
            is_news = report.is_older_than(event.since, event.updated_at) and not repeats
            return "" if is_news else "the same source has sent a newer report, or the same report, before"
        case events.DepartureAnnounced() if event.source in instance.announced:
            known = instance.announced[event.source]
            return "" if event.at > known else "the same source has sent a newer announcement, or the same, before"
        case events.InstanceSilent() if instance.heard_at is not None and event.seen_at < instance.heard_at:
            return "it has reported since then"
        case events.InstanceHeard() if instance.heard_at is not None and event.at <= instance.heard_at:
            return "a later report is known"
        case events.InstanceBooted() if instance.boot_heard_at and event.booted_at <= instance.boot_heard_at:
            return "about the last reported boot, or an earlier boot"
        case events.CheckEnded() | events.IdleCheckPreempted() if not health_check.is_awaited(instance, event):
            return "about another check than the check under way"
        case events.ResetEnded() | events.RebootUncertain() | events.RepairRefused() | events.RepairHeld() if (
            event.epoch != instance.epoch
        ):
            return "about another repair than the repair under way"
        case events.InstanceDeadlineReached() if event.deadline_at != instance.deadline_at:
            return "about a deadline that has moved"
        case events.InstanceLookDue() if event.look_at != instance.look_at:
            return "about a poll that was made already"
        case _:
            return ""


def _off_counts_from(instance: Instance) -> datetime:
    """Return the time from which an answer of EC2 counts: the quarantine that stands, or the present status.

    EC2 may be asked about a stop while the end of the registration is still handled.
    """
    if instance.status is InstanceStatus.GONE and instance.quarantine is not None:
        return instance.quarantine.since
    return instance.status_at


def _outdated_observation(instance: Instance, event: events.InstanceObserved) -> str:
    """Return why an observation of ECS is outdated, or "".

    Within a registration the versions of ECS only rise. A new registration starts a new count, and an old registration
    never comes back.
    """
    if event.container_instance_id in instance.past_registrations:
        return "about an earlier registration of this instance"
    if event.container_instance_id != instance.container_instance_id:
        return "" if may_replace(instance, event) else "a registration without its agent does not replace another"
    # A poll may return the version that is recorded already.
    least = instance.ecs_version if event.looked else instance.ecs_version + 1
    return "" if event.ecs_version >= least else "older than the last known state in ECS"


def _with_effects(
    instance: Instance, event: events.InstanceEvent, step: Step, context: DecisionContext
) -> Decision[Instance]:
    """Return the decision after `step`, with its notifications, its fault history and the fleet's record."""
    after = replace_fields(instance, {**step.changes, "status": step.status, "reason": step.reason})
    fleet = _fleet_after(instance, after, event, context)
    if fleet is not None and begins_idle_repair(instance, after):
        fleet = with_repairs_reported(fleet, context.policy, context.now)
    past = updated_history(instance, after, event, context)
    if past != instance.past:
        step = replace(step, changes={**step.changes, "past": past})
    step = with_notifications(instance, after, step, event, context, fleet or context.fleet)
    if step.status != instance.status or instance.version == 0:
        data = {
            "instance_id": instance.instance_id,
            "after": step.status,
            "reason": step.reason,
            "before": instance.status if instance.version else None,
            "version": instance.version + 1,
            "incident_id": step.changes.get("incident_id") or instance.incident_id or None,
            "replay": instance_facts(event),
        }
        step = replace(step, commands=(*step.commands, commands.PublishEvent("Instance State Changed", data)))
    step = replace(step, commands=with_instance_facts(step.commands, instance, step.changes, context.now))
    if fleet is not None:
        step = replace(step, commands=(*step.commands, *of_breaker(context.fleet_limits, fleet, context.policy)))
    decision = apply_step(
        instance,
        step,
        instance.instance_id,
        event,
        lambda after: deadlines(after, context),
        context.policy,
        context.now,
    )
    return decision if fleet is None else replace(decision, fleet=fleet)


def _fleet_after(
    before: Instance, after: Instance, event: events.InstanceEvent, context: DecisionContext
) -> Fleet | None:
    """Return the fleet's record after the change from `before` to `after`; None if it does not change.

    An instance that disappears during its repair does not count as healed, and it is no evidence about other instances.
    """
    blamed = after.blamed_at != before.blamed_at
    # Each replacement raises the epoch. A return to REPLACING to wait for proof does not.
    is_new_replacement = after.status is InstanceStatus.REPLACING and after.epoch != before.epoch
    if not blamed and not is_new_replacement and before.under_repair == after.under_repair:
        return None
    if context.fleet is None:
        raise IllegalTransition(f"{before.status} to {after.status} without the fleet limits")
    fleet, name = context.fleet, before.instance_id
    if blamed:
        fleet = with_blame(fleet, name, after.gpus_most, context.policy, context.now)
    if after.under_repair and not before.under_repair:
        fleet = with_repair_begun(fleet, name, context.policy, context.now, replacing=is_new_replacement)
    elif is_new_replacement:
        fleet = with_replacement_begun(fleet, context.policy, context.now)
    if before.under_repair and not after.under_repair:
        if isinstance(event, events.RepairHeld):
            began_at = before.reboot.asked_at if before.reboot is not None else context.now
            replacing = before.status is InstanceStatus.REPLACING
            fleet = with_repair_undone(fleet, name, began_at, context.now, replacing=replacing)
        else:
            healed = after.status is InstanceStatus.AVAILABLE
            fleet = with_repair_ended(fleet, name, healed, context.now)
    return fleet if fleet != context.fleet else None


_S = InstanceStatus
_MONITORED = (_S.AVAILABLE, _S.CHECKING, _S.VERIFYING, _S.QUARANTINED)
_REPAIR = (_S.REBOOTING, _S.REPLACING, _S.QUARANTINED)
_RESET_OR_REPAIR = (_S.RESETTING, *_REPAIR)
TRANSITIONS: dict[tuple[InstanceStatus, type[events.InstanceEvent]], Transition] = {
    (_S.AVAILABLE, events.InstanceObserved): Transition.to(registration.observed, _S.AVAILABLE, _S.GONE),
    (_S.AVAILABLE, events.MachineSeen): Transition.to(registration.ec2_state_seen, _S.GONE),
    (_S.AVAILABLE, events.HealthReported): Transition.to(
        health_reports.health_reported, _S.AVAILABLE, _S.CHECKING, *_REPAIR
    ),
    (_S.AVAILABLE, events.DepartureAnnounced): Transition.to(
        interruptions.departure_announced, _S.AVAILABLE, _S.REPLACING, _S.QUARANTINED
    ),
    (_S.AVAILABLE, events.CheckRequested): Transition.to(health_check.check_requested, _S.CHECKING),
    (_S.AVAILABLE, events.RepairRequested): Transition.to(repair.repair_requested, _S.REBOOTING, _S.QUARANTINED),
    (_S.AVAILABLE, events.QuarantineRequested): Transition.to(quarantine.quarantine_requested, _S.QUARANTINED),
    (_S.AVAILABLE, events.InstanceDeadlineReached): Transition.to(
        interruptions.deadline_of_available, _S.AVAILABLE, _S.CHECKING, *_REPAIR
    ),
    (_S.AVAILABLE, events.IdleCheckDue): Transition.to(idle_check.idle_check_due, _S.CHECKING),
    (_S.CHECKING, events.IdleCheckPreempted): Transition.to(idle_check.idle_check_preempted, _S.CHECKING),
    (_S.CHECKING, events.InstanceObserved): Transition.to(registration.observed, _S.CHECKING, _S.GONE),
    (_S.CHECKING, events.MachineSeen): Transition.to(registration.ec2_state_seen, _S.GONE),
    (_S.CHECKING, events.HealthReported): Transition.to(health_reports.health_recorded, _S.CHECKING),
    (_S.CHECKING, events.DepartureAnnounced): Transition.to(interruptions.departure_announced, _S.CHECKING),
    (_S.CHECKING, events.CheckRequested): Transition.to(health_check.check_requested_while_checked, _S.CHECKING),
    (_S.CHECKING, events.CheckEnded): Transition.to(health_check.check_ended, _S.AVAILABLE, _S.GONE, *_RESET_OR_REPAIR),
    (_S.CHECKING, events.RepairRequested): Transition.to(repair.repair_requested, _S.REBOOTING, _S.QUARANTINED),
    (_S.CHECKING, events.QuarantineRequested): Transition.to(quarantine.quarantine_requested, _S.QUARANTINED),
    (_S.CHECKING, events.InstanceLookDue): Transition.to(health_check.poll_check, _S.CHECKING),
    (_S.CHECKING, events.InstanceDeadlineReached): Transition.to(
        health_check.check_overdue, _S.CHECKING, _S.QUARANTINED, _S.AVAILABLE, _S.VERIFYING, _S.GONE
    ),
    (_S.RESETTING, events.InstanceObserved): Transition.to(registration.observed, _S.RESETTING, _S.GONE),
    (_S.RESETTING, events.MachineSeen): Transition.to(registration.ec2_state_seen, _S.GONE),
    (_S.RESETTING, events.HealthReported): Transition.to(health_reports.health_recorded, _S.RESETTING),
    (_S.RESETTING, events.DepartureAnnounced): Transition.to(interruptions.departure_announced, _S.RESETTING),
    (_S.RESETTING, events.CheckRequested): Transition.to(health_check.check_impossible, _S.RESETTING),
    (_S.RESETTING, events.RepairRequested): Transition.to(repair.repair_requested, _S.REBOOTING, _S.QUARANTINED),
    (_S.RESETTING, events.ResetEnded): Transition.to(gpu_reset.reset_ended, _S.VERIFYING, *_REPAIR),
    (_S.RESETTING, events.InstanceBooted): Transition.to(gpu_reset.booted_while_resetting, _S.RESETTING, _S.VERIFYING),
    (_S.RESETTING, events.RepairRefused): Transition.to(repair.repair_refused, _S.QUARANTINED),
    (_S.RESETTING, events.RepairHeld): Transition.to(repair.repair_held, _S.QUARANTINED),
    (_S.RESETTING, events.QuarantineRequested): Transition.to(quarantine.quarantine_requested, _S.QUARANTINED),
    (_S.RESETTING, events.InstanceLookDue): Transition.to(repair.poll_repair, _S.RESETTING),
    (_S.RESETTING, events.InstanceDeadlineReached): Transition.to(gpu_reset.reset_overdue, *_REPAIR),
    (_S.REBOOTING, events.InstanceObserved): Transition.to(
        registration.observed_under_repair, _S.REBOOTING, _S.VERIFYING, _S.GONE
    ),
    (_S.REBOOTING, events.MachineSeen): Transition.to(registration.ec2_state_seen, _S.GONE),
    (_S.REBOOTING, events.HealthReported): Transition.to(health_reports.health_recorded, _S.REBOOTING),
    (_S.REBOOTING, events.DepartureAnnounced): Transition.to(interruptions.departure_announced, _S.REBOOTING),
    (_S.REBOOTING, events.CheckRequested): Transition.to(health_check.check_impossible, _S.REBOOTING),
    (_S.REBOOTING, events.RebootUncertain): Transition.to(repair.reboot_uncertain, _S.VERIFYING),
    (_S.REBOOTING, events.RepairRefused): Transition.to(repair.repair_refused, _S.QUARANTINED),
    (_S.REBOOTING, events.RepairHeld): Transition.to(repair.repair_held, _S.QUARANTINED),
    (_S.REBOOTING, events.QuarantineRequested): Transition.to(quarantine.quarantine_requested, _S.QUARANTINED),
    (_S.REBOOTING, events.InstanceLookDue): Transition.to(repair.poll_repair, _S.REBOOTING),
    (_S.REBOOTING, events.InstanceDeadlineReached): Transition.to(repair.repair_overdue, _S.QUARANTINED, _S.REPLACING),
    (_S.REPLACING, events.InstanceObserved): Transition.to(
        registration.observed_under_repair, _S.REPLACING, _S.VERIFYING, _S.GONE
    ),
    (_S.REPLACING, events.MachineSeen): Transition.to(repair.stopped_to_start, _S.REPLACING, _S.GONE),
    (_S.REPLACING, events.HealthReported): Transition.to(health_reports.health_recorded, _S.REPLACING),
    (_S.REPLACING, events.DepartureAnnounced): Transition.to(interruptions.departure_announced, _S.REPLACING),
    (_S.REPLACING, events.CheckRequested): Transition.to(health_check.check_impossible, _S.REPLACING),
    (_S.REPLACING, events.RepairRefused): Transition.to(repair.repair_refused, _S.QUARANTINED),
    (_S.REPLACING, events.RepairHeld): Transition.to(repair.repair_held, _S.QUARANTINED),
    (_S.REPLACING, events.QuarantineRequested): Transition.to(quarantine.quarantine_requested, _S.QUARANTINED),
    (_S.REPLACING, events.InstanceLookDue): Transition.to(repair.poll_repair, _S.REPLACING),
    (_S.REPLACING, events.InstanceDeadlineReached): Transition.to(repair.repair_overdue, _S.QUARANTINED),
    (_S.VERIFYING, events.InstanceObserved): Transition.to(registration.observed, _S.VERIFYING, _S.GONE),
    (_S.VERIFYING, events.MachineSeen): Transition.to(registration.ec2_state_seen, _S.GONE),
    (_S.VERIFYING, events.HealthReported): Transition.to(health_reports.health_recorded, _S.VERIFYING),
    (_S.VERIFYING, events.DepartureAnnounced): Transition.to(interruptions.departure_announced, _S.VERIFYING),
    (_S.VERIFYING, events.CheckRequested): Transition.to(health_check.check_impossible, _S.VERIFYING),
    (_S.VERIFYING, events.CheckEnded): Transition.to(repair.verified, _S.AVAILABLE, _S.VERIFYING, _S.GONE, *_REPAIR),
    (_S.VERIFYING, events.RepairRequested): Transition.to(repair.repair_of_verified, _S.REBOOTING, _S.QUARANTINED),
    (_S.VERIFYING, events.RebootUncertain): Transition.to(repair.reboot_uncertain_while_verifying, _S.VERIFYING),
    (_S.VERIFYING, events.QuarantineRequested): Transition.to(quarantine.quarantine_requested, _S.QUARANTINED),
    (_S.VERIFYING, events.InstanceLookDue): Transition.to(health_check.poll_check, _S.VERIFYING),
    (_S.VERIFYING, events.InstanceDeadlineReached): Transition.to(
        repair.verify_overdue, _S.VERIFYING, _S.QUARANTINED, _S.GONE
    ),
    (_S.QUARANTINED, events.InstanceObserved): Transition.to(registration.observed, _S.QUARANTINED, _S.GONE),
    (_S.QUARANTINED, events.MachineSeen): Transition.to(registration.ec2_state_seen, _S.GONE),
    (_S.QUARANTINED, events.HealthReported): Transition.to(health_reports.health_of_held, _S.QUARANTINED, _S.VERIFYING),
    (_S.QUARANTINED, events.DepartureAnnounced): Transition.to(
        interruptions.departure_announced, _S.QUARANTINED, _S.VERIFYING
    ),
    (_S.QUARANTINED, events.CheckRequested): Transition.to(health_check.check_impossible, _S.QUARANTINED),
    (_S.QUARANTINED, events.RepairRequested): Transition.to(repair.repair_of_quarantined, *_REPAIR),
    (_S.QUARANTINED, events.QuarantineRequested): Transition.to(quarantine.quarantine_requested, _S.QUARANTINED),
    (_S.QUARANTINED, events.ReleaseRequested): Transition.to(quarantine.released, _S.VERIFYING, _S.AVAILABLE),
    (_S.QUARANTINED, events.InstanceLookDue): Transition.to(
        escalation.poll_held, _S.CHECKING, _S.VERIFYING, *_RESET_OR_REPAIR
    ),
    (_S.QUARANTINED, events.InstanceDeadlineReached): Transition.to(escalation.deadline_of_quarantined, _S.QUARANTINED),
    (_S.GONE, events.InstanceObserved): Transition.to(registration.came_back, _S.GONE, _S.VERIFYING, _S.QUARANTINED),
    (_S.GONE, events.MachineSeen): Transition.to(registration.off_after_leaving, _S.GONE),
    (_S.GONE, events.ReleaseRequested): Transition.to(quarantine.released_while_gone, _S.GONE),
    **{(status, events.InstanceSilent): Transition.to(liveness.heartbeat_timed_out, status) for status in _MONITORED},
    **{
        (status, events.InstanceHeard): Transition.to(liveness.heartbeat_received, status)
        for status in (*_MONITORED, *BEING_REPAIRED)
    },
    **{
        (status, events.InstanceBooted): Transition.to(liveness.booted, status)
        for status in (_S.AVAILABLE, _S.QUARANTINED)
    },
    (_S.CHECKING, events.InstanceBooted): Transition.to(
        liveness.booted_while_checked, _S.CHECKING, _S.VERIFYING, _S.GONE
    ),
    (_S.VERIFYING, events.InstanceBooted): Transition.to(liveness.booted_while_verified, _S.VERIFYING, _S.GONE),
    **{
        (status, events.InstanceBooted): Transition.to(liveness.booted_under_repair, status, _S.VERIFYING)
        for status in _REPAIR[:2]
    },
    (_S.GONE, events.CheckRequested): Transition.to(health_check.check_impossible, _S.GONE),
    **{(status, events.RepairAnnounced): Transition.to(repair_record.repair_announced, status) for status in PRESENT},
    **{(status, events.RepairRecordFound): Transition.to(repair_record.record_found, status) for status in PRESENT},
    **{(status, events.GpuEventsReported): Transition.to(gpu_events.gpu_events_reported, status) for status in PRESENT},
}
"""Transitions by status and event: the function that decides and the statuses it may lead to."""

_NOT_CHECKED = (_S.AVAILABLE, _S.RESETTING, _S.REBOOTING, _S.REPLACING, _S.QUARANTINED, _S.GONE)
_NOT_REPAIRED = (_S.AVAILABLE, _S.CHECKING, _S.QUARANTINED, _S.GONE)
_NOT_QUARANTINED = (_S.AVAILABLE, _S.CHECKING, _S.RESETTING, _S.REBOOTING, _S.REPLACING, _S.VERIFYING)
IGNORED: dict[tuple[InstanceStatus, type[events.InstanceEvent]], str] = {
    **ignored("no check is under way", events.CheckEnded, *_NOT_CHECKED),
    **ignored("it is not idle", events.IdleCheckDue, *(status for status in _S if status is not _S.AVAILABLE)),
    **ignored("no idle check is under way", events.IdleCheckPreempted, *(s for s in _S if s is not _S.CHECKING)),
    **ignored("a repair is under way", events.RepairRequested, _S.REBOOTING, _S.REPLACING),
    **ignored("no reset is under way", events.ResetEnded, *(status for status in _S if status is not _S.RESETTING)),
    **ignored("it has left the cluster", events.RepairRequested, _S.GONE),
    **ignored("no repair is under way", events.RepairRefused, *_NOT_REPAIRED),
    **ignored("the check will show whether it was repaired", events.RepairRefused, _S.VERIFYING),
    **ignored("no repair is under way", events.RepairHeld, *_NOT_REPAIRED),
    **ignored("the check will show whether it was repaired", events.RepairHeld, _S.VERIFYING),
    **ignored("no reboot is under way", events.RebootUncertain, *_NOT_REPAIRED, _S.RESETTING, _S.REPLACING),
    **ignored("it is not quarantined", events.ReleaseRequested, *_NOT_QUARANTINED),
    **ignored("no check or repair is under way", events.InstanceLookDue, _S.AVAILABLE, _S.GONE),
    **ignored("an instance under repair sends no heartbeats", events.InstanceSilent, *BEING_REPAIRED),
    **ignored("it has left the cluster", events.InstanceSilent, _S.GONE),
    **ignored("it has left the cluster", events.InstanceHeard, _S.GONE),
    **ignored("it has left the cluster", events.InstanceBooted, _S.GONE),
    **ignored("it has left the cluster", events.HealthReported, _S.GONE),
    **ignored("it has left the cluster", events.DepartureAnnounced, _S.GONE),
    **ignored("it has left the cluster", events.QuarantineRequested, _S.GONE),
    **ignored("it has left the cluster", events.InstanceDeadlineReached, _S.GONE),
    **ignored("it has left the cluster", events.RepairAnnounced, _S.GONE),
    **ignored("it has left the cluster", events.RepairRecordFound, _S.GONE),
    **ignored("it has left the cluster", events.GpuEventsReported, _S.GONE),
}
"""Reasons why an event changes nothing, by status and event."""
