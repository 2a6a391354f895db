"""Carrying out the orders that touch a machine: each looked at afresh before it is done."""

from __future__ import annotations

from datetime import timedelta

from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.health_signals import Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.core.identifiers import attempt_id, instance_of_check
from gpu_recovery.core.instance.escalation import is_withdrawn
from gpu_recovery.core.instance.record import Instance, InstanceStatus, RankOnInstance
from gpu_recovery.core.job.adoption import task_identity
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import TaskFact
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp, previous_try_died
from gpu_recovery.ports.errors import OutcomeUnknown
from gpu_recovery.ports.values import Ec2Instance

RETRY = timedelta(seconds=30)
REPAIR_DELAYS_MAX = 3
"""So often a repair is put off for a task that may be about to end; then it is held back and lets others begin, before
its silence (`reboot_settle_s`) can pass for a reboot."""
OUT_OF_USE = (InstanceStatus.REBOOTING, InstanceStatus.REPLACING, InstanceStatus.QUARANTINED)
"""The statuses in which ECS places nothing on an instance."""


def drain(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    if instance.status in OUT_OF_USE:
        kit.actions.drain(instance)
    return DONE


def activate(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    if instance.status not in (*OUT_OF_USE, InstanceStatus.GONE):
        kit.actions.activate(instance)
    return DONE


def reboot(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Reboot once. If an earlier actor died with this order, only a look at the boot tells whether it was heard."""
    order: commands.RebootInstance = pending.command
    instance = _reloaded(kit, instance)
    if instance.status not in (InstanceStatus.REBOOTING, InstanceStatus.VERIFYING) or instance.epoch != order.epoch:
        return DONE
    uncertain = _of(instance, events.RebootUncertain(at=kit.now, epoch=order.epoch))
    if previous_try_died(pending) or instance.status is InstanceStatus.VERIFYING:
        return uncertain
    stopped_by = _revalidate(kit, instance, order.epoch, pending)
    if stopped_by is not None:
        return stopped_by
    try:
        refusal = kit.actions.reboot(instance.instance_id)
    except OutcomeUnknown:
        return uncertain
    return _refused(kit, instance, order.epoch, refusal.reason) if refusal is not None else DONE


def replace_instance(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Terminate it in its group, which puts another in its place, or stop it to start it on another host."""
    order: commands.ReplaceInstance = pending.command
    instance = _reloaded(kit, instance)
    if instance.status is not InstanceStatus.REPLACING or instance.epoch != order.epoch:
        return DONE
    if instance.reboot is not None and instance.reboot.started:
        return DONE  # it was stopped and is being started: another stop would undo that
    if not kit.policy.replace:
        return _refused(kit, instance, order.epoch, "it must be replaced, and replacing is switched off")
    stopped_by = _revalidate(kit, instance, order.epoch, pending)
    if stopped_by is not None:
        return stopped_by
    machine = kit.actions.describe_ec2((instance.instance_id,))[instance.instance_id]
    if not machine.group and not machine.restartable:
        why = "it is in no Auto Scaling group, and it cannot be stopped and started: replace it by hand"
        return _refused(kit, instance, order.epoch, why)
    refusal = kit.actions.replace(instance.instance_id, machine.group)
    return _refused(kit, instance, order.epoch, refusal.reason) if refusal is not None else DONE


def start_instance(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Start the stopped machine. Short of capacity, EC2 is asked again until the repair's deadline gives it up."""
    order: commands.StartInstance = pending.command
    if instance.status is not InstanceStatus.REPLACING or instance.epoch != order.epoch:
        return DONE
    refusal = kit.actions.start(instance.instance_id)
    if refusal is None:
        return DONE
    return (
        _refused(kit, instance, order.epoch, refusal.reason)
        if refusal.lasting
        else CommandResult(not_before=kit.now + RETRY)
    )


def deregister(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Take a dead registration away, unless its agent lives or the instance goes by it after all."""
    order: commands.DeregisterInstance = pending.command
    if instance.status is not InstanceStatus.GONE and instance.container_instance_id == order.container_instance_id:
        return DONE
    described = kit.actions.describe_instance(order.container_instance_id)
    if described is not None and not described[1].agent_connected:
        kit.actions.deregister(order.container_instance_id)
    return DONE


# -- the second look ---------------------------------------------------------------------------------------------------


def _reloaded(kit: ExecutionContext, instance: Instance) -> Instance:
    """The record as it is by now: since it was saved a person may have quarantined it, or a watcher spoken."""
    return kit.store.load_instance(instance.instance_id) or instance


def _revalidate(kit: ExecutionContext, instance: Instance, epoch: int, pending: PendingCommand) -> CommandResult | None:
    """What is destructive is looked at twice: when it was decided, and now, against the world as it is."""
    name = instance.instance_id
    fleet = kit.store.load_fleet()
    machine = kit.actions.describe_ec2((name,)).get(name)
    if machine is None:
        return _refused(kit, instance, epoch, "EC2 does not know it")
    if machine.state.is_off:
        return _of(instance, events.MachineSeen(at=kit.now, state=machine.state))
    if machine.state in (Ec2InstanceState.STOPPING, Ec2InstanceState.SHUTTING_DOWN):
        return CommandResult(not_before=kit.now + RETRY)  # somebody is taking it away: soon it is off, or on again
    if not machine.managed:
        return _refused(kit, instance, epoch, "it does not carry the tag by which its owners hand it over")
    held = _blocked_by(kit, machine, fleet, name)
    if not held and instance.need is not None and is_withdrawn(instance, instance.need):
        held = "what asked for it was taken back"
    if not held and _has_recovered(kit, instance):
        held = "EC2 says that it is well again"
    if not held and _has_other_work(kit, instance):
        if pending.refusals < REPAIR_DELAYS_MAX:
            return CommandResult(not_before=kit.now + RETRY)
        held = "somebody's task holds GPUs of it"
    return _of(instance, events.RepairHeld(at=kit.now, epoch=epoch, sentence=held)) if held else None


def _blocked_by(kit: ExecutionContext, machine: Ec2Instance, fleet: Fleet, name: str) -> str:
    """The brake that holds a repair back at its last moment; "" if none does."""
    if machine.in_maintenance:
        return "a person keeps it back by its maintenance tag"
    if kit.policy.observe_only:
        return "the system is observe-only"
    if fleet.pause is not None:
        return f"recovery is paused by {fleet.pause.by}: {fleet.pause.because}"
    if fleet.deaf is not None:
        return fleet.deaf.sentence
    if fleet.opened_at is not None and fleet.probe != name:
        return f"the breaker is open: {fleet.opened_because}"
    return ""


def _has_recovered(kit: ExecutionContext, instance: Instance) -> bool:
    """Whether the status check of EC2 that asked for this repair has passed since."""
    need = instance.need
    if need is None or need.source not in (HealthKind.SYSTEM_STATUS, HealthKind.INSTANCE_STATUS):
        return False
    status = kit.actions.describe_ec2_status((instance.instance_id,)).get(instance.instance_id)
    words = status.health if status is not None else ()
    return any(word.kind == need.source and word.status is HealthStatus.OK for word in words)


def _refused(kit: ExecutionContext, instance: Instance, epoch: int, sentence: str) -> CommandResult:
    return _of(instance, events.RepairRefused(at=kit.now, epoch=epoch, sentence=sentence))


def _of(instance: Instance, event: events.InstanceEvent) -> CommandResult:
    return CommandResult((FollowUp(instance.instance_id, event),))


SERVICE = "ecs-svc/"
"""How `startedBy` begins of a task that a service has started."""


def _has_other_work(kit: ExecutionContext, instance: Instance) -> bool:
    """Whether somebody's task runs there: not our check, not the rank that the reboot is to end, not a daemon.

    Daemons and other services without GPUs are on every instance, and ECS starts them again by itself.
    """
    ends = instance.reboot.ends if instance.reboot is not None else None
    own = attempt_id(ends.job_id, ends.attempt) if ends is not None else ""
    return any(
        (fact.gpus or not fact.started_by.startswith(SERVICE))
        and fact.started_by != own
        and instance_of_check(fact.started_by) is None
        and not _is_rank_of(fact, ends)
        for fact in kit.actions.tasks_on(instance)
    )


def _is_rank_of(fact: TaskFact, ends: RankOnInstance | None) -> bool:
    """Whether a person's task is a rank of the job whose rank the reboot is to end."""
    says = task_identity(fact.environment)
    return ends is not None and says is not None and says.job_id == ends.job_id
