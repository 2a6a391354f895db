"""People use the same cluster: their GPUs are not ours to give, and their runs are not ours to end by mistake."""

from __future__ import annotations

from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import policy_from

from simulator.world import World
from tests.simulator import incidents


def test_a_job_is_not_placed_where_a_strangers_task_holds_the_gpus() -> None:
    """ECS would refuse it there; the free instance is taken at once, on the first attempt."""
    world = World(instances=2, train_s=incidents.TRAIN_S, adoption=Adoption.OFF)
    taken = min(world.model_instances(), key=lambda machine: machine.instance_id)
    world.until(lambda: len(world.instances()) == 2, "not registered")
    world.start_by_hand("somebody", 0, 1, taken)
    world.until(lambda: world.instance(taken).gpus_free == 0, "ECS never said that the GPUs are taken")
    job_id = world.submit(1)
    job = world.until_status(job_id, JobStatus.RUNNING)
    assert (job.attempt, taken.instance_id in job.instances) == (1, False)


def test_a_job_started_by_hand_with_the_wrong_world_size_is_left_running() -> None:
    """WORLD_SIZE in torchrun's sense promises ranks that never come: the job is let go, and nothing is stopped."""
    world = World(instances=1, train_s=86_400.0, adoption=Adoption.RECOVER)
    world.until(lambda: len(world.instances()) == 1, "not registered")
    task = world.start_by_hand("nightly", 0, 8, world.model_instance(0))
    world.until(lambda: world.store.load_job("nightly") is not None, "not adopted")
    job = world.until_status("nightly", JobStatus.CANCELED)
    assert "7 of its 8 ranks were never seen" in job.reason
    assert task in world.fleet.running() and not world.calls("StopTask")
    assert any("no longer watched" in message.subject for message in world.messages())


def test_an_exit_on_healthy_gpus_is_retried_where_the_policy_says_so() -> None:
    """For launchers that exit with 1 whatever killed their worker."""
    for asked, status in (({"retry_exits": True}, JobStatus.SUCCEEDED), ({}, JobStatus.FAILED)):
        world, job_id = incidents.running(policy=policy_from(asked))
        world.exit(job_id, 1, 1)
        world.until_end(job_id)
        assert world.job(job_id).status is status
