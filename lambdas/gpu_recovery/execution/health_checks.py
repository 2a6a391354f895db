"""Carrying out the orders about an instance's health check."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Plan, stopped_event
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import OUR_STOP, Ending, EndingKind, LastStatus, RankFailure
from gpu_recovery.execution.check_result import check_ended
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp, previous_try_died
from gpu_recovery.ports.values import Refusal

CHECK_RETRY = timedelta(seconds=10)
"""A check refused for want of GPUs is tried again no sooner: the ranks' ends take a moment to free them."""
SUMMARY_CHARACTERS_MAX = 200


def run_check(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Start the check. Refused, it stays to be done: the instance's deadline, not this function, gives it up."""
    order: commands.RunCheck = pending.command
    if instance.check is None or instance.check.check_id != order.check_id:
        return DONE
    if previous_try_died(pending) and kit.actions.tasks_started_by(order.check_id):
        return DONE  # whoever had this order started it: another request now would be a second check
    answer = kit.actions.run_check(instance, order.check_id, pending.refusals)
    return CommandResult(not_before=kit.now + CHECK_RETRY) if isinstance(answer, Refusal) else DONE


def stop_check(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    order: commands.StopCheck = pending.command
    tasks = kit.actions.tasks_started_by(order.check_id)
    kit.actions.stop_tasks(tasks, f"{OUR_STOP}{order.check_id} took too long")
    return DONE


def observe_check(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    order: commands.ObserveCheck = pending.command
    facts = kit.actions.describe_tasks(kit.actions.tasks_started_by(order.check_id))
    stopped = [fact for fact in facts if fact.last_status == LastStatus.STOPPED]
    return (
        CommandResult((check_ended(kit.actions, kit.policy, stopped[-1]),))
        if stopped and len(stopped) == len(facts)
        else DONE
    )


def observe_instance(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Ask ECS; and EC2, while the machine itself is to be off or on."""
    messages: list[FollowUp] = []
    if instance.status is InstanceStatus.REPLACING:
        machine = kit.actions.describe_ec2((instance.instance_id,)).get(instance.instance_id)
        if machine is not None:
            messages.append(FollowUp(instance.instance_id, events.MachineSeen(at=kit.now, state=machine.state)))
    described = kit.actions.describe_instance(instance.container_instance_id)
    if described is not None:
        messages.append(FollowUp(instance.instance_id, replace(described[1], looked=True)))
    return CommandResult(tuple(messages))


def report_check(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Enter the result for the instance's ranks; whoever completes the set tells the job that the barrier is down."""
    order: commands.ReportCheck = pending.command
    plan = kit.store.load_plan(order.job_id, order.attempt)
    outcome = CheckOutcome(order.outcome)
    # A gang may be large and the progress is one item: a healthy instance needs no words, the others few.
    summary = "" if outcome is CheckOutcome.HEALTHY else order.summary[:SUMMARY_CHARACTERS_MAX]
    messages: list[FollowUp] = []
    for rank in _ranks_on(plan, instance):
        result = events.Checked(outcome, summary, order.repairing)
        addition = kit.store.add_checked(order.job_id, order.attempt, rank, result)
        if plan is not None and addition is not None and addition.progress.all_checked:
            results = addition.progress.results(plan)
            down = events.InstancesChecked(at=kit.now, attempt=order.attempt, results=results)
            messages.append(FollowUp(order.job_id, down))
    return CommandResult(tuple(messages))


def confirm_end(kit: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Enter that the instance's ranks have ended, whatever ECS may say of their tasks."""
    order: commands.ConfirmEnd = pending.command
    messages: list[FollowUp] = []
    for rank in _ranks_on(kit.store.load_plan(order.job_id, order.attempt), instance):
        gone = Ending(EndingKind.INTERRUPTED, None, order.sentence)
        failure = RankFailure(rank, instance.instance_id, kit.now, gone)
        addition = kit.store.add_stopped(order.job_id, order.attempt, rank, failure)
        news = stopped_event(addition.progress, addition.first_failure, kit.now) if addition else None
        messages += [FollowUp(order.job_id, news)] if news else []
    return CommandResult(tuple(messages))


def _ranks_on(plan: Plan | None, instance: Instance) -> list[int]:
    """The ranks that the plan has on this instance: one, but a person may start several."""
    if plan is None:
        return []
    if plan.epochs:  # placed by us, each rank on an instance of its own: a large gang is not looked through to its end
        try:
            return [plan.instances.index(instance.instance_id)]
        except ValueError:
            return []
    return [rank for rank, one in enumerate(plan.instances) if one == instance.instance_id]
