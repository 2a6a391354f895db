"""The instance machine: everything that moves an instance from one status to another is in this file.

An instance works (AVAILABLE) until a job that failed on it wants it checked. A check that blames its GPUs sends it
through a reboot, and it works again only after proof of the reboot and a passing check. ECS says "ACTIVE" and "agent
connected" many times an hour, so neither is proof of anything: an agent that comes back only makes us run the check
(VERIFYING), and the proof is the boot id or boot time that the check reads on the machine itself.

DRAINING keeps ECS from placing, so it is used while rebooting and in quarantine; a check needs placement, so the
instance is ECS-ACTIVE while it is checked, and our own records keep jobs away.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from .. import commands, events, notice
from ..check import CheckOutcome, Verdict
from ..machine import Decision, Given, Ignore, Outcome, Row, Step, answer, applied, checked, ignored, unless_pending
from ..names import attempt_id, check_id
from ..policy import RecoveryPolicy, within
from .deadlines import deadlines
from .record import CheckRun, EcsStatus, Instance, InstanceStatus, Rank, Reboot
from .rules import claims_left, confirm_ended, proves_reboot, why_no_reboot

REPEATED_CHECKS_MAX = 1
REMEMBERED_MAX = 8
"""How many of its past registrations and of the attempts that had it checked a record remembers."""


def registered(
    instance_id: str, event: events.InstanceObserved, policy: RecoveryPolicy, now: datetime
) -> Decision[Instance]:
    """The first record of an instance that ECS has shown."""
    blank = Instance(instance_id=instance_id, status_at=now, version=0)
    status = InstanceStatus.AVAILABLE if event.ecs_status == EcsStatus.ACTIVE else InstanceStatus.GONE
    step = Step(status, f"registered with {event.gpus} GPU(s)", _seen(blank, event), (_poke(blank),))
    return _applied(blank, event, step, policy, now)


def decide(
    instance: Instance, event: events.InstanceEvent, policy: RecoveryPolicy, now: datetime
) -> Decision[Instance]:
    """What `event` makes of `instance`. Pure: the same arguments give the same decision."""
    fenced_off = _fence(instance, event)
    if fenced_off:
        return Decision(instance, (), fenced_off, Outcome.OUTDATED)
    row = answer(TRANSITIONS, IGNORED, instance.status, event)
    step = (
        checked(row, instance.status, event, row.decide(instance, event, Given(policy, now)))
        if isinstance(row, Row)
        else row
    )
    if isinstance(step, Ignore):
        return Decision(instance, (), step.reason, Outcome.IGNORED)
    return _applied(instance, event, step, policy, now)


def _fence(instance: Instance, event: events.InstanceEvent) -> str:
    """Why `event` is about something that is over; "" if it is about the instance as it stands."""
    if isinstance(event, events.InstanceObserved):
        return _fence_observed(instance, event)
    if isinstance(event, events.CheckEnded) and (instance.check is None or event.check_id != instance.check.check_id):
        return "about a check that is not the one under way"
    if isinstance(event, events.RebootUncertain | events.RebootRefused) and event.epoch != instance.epoch:
        return "about a reboot that is not the one under way"
    if isinstance(event, events.InstanceDeadlineReached) and event.deadline_at != instance.deadline_at:
        return "about a deadline that has moved"
    if isinstance(event, events.InstanceLookDue) and event.look_at != instance.look_at:
        return "about a look that has been taken"
    return ""


def _fence_observed(instance: Instance, event: events.InstanceObserved) -> str:
    """Within one registration ECS counts its versions up; a new one begins anew, and no old one ever comes back."""
    if event.container_instance_id in instance.past_registrations:
        return "about a registration this instance no longer has"
    if event.container_instance_id != instance.container_instance_id:
        return "" if event.agent_connected else "a registration without its agent does not replace another"
    # A look may find nothing newer.
    least = instance.ecs_version if event.looked else instance.ecs_version + 1
    return "" if event.ecs_version >= least else "ECS said this before what is already known"


def _applied(
    instance: Instance, event: events.InstanceEvent, step: Step, policy: RecoveryPolicy, now: datetime
) -> Decision[Instance]:
    if step.status != instance.status or instance.version == 0:
        data = {
            "instance_id": instance.instance_id, "after": step.status, "reason": step.reason,
            "before": instance.status if instance.version else None, "version": instance.version + 1,
        }  # fmt: skip
        step = replace(step, commands=(*step.commands, commands.PublishEvent("Instance State Changed", data)))
    return applied(
        instance,
        step,
        instance.instance_id,
        event,
        lambda after: deadlines(after, Given(policy, now)),
        policy,
        now,
    )


# -- what ECS says -----------------------------------------------------------------------------------------------------


def _seen(instance: Instance, event: events.InstanceObserved) -> dict[str, Any]:
    past, last = instance.past_registrations, instance.container_instance_id
    if last not in ("", event.container_instance_id):
        past = (*past, last)[-REMEMBERED_MAX:]
    return {
        "container_instance_id": event.container_instance_id, "past_registrations": past,
        "ecs_status": event.ecs_status, "ecs_version": event.ecs_version, "agent_connected": event.agent_connected,
        "gpus": event.gpus, "gpus_free": event.gpus_free, "gpus_most": max(instance.gpus_most, event.gpus),
        "availability_zone": event.availability_zone,
    }  # fmt: skip


def _is_gone(event: events.InstanceObserved) -> bool:
    return event.ecs_status not in (EcsStatus.ACTIVE, EcsStatus.DRAINING)


def _observed(instance: Instance, event: events.InstanceObserved, given: Given) -> Step | Ignore:
    """Nothing but the facts changes; the noise of placements and agent flaps ends here."""
    if _is_gone(event) and event.container_instance_id == instance.container_instance_id:
        return _gone(instance, f"its registration is {event.ecs_status}", _seen(instance, event), given.now)
    if _is_gone(event):
        return Ignore("about a registration this instance no longer has")
    freed = (event.gpus_free or 0) > (instance.gpus_free or 0)
    back = (event.agent_connected and not instance.agent_connected) or freed
    orders = (_poke(instance),) if back and instance.status is InstanceStatus.AVAILABLE else ()
    return Step(instance.status, instance.reason, _seen(instance, event), orders)


def _observed_rebooting(instance: Instance, event: events.InstanceObserved, given: Given) -> Step | Ignore:
    """Is the machine perhaps back? Only a disconnect followed by a connection, or a long wait, makes us look."""
    step = _observed(instance, event, given)
    reboot = instance.reboot
    if isinstance(step, Ignore) or step.status is InstanceStatus.GONE or reboot is None:
        return step
    if not event.agent_connected:
        changes = {**step.changes, "reboot": replace(reboot, disconnected=True)}
        return replace(step, reason="its agent is gone: the reboot is under way", changes=changes)
    registered_anew = event.container_instance_id != instance.container_instance_id
    settled = given.now - (reboot.looked_at or reboot.asked_at) >= within(given.policy.reboot_settle_s)
    if not (reboot.disconnected or registered_anew or settled):
        return step
    why = "its agent is back" if reboot.disconnected or registered_anew else "its agent was never seen to leave"
    return _verify(instance, f"{why}: looking for proof of the reboot", True, dict(step.changes))


def _gone(instance: Instance, reason: str, changes: dict[str, Any], now: datetime) -> Step:
    """The machine has left the cluster: whoever waits for it must hear so, and its ranks have certainly ended."""
    orders: list[Any] = []
    if instance.check is not None and instance.check.job_id:
        run = instance.check
        if instance.status is InstanceStatus.CHECKING:
            orders.append(commands.ReportCheck(run.job_id, run.attempt, CheckOutcome.GONE, reason, False))
    orders += _after_repair(instance, False, f"{instance.instance_id} is gone: {reason}", now)
    orders += [
        commands.ConfirmEnd(job_id, claim.attempt, f"ended with its instance: {reason}")
        for job_id, claim in instance.claims.items()
    ]
    cleared: dict[str, Any] = {"check": None, "reboot": None, "claims": {}, "reserved_for": ""}
    return Step(InstanceStatus.GONE, reason, {**changes, **cleared}, tuple(orders))


def _came_back(instance: Instance, event: events.InstanceObserved, given: Given) -> Step | Ignore:
    if event.ecs_status != EcsStatus.ACTIVE:
        return Step(InstanceStatus.GONE, instance.reason, _seen(instance, event))
    return _verify(instance, "registered again after it had gone", False, _seen(instance, event))


# -- checking ----------------------------------------------------------------------------------------------------------


def _run_check(instance: Instance, run: CheckRun) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The changes and orders that start `run` as the instance's next check."""
    number = instance.checks + 1
    run = replace(run, check_id=check_id(instance.instance_id, number))
    return {"checks": number, "check": run}, (commands.RunCheck(run.check_id),)


def _check_requested(instance: Instance, event: events.CheckRequested, given: Given) -> Step | Ignore:
    if _asked_before(instance, event):
        return _ASKED_BEFORE
    if any(job_id != event.job_id for job_id in instance.claims):
        return _check_impossible(instance, event, given)
    run = CheckRun("", event.job_id, event.attempt, event.may_reboot)
    changes, orders = _run_check(instance, run)
    changes["claims"] = {job: claim for job, claim in instance.claims.items() if job != event.job_id}
    changes |= {"reserved_for": event.job_id, "checked_for": _checked_for(instance, event)}
    reason = f"checked because attempt {event.attempt} of {event.job_id} failed on it"
    return Step(InstanceStatus.CHECKING, reason, changes, orders)


def _asked_before(instance: Instance, event: events.CheckRequested) -> bool:
    """Whether the attempt has had its check, or a later attempt of its job has taken the instance since."""
    claim = instance.claims.get(event.job_id)
    outdated = claim is not None and claim.attempt > event.attempt
    return outdated or attempt_id(event.job_id, event.attempt) in instance.checked_for


def _checked_for(instance: Instance, event: events.CheckRequested) -> tuple[str, ...]:
    return (*instance.checked_for, attempt_id(event.job_id, event.attempt))[-REMEMBERED_MAX:]


def _check_impossible(instance: Instance, event: events.CheckRequested, given: Given) -> Step | Ignore:
    """A check is asked for while the instance cannot be checked for this job: the barrier must not wait for it."""
    if _asked_before(instance, event):
        return _ASKED_BEFORE
    blamed = instance.reboot is not None
    gone = instance.status is InstanceStatus.GONE
    outcome = CheckOutcome.REBOOT if blamed else CheckOutcome.GONE if gone else CheckOutcome.INCONCLUSIVE
    summary = f"the instance is {instance.status}: {instance.reason}"
    left = {job: claim for job, claim in instance.claims.items() if job != event.job_id}
    changes: dict[str, Any] = {"claims": left, "checked_for": _checked_for(instance, event)}
    if instance.reboot is not None:
        changes["reboot"] = replace(instance.reboot, job_id=event.job_id, attempt=event.attempt)
    order = commands.ReportCheck(event.job_id, event.attempt, outcome, summary, blamed)
    return Step(instance.status, instance.reason, changes, (order,))


def _check_ended(instance: Instance, event: events.CheckEnded, given: Given) -> Step | Ignore:
    run, verdict = instance.check, event.verdict
    if run is None:
        return _NO_CHECK
    changes = {
        "check": None,
        "boot_id": verdict.boot_id or instance.boot_id,
        "booted_at": verdict.booted_at or instance.booted_at,
    }
    told = f"{verdict.outcome}: {verdict.summary}"
    if not verdict.outcome.blames_hardware:
        orders: tuple[Any, ...] = (_report(run, verdict, False),)
        if verdict.outcome is CheckOutcome.CONFIGURATION:
            orders = (*orders, notice.misconfigured(instance, verdict.summary))
        return Step(InstanceStatus.AVAILABLE, told, changes, (*orders, _poke(instance)))
    refusal = why_no_reboot(instance, run, verdict, given)
    if refusal:
        return _quarantine(instance, f"{told}; {refusal}", changes, (_report(run, verdict, False),))
    reboot = Reboot(given.now, verdict.boot_id or instance.boot_id, run.job_id, run.attempt)
    return _reboot(instance, f"{told}; rebooting", reboot, changes, (_report(run, verdict, True),), given)


def _report(run: CheckRun, verdict: Verdict, repairing: bool) -> commands.ReportCheck:
    return commands.ReportCheck(run.job_id, run.attempt, verdict.outcome, verdict.summary, repairing)


def _check_overdue(instance: Instance, event: events.InstanceDeadlineReached, given: Given) -> Step | Ignore:
    run = instance.check
    if run is None:
        return _NO_CHECK
    reason = f"its health check gave no answer within {given.policy.check_timeout_s} s"
    report = commands.ReportCheck(run.job_id, run.attempt, CheckOutcome.INCONCLUSIVE, reason, False)
    refused = any(one.command == commands.RunCheck(run.check_id) and one.refusals for one in instance.commands)
    if refused and instance.agent_connected:
        # ECS never had the GPUs for it: that says something about who uses them, and nothing about the machine.
        reason = f"ECS never started its health check within {given.policy.check_timeout_s} s"
        told = (report, notice.never_checked(instance, reason), _poke(instance))
        return Step(InstanceStatus.AVAILABLE, reason, {"check": None}, told)
    orders = (
        commands.StopCheck(run.check_id),
        report,
    )
    return _quarantine(instance, reason, {"check": None}, orders)


def _look_at_check(instance: Instance, event: events.InstanceLookDue, given: Given) -> Step | Ignore:
    if instance.check is None:
        return _NO_CHECK
    look = commands.ObserveCheck(instance.check.check_id)
    return Step(instance.status, instance.reason, {}, unless_pending(instance, look))


# -- rebooting and verifying -------------------------------------------------------------------------------------------


def _reboot(
    instance: Instance, reason: str, reboot: Reboot, changes: dict[str, Any], orders: tuple[Any, ...],
    given: Given,
) -> Step:  # fmt: skip
    """Drain, then reboot; the epoch rises so that no claim from before can be mistaken for one after."""
    epoch = instance.epoch + 1
    timed = replace(reboot, deadline_at=reboot.deadline_at or given.now + within(given.policy.reboot_timeout_s))
    kept = tuple(at for at in instance.reboots if given.now - at < within(given.policy.reboot_window_s))
    all_changes = {**changes, "epoch": epoch, "reboot": timed, "reboots": (*kept, given.now)}
    all_orders = (commands.DrainInstance(), commands.RebootInstance(epoch), *orders)
    return Step(InstanceStatus.REBOOTING, reason, all_changes, all_orders)


def _repair_requested(instance: Instance, event: events.RepairRequested, given: Given) -> Step | Ignore:
    """A rank that cannot be stopped: reboot to end it, whatever the reboot cap says is left to the deadline."""
    claim = instance.claims.get(event.job_id)
    if claim is None or claim.attempt != event.attempt:
        return Ignore("that attempt has no claim on this instance")
    if any(at >= event.at for at in instance.reboots):
        return Ignore("it was rebooted after that was asked")
    if others := sorted(job_id for job_id in instance.claims if job_id != event.job_id):
        return _quarantine(instance, f"{event.sentence}, and {others[0]} would lose its work by a reboot", {}, ())
    ends = Rank(event.job_id, event.attempt)
    reboot = Reboot(given.now, instance.boot_id, event.job_id, event.attempt, ends)
    return _reboot(instance, f"{event.sentence}; rebooting", reboot, {"reserved_for": event.job_id}, (), given)


def _reboot_uncertain(instance: Instance, event: events.RebootUncertain, given: Given) -> Step | Ignore:
    if instance.reboot is None:
        return Ignore("no reboot is under way")
    if instance.reboot.uncertain:
        return Ignore("that is known")
    changes = {"reboot": replace(instance.reboot, uncertain=True)}
    return _verify(instance, "nobody knows whether the reboot was heard: looking at the boot", True, changes)


def _reboot_uncertain_while_looking(instance: Instance, event: events.RebootUncertain, given: Given) -> Step | Ignore:
    """The look is under way; what it shows decides whether the reboot is asked for again."""
    if instance.reboot is None or instance.reboot.uncertain:
        return Ignore("that is known, or no reboot is under way")
    return Step(instance.status, instance.reason, {"reboot": replace(instance.reboot, uncertain=True)})


def _look_at_instance(instance: Instance, event: events.InstanceLookDue, given: Given) -> Step | Ignore:
    return Step(instance.status, instance.reason, {}, unless_pending(instance, commands.ObserveInstance()))


def _reboot_overdue(instance: Instance, event: events.InstanceDeadlineReached, given: Given) -> Step | Ignore:
    return _never_rebooted(instance, given)


def _reboot_refused(instance: Instance, event: events.RebootRefused, given: Given) -> Step | Ignore:
    orders = _after_repair(instance, False, f"{instance.instance_id}: {event.sentence}", given.now)
    return _quarantine(instance, event.sentence, {"reboot": None}, orders)


def _never_rebooted(instance: Instance, given: Given) -> Step:
    reason = f"it did not come back from its reboot within {given.policy.reboot_timeout_s} s"
    orders = _after_repair(instance, False, f"{instance.instance_id}: {reason}", given.now)
    return _quarantine(instance, reason, {"check": None, "reboot": None}, orders)


def _verify(instance: Instance, reason: str, proof_needed: bool, changes: dict[str, Any], repeats: int = 0) -> Step:
    run_changes, orders = _run_check(instance, CheckRun("", proof_needed=proof_needed, repeats=repeats))
    return Step(InstanceStatus.VERIFYING, reason, {**changes, **run_changes}, (commands.ActivateInstance(), *orders))


def _verified(instance: Instance, event: events.CheckEnded, given: Given) -> Step | Ignore:
    run, verdict, reboot = instance.check, event.verdict, instance.reboot
    if run is None:
        return _NO_CHECK
    if run.proof_needed and reboot is not None and not proves_reboot(reboot, verdict):
        return _not_proved(instance, reboot, verdict, given)
    seen = {"boot_id": verdict.boot_id or instance.boot_id, "booted_at": verdict.booted_at or instance.booted_at}
    told = f"{verdict.outcome}: {verdict.summary}"
    if verdict.outcome is CheckOutcome.HEALTHY:
        proved = "the reboot is proved and its check passed" if run.proof_needed else "its check passed"
        changes = {**seen, "check": None, "reboot": None, "claims": claims_left(instance) if run.proof_needed else {}}
        # Back by a person's word or by a new registration: whatever ran on it before is over.
        over = () if run.proof_needed else tuple(instance.claims.items())
        freed = [
            commands.ConfirmEnd(job, claim.attempt, "ended before its instance was given back") for job, claim in over
        ]
        healed = _after_repair(instance, True, f"{instance.instance_id}: {proved}", given.now)
        orders = (*freed, *healed, _poke(instance))
        return Step(InstanceStatus.AVAILABLE, proved, changes, orders)
    if verdict.outcome is CheckOutcome.INCONCLUSIVE and run.repeats < REPEATED_CHECKS_MAX:
        again = _verify(instance, f"checking once more ({told})", run.proof_needed, {}, run.repeats + 1)
        return replace(again, commands=tuple(c for c in again.commands if not isinstance(c, commands.ActivateInstance)))
    if (
        verdict.outcome is CheckOutcome.REBOOT
        and reboot is not None
        and not why_no_reboot(instance, run, verdict, given)
    ):
        once_more = replace(reboot, asked_at=given.now, boot_id=verdict.boot_id or reboot.boot_id, disconnected=False,
                            uncertain=False, looked_at=None, deadline_at=None)  # fmt: skip
        orders = confirm_ended(instance)
        return _reboot(instance, f"{told}; rebooting once more", replace(once_more, ends=None),
                       {**seen, "check": None, "claims": claims_left(instance)}, orders, given)  # fmt: skip
    ended = _after_repair(instance, False, f"{instance.instance_id} did not pass its check: {told}", given.now)
    return _quarantine(instance, told, {**seen, "check": None, "reboot": None, "claims": claims_left(instance)},
                       (*confirm_ended(instance), *ended))  # fmt: skip


def _not_proved(instance: Instance, reboot: Reboot, verdict: Verdict, given: Given) -> Step:
    """The machine shows its old boot, or none: wait for the deadline; ask again only if the asker died."""
    if reboot.deadline_at is not None and reboot.deadline_at <= given.now:
        return _never_rebooted(instance, given)
    if reboot.uncertain and verdict.boot_id is not None:
        again = replace(reboot, asked_at=given.now, uncertain=False)
        unheard = replace(instance, reboots=instance.reboots[:-1])
        return _reboot(unheard, "the machine shows its old boot: the reboot was never heard, asking again", again,
                       {"check": None}, (), given)  # fmt: skip
    changes = {"check": None, "reboot": replace(reboot, disconnected=False, looked_at=given.now)}
    reason = "no proof of the reboot: the machine shows its old boot, or none; waiting on"
    return Step(InstanceStatus.REBOOTING, reason, changes, (commands.DrainInstance(),))


def _verify_overdue(instance: Instance, event: events.InstanceDeadlineReached, given: Given) -> Step | Ignore:
    if instance.check is None:
        return _NO_CHECK
    reason = f"the check after its repair gave no answer within {given.policy.verify_timeout_s} s"
    orders = (
        commands.StopCheck(instance.check.check_id),
        *_after_repair(instance, False, f"{instance.instance_id}: {reason}", given.now),
    )
    return _quarantine(instance, reason, {"check": None, "reboot": None}, orders)


def _after_repair(instance: Instance, healed: bool, sentence: str, now: datetime) -> tuple[Any, ...]:
    """What the job that waits for this repair must hear."""
    reboot = instance.reboot
    if reboot is None or not reboot.job_id:
        return ()
    event = events.RepairEnded(
        at=now, attempt=reboot.attempt, instance_id=instance.instance_id, healed=healed, sentence=sentence
    )
    return (*(confirm_ended(instance) if healed else ()), commands.TellJob(reboot.job_id, event))


# -- waiting for people, and for time ----------------------------------------------------------------------------------


def _quarantine(instance: Instance, reason: str, changes: dict[str, Any], orders: tuple[Any, ...]) -> Step:
    data = {"instance_id": instance.instance_id, "reason": reason, "epoch": instance.epoch}
    told = (notice.quarantined(instance, reason), commands.PublishEvent("Operator Action Required", data))
    return Step(
        InstanceStatus.QUARANTINED, reason, {**changes, "reserved_for": ""}, (*orders, commands.DrainInstance(), *told)
    )


def _remind(instance: Instance, event: events.InstanceDeadlineReached, given: Given) -> Step | Ignore:
    changes = {"deadline_at": given.now + within(given.policy.quarantine_reminder_s)}
    return Step(instance.status, instance.reason, changes, (notice.quarantined(instance, instance.reason),))


def _released(instance: Instance, event: events.ReleaseRequested, given: Given) -> Step | Ignore:
    if event.at < instance.status_at:
        return Ignore("it was quarantined after that")
    return _verify(instance, f"released by {event.by}: it must pass a check first", False, {"reboot": None})


def _unreserved(instance: Instance, event: events.InstanceDeadlineReached, given: Given) -> Step | Ignore:
    reason = f"no longer kept for {instance.reserved_for}" if instance.reserved_for else instance.reason
    return Step(instance.status, reason, {"reserved_for": "", "deadline_at": None}, (_poke(instance),))


def _poke(instance: Instance) -> commands.PokeScheduler:
    return commands.PokeScheduler(f"{instance.instance_id}/{instance.version + 1}")


_NO_CHECK = Ignore("no check is under way")
_ASKED_BEFORE = Ignore("it was checked for this attempt, or a later one has it")

_S = InstanceStatus
TRANSITIONS: dict[tuple[InstanceStatus, type[events.InstanceEvent]], Row] = {
    (_S.AVAILABLE, events.InstanceObserved): Row.to(_observed, _S.AVAILABLE, _S.GONE),
    (_S.AVAILABLE, events.CheckRequested): Row.to(_check_requested, _S.CHECKING, _S.AVAILABLE),
    (_S.AVAILABLE, events.RepairRequested): Row.to(_repair_requested, _S.REBOOTING, _S.QUARANTINED),
    (_S.AVAILABLE, events.InstanceDeadlineReached): Row.to(_unreserved, _S.AVAILABLE),
    (_S.CHECKING, events.InstanceObserved): Row.to(_observed, _S.CHECKING, _S.GONE),
    (_S.CHECKING, events.CheckRequested): Row.to(_check_impossible, _S.CHECKING),
    (_S.CHECKING, events.CheckEnded): Row.to(_check_ended, _S.AVAILABLE, _S.REBOOTING, _S.QUARANTINED),
    (_S.CHECKING, events.RepairRequested): Row.to(_repair_requested, _S.REBOOTING, _S.QUARANTINED),
    (_S.CHECKING, events.InstanceLookDue): Row.to(_look_at_check, _S.CHECKING),
    (_S.CHECKING, events.InstanceDeadlineReached): Row.to(_check_overdue, _S.QUARANTINED, _S.AVAILABLE),
    (_S.REBOOTING, events.InstanceObserved): Row.to(_observed_rebooting, _S.REBOOTING, _S.VERIFYING, _S.GONE),
    (_S.REBOOTING, events.CheckRequested): Row.to(_check_impossible, _S.REBOOTING),
    (_S.REBOOTING, events.RebootUncertain): Row.to(_reboot_uncertain, _S.VERIFYING),
    (_S.REBOOTING, events.RebootRefused): Row.to(_reboot_refused, _S.QUARANTINED),
    (_S.REBOOTING, events.InstanceLookDue): Row.to(_look_at_instance, _S.REBOOTING),
    (_S.REBOOTING, events.InstanceDeadlineReached): Row.to(_reboot_overdue, _S.QUARANTINED),
    (_S.VERIFYING, events.InstanceObserved): Row.to(_observed, _S.VERIFYING, _S.GONE),
    (_S.VERIFYING, events.CheckRequested): Row.to(_check_impossible, _S.VERIFYING),
    (_S.VERIFYING, events.CheckEnded): Row.to(_verified, _S.AVAILABLE, _S.REBOOTING, _S.VERIFYING, _S.QUARANTINED),
    (_S.VERIFYING, events.RebootUncertain): Row.to(_reboot_uncertain_while_looking, _S.VERIFYING),
    (_S.VERIFYING, events.InstanceLookDue): Row.to(_look_at_check, _S.VERIFYING),
    (_S.VERIFYING, events.InstanceDeadlineReached): Row.to(_verify_overdue, _S.QUARANTINED),
    (_S.QUARANTINED, events.InstanceObserved): Row.to(_observed, _S.QUARANTINED, _S.GONE),
    (_S.QUARANTINED, events.CheckRequested): Row.to(_check_impossible, _S.QUARANTINED),
    (_S.QUARANTINED, events.ReleaseRequested): Row.to(_released, _S.VERIFYING),
    (_S.QUARANTINED, events.InstanceDeadlineReached): Row.to(_remind, _S.QUARANTINED),
    (_S.GONE, events.InstanceObserved): Row.to(_came_back, _S.GONE, _S.VERIFYING),
    (_S.GONE, events.CheckRequested): Row.to(_check_impossible, _S.GONE),
}

IGNORED: dict[tuple[InstanceStatus, type[events.InstanceEvent]], str] = {
    **ignored("no check is under way", events.CheckEnded, _S.AVAILABLE, _S.REBOOTING, _S.QUARANTINED, _S.GONE),
    **ignored("a reboot is under way", events.RepairRequested, _S.REBOOTING, _S.VERIFYING),
    **ignored("it waits for a person in any case", events.RepairRequested, _S.QUARANTINED),
    **ignored("it has left the cluster", events.RepairRequested, _S.GONE),
    **ignored("no reboot is under way", events.RebootRefused, _S.AVAILABLE, _S.CHECKING, _S.QUARANTINED, _S.GONE),
    **ignored("the check will show whether it rebooted", events.RebootRefused, _S.VERIFYING),
    **ignored("no reboot is under way", events.RebootUncertain, _S.AVAILABLE, _S.CHECKING, _S.QUARANTINED, _S.GONE),
    **ignored(
        "it is not quarantined", events.ReleaseRequested, _S.AVAILABLE, _S.CHECKING, _S.REBOOTING, _S.VERIFYING, _S.GONE
    ),
    **ignored("nothing is under way to look at", events.InstanceLookDue, _S.AVAILABLE, _S.QUARANTINED, _S.GONE),
    **ignored("it has left the cluster", events.InstanceDeadlineReached, _S.GONE),
}
