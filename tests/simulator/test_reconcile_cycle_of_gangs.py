"""A round asks ECS nothing about the tasks of a large gang that its plan names, and finds all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.events import JobLookDue
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.launch_signature import launch_signature
from gpu_recovery.core.task import LAUNCH_SIGNATURE, TaskFact
from gpu_recovery.reconciler import resync
from gpu_recovery.reconciler.reconcile import reconcile
from gpu_recovery.recovery import Recovery

from sandbox.cluster.model.statuses import TaskStatus
from simulator.faults.delivery import nothing
from simulator.lambda_runtime import CHECK_FAMILY
from simulator.world import World
from tests.simulator.test_reconcile_cycle import Half


@pytest.fixture(autouse=True)
def _two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "LARGE", 2)


def compared(world: World) -> list[str]:
    """The tasks that the comparisons of a round ask ECS about."""
    asked: list[str] = []
    real = world.actions.ecs.describe_tasks

    def describe_tasks(task_ids: Sequence[str], unreadable: list[Exception] | None = None) -> tuple[TaskFact, ...]:
        asked.extend(task_ids)
        return real(task_ids, unreadable)

    world.actions.ecs.describe_tasks = describe_tasks  # type: ignore[method-assign]
    reconcile(world.recovery, (resync.resync_tasks,))
    world.actions.ecs.describe_tasks = real  # type: ignore[method-assign]
    return asked


def being_stopped(world: World) -> list[str]:
    """The tasks that were ordered to stop."""
    return [task.task_id for task in world.cluster.tasks.values() if task.desired_status is TaskStatus.STOPPED]


def test_the_tasks_of_a_gang_under_way_are_not_asked_about() -> None:
    """A smaller job's, and a stranger's, are."""
    world = World(instances=4)
    world.until_status(world.submit(2), JobStatus.RUNNING)
    small = world.submit(1)
    world.until_status(small, JobStatus.RUNNING)
    free = next(one for one in world.model_instances() if not one.live)
    stranger = world.start_by_hand("", 0, 1, free)
    assert set(compared(world)) == {world.rank(small, 0).task_id, stranger.task_id}


def test_a_task_of_an_attempt_that_is_over_is_found_and_stopped() -> None:
    """Its gang goes on with another attempt, whose plan does not name it."""
    world = World(instances=3)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.delivery = nothing
    machine = next(one for one in world.model_instances() if not one.live)
    late = world.start_by_hand(job_id, 0, 2, machine)
    late.started_by = f"{job_id}--a00"
    world.store.begin_attempt(Plan(job_id, 0, (machine.instance_id,) * 2, task_ids=(late.task_id, "ended")))
    assert compared(world) == [late.task_id]
    assert being_stopped(world) == [late.task_id]


def test_a_task_that_only_has_the_name_of_something_over_is_left_alone() -> None:
    """Of an attempt whose plan has other tasks, and of a check that we never started."""
    world = World(instances=4)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.delivery = nothing
    idle = [one for one in world.model_instances() if not one.live]
    names = (f"{job_id}--a00", f"check/{idle[1].instance_id}/0")
    strangers = [world.start_by_hand("", 0, 2, machine) for machine in idle]
    strangers[0].started_by, strangers[1].started_by = names
    world.store.begin_attempt(Plan(job_id, 0, (idle[0].instance_id,) * 2, task_ids=("own", "ended")))
    assert set(compared(world)) == {one.task_id for one in strangers}
    assert being_stopped(world) == []


@pytest.mark.parametrize(
    ("attempt", "status"), [(2, JobStatus.RECOVERING), (2, JobStatus.SUBMITTING), (1, JobStatus.FAILED)]
)
def test_of_an_attempt_that_is_over_every_task_is_asked_about(attempt: int, status: JobStatus) -> None:
    """Whatever of it still runs must be stopped, also while the index shows the job as it was."""
    world = World(instances=2)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.delivery = nothing
    shown = world.store.load_queue()
    world.store.save_job(replace(world.job(job_id), attempt=attempt, status=status))
    world.recovery = replace(world.recovery, store=Half(world.recovery.store, line=lambda *_: shown))
    assert len(compared(world)) == 2
    assert len(being_stopped(world)) == 2


def test_of_a_persons_gang_every_task_is_asked_about() -> None:
    """An event of it that was lost is found nowhere else."""
    world = World(instances=2, adoption=Adoption.OBSERVE, delivery=nothing)
    for rank, machine in enumerate(world.model_instances()):
        world.start_by_hand("run-1", rank, 2, machine)
    for _ in range(2):
        world.let_pass(120)
        assert len(compared(world)) == 2


def test_a_gang_whose_record_cannot_be_read_keeps_no_other_task_from_being_compared() -> None:
    """It is raised when the rest is done."""
    world = World(instances=3)
    world.until_status(world.submit(2), JobStatus.RUNNING)
    world.delivery = nothing
    machine = next(one for one in world.model_instances() if not one.live)
    check = f"check/{machine.instance_id}/0"
    signed = {LAUNCH_SIGNATURE: launch_signature(world.store.launch_key(), check)}
    forgotten = world.start_by_hand("", 0, 1, machine, **signed)
    forgotten.started_by, forgotten.definition = check, dict(world._described(CHECK_FAMILY) or {})

    def unreadable(name: str) -> None:
        raise ValueError(name)

    world.recovery = replace(world.recovery, store=Half(world.recovery.store, load_job=unreadable))
    with pytest.raises(ExceptionGroup):
        reconcile(world.recovery, (resync.resync_tasks,))
    assert being_stopped(world) == [forgotten.task_id]


def test_the_record_of_an_instance_is_read_only_where_the_listing_speaks_of_another_check() -> None:
    """While a gang is checked every instance has one; one that nobody waits for is stopped all the same."""
    world = World(instances=2)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.exit(job_id, 0, 134)
    checks = {f"check/{one.instance_id}/1" for one in world.model_instances()}
    world.until(lambda: {task.started_by for task in world.fleet.running()} == checks, "no checks")
    ranks = being_stopped(world)
    reads: list[str] = []
    store = world.recovery.store

    def load_instance(name: str) -> object:
        reads.append(name)
        return store.load_instance(name)

    world.delivery = nothing
    recovery: Recovery = replace(world.recovery, store=Half(store, load_instance=load_instance))
    reconcile(recovery, (resync.resync_instances, resync.resync_tasks))
    assert reads == [] and being_stopped(world) == ranks
    record = world.instance(world.model_instance(1))
    store.save_instance(replace(record, check=None))
    reconcile(recovery, (resync.resync_instances, resync.resync_tasks))
    assert reads == [record.instance_id]
    stopped = [world.cluster.tasks[one] for one in being_stopped(world) if one not in ranks]
    assert [task.started_by for task in stopped] == [f"check/{record.instance_id}/1"]


def test_a_look_at_a_gang_finds_the_one_rank_whose_task_ecs_has_forgotten() -> None:
    """All that ECS still shows runs: only that one of them is missing says anything."""
    world = World(instances=2)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.delivery = nothing
    lost = world.rank(job_id, 1)
    world.cluster.instance_of(lost).live.remove(lost.task_id)
    del world.cluster.tasks[lost.task_id]
    world.until_status(job_id, JobStatus.RECOVERING)
    progress = world.store.load_progress(job_id, 1)
    assert progress is not None and progress.failure is not None
    assert progress.failure.rank == 1 and progress.failure.ending.sentence.startswith("ended unseen")


@pytest.mark.parametrize("gone_for_s", [0, 7_200], ids=["off", "forgotten"])
def test_a_look_at_a_gang_finds_the_machine_that_is_gone_behind_a_dead_agent(gone_for_s: int) -> None:
    """ECS goes on showing its task as running; EC2 shows the machine terminated, and then not at all."""
    world = World(instances=2)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    gone = world.model_instance(1)
    world.fleet.disconnect(gone)
    world.let_pass(1)
    world.delivery = nothing
    world.fleet.terminate(gone)
    gone.terminated_at = world.timeline.now - timedelta(seconds=gone_for_s)
    job = world.job(job_id)
    assert job.look_at is not None
    world.recovery.handle(job_id, JobLookDue(at=job.look_at, attempt=1, look_at=job.look_at))
    assert world.instance(gone).status is InstanceStatus.GONE
