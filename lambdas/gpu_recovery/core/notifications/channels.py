"""A message goes out by every channel there is, each with a command of its own: none waits for, or repeats, another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpu_recovery.core.commands import Channel, NotifyOperator
from gpu_recovery.core.state_machine import Decision, PendingCommand


def for_every_channel(channels: Sequence[Channel], decision: Decision[Any]) -> Decision[Any]:
    """`decision` with each of its messages once for every one of `channels`; the machines speak of MAIL only."""
    further = [channel for channel in channels if channel is not Channel.MAIL]
    told = [one for one in decision.commands if isinstance(one.command, NotifyOperator)]
    if not further or not told:
        return decision
    # The numbers of a decision's commands go on where the machine stopped counting.
    name, _, last = decision.commands[-1].command_id.rpartition("/")
    copies = [replace(one, command=replace(one.command, channel=channel)) for one in told for channel in further]
    more = tuple(replace(one, command_id=f"{name}/{n}") for n, one in enumerate(copies, int(last) + 1))
    record = replace(decision.record, commands=(*decision.record.commands, *more))
    commands: tuple[PendingCommand, ...] = (*decision.commands, *more)
    return replace(decision, record=record, commands=commands)
