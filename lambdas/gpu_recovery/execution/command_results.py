"""Results of the commands of one record that a function executes: what is done, put off, left or failed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from gpu_recovery.core import commands
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution.hand_over import CLOCK_SKEW
from gpu_recovery.ports.values import RefusedCheck, StartedCheck

Record = TypeVar("Record", Job, Instance)
NOTIFICATIONS = (commands.NotifyOperator, commands.PublishEvent, commands.PokeScheduler, commands.RecordAttempt)
"""Commands that only notify others. No command waits for them, so their failure must not delay other commands."""
SCHEDULER_VISIBLE = (commands.ReleaseInstances, commands.TellInstance)
"""Commands with effects that the scheduler must see when the same record wakes it."""
DELIVERED_AT_ONCE = 100
"""Events for other records that are delivered before the time is looked at again. With 32 threads they take a few
seconds."""
BUSY_RETRY = timedelta(seconds=15)
"""Time before a throttled command is tried again by another function, after the tries of this function."""
RETRIED = (commands.LaunchAttempt, commands.StopAttempt, commands.RunCheck, commands.StopCheck)
"""Commands of RunTask and StopTask. ECS refills their rate limit within seconds, so a throttled command is tried again
in the same invocation."""
BEST_EFFORT = (commands.GatherEvidence,)
"""Commands that only help. The other commands of the decision are executed even if these fail."""


@dataclass
class CommandResults:
    """Results of the commands of one record: ids of finished and deferred commands, and failures."""

    done: list[str] = field(default_factory=list)
    deferred: dict[str, datetime] = field(default_factory=dict)
    notification_failures: list[Exception] = field(default_factory=list)
    failed: list[Exception] = field(default_factory=list)
    """Failures of best-effort commands."""
    check_request: StartedCheck | RefusedCheck | None = None
    """The answer of ECS to the request of a health check."""
    scheduler_retry_at: datetime | None = None
    """Earliest retry of a deferred command whose effect the scheduler must see. None: no such command."""
    left: bool = False
    """Whether a command was left to another function."""
    order_matters: bool = False
    """Whether a command other than a notification was left. Later commands then wait for it."""

    scheduler_waits: bool = False
    """Whether a command was left whose effect the scheduler must see. The scheduler is woken after it."""

    def leave(self, pending: PendingCommand, now: datetime) -> None:
        """Leave a command to another function: it stays in the record, due at once."""
        self.left = True
        self.order_matters |= not isinstance(pending.command, NOTIFICATIONS)
        self.scheduler_waits |= isinstance(pending.command, SCHEDULER_VISIBLE)
        self.deferred[pending.command_id] = now - CLOCK_SKEW

    def must_wait(self, pending: PendingCommand) -> bool:
        """Return whether the command must wait for a command that was left."""
        if isinstance(pending.command, commands.PokeScheduler):
            return self.scheduler_waits
        return self.order_matters and not isinstance(pending.command, NOTIFICATIONS)


def record_id(record: Job | Instance) -> str:
    """Return the id of the job or the instance."""
    return record.job_id if isinstance(record, Job) else record.instance_id


def without_command(record: Record, command_id: str) -> Record:
    """Return the record without one of its pending commands; "" for no command."""
    if not command_id:
        return record
    return replace(record, commands=tuple(pending for pending in record.commands if pending.command_id != command_id))
