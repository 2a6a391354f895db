"""Rate limits of AWS: the virtual time that an invocation spends on throttling and on waiting for answers.

An invocation happens at one instant of virtual time. The meter adds up the seconds that the invocation spends. Every
effect of the invocation takes place later by the seconds spent up to its call (`VirtualClock.lag`): tasks start and
stop, events arrive and instances reboot. An invocation that exceeds the timeout of its function is killed there.

Token buckets of ECS and EC2, per account and Region, as burst and refill per second: ECS API Reference, "Request
throttling for the Amazon ECS API" (cluster resource modify actions share a bucket, and read actions another); EC2 API
Reference, "Request throttling for the Amazon EC2 API" (mutating actions, StartInstances, TerminateInstances,
non-mutating actions with and without a filter).

Simplifications:

- invocations queue at a bucket in the order in which they begin;
- a wait between botocore's retries is not drawn: it is as long as the bucket needs, up to the mean sum of all waits;
- a query and a batch of DynamoDB count as one call for any number of pages;
- a read of ECS or EC2 waits for the reads before it in virtual time, of all invocations. A read of an invocation that
  is simulated later delays no read that is already admitted (`ReadBucket`);
- calls of other services than ECS, EC2 and Auto Scaling take time but have no rate limit.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.aws.parallel_calls import PARALLEL
from gpu_recovery.ports.errors import TryAgainSoon

from simulator.virtual_clock import VirtualClock

RETRY_FOR_S = 7.5
"""Seconds that the five tries of botocore's standard mode wait on average.

Between the tries botocore waits r, 2r, 4r and 8r seconds, with r drawn from 0 to 1.
"""
TIMEOUT_S = {
    "ecs_task_handler": 110,
    "dcgm_task_monitor": 110,
    "ecs_instance_monitor": 110,
    "reconciler": 110,
    "scheduler": 110,
    "command_executor": 110,
    "event_recorder": 60,
    "job_api": 29,
    "node_api": 29,
}
"""Timeout of each function in seconds, as `infra/functions.py` sets it."""
MEMORY_MIB = {
    "ecs_task_handler": 1_769,
    "dcgm_task_monitor": 512,
    "ecs_instance_monitor": 512,
    "reconciler": 1_769,
    "scheduler": 1_769,
    "command_executor": 1_769,
    "event_recorder": 256,
    "job_api": 1_769,
    "node_api": 256,
}
"""Memory of each function in MiB, as `infra/functions.py` sets it."""
PROCESSOR_MIB = 1_769
"""Memory for which a function has a whole processor. AWS Lambda Developer Guide, "Configure Lambda function memory"."""


@dataclass(frozen=True)
class Limit:
    """Size of a token bucket: `burst` tokens at most, refilled with `per_s` tokens per second."""

    burst: int
    per_s: float


ECS_MODIFY, EC2_MUTATE = Limit(100, 40), Limit(50, 5)
ECS_READ, EC2_READ, EC2_READ_UNFILTERED = Limit(100, 20), Limit(100, 20), Limit(50, 10)
READS = (ECS_READ, EC2_READ, EC2_READ_UNFILTERED)
EC2_START, EC2_TERMINATE = Limit(5, 2), Limit(100, 5)
"""Limits of the buckets of ECS and EC2, `READS` those of reads. The module docstring names the sources."""
LIMITS: Mapping[str, tuple[str, Limit]] = {
    "RunTask": ("ECS cluster resources", ECS_MODIFY),
    "StopTask": ("ECS cluster resources", ECS_MODIFY),
    "UpdateContainerInstancesState": ("ECS cluster resources", ECS_MODIFY),
    "DeregisterContainerInstance": ("ECS cluster resources", ECS_MODIFY),
    "DescribeTasks": ("ECS cluster resource reads", ECS_READ),
    "ListTasks": ("ECS cluster resource reads", ECS_READ),
    "DescribeContainerInstances": ("ECS cluster resource reads", ECS_READ),
    "ListContainerInstances": ("ECS cluster resource reads", ECS_READ),
    "DescribeInstances": ("EC2 reads", EC2_READ),
    "DescribeInstanceStatus": ("EC2 unfiltered reads", EC2_READ_UNFILTERED),
    "RebootInstances": ("EC2", EC2_MUTATE),
    "StopInstances": ("EC2", EC2_MUTATE),
    "StartInstances": ("EC2 StartInstances", EC2_START),
    "TerminateInstanceInAutoScalingGroup": ("EC2 TerminateInstances", EC2_TERMINATE),
}
"""Name and limit of the bucket of each call. The product asks DescribeInstanceStatus by ids, which is no filter."""
STORE = "DynamoDB"
"""Operation name that stands for every call to DynamoDB."""
ASKED_ONCE = ("RebootInstances",)
"""Calls that the product never retries by itself (`aws/clients.py`). Such a call fails if the bucket has no token."""


@dataclass
class Bucket:
    """A token bucket. Times are seconds since the world began."""

    limit: Limit
    full_at: float = float("-inf")
    """Time at which the bucket is full again if no further token is taken."""

    def wait(self, at: float) -> float:
        """Return the seconds from the time `at` to the next token; 0 if there is a token."""
        return max(0.0, self.full_at - (self.limit.burst - 1) / self.limit.per_s - at)

    def take(self, at: float) -> None:
        """Take a token at the time `at`, at which the caller knows that there is a token."""
        self.full_at = max(self.full_at, at) + 1 / self.limit.per_s


@dataclass
class ReadBucket:
    """Token bucket of the account for reads, of invocations that are simulated one after the other.

    Two invocations that overlap in virtual time are simulated in the order of their beginnings. So a call may come with
    a time before that of a call that is already admitted. It waits for the calls before it in time only.

    Attributes:
        limit: size and rate.
        settled_at: time at which the bucket is full again after all calls that no later call can precede.
        taken: times of the other calls, in order.
    """

    limit: Limit
    settled_at: float = float("-inf")
    taken: list[float] = field(default_factory=list)

    def take(self, at: float, begun: float, patience: float) -> float:
        """Take a token for a call at the time `at` and return the seconds of waiting for it.

        Args:
            at: time of the call, in seconds since the world began.
            begun: begin of the present invocation. No later invocation begins before it.
            patience: longest wait. Beyond it no token is taken.
        """
        bucket = Bucket(self.limit, self.settled_at)
        settled = bisect_left(self.taken, begun)
        for earlier in self.taken[:settled]:
            bucket.take(earlier)
        self.settled_at, self.taken = bucket.full_at, self.taken[settled:]
        for earlier in self.taken:
            free = at + bucket.wait(at)
            if earlier > free:
                break
            bucket.take(earlier)
        wait_s = bucket.wait(at)
        if wait_s <= patience:
            insort(self.taken, at + wait_s)
        return wait_s


@dataclass(frozen=True)
class Costs:
    """Duration of calls in seconds, and whether AWS limits calls.

    Attributes:
        throttled: whether calls of ECS and EC2 need a token of their bucket.
        ecs: limit of the changing calls of ECS. AWS Support raises this limit on request.
        call_s: seconds until the answer of ECS, EC2 or another service. The product waits for up to 32 answers at
            once where it uses threads.
        store_s: the same for DynamoDB. None: as long as `call_s`.
        cpu_s: time of a whole processor per call. A function has the part of a processor that its memory gives it.
            Threads do not share this time: the calls take it in sequence.
    """

    throttled: bool = True
    ecs: Limit = ECS_MODIFY
    call_s: float = 0.0
    store_s: float | None = None
    cpu_s: float = 0.0


class _CollectedFailures:
    """Context manager that collects exceptions instead of raising them. It may be entered several times."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []

    def __enter__(self) -> None:
        """Enter without any action."""

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> bool:
        if not isinstance(failure, Exception):
            return False
        self.failures.append(failure)
        return True


@dataclass
class InvocationCost:
    """Seconds that an invocation has spent, of at most `limit_s`. It now waits for `at_once` answers in parallel.

    `processors` is the part of a processor that its function has.
    """

    name: str
    limit_s: float
    processors: float = 1.0
    spent_s: float = 0.0
    at_once: int = 1


@dataclass
class Meter:
    """Adds up the virtual seconds that invocations spend. `kill` ends the present invocation."""

    timeline: VirtualClock
    costs: Costs
    kill: Callable[[], None]
    buckets: dict[str, Bucket] = field(default_factory=dict)
    reads: dict[str, ReadBucket] = field(default_factory=dict)
    longest: dict[str, float] = field(default_factory=dict)
    """Longest invocation of each function, in seconds. For the reconciler the skipped resyncs (`fast.idle_skip`) are
    not included."""
    last_s: float = 0.0
    """Seconds that the latest invocation spent."""
    refused: int = 0
    """Calls that AWS refused even after the last retry."""
    _open: list[InvocationCost] = field(default_factory=list)

    def begins(self, name: str) -> None:
        """Begin an invocation of the function `name`. The caller must call `ends` for every begin."""
        processors = MEMORY_MIB.get(name, PROCESSOR_MIB) / PROCESSOR_MIB
        self._open.append(InvocationCost(name, TIMEOUT_S.get(name, math.inf), processors))
        self.timeline.lag = 0.0

    def ends(self) -> None:
        """End the invocation that began last."""
        ended = self._open.pop()
        self.last_s = ended.spent_s
        if ended.spent_s > self.longest.get(ended.name, -1.0):
            self.longest[ended.name] = ended.spent_s
        self._set_lag()

    @contextmanager
    def invocation(self, name: str) -> Iterator[InvocationCost]:
        """Context of an invocation of the function `name`: begin and end it, and give its cost."""
        self.begins(name)
        try:
            yield self._open[-1]
        finally:
            self.ends()

    def each(self, work: Callable[[Any], object], items: Iterable[Any]) -> None:
        """Apply `work` to every item, as `aws.parallel_calls.in_parallel` does: up to `PARALLEL` items wait at once.

        Raises:
            Exception: the first exception of `work`, after all items were tried.
        """
        collected, listed = _CollectedFailures(), list(items)
        with self.at_once(min(PARALLEL, len(listed))):
            for item in listed:
                with collected:
                    work(item)
        if collected.failures:
            raise collected.failures[0]

    @contextmanager
    def at_once(self, threads: int = PARALLEL) -> Iterator[None]:
        """Context in which calls share their waiting time among `threads`. Nested contexts do not add threads."""
        if not self._open:
            yield
            return
        cost = self._open[-1]
        former, cost.at_once = cost.at_once, max(cost.at_once, threads)
        try:
            yield
        finally:
            cost.at_once = former

    def seconds_left(self) -> float:
        """Return the seconds left of the timeout of the present invocation; infinity if there is none."""
        return self._open[-1].limit_s - self._open[-1].spent_s if self._open else math.inf

    def wait(self, seconds: float) -> None:
        """Let the present invocation wait for an answer that the other methods do not model."""
        if self._open:
            self._spend(self._open[-1], seconds)

    def call(self, operation: str = "") -> None:
        """Spend the time of a call to AWS.

        Raises:
            TryAgainSoon: no token came within the retries, as the product's clients raise it.
        """
        if not self._open:
            return
        cost, costs = self._open[-1], self.costs
        answer_s = costs.store_s if operation == STORE and costs.store_s is not None else costs.call_s
        self._spend(cost, max(answer_s / cost.at_once, costs.cpu_s / cost.processors))
        if operation == STORE:
            return
        if costs.throttled and operation in LIMITS:
            name, limit = LIMITS[operation]
            limit = costs.ecs if limit is ECS_MODIFY else limit
            if limit in READS:
                self._read(cost, self.reads.setdefault(name, ReadBucket(limit)), operation)
            else:
                self._queue(cost, self.buckets.setdefault(name, Bucket(limit)), operation)

    def _read(self, cost: InvocationCost, bucket: ReadBucket, operation: str) -> None:
        begun_s = (self.timeline.now - self.timeline.start).total_seconds()
        wait_s = bucket.take(begun_s + cost.spent_s, begun_s, RETRY_FOR_S)
        self._spend(cost, min(wait_s, RETRY_FOR_S))
        if wait_s > RETRY_FOR_S:
            self.refused += 1
            raise TryAgainSoon(f"{operation}: asked too often")

    def _queue(self, cost: InvocationCost, bucket: Bucket, operation: str) -> None:
        begun_s = (self.timeline.now - self.timeline.start).total_seconds()
        wait_s = bucket.wait(begun_s + cost.spent_s)
        patience_s = 0.0 if operation in ASKED_ONCE else RETRY_FOR_S
        self._spend(cost, min(wait_s, patience_s))
        if wait_s > patience_s:
            self.refused += 1
            raise TryAgainSoon(f"{operation}: asked too often")
        bucket.take(begun_s + cost.spent_s)

    def _spend(self, cost: InvocationCost, seconds: float) -> None:
        cost.spent_s += seconds
        if cost.spent_s > cost.limit_s:
            cost.spent_s = cost.limit_s
            self.timeline.lag = cost.spent_s
            self.kill()
        self.timeline.lag = cost.spent_s

    def _set_lag(self) -> None:
        self.timeline.lag = self._open[-1].spent_s if self._open else 0.0
