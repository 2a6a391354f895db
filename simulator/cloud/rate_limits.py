"""What AWS's limits cost: the time that an invocation spends waiting for them and for every call's answer.

An invocation still happens at one instant of virtual time. What it spends is counted while it goes, and whatever it
has started by then becomes real that much later (`VirtualClock.lag`): tasks start and stop, events arrive and machines
reboot after the calls that ordered them were let through. One that spends more than its function has is killed there.

Token buckets of ECS and EC2, per account and Region, as burst and refill per second: ECS API Reference, "Request
throttling for the Amazon ECS API" (cluster resource modify actions share one bucket); EC2 API Reference, "Request
throttling for the Amazon EC2 API" (mutating actions, StartInstances, TerminateInstances).

What is simplified: a place in the queue of a bucket is given in the order in which invocations begin; the waits between
botocore's retries are taken as long as the bucket asks for, up to the mean of all of them together, not drawn; a query
of DynamoDB counts as one call however many pages it has; calls that only read are not limited, only slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.aws.ecs import PARALLEL
from gpu_recovery.ports.errors import TryAgainSoon

from simulator.virtual_clock import VirtualClock

RETRY_FOR_S = 7.5
"""Five tries in botocore's standard mode wait r, 2r, 4r and 8r seconds in between, r drawn from 0 to 1: on average."""
TIMEOUT_S = {
    "ecs_task_handler": 110,
    "dcgm_task_monitor": 110,
    "ecs_instance_monitor": 110,
    "reconciler": 110,
    "scheduler": 110,
    "job_api": 29,
    "node_api": 29,
}
"""How long each function may take: `infra/functions.py`."""


@dataclass(frozen=True)
class Limit:
    """A token bucket: it holds `burst` tokens, and `per_s` flow in each second."""

    burst: int
    per_s: float


ECS_MODIFY, EC2_MUTATE = Limit(100, 40), Limit(50, 5)
EC2_START, EC2_TERMINATE = Limit(5, 2), Limit(100, 5)
LIMITS: Mapping[str, tuple[str, Limit]] = {
    "RunTask": ("ECS cluster resources", ECS_MODIFY),
    "StopTask": ("ECS cluster resources", ECS_MODIFY),
    "UpdateContainerInstancesState": ("ECS cluster resources", ECS_MODIFY),
    "DeregisterContainerInstance": ("ECS cluster resources", ECS_MODIFY),
    "RebootInstances": ("EC2", EC2_MUTATE),
    "StopInstances": ("EC2", EC2_MUTATE),
    "StartInstances": ("EC2 StartInstances", EC2_START),
    "TerminateInstanceInAutoScalingGroup": ("EC2 TerminateInstances", EC2_TERMINATE),
}
"""Which bucket each call that changes something takes its token from."""
STORE = "DynamoDB"
ASKED_ONCE = ("RebootInstances",)
"""Calls that the product never repeats by itself (`aws/clients.py`): they find a token or fail."""


@dataclass
class Bucket:
    """The tokens of one limit. Times are seconds since the world began."""

    limit: Limit
    full_at: float = float("-inf")
    """When it would be full again if nobody took any more."""

    def wait(self, at: float) -> float:
        """How long after `at` the next token is there."""
        return max(0.0, self.full_at - (self.limit.burst - 1) / self.limit.per_s - at)

    def take(self, at: float) -> None:
        """Take one at the time `at`, when there is one."""
        self.full_at = max(self.full_at, at) + 1 / self.limit.per_s


@dataclass(frozen=True)
class Costs:
    """What a call takes, in seconds, and whether AWS limits calls.

    call_s:  until the answer of ECS, EC2 or another service; `store_s`: of DynamoDB, None for as long. Up to eight
             answers are waited for at once, where the product has threads for that.
    cpu_s:   of that what the function's own processor does: one call after the other, however many threads wait.
    """

    throttled: bool = True
    ecs: Limit = ECS_MODIFY
    """Of the calls of ECS that change something: AWS Support raises it."""
    call_s: float = 0.0
    store_s: float | None = None
    cpu_s: float = 0.0


class _CollectedFailures:
    """Keeps the failure of each piece of work that is done within it."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []

    def __enter__(self) -> None:
        """Work begins."""

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> bool:
        if not isinstance(failure, Exception):
            return False
        self.failures.append(failure)
        return True


@dataclass
class InvocationCost:
    """What one invocation has spent."""

    name: str
    limit_s: float
    spent_s: float = 0.0
    at_once: int = 1


@dataclass
class Meter:
    """Counts what the invocations spend. `kill` ends the one that goes on."""

    timeline: VirtualClock
    costs: Costs
    kill: Callable[[], None]
    buckets: dict[str, Bucket] = field(default_factory=dict)
    longest: dict[str, float] = field(default_factory=dict)
    """The most that an invocation of each function has spent, in seconds; of the reconciler without the comparisons
    that were passed over (`idling`)."""
    last_s: float = 0.0
    """What the invocation that ended last has spent."""
    refused: int = 0
    """Calls that AWS still refused after the last retry."""
    _open: list[InvocationCost] = field(default_factory=list)

    def begins(self, name: str) -> None:
        """An invocation of a function begins; every one that begins has its `ends`."""
        self._open.append(InvocationCost(name, TIMEOUT_S.get(name, math.inf)))
        self.timeline.lag = 0.0

    def ends(self) -> None:
        """The one that began last has come to its end."""
        ended = self._open.pop()
        self.last_s = ended.spent_s
        if ended.spent_s > self.longest.get(ended.name, -1.0):
            self.longest[ended.name] = ended.spent_s
        self._set_lag()

    @contextmanager
    def invocation(self, name: str) -> Iterator[InvocationCost]:
        """One invocation of a function, from its beginning to its end."""
        self.begins(name)
        try:
            yield self._open[-1]
        finally:
            self.ends()

    def each(self, work: Callable[[Any], object], items: Iterable[Any]) -> None:
        """As `aws.ecs.in_parallel`: every item is tried, the first failure is raised at the end.

        Several answers are waited for at once only where there are several items.
        """
        kept, listed = _CollectedFailures(), list(items)
        with self.at_once(min(PARALLEL, len(listed))):
            for item in listed:
                with kept:
                    work(item)
        if kept.failures:
            raise kept.failures[0]

    @contextmanager
    def at_once(self, threads: int = PARALLEL) -> Iterator[None]:
        """What is called in here is called by several threads; those that one of them starts in turn have no more."""
        if not self._open:
            yield
            return
        mine = self._open[-1]
        before, mine.at_once = mine.at_once, max(mine.at_once, threads)
        try:
            yield
        finally:
            mine.at_once = before

    def call(self, operation: str = "") -> None:
        """One call to AWS. Raises TryAgainSoon as the product's clients do when no token came in time."""
        if not self._open:
            return
        mine, costs = self._open[-1], self.costs
        answer_s = costs.store_s if operation == STORE and costs.store_s is not None else costs.call_s
        self._spend(mine, max(answer_s / mine.at_once, costs.cpu_s))
        if operation == STORE:
            return
        if costs.throttled and operation in LIMITS:
            name, limit = LIMITS[operation]
            limit = costs.ecs if limit is ECS_MODIFY else limit
            bucket = self.buckets.setdefault(name, Bucket(limit))
            self._queue(mine, bucket, operation)

    def _queue(self, mine: InvocationCost, bucket: Bucket, operation: str) -> None:
        begun = (self.timeline.now - self.timeline.start).total_seconds()
        wait = bucket.wait(begun + mine.spent_s)
        patience = 0.0 if operation in ASKED_ONCE else RETRY_FOR_S
        self._spend(mine, min(wait, patience))
        if wait > patience:
            self.refused += 1
            raise TryAgainSoon(f"{operation}: asked too often")
        bucket.take(begun + mine.spent_s)

    def _spend(self, mine: InvocationCost, seconds: float) -> None:
        mine.spent_s += seconds
        if mine.spent_s > mine.limit_s:
            mine.spent_s = mine.limit_s
            self.timeline.lag = mine.spent_s
            self.kill()
        self.timeline.lag = mine.spent_s

    def _set_lag(self) -> None:
        self.timeline.lag = self._open[-1].spent_s if self._open else 0.0
