"""A limit of running jobs holds although the index of the queue does not show yet what was placed a moment ago.

DynamoDB's indexes are eventually consistent. So each test stops the index before a job is placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.ports.values import Refusal
from gpu_recovery.scheduler import recent_placements

from simulator.dynamodb.table import DynamoTable
from tests.aws.environment import FUNCTION
from tests.aws.records import later
from tests.lambdas.conftest import Functions
from tests.lambdas.ray_function import RayFunction, ray_with_one_place
from tests.lambdas.test_ray_limits import on_ecs, on_ray, scheduled, status

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
S = JobStatus


@pytest.fixture
def ray(functions: Functions) -> Iterator[RayFunction]:
    with ray_with_one_place(functions) as made:
        yield made


def table(ray: RayFunction) -> DynamoTable:
    """The table of the jobs."""
    return ray.functions.aws.tables.tables[FUNCTION["TRAINING_JOB_TABLE_NAME"]]


def test_the_ray_pass_counts_a_job_that_the_scheduler_placed_a_moment_ago(ray: RayFunction) -> None:
    """The index still shows the job on ECS as waiting. The end of a job on Ray wakes both passes at once."""
    on_ecs(ray, "ecs-1")
    on_ray(ray, "ray-1", since=-1)  # it is before the other, but pauses after a lost race
    ray.functions.store.save_job(replace(ray.functions.job("ray-1"), not_before=later(30)))
    table(ray).stop_index("line")
    scheduled(ray)
    ray.functions.now = later(30)
    ray.deliver()
    assert status(ray, "ecs-1", "ray-1") == [S.SUBMITTED, S.PENDING_RESOURCES]
    assert ray.functions.job("ray-1").reason == "1 jobs run, and 1 may run at once"


def test_the_scheduler_counts_a_job_that_the_ray_pass_placed_a_moment_ago(ray: RayFunction) -> None:
    """The index still shows the job on Ray as waiting."""
    on_ecs(ray, "ecs-1")
    on_ray(ray, "ray-1", since=-1)
    table(ray).stop_index("line")
    ray.deliver()
    scheduled(ray)
    assert status(ray, "ecs-1", "ray-1") == [S.PENDING_RESOURCES, S.SUBMITTED]


def test_the_scheduler_counts_a_job_that_it_placed_a_moment_ago(ray: RayFunction) -> None:
    """Two of its own passes follow each other within a second, too. The second job has a higher priority."""
    on_ecs(ray, "ecs-1")
    table(ray).stop_index("line")
    scheduled(ray)
    on_ecs(ray, "ecs-2", priority=Priority.HIGH)
    ray.functions.call("scheduler", {"Records": [{"body": '{"key": "ecs-2/1"}'}]})
    assert status(ray, "ecs-1", "ecs-2") == [S.SUBMITTED, S.PENDING_RESOURCES]


def test_a_job_that_has_ended_meanwhile_keeps_no_place(ray: RayFunction) -> None:
    """Its record is read, so its place is given at once."""
    on_ecs(ray, "ecs-1")
    on_ray(ray, "ray-1", since=-1)
    table(ray).stop_index("line")
    ray.pool.refusal = Refusal("no such resource", lasting=True)
    ray.deliver()
    scheduled(ray)
    assert status(ray, "ecs-1", "ray-1") == [S.SUBMITTED, S.FAILED]


def test_placements_are_remembered_for_a_minute(ray: RayFunction) -> None:
    """Then the index shows them, and the scheduler's item stays small."""
    on_ecs(ray, "ecs-1")
    scheduled(ray)
    remembered = [name for name in ray.functions.kept()["#scheduler"] if name.startswith("placed_")]
    assert remembered == ["placed_ecs-1"]
    ray.functions.now += timedelta(seconds=61)
    on_ecs(ray, "ecs-2")
    scheduled(ray)
    assert not [name for name in ray.functions.kept()["#scheduler"] if name.startswith("placed_")]


def test_a_pass_places_no_more_jobs_than_it_remembers(ray: RayFunction, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next minute goes on."""
    monkeypatch.setattr(recent_placements, "REMEMBERED_MAX", 1)
    ray.functions.store.save_limits({"max_running_jobs": 4}, 1)
    on_ecs(ray, "ecs-1")
    on_ecs(ray, "ecs-2")
    on_ray(ray, "ray-1")
    scheduled(ray)
    ray.deliver()
    assert sorted(status(ray, "ecs-1", "ecs-2")) == [S.QUEUED, S.SUBMITTED]
    assert status(ray, "ray-1") == [S.QUEUED]
    ray.functions.now += timedelta(seconds=61)
    ray.deliver()
    scheduled(ray)
    assert sorted(status(ray, "ecs-1", "ecs-2")) == [S.QUEUED, S.SUBMITTED]
    assert status(ray, "ray-1") == [S.SUBMITTED]


def test_a_placement_without_a_limit_of_jobs_is_not_remembered(ray: RayFunction) -> None:
    """Nothing counts it."""
    ray.functions.store.save_limits({"instances": {"*/*/*": 8}}, 1)
    on_ecs(ray, "ecs-1")
    scheduled(ray)
    assert status(ray, "ecs-1") == [S.SUBMITTED]
    assert not [name for name in ray.functions.kept()["#scheduler"] if name.startswith("placed_")]
