"""What acting takes and gives: the kit, and what became known by acting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from gpu_recovery.core import events
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.ports.actions import Actions
from gpu_recovery.ports.store import Store

ForEach = Callable[[Callable[[Any], object], Iterable[Any]], object]
"""Does a piece of work for each of some items, which must not depend on each other: side by side where there are
threads. At least the first failure is raised, once everything that was begun has ended."""


@dataclass(frozen=True, slots=True)
class FollowUp:
    """An event for one record: the job's or instance's id, and what it must hear."""

    record_id: str
    event: events.JobEvent | events.InstanceEvent


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What came of acting: messages to pass on, and `not_before` if the command is still to be done."""

    follow_ups: tuple[FollowUp, ...] = ()
    not_before: datetime | None = None


class RayCommandHandler(Protocol):
    """What becomes of the orders of a job on Ray: each function has its own answer."""

    def execute(self, kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
        """Carry out or hand over one of `of_ray.RAY_COMMANDS`."""


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """What acting needs: where records are, how AWS is reached, under which policy, what time it is, and `each`.

    each: for writes of which a gang needs one for each of its instances: one after the other, those of a gang of 2,048
          take longer than a function lives.
    ray:  what becomes of the orders of jobs on Ray; None where there are none.
    submitted: the text that the job was submitted with, where it is at hand; else the store has it.
    """

    store: Store
    actions: Actions
    policy: RecoveryPolicy
    now: datetime
    for_each: ForEach
    ray: RayCommandHandler | None = None
    submitted: str | None = None


DONE = CommandResult()


def previous_try_died(pending: PendingCommand) -> bool:
    """Whether an earlier try ended without an answer: each definite no was followed by one more try, on purpose."""
    return pending.tries > pending.refusals + 1
