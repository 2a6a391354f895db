"""Worlds that remember: a machine that was repaired lately is given away last, and never refused."""

from __future__ import annotations

from gpu_recovery.core.instance.lemons import LemonSignal
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from simulator.world import World
from tests.simulator.incidents import TRAIN_S


def repaired(lemons: bool) -> World:
    """Three machines, of which the first, with a GPU that failed under a job, was rebooted and works again."""
    world = World(instances=3, train_s=TRAIN_S, lemons=lemons)
    job_id = world.submit()
    world.until_status(job_id, JobStatus.RUNNING)
    world.break_gpu(world.model_instance(0))
    world.until_end(job_id)
    first = world.model_instance(0)
    world.until(lambda: world.instance(first).status is InstanceStatus.AVAILABLE, "the first machine to be back")
    return world


def test_a_machine_that_was_repaired_lately_is_the_last_of_three() -> None:
    """The next gang of two does without it, where the order is switched on; without, it takes machines as they come."""
    taken = {}
    for lemons in (False, True):
        world = repaired(lemons)
        assert LemonSignal.OUT in {one.kind for one in world.instance(world.model_instance(0)).past}
        job_id = world.submit()
        world.until_status(job_id, JobStatus.RUNNING)
        taken[lemons] = set(world.job(job_id).instances)
    first = world.model_instance(0).instance_id
    assert first in taken[False] and first not in taken[True]


def test_a_machine_that_was_repaired_lately_is_taken_where_it_is_needed() -> None:
    """A gang of three runs on all three."""
    world = repaired(lemons=True)
    job_id = world.submit(nnodes=3)
    world.until_status(job_id, JobStatus.RUNNING)
    assert world.model_instance(0).instance_id in world.job(job_id).instances
