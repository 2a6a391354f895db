"""Execute the commands of an instance's health check: run, stop, observe, report."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Plan, stopped_event
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.instance.idle_check import is_stopped
from gpu_recovery.core.instance.record import CheckRefusal, Instance, InstanceStatus
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import OUR_STOP, Ending, EndingKind, LastStatus, RankFailure
from gpu_recovery.execution.check_result import check_ended
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp, previous_try_died
from gpu_recovery.execution.orphans import end_orphans
from gpu_recovery.execution.task_ownership import tasks_of_check
from gpu_recovery.ports.values import Refusal, RefusedCheck, StartedCheck

CHECK_RETRY = timedelta(seconds=10)
"""Time before a check that was refused for lack of GPUs is tried again: a rank's end takes a moment to free them."""
REFUSAL_CHARACTERS_MAX = 500
"""Length of ECS's reason for a refused check in the record of the instance, in characters."""
SUMMARY_BYTES_MAX, SUMMARIES_BYTES_MAX = 200, 200_000
"""Length in bytes of a check's summary in the progress of an attempt, and of all its summaries together.

An item of the progress has the results of 64 ranks (`aws/progress_items.py`). An attempt of an older release has one
item of at most 400 KB for all ranks, so the summaries share a limit.
"""


def run_check(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Start the health check.

    A refused command stays pending, and the record of the check keeps the refusal. The deadline of the instance ends
    the retries. An idle check that ECS refuses, or that is to be stopped before it began, ends without a result.
    """
    command: commands.RunCheck = pending.command
    if instance.check is None or instance.check.check_id != command.check_id:
        return DONE
    if previous_try_died(pending) and (started := tasks_of_check(context, instance, command.check_id)):
        # An earlier try started it: another request would start a second check.
        return CommandResult(check_request=StartedCheck(command.check_id, started[0].task_id))
    if is_stopped(instance.check):
        return _not_started(context, instance, command.check_id, "it was not started")
    answer = context.actions.run_check(instance, command.check_id, pending.refusals, context.store.launch_key())
    if isinstance(answer, Refusal) and instance.check.idle is not None:
        return _not_started(context, instance, command.check_id, f"ECS did not start it: {answer.reason}")
    if isinstance(answer, Refusal):
        refusal = CheckRefusal(answer.reason[:REFUSAL_CHARACTERS_MAX], answer.lacks)
        return CommandResult(
            not_before=context.now + CHECK_RETRY, check_request=RefusedCheck(command.check_id, refusal)
        )
    return CommandResult(check_request=StartedCheck(command.check_id, answer))


def _not_started(context: ExecutionContext, instance: Instance, check_id: str, why: str) -> CommandResult:
    """Return the end of an idle check for which no task was started."""
    verdict = Verdict(CheckOutcome.INCONCLUSIVE, why[:REFUSAL_CHARACTERS_MAX])
    ended = events.CheckEnded(at=context.now, check_id=check_id, verdict=verdict)
    return CommandResult((FollowUp(instance.instance_id, ended),))


def stop_check(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Stop the tasks of a health check.

    The check took too long or was superseded, an operator quarantined the instance, or a repair replaces the check.
    """
    command: commands.StopCheck = pending.command
    unrecorded = () if command.task_id else tasks_of_check(context, instance, command.check_id, command.signed)
    tasks = (command.task_id,) if command.task_id else tuple(fact.task_id for fact in unrecorded)
    context.actions.stop_tasks(tasks, f"{OUR_STOP}{command.check_id} is no longer needed")
    return DONE


def observe_check(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Ask ECS about the check's task. Deliver the verdict if the task has stopped.

    Without a recorded task id the oldest task that shows evidence is ours, as in `task_ownership.tasks_of_ranks`.
    """
    command: commands.ObserveCheck = pending.command
    run = instance.check
    if run is None or run.check_id != command.check_id:
        return DONE
    if run.task_id:
        facts = context.actions.describe_tasks((run.task_id,))
    else:
        facts = tasks_of_check(context, instance, command.check_id)[:1]
    stopped = [fact for fact in facts if fact.last_status == LastStatus.STOPPED]
    messages = (check_ended(context.actions, context.policy, fact) for fact in stopped)
    return CommandResult(tuple(message for message in messages if message is not None))


def observe_instance(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Ask ECS about the container instance. While it is being replaced or has orphans, ask EC2 about the instance."""
    if instance.orphaned_ranks and not instance.under_repair:
        return end_orphans(context, instance)
    messages: list[FollowUp] = []
    if instance.status is InstanceStatus.REPLACING:
        ec2_instance = context.actions.describe_ec2((instance.instance_id,)).get(instance.instance_id)
        if ec2_instance is not None:
            messages.append(
                FollowUp(instance.instance_id, events.MachineSeen(at=context.now, state=ec2_instance.state))
            )
    described = context.actions.describe_instance(instance.container_instance_id)
    if described is not None:
        messages.append(FollowUp(instance.instance_id, replace(described[1], looked=True)))
    return CommandResult(tuple(messages))


def report_check(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Record the check result for each rank on the instance.

    The result that completes the set ends the barrier: the job receives `InstancesChecked`.
    """
    command: commands.ReportCheck = pending.command
    plan = context.store.load_plan(command.job_id, command.attempt)
    outcome = CheckOutcome(command.outcome)
    # A healthy instance needs no summary.
    summary = "" if outcome is CheckOutcome.HEALTHY or plan is None else _short(command.summary, len(plan.instances))
    messages: list[FollowUp] = []
    for rank in _ranks_on(plan, instance):
        result = events.Checked(outcome, summary, command.repairing)
        update = context.store.add_checked(command.job_id, command.attempt, rank, result)
        if plan is not None and update is not None and update.progress.all_checked:
            results = update.progress.results(plan)
            barrier_event = events.InstancesChecked(at=context.now, attempt=command.attempt, results=results)
            messages.append(FollowUp(command.job_id, barrier_event))
    return CommandResult(tuple(messages))


def _short(summary: str, ranks: int) -> str:
    """Return the summary cut to its share of a progress with so many ranks."""
    share = min(SUMMARY_BYTES_MAX, SUMMARIES_BYTES_MAX // max(1, ranks))
    return summary.encode()[:share].decode(errors="ignore")


def confirm_end(context: ExecutionContext, instance: Instance, pending: PendingCommand) -> CommandResult:
    """Record that the ranks on the instance have ended, independently of what ECS says about their tasks."""
    command: commands.ConfirmEnd = pending.command
    messages: list[FollowUp] = []
    ranks = _ranks_on(context.store.load_plan(command.job_id, command.attempt), instance)
    for rank in ranks:
        ending = Ending(EndingKind.INTERRUPTED, None, command.sentence)
        failure = RankFailure(rank, instance.instance_id, context.now, ending)
        update = context.store.add_stopped(command.job_id, command.attempt, rank, failure)
        event = stopped_event(update.progress, update.first_failure, context.now) if update else None
        messages += [FollowUp(command.job_id, event)] if event else []
    # An instance has a rank or a warm spare of an attempt. The job's record is large, so it is not read for a rank.
    job = context.store.load_job(command.job_id) if not ranks else None
    for spare in job.spares if job is not None else ():
        if (spare.instance_id, spare.attempt) == (instance.instance_id, command.attempt):
            ended = events.SpareEnded(
                at=context.now, attempt=command.attempt, number=spare.number, sentence=command.sentence
            )
            messages.append(FollowUp(command.job_id, ended))
    return CommandResult(tuple(messages))


def _ranks_on(plan: Plan | None, instance: Instance) -> list[int]:
    """Return the ranks that the plan has on the instance: one, or several if a user started them."""
    if plan is None:
        return []
    if plan.epochs:  # placed by the scheduler, each rank on its own instance: the search ends at the first match
        try:
            return [plan.instances.index(instance.instance_id)]
        except ValueError:
            return []
    return [rank for rank, instance_id in enumerate(plan.instances) if instance_id == instance.instance_id]
