"""Threads and rate of the calls to AWS: how many are in flight, and how long the others wait."""

from __future__ import annotations

from threading import Barrier, Lock
from typing import Any

import pytest
from gpu_recovery.aws.actions import AwsActions
from gpu_recovery.aws.clients import STANDARD_RETRIES
from gpu_recovery.aws.ecs import Ecs
from gpu_recovery.aws.parallel_calls import ECS_BURST, PARALLEL, CallRate, in_parallel
from gpu_recovery.aws.settings import LambdaSettings
from gpu_recovery.ports.errors import TryAgainSoon

from tests.aws.environment import FUNCTION
from tests.aws.records import NOW, job, plan


class InFlight:
    """Counts the calls that are in flight. Each call ends when `together` calls are in flight."""

    def __init__(self, together: int) -> None:
        self.together, self.lock = Barrier(together, timeout=30), Lock()
        self.now, self.most = 0, 0

    def call(self, number: int) -> int:
        """Make one call."""
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.together.wait()
        with self.lock:
            self.now -= 1
        return number * number


def test_calls_are_made_32_at_a_time_but_not_more() -> None:
    """As many at once as the limit says, with the answers in order, and a connection for each."""
    calls = InFlight(PARALLEL)
    assert in_parallel(calls.call, range(2 * PARALLEL)) == [number**2 for number in range(2 * PARALLEL)]
    assert calls.most == PARALLEL == 32
    assert STANDARD_RETRIES.max_pool_connections == PARALLEL  # type: ignore[attr-defined]


@pytest.mark.parametrize(("outer", "inner"), [(40, 40), (1, 64), (3, 64)])
def test_calls_of_nested_work_are_together_not_more(outer: int, inner: int) -> None:
    """A reconcile cycle works on many jobs at once, and stops many ranks of each."""
    calls = InFlight(1)
    gate = InFlight(PARALLEL)

    def all_of(number: int) -> list[int]:
        return in_parallel(calls.call, range(inner))

    assert in_parallel(all_of, range(outer)) == [[n * n for n in range(inner)]] * outer
    assert calls.most <= PARALLEL
    assert in_parallel(lambda _: in_parallel(gate.call, range(PARALLEL)), range(1)) and gate.most == PARALLEL


def test_a_failure_among_parallel_calls_is_raised_after_the_others_were_made() -> None:
    """A rank whose stop failed does not keep the others from being stopped."""
    made: list[int] = []

    def work(n: int) -> None:
        made.append(n)
        if n == 3:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_parallel(work, range(20))
    assert sorted(made) == list(range(20))


# -- the rate of ECS ---------------------------------------------------------------------------------------------------


class Clock:
    """A clock that only waiting advances."""

    def __init__(self) -> None:
        self.now, self.waits = 0.0, list[float]()

    def wait(self, seconds: float) -> None:
        """Wait."""
        self.waits.append(seconds)
        self.now += seconds


class EcsAnswers:
    """An ECS client with a token bucket as AWS documents it: 100 calls at once, and 40 in a second."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.tokens, self.at, self.made, self.throttled = clock, 100.0, 0.0, 0, 0

    def _call(self) -> None:
        self.tokens = min(100.0, self.tokens + (self.clock.now - self.at) * 40 + 1e-9)
        self.at = self.clock.now
        if self.tokens < 1:
            self.throttled += 1
            raise TryAgainSoon("ecs RunTask: ThrottlingException")
        self.tokens -= 1
        self.made += 1

    def run_task(self, **params: Any) -> dict[str, Any]:
        """Answer RunTask."""
        self._call()
        return {"tasks": [{"taskArn": f"arn/{self.made}"}], "failures": []}

    def stop_task(self, **params: Any) -> dict[str, Any]:
        """Answer StopTask."""
        self._call()
        return {}


def ecs_at(per_s: int) -> tuple[Ecs, EcsAnswers, Clock]:
    """The wrapper of ECS with this rate, on a clock of its own; its calls are made one after the other."""
    clock = Clock()
    ecs = Ecs("cluster", lambda: NOW, CallRate(ECS_BURST, per_s, lambda: clock.now, clock.wait))
    answers = EcsAnswers(clock)
    ecs.client = answers  # type: ignore[assignment]
    ecs.each = lambda work, items: list(map(work, items))  # type: ignore[method-assign]
    return ecs, answers, clock


def test_a_gang_is_launched_at_the_rate_of_ecs_and_no_call_is_throttled() -> None:
    """A burst of 100 goes at once, and the other ranks follow at 40 in a second. Stops share the rate."""
    ecs, answers, clock = ecs_at(40)
    gang = plan(world=300)
    answered = ecs.run_ranks(job(), gang, range(300), "10.0.0.1", "key")
    assert all(isinstance(answer, str) for answer in answered) and answers.throttled == 0
    assert clock.now == pytest.approx(200 / 40)
    ecs.stop_task("task", "reason")
    assert answers.throttled == 0 and clock.now == pytest.approx(201 / 40)


def test_a_rate_above_the_quota_leads_to_throttles_of_single_ranks() -> None:
    """The other ranks of the part have their tasks, and the launch knows which. Further calls slow down."""
    ecs, answers, _ = ecs_at(400)
    answered = ecs.run_ranks(job(), plan(world=120), range(120), "10.0.0.1", "key")
    throttles = [answer for answer in answered if isinstance(answer, TryAgainSoon)]
    assert 0 < len(throttles) == answers.throttled < 20
    assert sum(isinstance(answer, str) for answer in answered) == 120 - len(throttles)


def test_the_rate_of_the_deployment_is_a_threshold_of_its_policy() -> None:
    """40 calls in a second unless the operator says that the quota is higher."""

    def rate_of(policy: str) -> CallRate | None:
        settings = LambdaSettings.from_environment({**FUNCTION, "RECOVERY_POLICY": policy})
        return AwsActions(settings, lambda: NOW).ecs.rate

    def seconds_for(rate: CallRate | None, calls: int) -> float:
        clock = Clock()
        assert rate is not None
        rate._clock, rate._wait = (lambda: clock.now), clock.wait
        for _ in range(calls):
            rate.take()
        return clock.now

    assert seconds_for(rate_of("{}"), 140) == pytest.approx(1)
    assert seconds_for(rate_of('{"ecs_calls_per_s": 400}'), 500) == pytest.approx(1)
