"""A repair under way: rebooting or replacing, then the check that must prove it and pass.

ECS says "ACTIVE" and "agent connected" many times an hour, so neither proves anything: an agent that comes back only
makes us run the check, and the proof is the boot id or boot time that the check reads on the machine itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.health_signals import ON_THE_INSTANCE, DepartureKind, Ec2InstanceState
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.effects import (
    WAITING_MAX,
    check_report,
    drain,
    other_waiting_jobs,
    poke_scheduler,
    repair_ended,
    verify,
)
from gpu_recovery.core.instance.escalation import blocked_reason, escalate, hold, repair
from gpu_recovery.core.instance.health_check import NO_CHECK, REMEMBERED_MAX, reservation_for
from gpu_recovery.core.instance.quarantine import repair_given_up
from gpu_recovery.core.instance.record import (
    CheckRun,
    Instance,
    InstanceStatus,
    RankOnInstance,
    Reboot,
    RepairLevel,
    RepairNeed,
)
from gpu_recovery.core.instance.registration import ec2_state_seen
from gpu_recovery.core.instance.repair_proof import (
    claims_left,
    confirm_ended,
    is_outlived,
    proves_reboot,
    without_health_of,
)
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, unless_pending

REPEATED_CHECKS_MAX = 1
_NO_REPAIR = Ignore("no repair is under way")


def repair_requested(instance: Instance, event: events.RepairRequested, given: DecisionContext) -> Step | Ignore:
    """A rank that cannot be stopped: only a reboot ends it. Whoever else works on the machine leaves first."""
    claim = instance.claims.get(event.job_id)
    if claim is None or claim.attempt != event.attempt:
        return Ignore("that attempt has no claim on this instance")
    asker = attempt_id(event.job_id, event.attempt)
    if asker in instance.ended_for:
        return Ignore("that attempt has asked before")
    if any(at >= event.at for at in instance.reboots):
        return Ignore("it was rebooted after that was asked")
    before = instance.need
    ends = before.ends if before is not None else None
    if ends is not None and ends.job_id in instance.claims:
        return Ignore("it waits for a reboot that is to end a rank in any case")
    rung = before.rung if before is not None and before.rung is RepairLevel.REPLACE else RepairLevel.REBOOT
    evidence = f"{before.evidence}; {event.sentence}" if before is not None else event.sentence
    waits = (event.job_id, event.attempt) if event.awaited else ("", 0)
    need = RepairNeed(
        rung,
        evidence,
        given.now,
        job_id=waits[0],
        attempt=waits[1],
        ends=RankOnInstance(event.job_id, event.attempt),
        boot_id=instance.boot_id,
    )
    orders: tuple[Any, ...] = ()
    cut_short: tuple[RankOnInstance, ...] = ()
    if (run := instance.check) is not None:
        orders = (
            commands.StopCheck(run.check_id),
            *check_report(run, CheckOutcome.REBOOT, event.sentence, repairing=True),
        )
        cut_short = (RankOnInstance(run.job_id, run.attempt),) if run.job_id not in ("", event.job_id) else ()
    others = (*other_waiting_jobs(instance, event.job_id), *cut_short)[-WAITING_MAX:]
    asked = (*instance.ended_for, asker)[-REMEMBERED_MAX:]
    changes = {"reserved_for": reservation_for(instance, event), "also_waiting": others, "ended_for": asked}
    step = escalate(instance, need, given, changes, orders)
    if step.changes.get("need") is not None:
        return step
    # To a person: nobody will end that rank. Those who waited before have heard so, but not whose check it cut short.
    never = replace(instance, reboot=None, need=need, check=None, also_waiting=cut_short)
    return replace(step, commands=(*step.commands, *repair_ended(never, False, step.reason, given.now)))


def repair_of_quarantined(instance: Instance, event: events.RepairRequested, given: DecisionContext) -> Step | Ignore:
    """A need that is held back may be met once the rank that stood in its way is ended by it."""
    if instance.held is None:
        return Ignore("it waits for a person in any case")
    return repair_requested(instance, event, given)


# -- waiting for the machine -------------------------------------------------------------------------------------------


def poll_ec2(instance: Instance, event: events.InstanceLookDue, given: DecisionContext) -> Step | Ignore:
    """Perhaps what it did was told and lost."""
    return Step(instance.status, instance.reason, {}, unless_pending(instance, commands.ObserveInstance()))


def stopped_to_start(instance: Instance, event: events.MachineSeen, given: DecisionContext) -> Step | Ignore:
    """A machine that was stopped to be replaced is off: start it, which gives it another host."""
    reboot = instance.reboot
    if event.state is Ec2InstanceState.TERMINATED:
        return ec2_state_seen(instance, event, given)
    if event.state is not Ec2InstanceState.STOPPED or reboot is None:
        return Ignore(f"it is {event.state}, on its way")
    orders = unless_pending(instance, commands.StartInstance(instance.epoch))
    if not orders:
        return Ignore("it is about to be started")
    ended = tuple(
        commands.ConfirmEnd(job_id, claim.attempt, "ended when its machine was stopped")
        for job_id, claim in instance.claims.items()
    )
    changes = {"reboot": replace(reboot, started=True), "claims": {}}
    return Step(InstanceStatus.REPLACING, "the machine is off: starting it on another host", changes, (*orders, *ended))


def reboot_uncertain(instance: Instance, event: events.RebootUncertain, given: DecisionContext) -> Step | Ignore:
    """Whoever asked for the reboot died: only the boot itself tells whether it was heard."""
    if instance.reboot is None:
        return _NO_REPAIR
    if instance.reboot.uncertain:
        return Ignore("that is known")
    changes = {"reboot": replace(instance.reboot, uncertain=True)}
    return verify(instance, "nobody knows whether the reboot was heard: looking at the boot", True, changes)


def reboot_uncertain_while_polling(
    instance: Instance, event: events.RebootUncertain, given: DecisionContext
) -> Step | Ignore:
    """The look is under way; what it shows decides whether the reboot is asked for again."""
    if instance.reboot is None or instance.reboot.uncertain:
        return Ignore("that is known, or no repair is under way")
    return Step(instance.status, instance.reason, {"reboot": replace(instance.reboot, uncertain=True)})


def repair_refused(instance: Instance, event: events.RepairRefused, given: DecisionContext) -> Step | Ignore:
    """EC2 will not: a person must."""
    return repair_given_up(instance, event.sentence, given)


def repair_held(instance: Instance, event: events.RepairHeld, given: DecisionContext) -> Step | Ignore:
    """Looked at once more before acting, the repair may not begin after all: as if it never had."""
    if instance.need is None:
        return _NO_REPAIR
    # The same evidence would be refused again at once. Once it has grown old, it is looked at afresh.
    poll_interval_s = given.policy.evidence_stale_s
    return hold(instance, instance.need, event.sentence, given, {"reboots": instance.reboots[:-1]}, (), poll_interval_s)


def repair_overdue(instance: Instance, event: events.InstanceDeadlineReached, given: DecisionContext) -> Step | Ignore:
    """It did not come back."""
    return _never_came_back(instance, given)


def _never_came_back(instance: Instance, given: DecisionContext) -> Step:
    """From a reboot: one rung up, a stop ends whatever still runs there. From a replacement: to a person."""
    policy, need = given.policy, instance.need
    if need is None or need.rung is RepairLevel.REPLACE:
        limit = policy.replace_timeout_s if need is not None else policy.reboot_timeout_s
        return repair_given_up(instance, f"it did not come back from its repair within {limit} s", given)
    reason = f"it did not come back from its reboot within {policy.reboot_timeout_s} s"
    return escalate(instance, replace(need, rung=RepairLevel.REPLACE, evidence=reason, seen_at=given.now), given)


# -- proof, and the check ----------------------------------------------------------------------------------------------


def verified(instance: Instance, event: events.CheckEnded, given: DecisionContext) -> Step | Ignore:
    """The check after a repair, or after a person's word: it works again only with proof, and on passing."""
    run, verdict, reboot = instance.check, event.verdict, instance.reboot
    if run is None:
        return NO_CHECK
    if is_outlived(instance, run, event.at):
        why = "its agent was away when its check ended, or since: it may have booted again, checking once more"
        return verify(instance, why, run.proof_needed, {}, run.repeats, run.since)
    if run.proof_needed and reboot is not None and not proves_reboot(reboot, verdict):
        return _not_proved(instance, reboot, verdict, given)
    seen: dict[str, Any] = {
        "check": None,
        "boot_id": verdict.boot_id or instance.boot_id,
        "booted_at": verdict.booted_at or instance.booted_at,
    }
    if run.proof_needed and instance.need is not None and instance.need.rung is RepairLevel.REPLACE:
        seen |= _on_another_host(instance, given)
    told = f"{verdict.outcome}: {verdict.summary}"
    if verdict.outcome is CheckOutcome.HEALTHY:
        return _healed(instance, run, seen, given)
    if verdict.outcome is CheckOutcome.INCONCLUSIVE and run.repeats < REPEATED_CHECKS_MAX:
        again = verify(instance, f"checking once more ({told})", run.proof_needed, {}, run.repeats + 1, run.since)
        return replace(again, commands=tuple(c for c in again.commands if not isinstance(c, commands.ActivateInstance)))
    seen["claims"], ends = claims_left(instance), confirm_ended(instance)
    if not verdict.outcome.blames_hardware or instance.need is None or reboot is None:
        return repair_given_up(instance, f"it did not pass its check: {told}", given, seen, ends)
    # A second reboot is tried only where there is nothing better: what one did not cure, another seldom does.
    uncured = verdict.outcome is CheckOutcome.REPLACE or given.policy.replace
    need = replace(
        instance.need,
        rung=RepairLevel.REPLACE if uncured else RepairLevel.REBOOT,
        evidence=f"{told} after its repair",
        seen_at=given.now,
        ends=None,
        boot_id=verdict.boot_id or instance.boot_id,
    )
    return escalate(
        replace(instance, replaced_at=seen.get("replaced_at", instance.replaced_at)), need, given, seen, ends
    )


def _on_another_host(instance: Instance, given: DecisionContext) -> dict[str, Any]:
    """Stopped and started, it has left the host that was to be retired, or rebooted."""
    departure = instance.departure
    stays = departure is not None and departure.kind not in (DepartureKind.RETIREMENT, DepartureKind.MAINTENANCE)
    return {"replaced_at": given.now, "departure": departure if stays else None}


def _healed(instance: Instance, run: CheckRun, seen: dict[str, Any], given: DecisionContext) -> Step:
    proved = "its repair is proved and its check passed" if run.proof_needed else "its check passed"
    left = claims_left(instance) if run.proof_needed else {}
    changes = {**seen, "reboot": None, "need": None, "also_waiting": (), "claims": left}
    if run.proof_needed:
        changes |= {"healed_at": given.now, "health": without_health_of(instance.health, ON_THE_INSTANCE)}
    # Back by a person's word or by a new registration: whatever ran on it before is over.
    over = () if run.proof_needed else tuple(instance.claims.items())
    freed = [commands.ConfirmEnd(job, claim.attempt, "ended before its instance was given back") for job, claim in over]
    told = repair_ended(instance, True, f"{instance.instance_id}: {proved}", given.now)
    orders = (*freed, *confirm_ended(instance), *told, poke_scheduler(instance))
    return Step(InstanceStatus.AVAILABLE, proved, changes, orders)


def _not_proved(instance: Instance, reboot: Reboot, verdict: Verdict, given: DecisionContext) -> Step:
    """The machine shows its old boot, or none: wait for the deadline; ask again only if the asker died."""
    if reboot.deadline_at is not None and reboot.deadline_at <= given.now:
        return _never_came_back(instance, given)
    if reboot.uncertain and verdict.boot_id is not None and instance.need is not None:
        again = replace(reboot, asked_at=given.now, uncertain=False)
        unheard = replace(instance, reboots=instance.reboots[:-1])
        why = blocked_reason(unheard, instance.need, given)
        if why:
            return hold(unheard, instance.need, why, given, {"reboots": unheard.reboots}, ())
        reason = "the machine shows its old boot: the reboot was never heard, asking again"
        return repair(unheard, instance.need, again, reason, given, {}, ())
    drain_changes, draining = drain(instance)
    changes = {**drain_changes, "check": None, "reboot": replace(reboot, disconnected=False, looked_at=given.now)}
    reason = "no proof of the repair: the machine shows its old boot, or none; waiting on"
    replacing = instance.need is not None and instance.need.rung is RepairLevel.REPLACE
    return Step(InstanceStatus.REPLACING if replacing else InstanceStatus.REBOOTING, reason, changes, draining)


def verify_overdue(instance: Instance, event: events.InstanceDeadlineReached, given: DecisionContext) -> Step | Ignore:
    """It came back, and nothing can be said of it."""
    if instance.check is None:
        return NO_CHECK
    reason = f"the check after its repair gave no answer within {given.policy.verify_timeout_s} s"
    return repair_given_up(instance, reason, given, None, (commands.StopCheck(instance.check.check_id),))
