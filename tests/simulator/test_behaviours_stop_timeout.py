"""A gang whose containers may take long between SIGTERM and SIGKILL, to save a large checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import JobStatus

from simulator.world import World
from simulator.world_builder import TRAINING_FAMILY
from tests.simulator import incidents


def slow_to_stop(stop_timeout_s: int, **given: Any) -> World:
    """A world whose ranks save for as long as their container may: nothing ends them before SIGKILL."""
    world = World(**{"instances": 3, "train_s": 7200.0, **given})
    container = {
        "name": "train",
        "image": "train:2",
        "essential": True,
        "memory": 1000,
        "command": ["run"],
        "stopTimeout": stop_timeout_s,
    }
    world.definitions.register_task_definition(
        family=TRAINING_FAMILY, containerDefinitions=[container], networkMode="host"
    )
    world.training.ignores_signals = True
    return world


@pytest.mark.parametrize("stop_timeout_s", [900, 1_200])
def test_a_rank_that_saves_for_long_is_not_rebooted_in_the_middle_of_its_checkpoint(stop_timeout_s: int) -> None:
    """ECS waits for the container's own `stopTimeout`, and so does the product."""
    world = slow_to_stop(stop_timeout_s)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    begun = world.timeline.now
    world.exit(job_id, 0, 139)
    job = world.until_status(job_id, JobStatus.DIAGNOSING)
    assert stop_timeout_s <= (world.timeline.now - begun).total_seconds() < stop_timeout_s + 60
    assert (job.stop_tries, world.calls("RebootInstances")) == (0, [])


def test_an_adopted_gang_is_given_the_time_of_its_own_containers() -> None:
    """Nobody submitted it: its task definition is read when its first task is seen."""
    world = slow_to_stop(900, adoption=Adoption.RECOVER)
    for rank in range(2):
        world.start_by_hand(incidents.HAND_JOB, rank, 2, world.model_instance(rank))
    world.until(lambda: world.store.load_job(incidents.HAND_JOB) is not None, "not adopted")
    world.until_status(incidents.HAND_JOB, JobStatus.RUNNING)
    world.exit(incidents.HAND_JOB, 0, 139)
    job = world.until_status(incidents.HAND_JOB, JobStatus.DIAGNOSING)
    assert (job.stop_tries, world.calls("RebootInstances")) == (0, [])
    assert not [message for message in world.messages() if "stopTimeout" in message.body]


def test_a_stop_timeout_above_the_limit_is_refused_and_told_of_at_an_adoption() -> None:
    """With both numbers. A person's own gang is recovered all the same: it is stopped after the limit."""
    world = slow_to_stop(1_201, adoption=Adoption.RECOVER)
    with pytest.raises(SpecInvalid, match=r"1201 s.* 1200 s"):
        world.submit(1)
    for rank in range(2):
        world.start_by_hand(incidents.HAND_JOB, rank, 2, world.model_instance(rank))
    world.until(lambda: world.store.load_job(incidents.HAND_JOB) is not None, "not adopted")
    world.until_status(incidents.HAND_JOB, JobStatus.RUNNING)
    told = [message.body for message in world.messages() if "stopTimeout" in message.body]
    assert len(told) == 1 and "1201 s" in told[0] and "1200 s" in told[0]
