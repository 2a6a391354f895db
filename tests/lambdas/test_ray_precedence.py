"""Under a limit of running jobs a pass leaves a place to a job of the other backend that has precedence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.ray.driver import DriverState, DriverStatus

from tests.aws.ecs_events import rank_event
from tests.aws.records import later
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions
from tests.lambdas.ray_function import QUEUE, RayFunction, ray_with_one_place
from tests.lambdas.test_ray_limits import on_ecs, on_ray, scheduled, status

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
S = JobStatus
DONE = DriverStatus(DriverState.SUCCEEDED, "", 0)


@pytest.fixture
def ray(functions: Functions) -> Iterator[RayFunction]:
    with ray_with_one_place(functions) as made:
        yield made


def ends_on_ecs(ray: RayFunction, job_id: str) -> None:
    """Let a job on ECS give its place back."""
    ray.functions.store.save_job(replace(ray.functions.job(job_id), status=S.SUCCEEDED, quota_nodes=0))


def tick(ray: RayFunction, minute: int) -> None:
    """The tick of the scheduler in this minute."""
    ray.functions.now = later(60 * minute)
    ray.functions.call("scheduler", {"Records": [{"body": f'{{"key": "#tick/{minute}"}}'}]})


@pytest.mark.parametrize("was_told_to_wait", [True, False])
def test_the_ray_pass_leaves_a_place_to_a_job_on_ecs_of_higher_priority(
    ray: RayFunction, was_told_to_wait: bool
) -> None:
    """It runs first, because the end of a driver is handled in the same invocation."""
    on_ray(ray, "ray-0")
    ray.deliver()
    on_ecs(ray, "ecs-high", priority=Priority.EXTREME_HIGH)
    on_ray(ray, "ray-low", priority=Priority.LOW)
    if was_told_to_wait:
        scheduled(ray)
    ray.ends("ray-0--a01", DONE)
    assert status(ray, "ray-0", "ray-low") == [S.SUCCEEDED, S.PENDING_RESOURCES]
    assert ray.functions.job("ray-low").reason == "0 jobs run, 1 before it on the other backend, and 1 may run at once"
    scheduled(ray)
    assert status(ray, "ecs-high") == [S.SUBMITTED]


def test_the_ray_pass_takes_a_place_that_a_job_on_ecs_cannot_take(ray: RayFunction) -> None:
    """It lacks hosts, so it would leave the place empty."""
    on_ecs(ray, "ecs-high", nodes=3, priority=Priority.EXTREME_HIGH)
    scheduled(ray)
    on_ray(ray, "ray-low", priority=Priority.LOW)
    ray.deliver()
    assert status(ray, "ecs-high", "ray-low") == [S.PENDING_RESOURCES, S.SUBMITTED]


@pytest.mark.parametrize(("priority", "since"), [(Priority.NORMAL, 5), (Priority.LOW, -5)])
def test_the_ray_pass_takes_a_place_before_a_job_on_ecs_without_precedence(
    ray: RayFunction, priority: Priority, since: float
) -> None:
    """Of equal priority, the job that waits longer is before the other."""
    on_ecs(ray, "ecs-1", since=since, priority=priority)
    on_ray(ray, "ray-1")
    ray.deliver()
    assert status(ray, "ecs-1", "ray-1") == [S.QUEUED, S.SUBMITTED]


def test_the_scheduler_leaves_a_place_to_a_job_on_ray_of_higher_priority(ray: RayFunction) -> None:
    """The scheduler may run before the Ray pass, too."""
    on_ecs(ray, "ecs-0")
    scheduled(ray)
    on_ray(ray, "ray-high", priority=Priority.EXTREME_HIGH)
    on_ecs(ray, "ecs-low", priority=Priority.LOW)
    ray.deliver()
    ends_on_ecs(ray, "ecs-0")
    scheduled(ray)
    assert status(ray, "ecs-low") == [S.PENDING_RESOURCES]
    ray.deliver()
    assert status(ray, "ray-high") == [S.SUBMITTED]


def test_the_scheduler_leaves_a_place_for_five_minutes_at_most(ray: RayFunction) -> None:
    """A Ray cluster that does not answer takes no place, and says nothing."""
    on_ray(ray, "ray-high", priority=Priority.EXTREME_HIGH)
    on_ecs(ray, "ecs-low", priority=Priority.LOW)
    for minute in range(5):
        tick(ray, minute)
        assert status(ray, "ecs-low") == [S.PENDING_RESOURCES]
    tick(ray, 5)
    assert status(ray, "ecs-low", "ray-high") == [S.SUBMITTED, S.QUEUED]
    assert ray.functions.store.load_last_pass().leaves_places_since is None


def test_the_next_tick_takes_a_place_that_no_job_on_ray_wants_any_more(ray: RayFunction) -> None:
    """The cancellation of a queued job on Ray does not wake the scheduler."""
    on_ray(ray, "ray-high", priority=Priority.EXTREME_HIGH)
    on_ecs(ray, "ecs-low", priority=Priority.LOW)
    tick(ray, 0)
    ray.functions.store.save_job(replace(ray.functions.job("ray-high"), status=S.CANCELED))
    tick(ray, 1)
    assert status(ray, "ecs-low") == [S.SUBMITTED]


@pytest.mark.parametrize(
    ("limits", "messages"), [({"max_running_jobs": 1}, 1), ({"instances": {"*/*/*": 1}}, 0), ({}, 0)]
)
def test_the_end_of_a_job_on_ecs_wakes_the_ray_pass_if_running_jobs_are_limited(
    ray: RayFunction, limits: dict[str, Any], messages: int
) -> None:
    """A job on Ray may have waited for its place. Without the message it would wait for the next tick."""
    ray.functions.store.save_limits(limits, 1)
    on_ecs(ray, "ecs-0", nodes=1)
    scheduled(ray)
    ray.functions.call("ecs_task_handler", rank_event("ecs-0", 1, 0, "STOPPED", exit_code=0))
    assert status(ray, "ecs-0") == [S.SUCCEEDED]
    assert len([asked for asked in ray.functions.aws.asked("SendMessage") if asked["QueueUrl"] == QUEUE]) == messages


def test_the_submission_of_a_job_on_ecs_does_not_wake_the_ray_pass(ray: RayFunction) -> None:
    """It gives no place back."""
    asked = {"workload": "sft", "nnodes": 1, "n_gpus_per_node": 8, "task_definition": "gpu-training:3"}
    assert Api(ray.functions).post("/jobs", asked).status == 201
    sent = [asked["QueueUrl"] for asked in ray.functions.aws.asked("SendMessage")]
    assert sent and QUEUE not in sent


def test_a_place_is_left_only_to_a_user_who_may_take_it(ray: RayFunction) -> None:
    """The user of the job on ECS already has as many running jobs as a user may have."""
    ray.functions.store.save_limits({"max_running_jobs": 2, "max_running_jobs_per_user": 1}, 1)
    on_ecs(ray, "ecs-1", user="ana")
    scheduled(ray)
    on_ecs(ray, "ecs-2", user="ana", priority=Priority.EXTREME_HIGH)
    on_ray(ray, "ray-1", user="bob")
    ray.deliver()
    assert status(ray, "ecs-1", "ray-1") == [S.SUBMITTED, S.SUBMITTED]
