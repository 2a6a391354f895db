"""Notification channels: each message gets a command for each channel, so no channel waits for or repeats another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpu_recovery.core.commands import Channel, NotifyOperator
from gpu_recovery.core.state_machine import Decision, PendingCommand


def for_every_channel(channels: Sequence[Channel], decision: Decision[Any]) -> Decision[Any]:
    """Return `decision` with each of its messages for each of `channels`. Transition functions emit MAIL only."""
    further = [channel for channel in channels if channel is not Channel.MAIL]
    mails = [pending for pending in decision.commands if isinstance(pending.command, NotifyOperator)]
    if not further or not mails:
        return decision
    # The numbers of the new commands follow the last number of the decision, so that command ids are unique.
    name, _, last = decision.commands[-1].command_id.rpartition("/")
    copies = [replace(mail, command=replace(mail.command, channel=channel)) for mail in mails for channel in further]
    more = tuple(replace(copy, command_id=f"{name}/{n}") for n, copy in enumerate(copies, int(last) + 1))
    record = replace(decision.record, commands=(*decision.record.commands, *more))
    commands: tuple[PendingCommand, ...] = (*decision.commands, *more)
    return replace(decision, record=record, commands=commands)
