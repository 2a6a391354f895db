"""Behaviour 6, second half: events lost, doubled, late and out of order, and work that overlaps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.reconciler.reconcile import reconcile
from gpu_recovery.scheduler.schedule import schedule

from simulator.faults.delivery import Unruly, is_task, losing, nothing
from simulator.invocations import Effect
from simulator.world import World
from tests.simulator import incidents
from tests.simulator.incidents import INCIDENTS, ending
from tests.tiers import sampled, scaled

SEEDS, PIECE = 200, 20
NO_EVENT_NEEDED = (
    "adaptive_gpu_fault",
    "adaptive_gpu_fault_with_spare",
    "adaptive_application_error",
    "adaptive_user_stop",
    "adaptive_success",
    "classic_faulty",
    "classic_faulty_twice",
    "classic_healthy",
)


@pytest.mark.parametrize("name", NO_EVENT_NEEDED)
def test_without_a_single_event_the_end_is_the_same(name: str) -> None:
    """The reconciler alone brings every incident to its end, only later."""
    world, job_id = INCIDENTS[name]()
    expected = ending(world, job_id)
    assert ending(*INCIDENTS[name](delivery=nothing)) == expected


@pytest.mark.parametrize("first", sampled(range(0, SEEDS, PIECE), fast=1, default=2))
def test_unruly_delivery_changes_no_end(first: int) -> None:
    """Seeds of lost, doubled, late and reordered events; the invariants hold after every step of each."""
    expected = ending(*incidents.gpu_fault_with_spare())
    for seed in range(first, first + PIECE):
        world, job_id = incidents.gpu_fault_with_spare(delivery=Unruly(seed), retries=False)
        assert ending(world, job_id) == expected, f"seed {seed}\n{world.transcript.text()}"


@pytest.mark.parametrize("incident", [incidents.classic_faulty_twice, incidents.adopted_recover])
def test_doubled_and_reordered_events_change_no_end(incident: Callable[..., incidents.Told]) -> None:
    """The same for a job that fails at last and for one that a person started, where nothing is lost."""
    expected = ending(*incident())
    for seed in range(scaled(fast=5, default=15, full=40)):
        world, job_id = incident(delivery=Unruly(seed, lost=0, late_max_s=30), retries=False)
        assert ending(world, job_id) == expected, f"seed {seed}\n{world.transcript.text()}"


@pytest.mark.parametrize("status", ["RUNNING", "STOPPED"])
def test_a_lost_task_event_is_found_by_the_look(status: str) -> None:
    """Every RUNNING, or every STOPPED, of training tasks lost: the job's own looks find them."""

    def lost(envelope: object) -> bool:
        return is_task(envelope, status)  # type: ignore[arg-type]

    world, job_id = incidents.success(delivery=losing(lost))
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    late = (world.timeline.now - world.timeline.start).total_seconds() - incidents.TRAIN_S
    assert late < 2 * (incidents.ADAPTIVE.poll_interval_s + 60)


@dataclass
class At:
    """Lets other work come in just before one step of an invocation called `life`, once.

    number: the number of the step, or the name of its operation.
    """

    number: int | str
    life: str
    work: Callable[[], None] = field(default=lambda: None)
    done: bool = False

    def before(self, step: Effect) -> None:
        if self.number in (step.number, step.name) and step.invocation == self.life and not self.done:
            self.done = True
            self.work()

    def after(self, step: Effect) -> None:
        """Only what comes before a step matters: after one is before the next."""


def two_jobs(nemesis: At | None = None) -> World:
    """Two jobs of two ranks each, for three instances."""
    world = World(instances=3, train_s=incidents.TRAIN_S, nemesis=nemesis, retries=False)
    if nemesis is not None:
        nemesis.work = lambda: world.invoke("scheduler", lambda: schedule(world.recovery))
    jobs = [world.submit(), world.submit()]
    for job_id in jobs:
        world.until_end(job_id)
    world.check_end()
    return world


@pytest.mark.slow
def test_two_schedulers_at_once_never_double_allocate() -> None:
    """A second pass of the scheduler between any two steps of the first: no GPU has two owners, both jobs succeed."""
    quiet = two_jobs()
    overlapped = 0
    for step in [one for one in quiet.invocations.steps if one.invocation == "scheduler"]:
        nemesis = At(step.number, "scheduler")
        world = two_jobs(nemesis)
        assert [job.status for job in world.jobs()] == [JobStatus.SUCCEEDED] * 2, world.transcript.text()
        assert world.failures == []
        overlapped += nemesis.done
    assert overlapped > 10


class Overlap:
    """Now and then a whole reconciler round or scheduler pass comes in between two steps, as a seed has it."""

    def __init__(self, seed: int, chance: float = 0.05) -> None:
        self.random, self.chance, self.inside = random.Random(seed), chance, False
        self.world: World | None = None

    def before(self, step: Effect) -> None:
        world = self.world
        if world is None or self.inside or self.random.random() >= self.chance:
            return
        self.inside = True
        work = self.random.choice((schedule, reconcile))
        world.invoke("overlapping", lambda: work(world.recovery), tried=2)
        self.inside = False

    def after(self, step: Effect) -> None:
        """See `At`."""


@pytest.mark.parametrize("first", sampled(range(0, 60, 15), fast=1, default=1))
def test_overlapping_invocations_change_no_end(first: int) -> None:
    """Others write the same records at the same time: a stale writer is refused and decides again."""
    expected = ending(*incidents.gpu_fault_with_spare())
    for seed in range(first, first + 15):
        nemesis = Overlap(seed)
        world = World(instances=3, train_s=incidents.TRAIN_S, nemesis=nemesis)
        nemesis.world = world
        job_id = world.submit()
        world.until_status(job_id, JobStatus.RUNNING)
        world.break_gpu(world.model_instance(0))
        incidents.ended(world, job_id)
        assert ending(world, job_id) == expected, f"seed {seed}\n{world.transcript.text()}"
        assert world.failures == [], seed
