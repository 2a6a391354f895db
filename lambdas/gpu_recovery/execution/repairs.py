"""Repairs of an instance: drain, reboot, replace, start; each destructive command with re-validation before it."""

from __future__ import annotations

from datetime import timedelta

from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Fleet, repair_withheld_reason
from gpu_recovery.core.health_signals import Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import BY_DAEMON, AgentCommand, AgentCommandKind
from gpu_recovery.core.identifiers import attempt_id, instance_of_check
from gpu_recovery.core.instance.escalation import is_withdrawn
from gpu_recovery.core.instance.record import EcsStatus, Instance, InstanceStatus, RankOnInstance
from gpu_recovery.core.job.adoption import task_identity
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import TaskFact
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp, previous_try_died
from gpu_recovery.execution.repair_record import announce
from gpu_recovery.execution.task_ownership import Owner, owner_of_check_task, owner_of_rank_task
from gpu_recovery.ports.errors import OutcomeUnknown
from gpu_recovery.ports.values import Ec2Instance

RETRY = timedelta(seconds=30)
"""Time before a delayed repair is tried again."""
REPAIR_DELAYS_MAX = 3
"""Largest number of delays of a repair for a task that may end soon.

After these delays the repair is held, and other repairs may begin. Three delays end before `reboot_settle_s`. After
`reboot_settle_s` a check would look for proof of a reboot that was never requested.
"""
OUT_OF_USE = (InstanceStatus.RESETTING, InstanceStatus.REBOOTING, InstanceStatus.REPLACING, InstanceStatus.QUARANTINED)
"""The statuses in which ECS places no task on an instance."""


def drain(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Set the instance to DRAINING in ECS, if it is out of use."""
    if instance.status in OUT_OF_USE:
        context.actions.drain(instance)
    return DONE


def activate(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Set the instance to ACTIVE in ECS, unless it is out of use or gone."""
    if instance.status not in (*OUT_OF_USE, InstanceStatus.GONE):
        context.actions.activate(instance)
    return DONE


RESET_GRACE_S = 120
"""Seconds that the node agent gives the reset of all GPUs of its instance."""


def reset_order_id(instance_id: str, epoch: int) -> str:
    """Return the id of the order that lets the node agent reset the GPUs. The epoch tells one reset from another."""
    return f"reset/{instance_id}/{epoch}"


def reset_gpus(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Order the node agent to reset the GPUs. The answers to its reports repeat the order while it applies."""
    command: commands.ResetGpus = pending.command
    instance = _reloaded(context, instance)
    if instance.status is not InstanceStatus.RESETTING or instance.epoch != command.epoch:
        return DONE
    stopped_by = _revalidate(context, instance, command.epoch, pending)
    if stopped_by is not None:
        return stopped_by
    beat = context.store.load_heartbeats((instance.instance_id,)).get(instance.instance_id)
    sentence = ""
    if beat is None or not beat.resets:
        sentence = "its agent is not set up to reset GPUs"
    elif BY_DAEMON in beat.heard and (instance.drained or instance.ecs_status == EcsStatus.DRAINING):
        sentence = "ECS stops its agent while the instance is drained, so the agent cannot reset GPUs"
    if sentence:
        return _delivering(
            instance, events.ResetEnded(at=context.now, epoch=command.epoch, done=False, sentence=sentence)
        )
    order_id = reset_order_id(instance.instance_id, command.epoch)
    order = AgentCommand(order_id, AgentCommandKind.RESET, "", command.epoch, RESET_GRACE_S)
    context.store.add_agent_command(instance.instance_id, order)
    return announce(context, instance, command.epoch, "GPU reset")


def reboot(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Reboot the instance once.

    If an earlier try was cut off, the reboot may have happened. The instance then receives `RebootUncertain` and its
    boot is checked.
    """
    command: commands.RebootInstance = pending.command
    instance = _reloaded(context, instance)
    if instance.status not in (InstanceStatus.REBOOTING, InstanceStatus.VERIFYING) or instance.epoch != command.epoch:
        return DONE
    uncertain = _delivering(instance, events.RebootUncertain(at=context.now, epoch=command.epoch))
    if previous_try_died(pending) or instance.status is InstanceStatus.VERIFYING:
        return uncertain
    stopped_by = _revalidate(context, instance, command.epoch, pending)
    if stopped_by is not None:
        return stopped_by
    try:
        refusal = context.actions.reboot(instance.instance_id)
    except OutcomeUnknown:
        announced = announce(context, instance, command.epoch, "reboot")
        return CommandResult((*uncertain.follow_ups, *announced.follow_ups))
    if refusal is not None:
        return _repair_refused(context, instance, command.epoch, refusal.reason)
    return announce(context, instance, command.epoch, "reboot")


def replace_instance(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Terminate the instance in its group, which launches another, or stop it, to start it on another host."""
    command: commands.ReplaceInstance = pending.command
    instance = _reloaded(context, instance)
    if instance.status is not InstanceStatus.REPLACING or instance.epoch != command.epoch:
        return DONE
    if instance.reboot is not None and instance.reboot.started:
        return DONE  # it was stopped and is being started: another stop would undo the start
    if not context.policy.replace:
        return _repair_refused(context, instance, command.epoch, "it must be replaced, and replacing is switched off")
    stopped_by = _revalidate(context, instance, command.epoch, pending)
    if stopped_by is not None:
        return stopped_by
    ec2_instance = context.actions.describe_ec2((instance.instance_id,))[instance.instance_id]
    if not ec2_instance.group and not ec2_instance.restartable:
        why = "it is not in an Auto Scaling group, and it cannot be stopped and started: replace it by hand"
        return _repair_refused(context, instance, command.epoch, why)
    refusal = context.actions.replace(instance.instance_id, ec2_instance.group)
    if refusal is not None:
        return _repair_refused(context, instance, command.epoch, refusal.reason)
    return announce(context, instance, command.epoch, "termination" if ec2_instance.group else "stop")


def start_instance(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Start the stopped instance.

    If EC2 lacks capacity, the command is tried again until the deadline of the repair.
    """
    command: commands.StartInstance = pending.command
    if instance.status is not InstanceStatus.REPLACING or instance.epoch != command.epoch:
        return DONE
    refusal = context.actions.start(instance.instance_id)
    if refusal is None:
        return DONE
    return (
        _repair_refused(context, instance, command.epoch, refusal.reason)
        if refusal.lasting
        else CommandResult(not_before=context.now + RETRY)
    )


def deregister(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Deregister a dead container instance, unless its agent is connected or it is the present one of the instance."""
    command: commands.DeregisterInstance = pending.command
    if instance.status is not InstanceStatus.GONE and instance.container_instance_id == command.container_instance_id:
        return DONE
    described = context.actions.describe_instance(command.container_instance_id)
    if described is not None and not described[1].agent_connected:
        context.actions.deregister(command.container_instance_id)
    return DONE


# -- re-validation -----------------------------------------------------------------------------------------------------


def _reloaded(context: ExecutionContext, instance: Instance) -> Instance:
    """Return the present record: since it was saved, an operator or a health report may have changed it."""
    return context.store.load_instance(instance.instance_id) or instance


def _revalidate(
    context: ExecutionContext, instance: Instance, epoch: int, pending: PendingCommand
) -> CommandResult | None:
    """Re-validate a destructive command against fresh state of EC2, ECS and the fleet, and against the opt-in tag.

    Returns:
        The result that ends, holds or delays the repair; None if the command may be executed.
    """
    name = instance.instance_id
    fleet = context.store.load_fleet()
    ec2_instance = context.actions.describe_ec2((name,)).get(name)
    if ec2_instance is None:
        return _repair_refused(context, instance, epoch, "EC2 does not know it")
    if ec2_instance.state.is_off:
        return _delivering(instance, events.MachineSeen(at=context.now, state=ec2_instance.state))
    if ec2_instance.state in (Ec2InstanceState.STOPPING, Ec2InstanceState.SHUTTING_DOWN):
        return CommandResult(
            not_before=context.now + RETRY
        )  # an operator or AWS is stopping it: soon it is off, or on again
    if not ec2_instance.managed:
        return _repair_refused(context, instance, epoch, "it does not have the opt-in tag")
    hold_reason = _blocked_by(context, ec2_instance, fleet, name)
    if not hold_reason and instance.need is not None and is_withdrawn(instance, instance.need):
        hold_reason = "the request for the repair was withdrawn"
    if not hold_reason and _has_recovered(context, instance):
        hold_reason = "EC2 reports it as healthy again"
    if not hold_reason and _has_other_work(context, instance):
        if pending.refusals < REPAIR_DELAYS_MAX:
            return CommandResult(not_before=context.now + RETRY)
        hold_reason = "a task of another program holds its GPUs"
    return (
        _delivering(instance, events.RepairHeld(at=context.now, epoch=epoch, sentence=hold_reason))
        if hold_reason
        else None
    )


def _blocked_by(context: ExecutionContext, ec2_instance: Ec2Instance, fleet: Fleet, name: str) -> str:
    """Return the fleet limit or setting that blocks the repair at its last moment; "" if there is none."""
    if ec2_instance.in_maintenance:
        return "its maintenance tag prohibits repairs"
    return repair_withheld_reason(fleet, name, context.policy)


def _has_recovered(context: ExecutionContext, instance: Instance) -> bool:
    """Return whether the EC2 status check that caused this repair has passed since."""
    need = instance.need
    if need is None or need.source not in (HealthKind.SYSTEM_STATUS, HealthKind.INSTANCE_STATUS):
        return False
    status = context.actions.describe_ec2_status((instance.instance_id,)).get(instance.instance_id)
    reports = status.health if status is not None else ()
    return any(report.kind == need.source and report.status is HealthStatus.OK for report in reports)


def _repair_refused(context: ExecutionContext, instance: Instance, epoch: int, sentence: str) -> CommandResult:
    return _delivering(instance, events.RepairRefused(at=context.now, epoch=epoch, sentence=sentence))


def _delivering(instance: Instance, event: events.InstanceEvent) -> CommandResult:
    return CommandResult((FollowUp(instance.instance_id, event),))


SERVICE = "ecs-svc/"
"""The prefix of `startedBy` of a task that an ECS service has started."""


def _has_other_work(context: ExecutionContext, instance: Instance) -> bool:
    """Return whether a task runs on the instance other than our check, the rank that the reboot ends, and daemons.

    Daemons and other services without GPUs run on every instance, and ECS starts them again by itself.
    """
    ends = instance.reboot.ends if instance.reboot is not None else None
    return any(
        (fact.gpus or not fact.started_by.startswith(SERVICE))
        and not _is_our_check(context, instance, fact)
        and not (ends is not None and _is_rank_of(context, fact, ends))
        for fact in context.actions.tasks_on(instance)
    )


def _is_our_check(context: ExecutionContext, instance: Instance, fact: TaskFact) -> bool:
    if instance_of_check(fact.started_by) != instance.instance_id:
        return False
    return owner_of_check_task(context.store, context.actions, instance, fact) is Owner.OURS


def _is_rank_of(context: ExecutionContext, fact: TaskFact, ends: RankOnInstance) -> bool:
    """Return whether the task is the rank that the reboot ends, or a rank of the same adopted job."""
    if fact.started_by == attempt_id(ends.job_id, ends.attempt):
        plan = context.store.load_plan(ends.job_id, ends.attempt)
        owner = owner_of_rank_task(context.store, context.actions, plan, None, fact) if plan is not None else None
        return owner is Owner.OURS
    identity = task_identity(fact.environment)
    return identity is not None and identity.job_id == ends.job_id
