"""Results of the commands of one record that a function executes: what is done, put off, left or failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.execution.hand_over import CLOCK_SKEW
from gpu_recovery.ports.values import RefusedCheck, StartedCheck


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

    def leave(self, pending: PendingCommand, now: datetime, *, is_notification: bool = False) -> None:
        """Leave a command to another function: it stays in the record, due at once."""
        self.left = True
        self.order_matters |= not is_notification
        self.deferred[pending.command_id] = now - CLOCK_SKEW
