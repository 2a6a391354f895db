"""Execution of saved commands: one function for each command, safe to repeat from its beginning.

A function returns a CommandResult:

- events for records, delivered before the command is removed (an event for the record itself removes it in the same
  write);
- the time before which an unfinished command is not tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_recovery.core import commands
from gpu_recovery.core.attempt import with_awaited_flag
from gpu_recovery.core.commands import BACKEND_COMMANDS
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution import (
    attempts,
    diagnosis,
    health_checks,
    job_archive,
    launch,
    notifications,
    observe,
    repairs,
    stop,
    warm_spares,
)
from gpu_recovery.execution.context import DONE, HOPS_MAX, CommandResult, ExecutionContext, FollowUp

HANDLERS: dict[type, Callable[[ExecutionContext, Any, PendingCommand], CommandResult]] = {
    commands.LaunchAttempt: launch.launch,
    commands.StartSpare: warm_spares.start_spare,
    commands.ClaimInstance: launch.claim_adopted_instance,
    commands.StopAttempt: stop.stop,
    commands.SuspendAttempt: stop.suspend,
    commands.EndRanks: stop.end_ranks,
    commands.EndUnconfirmed: stop.end_unconfirmed,
    commands.ObserveAttempt: observe.observe,
    commands.GatherEvidence: diagnosis.gather_evidence,
    commands.CheckInstances: attempts.check_instances,
    commands.ReleaseInstances: attempts.release,
    commands.RecordAttempt: job_archive.record,
    commands.RunCheck: health_checks.run_check,
    commands.StopCheck: health_checks.stop_check,
    commands.ObserveCheck: health_checks.observe_check,
    commands.ObserveInstance: health_checks.observe_instance,
    commands.ReportCheck: health_checks.report_check,
    commands.ConfirmEnd: health_checks.confirm_end,
    commands.DrainInstance: repairs.drain,
    commands.ActivateInstance: repairs.activate,
    commands.RebootInstance: repairs.reboot,
    commands.ResetGpus: repairs.reset_gpus,
    commands.ReplaceInstance: repairs.replace_instance,
    commands.StartInstance: repairs.start_instance,
    commands.DeregisterInstance: repairs.deregister,
    commands.NotifyOperator: notifications.notify,
}
"""The function that executes each command. Commands that are not listed are executed by `execute` itself."""


class RayMissing(RecoveryError):
    """A job on Ray exists, but the deployment no longer has a Ray cluster: its setting was removed meanwhile."""


def execute(context: ExecutionContext, record: Job | Instance, pending: PendingCommand) -> CommandResult:
    """Execute one command of `record`, which must be the record as it was last saved.

    Raises:
        RayMissing: the command needs a Ray cluster and the deployment has none.
        KeyError: no function executes commands of this type.
    """
    command = pending.command
    if isinstance(command, BACKEND_COMMANDS) and isinstance(record, Job) and record.spec.backend is Backend.RAY:
        if context.ray is None and isinstance(command, commands.PokeScheduler):
            return DONE  # without a Ray cluster there is no function to wake
        if context.ray is None:
            raise RayMissing(f"{record.job_id} is a job on Ray, and this deployment has no Ray cluster")
        return context.ray.execute(context, record, pending)
    handler = HANDLERS.get(type(command))
    if handler is not None:
        return handler(context, record, pending)
    match command:
        case commands.PublishEvent():
            context.actions.publish(command, pending.command_id.rsplit("/", 1)[0])
        case commands.PokeScheduler():
            if context.hops < HOPS_MAX and (key := _wake_key(context, record, command.key)):
                context.actions.poke_scheduler(key, context.hops + 1)
                if context.ray is not None and isinstance(record, Job) and record.attempt and not record.quota_nodes:
                    context.ray.wake_pool(context, command.key)
        case commands.TellJob():
            return CommandResult((FollowUp(command.job_id, command.event),))
        case commands.TellInstance():
            return CommandResult((FollowUp(command.instance_id, with_awaited_flag(record, command.event)),))
        case _:
            raise KeyError(type(command).__name__)
    return DONE


def _wake_key(context: ExecutionContext, record: Job | Instance, key: str) -> str:
    """Return the key of the message that wakes the scheduler; "" if no message is needed.

    All instances of a gang are released within a minute. While the message of one instance is on its way, the others
    are only added to the instances that its pass reads. The time makes the key unique: SQS would drop the message of a
    repeated command, for which nobody else sends a message any more.
    """
    if isinstance(record, Job):
        return key
    is_first = context.store.add_changed_instance(record.instance_id, context.now)
    return f"{key}-{context.now.isoformat()}" if is_first else ""
