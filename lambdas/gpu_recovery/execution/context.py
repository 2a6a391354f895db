"""Context and result of command execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Protocol

from gpu_recovery.core import events
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.ports.actions import Actions
from gpu_recovery.ports.store import Store
from gpu_recovery.ports.values import RefusedCheck, StartedCheck

ForEach = Callable[[Callable[[Any], object], Iterable[Any]], object]
"""Calls a function for each of some independent items, in parallel where there are threads. At least the first
failure is raised, after all calls that were begun have ended."""


COMMAND_S = 40
"""Seconds that must be left of a function's timeout for another command, or another part of a command, to begin.

A call to AWS that gets no answer ends after 38 s: five tries of 6 s and the waits between them (`aws/clients.py`).
"""
RANKS_AT_ONCE = 100
"""Ranks that are started or stopped before the time is looked at again. At the rates of ECS they take 2.5 s."""
HOPS_MAX = 10
"""Longest chain of messages to a queue that the woken function itself sends. Then the next tick goes on.

A message that leads to the next without end would keep the function running for ever. Lambda itself ends a chain after
about 16 invocations where its detection of recursive loops is on.
"""


def always() -> bool:
    """Return True: the default of `has_time`."""
    return True


def not_at_all(seconds: float) -> None:
    """Return at once: the default of `wait`."""


def sequentially(work: Callable[[Any], object], items: Iterable[Any]) -> None:
    """Call `work` for each of `items`, one after the other. A function with spare threads passes its own ForEach."""
    for item in items:
        work(item)


@frozen_dataclass()
class FollowUp:
    """An event to deliver to the record with this job id or instance id."""

    record_id: str
    event: events.JobEvent | events.InstanceEvent


@frozen_dataclass()
class CommandResult:
    """The result of executing a command.

    follow_ups: events to deliver, also those of an unfinished command.
    not_before: the time before which an unfinished command is not tried again; None if the command is finished.
    check_request: the answer of ECS to the request of a health check; None if the command requested no check.
    after: called after the events for other records are delivered, before the command is removed; None for nothing.
    unfinished: the time was over before the last part of the command. Another function goes on with it at once.
    """

    follow_ups: tuple[FollowUp, ...] = ()
    not_before: datetime | None = None
    check_request: StartedCheck | RefusedCheck | None = None
    after: Callable[[], object] | None = None
    unfinished: bool = False


class RayCommandHandler(Protocol):
    """Executes the commands of jobs on Ray. Each Lambda function has its own implementation."""

    def execute(self, context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
        """Execute one of `core.commands.BACKEND_COMMANDS`, or hand it over to the function that can."""

    def wake_pool(self, context: ExecutionContext, key: str) -> None:
        """Wake the pass over the Ray pool, if the number of running jobs is limited: a job on ECS gave its place back.

        Args:
            key: messages with the same key are sent once.
        """

    def log_tail(self, submission_id: str, most: int) -> tuple[str, ...] | str:
        """Return the last `most` lines of a driver's log, or the reason as one sentence if it cannot be read now."""


@frozen_dataclass()
class ExecutionContext:
    """What the execution of commands needs.

    now:       the time of the execution.
    for_each:  executes the writes of a gang, one for each instance, in parallel. For a gang of 2,048 instances,
               sequential writes take longer than a function may run.
    ray:       executes the commands of jobs on Ray; None without a Ray cluster.
    submitted: the text that the job was submitted with, if the caller has it; None: it is loaded from the store.
    hops:      the number of messages in a row that led to this invocation; see `Recovery.hops`.
    has_time:  returns whether there is time for another part of a command.
    wait:      waits for some seconds within the invocation.
    """

    store: Store
    actions: Actions
    policy: RecoveryPolicy
    now: datetime
    for_each: ForEach
    ray: RayCommandHandler | None = None
    submitted: str | None = None
    hops: int = 0
    has_time: Callable[[], bool] = always
    wait: Callable[[float], object] = not_at_all


DONE = CommandResult()
"""The result of a finished command without events."""
UNFINISHED = CommandResult(unfinished=True)
"""The result of a command whose other parts are left to another function."""


def previous_try_died(pending: PendingCommand) -> bool:
    """Return whether an earlier try ended without an answer.

    `tries` begins at 1, and rises by 1 when an expired lease is reclaimed. `refusals` rises by 1 with each deferral. So
    more tries than deferrals plus one mean that a try was cut off.
    """
    return pending.tries > pending.refusals + 1
