"""Instances that leave with or without notice: the other ranks of the gang restart in their containers."""

from __future__ import annotations

import pytest

from tests.simulator.test_in_place import running, runs_again, succeeds, tasks


@pytest.mark.parametrize(("loss", "stops"), [("interrupt", 1), ("terminate", 0)])
def test_the_loss_of_one_instance_moves_only_its_rank(loss: str, stops: int) -> None:
    """The other rank waits in its container, and a spare replaces the instance. Nothing is counted.

    `interrupt` is the notice of a Spot instance. `terminate` comes without notice: before, ECS stopped every container.
    """
    world, job_id = running(instances=3)
    lost = world.cluster.instances[world.job(job_id).instances[1]]
    before, at = tasks(world, job_id), world.timeline.now
    getattr(world.fleet, loss)(lost)
    runs_again(world, job_id)
    assert (world.timeline.now - at).total_seconds() < 30
    job = world.job(job_id)
    assert lost.instance_id not in job.instances and len(tasks(world, job_id) & before) == 1
    assert len(world.calls("StopTask")) == stops and len(world.calls("RunTask")) == 3
    assert (job.attempts_counted, sum(job.attempts_uncounted.values())) == (0, 1)
    succeeds(world, job_id)


def test_instances_that_are_gone_together_move_only_their_ranks() -> None:
    """One failure names one instance. The other one that is gone has no container to keep either."""
    world, job_id = running(instances=5, nnodes=3)
    gone = [world.cluster.instances[world.job(job_id).instances[rank]] for rank in (0, 2)]
    before = tasks(world, job_id)
    for instance in gone:
        world.fleet.terminate(instance)
    runs_again(world, job_id)
    job = world.job(job_id)
    assert not {instance.instance_id for instance in gone} & {*job.instances}
    assert len(tasks(world, job_id) & before) == 1
    succeeds(world, job_id)
