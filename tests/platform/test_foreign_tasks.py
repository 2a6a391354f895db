"""Tasks of others that carry names of ours: production code, DynamoDB's double and the cluster model, events and all.

Such a task is what anybody with `ecs:RunTask` may start: `startedBy` and the environment are the caller's choice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from sandbox.cluster.model import tasks
from sandbox.cluster.model.records import ModelInstance, Task
from simulator.lambda_runtime import CHECK_FAMILY
from simulator.world_builder import CLUSTER, TRAINING_FAMILY
from tests.platform.cloud import nobody_sleeps
from tests.platform.incident import PATIENT, QUICK
from tests.platform.platform_world import PlatformWorld
from tests.simulator.incidents import ADAPTIVE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sleeps")]


def world_with_job(monkeypatch: pytest.MonkeyPatch, **given: Any) -> tuple[PlatformWorld, str]:
    """A job of two ranks that runs until it is told to end."""
    with nobody_sleeps():
        world = PlatformWorld(monkeypatch, **{"instances": 2, "train_s": None, "timings": QUICK, **given})
        job_id = world.submit(2)
        world.until_status(job_id, JobStatus.RUNNING)
    return world, job_id


def start(world: PlatformWorld, machine: ModelInstance, started_by: str, family: str, **env: str) -> Task:
    """Somebody's own RunTask on the machine, without a GPU."""
    pairs = [{"name": name, "value": value} for name, value in env.items()]
    container = "health-check" if family == CHECK_FAMILY else "train"
    request = {
        "cluster": CLUSTER,
        "taskDefinition": family,
        "startedBy": started_by,
        "overrides": {"containerOverrides": [{"name": container, "environment": pairs}]},
        "placementConstraints": [{"type": "memberOf", "expression": f"ec2InstanceId == {machine.instance_id}"}],
    }
    definition = dict(world._described(family) or {})
    answer = world.fleet.change(lambda now: tasks.run_task(world.cluster, request, definition, now))
    return world.cluster.tasks[answer["tasks"][0]["taskArn"].rsplit("/", 1)[-1]]


def strangers_of(world: PlatformWorld, job_id: str, code: int | None = None) -> list[Task]:
    """A task of somebody for each rank of the job's attempt, in the family of the job; they exit with `code`."""
    name = attempt_id(job_id, world.job(job_id).attempt)
    machines = [world.machine_of(job_id, rank) for rank in (0, 1)]
    started = [start(world, one, name, TRAINING_FAMILY, RANK=str(rank)) for rank, one in enumerate(machines)]
    world.let_pass(30)
    for task in started if code is not None else ():
        world.fleet.end(task, code)
    return started


def refusals(world: PlatformWorld) -> list[str]:
    """The ids of what operators were told about tasks of others."""
    return [message.incident_id for message in world.messages() if message.incident_id.endswith("/refused")]


def stopped(world: PlatformWorld) -> list[str]:
    """The tasks that were told to stop."""
    return [step.given["task"] for step in world.calls("StopTask")]


def test_strangers_that_exit_well_do_not_end_a_job_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks `exit 0` under the names of both ranks: the job runs on, and ends when its own ranks end."""
    world, job_id = world_with_job(monkeypatch)
    own = world.ranks(job_id)
    strangers_of(world, job_id, 0)
    world.let_pass(1_200)
    assert world.job(job_id).status is JobStatus.RUNNING and all(rank.is_live for rank in own)
    assert refusals(world) == [f"{attempt_id(job_id, 1)}/refused"]
    assert stopped(world) == []
    for rank in own:
        world.fleet.end(rank, 0)
    world.until_end(job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and world.failures == []


def test_strangers_that_fail_do_not_stop_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rank is stopped, no machine is checked, and operators hear once of them."""
    world, job_id = world_with_job(monkeypatch)
    strangers_of(world, job_id, 139)
    world.let_pass(1_200)
    assert world.job(job_id).status is JobStatus.RUNNING and world.job(job_id).attempt == 1
    assert stopped(world) == [] and {machine.checks for machine in world.instances()} == {0}
    assert len(refusals(world)) == 1 and world.failures == []


def test_strangers_are_not_stopped_with_the_gang_nor_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation stops the ranks of the job; the rounds after it stop what is left of the job, and nothing else."""
    world, job_id = world_with_job(monkeypatch)
    own = sorted(rank.task_id for rank in world.ranks(job_id))
    strangers = strangers_of(world, job_id)
    world.cancel(job_id)
    world.until_end(job_id)
    world.let_pass(1_800)
    assert sorted(set(stopped(world))) == own and all(task.is_live for task in strangers)


@pytest.mark.parametrize("code", [0, 1, 42])
def test_a_strangers_task_is_no_health_check(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """It neither clears the machine that is checked nor has it repaired: the check that was started decides."""
    policy = replace(ADAPTIVE, require_verdict_document=False)
    world, job_id = world_with_job(monkeypatch, policy=policy, timings=replace(QUICK, check_s=600))
    machine = world.machine_of(job_id, 0)
    world.exit(job_id, 0, 139)
    world.until(lambda: world.instance(machine).status is InstanceStatus.CHECKING, "not checked")
    run = world.instance(machine).check
    assert run is not None
    stranger = start(world, machine, run.check_id, CHECK_FAMILY, CHECK_ID=run.check_id)
    world.let_pass(30)
    world.fleet.end(stranger, code)
    world.let_pass(300)  # the poll of the check has come and gone
    assert world.instance(machine).check is not None
    assert world.instance(machine).status is InstanceStatus.CHECKING and not world.calls("RebootInstances")
    assert refusals(world) == [f"{run.check_id}/refused"]
    world.until(lambda: world.instance(machine).status is InstanceStatus.AVAILABLE, "its own check did not count")
    assert stranger.task_id not in stopped(world) and world.failures == []


def test_tasks_of_a_launcher_that_was_killed_are_told_from_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of RunTask is lost: a rank is known by its signature. A stranger has none, and a copy came later."""
    world, job_id = world_with_job(monkeypatch, policy=PATIENT)
    store, attempt = world.recovery.store, world.job(job_id).attempt
    plan = store.load_plan(job_id, attempt)
    assert plan is not None and all(plan.task_ids)
    strangers = strangers_of(world, job_id)
    machine, rank = world.machine_of(job_id, 0), world.ranks(job_id)[0]
    copied = {one["name"]: one["value"] for one in rank.overrides["containerOverrides"][0]["environment"]}
    del copied["JOB_ID"]  # the invariants count every task with it as one that the product started
    strangers.append(start(world, machine, rank.started_by or "", TRAINING_FAMILY, **copied))
    store.record_tasks(replace(plan, task_ids=("", "")), (0, 1))
    world.let_pass(1_200)
    found = store.load_plan(job_id, attempt)
    assert found == plan and all(task.is_live for task in strangers)
    assert world.job(job_id).status is JobStatus.RUNNING


def test_tasks_that_strangers_started_before_the_launch_are_no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of an attempt can be guessed before its launch, so a stranger may be older than a rank."""
    with nobody_sleeps():
        world = PlatformWorld(monkeypatch, instances=2, train_s=None, timings=QUICK, policy=PATIENT)
        world.let_pass(5)
        job_id = world.submit(2)
        name = attempt_id(job_id, 1)
        strangers = [
            start(world, world.model_instance(number), name, TRAINING_FAMILY, RANK=str(rank))
            for number in (0, 1)
            for rank in (0, 1)
        ]
        world.until_status(job_id, JobStatus.RUNNING)
    store = world.recovery.store
    plan = store.load_plan(job_id, 1)
    assert plan is not None and all(plan.task_ids)
    store.record_tasks(replace(plan, task_ids=("", "")), (0, 1))
    world.let_pass(1_200)
    assert store.load_plan(job_id, 1) == plan and all(task.is_live for task in strangers)
    world.cancel(job_id)
    world.until_end(job_id)
    assert sorted(set(stopped(world))) == sorted(plan.task_ids) and all(task.is_live for task in strangers)
