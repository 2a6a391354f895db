"""Carrying out a saved command. Each function may be repeated from its beginning, by whoever finds it not done.

A function answers with what became known by acting: messages for a machine, told before the command is settled (one
for the record itself settles it in the same write), and a time before which it is not to be tried again if it is not
done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_recovery.core import commands
from gpu_recovery.core.attempt import with_awaited_flag
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution import attempts, diagnosis, health_checks, job_archive, launch, observe, repairs, stop
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp
from gpu_recovery.execution.ray import RAY_COMMANDS

NOTIFICATIONS = (commands.NotifyOperator, commands.PublishEvent, commands.PokeScheduler, commands.RecordAttempt)
"""Commands that only tell others: nothing waits for them, so their failure must not keep anything else waiting."""
SCHEDULER_VISIBLE = (commands.ReleaseInstances, commands.TellInstance)
"""Commands that change what the scheduler is to find, when it is woken by the same record."""
BEST_EFFORT = (commands.GatherEvidence,)
"""Commands that only help: what is ordered beside them is done even if they fail."""
HANDLERS: dict[type, Callable[[ExecutionContext, Any, PendingCommand], CommandResult]] = {
    commands.LaunchAttempt: launch.launch,
    commands.ClaimInstance: launch.claim_adopted_instance,
    commands.StopAttempt: stop.stop,
    commands.SuspendAttempt: stop.suspend,
    commands.EndRanks: stop.end_ranks,
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
    commands.ReplaceInstance: repairs.replace_instance,
    commands.StartInstance: repairs.start_instance,
    commands.DeregisterInstance: repairs.deregister,
}


class RayMissing(RecoveryError):
    """There is a job on Ray, but no Ray cluster: the deployment's setting was taken away while the job was there."""


def execute(kit: ExecutionContext, record: Job | Instance, pending: PendingCommand) -> CommandResult:
    """Carry out one command of `record`, which must be the record as it was last saved."""
    command = pending.command
    if isinstance(command, RAY_COMMANDS) and isinstance(record, Job) and record.spec.backend is Backend.RAY:
        if kit.ray is None and isinstance(command, commands.PokeScheduler):
            return DONE  # there is nobody to wake
        if kit.ray is None:
            raise RayMissing(f"{record.job_id} is a job on Ray, and this deployment has no Ray cluster")
        return kit.ray.execute(kit, record, pending)
    carry_out = HANDLERS.get(type(command))
    if carry_out is not None:
        return carry_out(kit, record, pending)
    match command:
        case commands.NotifyOperator():
            kit.actions.notify(command)
        case commands.PublishEvent():
            kit.actions.publish(command, pending.command_id.rsplit("/", 1)[0])
        case commands.PokeScheduler():
            kit.actions.poke_scheduler(command.key)
        case commands.TellJob():
            return CommandResult((FollowUp(command.job_id, command.event),))
        case commands.TellInstance():
            return CommandResult((FollowUp(command.instance_id, with_awaited_flag(record, command.event)),))
        case _:
            raise KeyError(type(command).__name__)
    return DONE
