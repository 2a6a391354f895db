"""What the programs of the virtual world read of the tasks that they are."""

from __future__ import annotations

from dataclasses import replace

from simulator.cloud.programs import environment
from simulator.world import World


def test_a_task_of_another_world_with_the_same_id_has_its_own_environment() -> None:
    """Ids are counted from a seed, so worlds have them in common; what a task was given is its own."""
    world = World(instances=1)
    task = world.start_by_hand("a-job", 0, 1, world.machine(0))
    assert environment(task)["JOB_ID"] == "a-job"
    assert environment(task) == environment(task)
    other = World(instances=1)
    namesake = other.start_by_hand("another-job", 0, 1, other.machine(0))
    assert namesake.task_id == task.task_id
    assert environment(namesake)["JOB_ID"] == "another-job"
    assert environment(task)["JOB_ID"] == "a-job"


def test_another_copy_of_a_task_with_other_overrides_is_read_anew() -> None:
    """What is kept belongs to the overrides themselves, not to the name of the task."""
    world = World(instances=1)
    task = world.start_by_hand("a-job", 0, 1, world.machine(0))
    assert environment(task)["RANK"] == "0"
    bare = replace(task, overrides={})
    assert environment(bare) == {}
