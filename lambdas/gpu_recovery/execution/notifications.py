"""Send a message to operators, with the evidence about instances that is known at that time."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_recovery.core import commands
from gpu_recovery.core.diagnosis.observations import Written
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.notifications.template import with_evidence
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, previous_try_died

EVIDENCE_TRIES = 2
"""Tries of a message that may read its evidence."""


def notify(context: ExecutionContext, record: Job | Instance, pending: PendingCommand) -> CommandResult:
    """Send the message. Evidence is added about the instances that it names.

    If an earlier try failed, the message is sent without the evidence, whose reading may have failed. A message that
    was put off once, or left to another function, has its evidence.
    """
    command: commands.NotifyOperator = pending.command
    is_read = pending.tries <= EVIDENCE_TRIES and not previous_try_died(pending)
    if command.evidence_of and isinstance(record, Job) and is_read:
        command = with_evidence(command, _lines(context, record, command))
    context.actions.notify(command)
    return DONE


def _lines(context: ExecutionContext, job: Job, command: commands.NotifyOperator) -> list[str]:
    """Return the evidence about the instances that the message names, the suspects of a hang first."""
    from gpu_recovery.core.notifications import instance_evidence  # noqa: PLC0415 - few messages name instances

    instance_ids, policy = command.evidence_of, context.policy
    records = context.store.load_instances(instance_ids)
    instances = [records[name] for name in instance_ids if name in records]
    ranks = {name: rank for rank, name in enumerate(job.instances)}
    heartbeats = context.store.load_heartbeats(instance_ids)
    lines = instance_evidence.health_lines(instances, heartbeats, ranks, job.running_at, context.now, policy.suspect_s)
    if command.evidence_since is not None:
        lines += instance_evidence.repair_lines(instances, command.evidence_since)
    if job.failure is None:
        return lines
    last = _last_reports(context, job, instance_ids)
    return [*instance_evidence.last_report_lines(last, ranks, job.failure.at, policy.suspect_s), *lines]


def _last_reports(context: ExecutionContext, job: Job, instance_ids: tuple[str, ...]) -> Mapping[str, float]:
    """Return the time of the last report of each instance's rank, in seconds since 1970, by instance id."""
    buffers = context.store.observations_of(job.job_id, job.attempt, instance_ids)
    times = {
        name: [report.at_s for report in buffer.reports if not isinstance(report, Written)]
        for name, buffer in buffers.items()
    }
    return {name: max(of_rank) for name, of_rank in times.items() if of_rank}
