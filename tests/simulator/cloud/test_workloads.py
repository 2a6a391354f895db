"""What the programs of the virtual world read of the tasks that they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.job.record import JobStatus

from simulator.cloud.task_environment import environment
from simulator.cloud.workloads import NO_LOG, JobBehaviour, NoticeBehaviour
from simulator.faults.delivery import PROMPT_S
from simulator.world import World


def test_a_task_of_another_world_with_the_same_id_has_its_own_environment() -> None:
    """Ids are counted from a seed, so worlds have them in common; what a task was given is its own."""
    world = World(instances=1)
    task = world.start_by_hand("a-job", 0, 1, world.model_instance(0))
    assert environment(task)["JOB_ID"] == "a-job"
    assert environment(task) == environment(task)
    other = World(instances=1)
    namesake = other.start_by_hand("another-job", 0, 1, other.model_instance(0))
    assert namesake.task_id == task.task_id
    assert environment(namesake)["JOB_ID"] == "another-job"
    assert environment(task)["JOB_ID"] == "a-job"


def test_another_copy_of_a_task_with_other_overrides_is_read_anew() -> None:
    """What is kept belongs to the overrides themselves, not to the name of the task."""
    world = World(instances=1)
    task = world.start_by_hand("a-job", 0, 1, world.model_instance(0))
    assert environment(task)["RANK"] == "0"
    bare = replace(task, overrides={})
    assert environment(bare) == {}


LONG_S = 600.0


def left_after(notice: NoticeBehaviour, grace_s: int = 10) -> tuple[float, int | None, float]:
    """Suspended after 60 s: when rank 0 was gone, with which exit code, and how long the job trained after that."""
    world = World(instances=1, train_s=LONG_S)
    job_id = world.submit(1, suspend_grace_s=grace_s)
    world.training.habits[job_id] = JobBehaviour(notice)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(60)
    task, told = world.rank(job_id, 0), world.timeline.now
    world.suspend(job_id)
    world.until(lambda: not world.ranks(job_id), "it did not leave")
    gone_s = (world.timeline.now - told).total_seconds()
    world.until_status(job_id, JobStatus.SUSPENDED)
    world.resume(job_id)
    world.until_status(job_id, JobStatus.RUNNING)
    again = world.timeline.now
    world.until_end(job_id)
    return gone_s, task.containers[0].exit_code, (world.timeline.now - again).total_seconds()


@pytest.mark.parametrize(
    ("notice", "gone_s", "code"),
    [
        (NoticeBehaviour.LEAVES, 2, 143),
        (NoticeBehaviour.SAVES, 3, 75),
        (NoticeBehaviour.STAYS, 10, 143),
        (NoticeBehaviour.HANGS, 30, 137),
    ],
)
def test_rank_0_answers_the_notice_as_its_program_does(notice: NoticeBehaviour, gone_s: float, code: int) -> None:
    """It leaves, saves, is ended after its grace, or by ECS; what is saved is not done again."""
    gone, exit_code, again_s = left_after(notice)
    assert (gone, exit_code) == (PROMPT_S + gone_s, code)  # the wake-up of the command executor takes PROMPT_S
    assert (again_s < LONG_S - 55) == (notice is NoticeBehaviour.SAVES)


def test_no_program_is_promised_more_than_the_patience_of_ecs() -> None:
    """A grace longer than `stopTimeout` is refused, as the API refuses it."""
    world = World(instances=1)
    with pytest.raises(SpecInvalid, match="at most 30"):
        world.submit(1, suspend_grace_s=31)
    assert world.submit(1, suspend_grace_s=30)


def test_ranks_other_than_0_hear_nothing_and_leave_at_once() -> None:
    """The notice is for rank 0: the others are stopped when it has left."""
    world = World(instances=2, train_s=LONG_S)
    job_id = world.submit(2, suspend_grace_s=10)
    world.training.habits[job_id] = JobBehaviour(NoticeBehaviour.STAYS)
    world.until_status(job_id, JobStatus.RUNNING)
    other, told = world.rank(job_id, 1), world.timeline.now
    world.suspend(job_id)
    world.until(lambda: not world.ranks(job_id), "it did not leave")
    assert other.containers[0].exit_code == 143
    assert 12 <= (world.timeline.now - told).total_seconds() <= 14


def test_the_product_reads_the_last_lines_that_a_rank_wrote() -> None:
    """No more than it asks for; of a log that is not there, or cannot be read, it is told why."""
    world = World(instances=2)
    job_id = world.submit(2)
    job = world.until_status(job_id, JobStatus.RUNNING)
    first, second = (world.rank(job_id, rank).task_id for rank in range(2))
    assert world.actions.log_tail(job, first, 400) == NO_LOG
    world.training.written[first] = ("step 1", "step 2", "RuntimeError")
    assert world.actions.log_tail(job, first, 2) == ("step 2", "RuntimeError")
    world.training.written[second] = "nobody may read it"
    assert world.actions.log_tail(job, second, 2) == "nobody may read it"
