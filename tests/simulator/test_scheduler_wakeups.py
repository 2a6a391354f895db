"""Who gives instances back has the scheduler look in time: whatever AWS puts off, and whatever an index shows late."""

from __future__ import annotations

from typing import Any

from gpu_recovery.core.job.record import TERMINAL, JobStatus
from gpu_recovery.ports.errors import TryAgainSoon

from simulator.fast.fidelity import Checking, Fidelity
from simulator.world import World

SOON_S = 5.0


def one_behind_another(**given: Any) -> tuple[World, str, str]:
    """Two machines, a job that runs on both, and one that waits for them."""
    world = World(instances=2, **given)
    first = world.submit(nnodes=2)
    world.until_status(first, JobStatus.RUNNING)
    second = world.submit(nnodes=2)
    world.let_pass(400)  # the last pass is long ago, and the next one by the clock minutes away
    return world, first, second


def unclaimed(world: World) -> bool:
    return not any(one.claims for one in world.instances())


def placed_within(world: World, job_id: str) -> float:
    """After how many seconds from now the job has its place."""
    now = world.timeline.now
    world.until(lambda: world.job(job_id).attempt == 1, "a place")
    return (world.timeline.now - now).total_seconds()


def test_a_release_that_is_put_off_wakes_the_scheduler_when_it_is_done() -> None:
    """Not before: the one poke of it would find the GPUs taken."""
    world, first, second = one_behind_another()
    release, refused = world.store.release_instance, []

    def busy(*given: Any) -> Any:
        if not refused:
            refused.append(given)
            raise TryAgainSoon("busy")
        return release(*given)

    world.store.release_instance = busy  # type: ignore[method-assign]
    world.finish(first)
    world.until(lambda: world.job(first).status in TERMINAL, "the end")
    world.until(lambda: unclaimed(world), "the GPUs given back")
    assert refused
    assert placed_within(world, second) <= SOON_S


def test_what_a_job_gave_back_is_read_by_name_while_the_index_shows_it_taken() -> None:
    """A burst of releases is when an index lags, and nothing else would have anybody look for minutes."""
    world, first, second = one_behind_another(fidelity=Fidelity(checking=Checking.NEVER))
    taken = world.instances()
    assert all(one.claims for one in taken)
    world.store.instances_in = lambda *given: taken  # type: ignore[method-assign, assignment]
    world.finish(first)
    world.until(lambda: world.job(first).status in TERMINAL, "the end")
    assert placed_within(world, second) <= SOON_S
