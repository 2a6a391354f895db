"""Repair: reboot or replacement, then the health check that must prove the repair and pass.

ECS reports ACTIVE and a connected agent many times an hour, so neither is a proof. An agent that comes back only starts
the check. The proof is the boot id or boot time that the check reads on the instance itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import DRAINED_BY_OTHERS, CheckOutcome, Verdict
from gpu_recovery.core.health_signals import ON_THE_INSTANCE, DepartureKind, Ec2InstanceState
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.deadlines import check_limit_s
from gpu_recovery.core.instance.effects import (
    WAITING_MAX,
    check_report,
    drain,
    gone,
    other_waiting_jobs,
    poke_scheduler,
    repair_ended,
    stop_check,
    verify,
)
from gpu_recovery.core.instance.escalation import blocked_reason, escalate, hold, repair
from gpu_recovery.core.instance.health_check import NO_CHECK, REMEMBERED_MAX, orphan_overdue, reservation_for
from gpu_recovery.core.instance.idle_check import without_fault
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
    is_reset,
    proves_end_of_orphans,
    proves_reboot,
    without_health_of,
)
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step, replace_fields, unless_pending

REPEATED_CHECKS_MAX = 1
"""Upper bound of the repeats of an inconclusive check."""
_NO_REPAIR = Ignore("no repair is under way")


def repair_requested(instance: Instance, event: events.RepairRequested, context: DecisionContext) -> Step | Ignore:
    """Reboot the instance to end a rank that cannot be stopped. Other jobs on the instance leave first."""
    claim = instance.claims.get(event.job_id)
    if claim is None or claim.attempt != event.attempt:
        return Ignore("that attempt has no claim on this instance")
    asker = attempt_id(event.job_id, event.attempt)
    if asker in instance.ended_for:
        return Ignore("that attempt has asked before")
    if any(at >= event.at for at in instance.reboots):
        return Ignore("it was rebooted after that was asked")
    before = instance.need
    if before is not None and before.ends is not None and before.ends.job_id in instance.claims:
        return _ends_both(instance, before, event, context)
    rung = before.rung if before is not None and before.rung is RepairLevel.REPLACE else RepairLevel.REBOOT
    evidence = f"{before.evidence}; {event.sentence}" if before is not None else event.sentence
    waiting = (event.job_id, event.attempt) if event.awaited else ("", 0)
    need = RepairNeed(
        rung,
        evidence,
        context.now,
        job_id=waiting[0],
        attempt=waiting[1],
        ends=RankOnInstance(event.job_id, event.attempt),
        boot_id=instance.boot_id,
    )
    orders: tuple[Any, ...] = ()
    cut_short: tuple[RankOnInstance, ...] = ()
    if (run := instance.check) is not None:
        orders = (
            stop_check(run),
            *check_report(run, CheckOutcome.REBOOT, event.sentence, repairing=True),
        )
        cut_short = (RankOnInstance(run.job_id, run.attempt),) if run.job_id not in ("", event.job_id) else ()
    others = (*other_waiting_jobs(instance, event.job_id), *cut_short)[-WAITING_MAX:]
    asked = (*instance.ended_for, asker)[-REMEMBERED_MAX:]
    changes = {"reserved_for": reservation_for(instance, event), "also_waiting": others, "ended_for": asked}
    step = escalate(instance, need, context, changes, orders)
    if step.changes.get("need") is not None:
        return step
    # No reboot will end the rank now. Jobs that waited before were notified, except the job with the stopped check.
    never = replace(instance, reboot=None, need=need, check=None, also_waiting=cut_short)
    return replace(step, commands=(*step.commands, *repair_ended(never, False, step.reason, context.now)))


def _ends_both(instance: Instance, need: RepairNeed, event: events.RepairRequested, context: DecisionContext) -> Step:
    """Try the held reboot again: it ends the rank of another job, and the rank of this job cannot be stopped either."""
    waiting = (RankOnInstance(event.job_id, event.attempt),) if event.awaited else ()
    changes = {
        "ended_for": (*instance.ended_for, attempt_id(event.job_id, event.attempt))[-REMEMBERED_MAX:],
        "also_waiting": (*instance.also_waiting, *waiting)[-WAITING_MAX:],
    }
    return escalate(replace_fields(instance, changes), need, context, changes)


def repair_of_verified(instance: Instance, event: events.RepairRequested, context: DecisionContext) -> Step | Ignore:
    """Reboot an instance that is checked after a release, if a rank on it cannot be stopped.

    A reboot that is being verified ends the rank anyway.
    """
    if instance.reboot is not None and not is_reset(instance):
        return Ignore("a repair is under way")
    if context.policy.observe_only:
        return Ignore("gpu-recovery is in observe-only mode, and its check continues")
    return repair_requested(instance, event, context)


def repair_of_quarantined(instance: Instance, event: events.RepairRequested, context: DecisionContext) -> Step | Ignore:
    """Retry a held repair for a rank that cannot be stopped: the reboot ends that rank.

    An instance that needs an operator is not rebooted. The person is told once of ranks that run on unknown to ECS.
    """
    if instance.held is not None:
        return repair_requested(instance, event, context)
    orphans = instance.orphaned_ranks
    is_known = attempt_id(event.job_id, event.attempt) in instance.ended_for
    if is_known or RankOnInstance(event.job_id, event.attempt) not in orphans:
        return Ignore("it already needs an operator")
    told = (attempt_id(rank.job_id, rank.attempt) for rank in orphans)
    changes = {"ended_for": tuple(dict.fromkeys((*instance.ended_for, *told)))[-REMEMBERED_MAX:]}
    return Step(InstanceStatus.QUARANTINED, instance.reason, changes)


# -- waiting for the instance ------------------------------------------------------------------------------------------


def poll_repair(instance: Instance, event: events.InstanceLookDue, context: DecisionContext) -> Step | Ignore:
    """Poll the instance, because a report of its state may have been lost."""
    return Step(instance.status, instance.reason, {}, unless_pending(instance, commands.ObserveInstance()))


def stopped_to_start(instance: Instance, event: events.MachineSeen, context: DecisionContext) -> Step | Ignore:
    """Start an instance that was stopped for a replacement, which moves it to another host."""
    reboot = instance.reboot
    if event.state is Ec2InstanceState.TERMINATED:
        return ec2_state_seen(instance, event, context)
    if event.state is not Ec2InstanceState.STOPPED or reboot is None:
        return Ignore(f"it is {event.state}, on its way")
    orders = unless_pending(instance, commands.StartInstance(instance.epoch))
    if not orders:
        return Ignore("it is about to be started")
    ended = tuple(
        commands.ConfirmEnd(job_id, claim.attempt, "ended when its instance was stopped")
        for job_id, claim in instance.claims.items()
    )
    changes = {"reboot": replace(reboot, started=True), "claims": {}}
    return Step(
        InstanceStatus.REPLACING, "the instance is stopped: starting it on another host", changes, (*orders, *ended)
    )


def reboot_uncertain(instance: Instance, event: events.RebootUncertain, context: DecisionContext) -> Step | Ignore:
    """Check the boot, because the function that requested the reboot died.

    Only the boot itself shows whether EC2 received the request.
    """
    if instance.reboot is None:
        return _NO_REPAIR
    if instance.reboot.uncertain:
        return Ignore("it is known already")
    changes = {"reboot": replace(instance.reboot, uncertain=True)}
    return verify(instance, "it is unknown whether EC2 took the reboot: comparing the boot ids", True, changes)


def reboot_uncertain_while_verifying(
    instance: Instance, event: events.RebootUncertain, context: DecisionContext
) -> Step | Ignore:
    """Record that the reboot is uncertain. The check under way decides whether the request is repeated."""
    if instance.reboot is None or instance.reboot.uncertain:
        return Ignore("it is known already, or no repair is under way")
    return Step(instance.status, instance.reason, {"reboot": replace(instance.reboot, uncertain=True)})


def repair_refused(instance: Instance, event: events.RepairRefused, context: DecisionContext) -> Step | Ignore:
    """Hand the instance to an operator because EC2 refused the repair."""
    return repair_given_up(instance, event.sentence, context)


def repair_held(instance: Instance, event: events.RepairHeld, context: DecisionContext) -> Step | Ignore:
    """Hold the repair because re-validation before the call found that it may not begin. It counts as never begun."""
    if instance.need is None:
        return _NO_REPAIR
    # The same evidence would be refused again at once. When it is outdated, a check re-validates it.
    retry_after_s = context.policy.evidence_stale_s
    is_reset = instance.status is InstanceStatus.RESETTING
    changes: dict[str, Any] = {"reset_at": None} if is_reset else {"reboots": instance.reboots[:-1]}
    return hold(instance, instance.need, event.sentence, context, changes, (), retry_after_s)


def repair_overdue(
    instance: Instance, event: events.InstanceDeadlineReached, context: DecisionContext
) -> Step | Ignore:
    """Escalate or give up a repair that did not end in time."""
    return _never_came_back(instance, context)


def _never_came_back(instance: Instance, context: DecisionContext) -> Step:
    """Escalate a reboot that did not end to a replacement, which ends all ranks; give up a replacement."""
    policy, need = context.policy, instance.need
    if need is None or need.rung is RepairLevel.REPLACE:
        limit = policy.replace_timeout_s if need is not None else policy.reboot_timeout_s
        return repair_given_up(instance, f"it did not come back from its repair within {limit} s", context)
    reason = f"it did not come back from its reboot within {policy.reboot_timeout_s} s"
    return escalate(instance, replace(need, rung=RepairLevel.REPLACE, evidence=reason, seen_at=context.now), context)


# -- proof, and the check ----------------------------------------------------------------------------------------------


def verified(instance: Instance, event: events.CheckEnded, context: DecisionContext) -> Step | Ignore:
    """Handle the verdict after a repair or a release: the instance works again only with proof and a passed check."""
    run, verdict, reboot = instance.check, event.verdict, instance.reboot
    if run is None:
        return NO_CHECK
    if instance.has_left:
        verdict_text = f"{verdict.outcome}: {verdict.summary}"
        return gone(instance, f"its registration is {instance.ecs_status}; {verdict_text}", {}, context.now)
    if run.orphaned_at is not None and run.orphaned_at < instance.status_at:
        return verify(
            instance, "a check from before its release has ended: checking it now", False, {}, since=run.since
        )
    if is_outlived(instance, run, event.at):
        why = "its agent has been disconnected since its check: it may have booted again, checking once more"
        return verify(instance, why, run.proof_needed, {}, run.repeats, run.since)
    if run.proof_needed and reboot is not None and not proves_reboot(reboot, verdict):
        return _not_proved(instance, reboot, verdict, context)
    if not run.proof_needed and instance.orphaned_ranks and not proves_end_of_orphans(instance, verdict):
        return repair_given_up(instance, f"{instance.avoid_reason}; reboot it, then release it", context)
    if run.passive:
        return _ranks_ended(instance, run)
    seen: dict[str, Any] = {
        "check": None,
        "boot_id": verdict.boot_id or instance.boot_id,
        "booted_at": verdict.booted_at or instance.booted_at,
    }
    if run.proof_needed and instance.need is not None and instance.need.rung is RepairLevel.REPLACE:
        seen |= _on_another_host(instance, context)
    verdict_text = f"{verdict.outcome}: {verdict.summary}"
    if verdict.outcome is CheckOutcome.HEALTHY:
        return _healed(instance, run, seen, context)
    if verdict.outcome is CheckOutcome.INCONCLUSIVE and run.repeats < REPEATED_CHECKS_MAX:
        again = verify(
            instance, f"checking once more ({verdict_text})", run.proof_needed, {}, run.repeats + 1, run.since
        )
        return replace(again, commands=tuple(c for c in again.commands if not isinstance(c, commands.ActivateInstance)))
    seen["claims"], ends = claims_left(instance), confirm_ended(instance)
    if instance.need is not None and is_reset(instance):
        return _not_cured_by_reset(instance, instance.need, verdict, seen, context)
    if not verdict.outcome.blames_hardware or instance.need is None or reboot is None:
        return repair_given_up(instance, f"it did not pass its check: {verdict_text}", context, seen, ends)
    # A second reboot is tried only if replacing is switched off: it seldom cures what the first did not.
    uncured = verdict.outcome is CheckOutcome.REPLACE or context.policy.replace
    need = replace(
        instance.need,
        rung=RepairLevel.REPLACE if uncured else RepairLevel.REBOOT,
        evidence=f"{verdict_text} after its repair",
        seen_at=context.now,
        ends=None,
        boot_id=verdict.boot_id or instance.boot_id,
    )
    return escalate(
        replace(instance, replaced_at=seen.get("replaced_at", instance.replaced_at)), need, context, seen, ends
    )


def _not_cured_by_reset(
    instance: Instance, need: RepairNeed, verdict: Verdict, seen: dict[str, Any], context: DecisionContext
) -> Step:
    """Escalate an instance that has not passed the check after the reset of its GPUs."""
    verdict_text = f"{verdict.outcome}: {verdict.summary}"
    if verdict.outcome is CheckOutcome.CONFIGURATION:
        return repair_given_up(instance, f"it did not pass its check: {verdict_text}", context, seen)
    rung = RepairLevel.REPLACE if verdict.outcome is CheckOutcome.REPLACE else RepairLevel.REBOOT
    evidence, boot_id = f"{verdict_text} after the reset of its GPUs", verdict.boot_id or instance.boot_id
    uncured = replace(need, rung=rung, evidence=evidence, seen_at=context.now, boot_id=boot_id)
    return escalate(instance, uncured, context, seen)


def _ranks_ended(instance: Instance, run: CheckRun) -> Step:
    """Confirm the ends of the ranks, which the boot has proved, and examine the GPUs that they held."""
    ended = confirm_ended(instance)
    freed = replace_fields(instance, {"claims": claims_left(instance), "orphans": None})
    changes = {"claims": freed.claims, "orphans": None}
    step = verify(freed, "its boot has ended every rank: checking its GPUs", run.proof_needed, changes, since=run.since)
    return replace(step, commands=(*ended, *step.commands))


def _on_another_host(instance: Instance, context: DecisionContext) -> dict[str, Any]:
    """Return the changes after a stop and start: the instance has left the host that was to be retired or rebooted."""
    departure = instance.departure
    stays = departure is not None and departure.kind not in (DepartureKind.RETIREMENT, DepartureKind.MAINTENANCE)
    return {"replaced_at": context.now, "departure": departure if stays else None}


def _healed(instance: Instance, run: CheckRun, seen: dict[str, Any], context: DecisionContext) -> Step:
    """Return the step that puts the instance back to work."""
    proved = "its repair is proved and its check passed" if run.proof_needed else "its check passed"
    keeps = run.proof_needed or is_reset(instance)
    claims = claims_left(instance) if keeps else {}
    changes = {**seen, "reboot": None, "need": None, "also_waiting": (), "claims": claims, "orphans": None}
    changes |= without_fault(instance, run)
    if run.proof_needed:
        changes["healed_at"] = context.now
    if instance.reboot is not None:  # a reset is proved by the check alone
        changes["health"] = without_health_of(instance.health, ON_THE_INSTANCE)
        repaired = "the reset of its GPUs" if is_reset(instance) else "its repair"
        proved = f"{repaired} is proved and its check passed"
    # After a release or a new registration, all ranks that ran on the instance before have ended.
    ended_claims = () if keeps else tuple(instance.claims.items())
    confirmed = [
        commands.ConfirmEnd(job, claim.attempt, "ended before its instance was released") for job, claim in ended_claims
    ]
    reports = repair_ended(instance, True, f"{instance.instance_id}: {proved}", context.now)
    orders = (*confirmed, *confirm_ended(instance), *reports, poke_scheduler(instance))
    return Step(InstanceStatus.AVAILABLE, proved, changes, orders)


def _not_proved(instance: Instance, reboot: Reboot, verdict: Verdict, context: DecisionContext) -> Step:
    """Wait for the deadline without proof of the boot; repeat the request only if the first request is uncertain."""
    if reboot.deadline_at is not None and reboot.deadline_at <= context.now:
        return _never_came_back(instance, context)
    if reboot.uncertain and verdict.boot_id is not None and instance.need is not None:
        again = replace(reboot, asked_at=context.now, uncertain=False)
        not_begun = replace(instance, reboots=instance.reboots[:-1])
        why = blocked_reason(not_begun, instance.need, context)
        if why:
            return hold(not_begun, instance.need, why, context, {"reboots": not_begun.reboots}, ())
        reason = "the instance still runs its old boot: the reboot did not take place, asking again"
        return repair(not_begun, instance.need, again, reason, context, {}, ())
    drain_changes, draining = drain(instance)
    changes = {**drain_changes, "check": None, "reboot": replace(reboot, disconnected=False, looked_at=context.now)}
    reason = "no proof of the repair: the instance runs its old boot, or reports none; still waiting"
    replacing = instance.need is not None and instance.need.rung is RepairLevel.REPLACE
    return Step(InstanceStatus.REPLACING if replacing else InstanceStatus.REBOOTING, reason, changes, draining)


def verify_overdue(
    instance: Instance, event: events.InstanceDeadlineReached, context: DecisionContext
) -> Step | Ignore:
    """Hand the instance to an operator: it came back, but its check gave no answer in time, or cannot start."""
    run, limit = instance.check, check_limit_s(instance.check, context.policy.verify_timeout_s)
    if run is None:
        return NO_CHECK
    limit_at = min(instance.status_at, run.orphaned_at or instance.status_at) + duration(limit)
    if run.task_id and context.now < limit_at:
        return Step(instance.status, instance.reason, {"deadline_at": limit_at})  # it has started all the same
    if instance.has_left or run.orphaned_at is not None:
        return orphan_overdue(instance, run, context)
    reason = f"the check after its repair gave no answer within {limit} s"
    if (refusal := run.why_not_started) is not None:
        reason = f"ECS never started the check after its repair within {limit} s: {refusal.reason}"
    if instance.drained_by_others and not run.task_id:
        reason = f"the check after its repair could not start: {DRAINED_BY_OTHERS}; set it to ACTIVE, then release it"
    return repair_given_up(instance, reason, context, None, (stop_check(run),))
