"""The scheduler's queue after a failure: its one message group waits for the visibility timeout, then the dead letters.

The rules are those of SQS (Developer Guide: FIFO queue delivery logic, visibility timeout, dead-letter queues).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gpu_recovery.core.job.record import JobStatus

from simulator.invocations import KillAt
from simulator.lambda_runtime import POKE_S, RECEIVES_MAX, SCHEDULER, VISIBILITY_S
from simulator.world import World
from tests.simulator import incidents


class FailingScheduler:
    """The scheduler of an idle world. It fails `failures` times, first on the poke of the new instance."""

    def __init__(self, failures: int, fail: Callable[[World], object]) -> None:
        self.world = World(instances=1, train_s=incidents.TRAIN_S)
        self.began: list[float] = []
        self.waiting: list[set[str]] = []
        self.failures, self._fail, self._work = failures, fail, self.world.run_scheduler
        self.world.run_scheduler = self._run  # type: ignore[method-assign]

    def _run(self) -> None:
        timeline = self.world.timeline
        self.began.append((timeline.now - timeline.start).total_seconds())
        self.waiting.append(set(self.world.functions.asked))
        if len(self.began) > self.failures:
            self._work()
        else:
            with self.world.functions.messages():
                self._fail(self.world)


def raises(world: World) -> None:
    raise RuntimeError("the scheduler fails")


def is_killed(world: World) -> None:
    world.invocations.kill()


@pytest.mark.parametrize("fail", [raises, is_killed])
def test_a_failed_batch_holds_the_queue_for_the_visibility_timeout(fail: Callable[[World], object]) -> None:
    """Ticks and pokes wait behind it and are received with it."""
    scheduler = FailingScheduler(1, fail)
    functions = scheduler.world.functions
    scheduler.world.timeline.after(5, functions.poked, "poke", 0)
    scheduler.world.let_pass(POKE_S + VISIBILITY_S)
    assert scheduler.began == [POKE_S, POKE_S + VISIBILITY_S]
    first, second = scheduler.waiting
    assert {*first, "poke"} < second  # and the ticks of two minutes
    assert functions.asked == {} and functions.dead_letters == []


def test_a_message_is_a_dead_letter_after_its_last_receive() -> None:
    """The messages that came later go on without it."""
    scheduler = FailingScheduler(RECEIVES_MAX, raises)
    functions = scheduler.world.functions
    scheduler.world.let_pass(POKE_S + RECEIVES_MAX * VISIBILITY_S)
    assert scheduler.began == [POKE_S + number * VISIBILITY_S for number in range(RECEIVES_MAX + 1)]
    assert set(functions.dead_letters) == scheduler.waiting[0] and scheduler.waiting[-1]
    assert not scheduler.waiting[0] & scheduler.waiting[-1]
    assert functions.asked == {}


def test_a_job_waits_for_the_visibility_timeout_if_the_pass_for_it_dies() -> None:
    """The ticks of the clock meanwhile place nothing."""
    alive = World(instances=1, train_s=incidents.TRAIN_S)
    alive.until_status(alive.submit(nnodes=1), JobStatus.RUNNING)
    step = next(step for step in alive.invocations.steps if step.invocation == SCHEDULER)
    world = World(instances=1, train_s=incidents.TRAIN_S, nemesis=KillAt(step.number, after_it=False))
    job_id = world.submit(nnodes=1)
    begin = world.timeline.now
    world.until(lambda: world.job(job_id).attempt == 1, "a place")
    assert (world.timeline.now - begin).total_seconds() == POKE_S + VISIBILITY_S
