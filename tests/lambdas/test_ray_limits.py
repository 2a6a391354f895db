"""Limits and quotas bind jobs on Ray and jobs on ECS together, whichever function places a job first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.aws import wiring
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.ray.driver import DriverState, DriverStatus
from gpu_recovery.core.ray.submission import DriverSubmission
from gpu_recovery.execution.ray import DirectRayCommands
from gpu_recovery.ports.values import Refusal
from gpu_recovery.scheduler import schedule
from gpu_recovery.scheduler.ray_pool import run_ray_pass

from tests.aws.records import A, B, instance, job, later, spec
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions
from tests.lambdas.ray_function import RayFunction, ray_runner_of

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
S = JobStatus
SCHEDULER_QUEUE = "gpu-recovery-scheduler.fifo"


@pytest.fixture
def ray(functions: Functions) -> Iterator[RayFunction]:
    """A Ray cluster of 16 GPUs beside two free instances of ECS."""
    for host in (A, B):
        functions.store.save_instance(instance(host))
    with ray_runner_of(functions) as made:
        made.pool.gpus = 16.0
        yield made


def limited(ray: RayFunction, **limits: Any) -> None:
    """Set the limits."""
    ray.functions.store.save_limits(limits, 0)


def on_ray(ray: RayFunction, job_id: str, nodes: int = 1, since: float = 0, **changes: Any) -> None:
    """Queue a job on Ray."""
    own = spec(nnodes=nodes, gpus_per_node=4, backend=Backend.RAY, entrypoint="true", task_definition="", **changes)
    ray.functions.store.create_job(job(job_id, spec=own, queued_at=later(since)), "")


def on_ecs(ray: RayFunction, job_id: str, nodes: int = 1, since: float = 0, **changes: Any) -> None:
    """Queue a job on ECS."""
    ray.functions.store.create_job(job(job_id, spec=spec(nnodes=nodes, **changes), queued_at=later(since)), "")


def scheduled(ray: RayFunction) -> None:
    """A whole pass of the scheduler."""
    ray.functions.call("scheduler", {"Records": [{"body": "{}"}]})


def status(ray: RayFunction, *job_ids: str) -> list[str]:
    """The statuses of these jobs."""
    return [ray.functions.job(job_id).status.value for job_id in job_ids]


def test_a_job_on_ecs_takes_the_place_of_a_job_on_ray(ray: RayFunction) -> None:
    """Seed 004's `max_running_tasks` counts every job, and the place is given again when the job has ended."""
    limited(ray, max_running_jobs=1)
    on_ecs(ray, "ecs-1")
    scheduled(ray)
    on_ray(ray, "ray-1")
    ray.deliver()
    assert status(ray, "ecs-1", "ray-1") == [S.SUBMITTED, S.PENDING_RESOURCES]
    waits = ray.functions.job("ray-1")
    assert (waits.reason, waits.short_of) == ("1 jobs run, and 1 may run at once", "jobs")
    limits = {"max_running_jobs": 2}
    ray.functions.store.save_limits(limits, 1)
    ray.deliver(key="tick/2")
    assert status(ray, "ray-1") == [S.SUBMITTED]


def test_a_job_on_ray_takes_the_place_of_a_job_on_ecs(ray: RayFunction) -> None:
    """The limit of one user is that user's alone."""
    limited(ray, max_running_jobs_per_user=1)
    on_ray(ray, "ray-1", user="ana")
    ray.deliver()
    on_ecs(ray, "ecs-ana", user="ana")
    on_ecs(ray, "ecs-bob", user="bob")
    scheduled(ray)
    assert status(ray, "ray-1", "ecs-ana", "ecs-bob") == [S.SUBMITTED, S.PENDING_RESOURCES, S.SUBMITTED]
    assert ray.functions.job("ecs-ana").reason == "1 jobs of ana run, and 1 of one user may run at once"


def test_a_quota_counts_the_nodes_of_jobs_on_ray(ray: RayFunction) -> None:
    """By user, priority and group; the queue shows them as used, and the end of the driver gives them back."""
    limited(ray, instances={"ana/*/*": 3})
    on_ray(ray, "ray-1", nodes=2)
    ray.deliver()
    on_ecs(ray, "ecs-1", nodes=2)
    scheduled(ray)
    assert status(ray, "ray-1", "ecs-1") == [S.SUBMITTED, S.PENDING_RESOURCES]
    assert ray.functions.job("ecs-1").short_of == "quota"
    (quota,) = Api(ray.functions).get("/queue").body["quotas"]
    assert (quota["used"], quota["limit"]) == (2, 3)
    ray.ends("ray-1--a01", DriverStatus(DriverState.SUCCEEDED, "", 0))
    (quota,) = Api(ray.functions).get("/queue").body["quotas"]
    assert quota["used"] == 0
    scheduled(ray)
    assert status(ray, "ray-1", "ecs-1") == [S.SUCCEEDED, S.SUBMITTED]


def test_a_job_over_its_quota_blocks_no_other_job_on_ray(ray: RayFunction) -> None:
    """As on ECS: it waits for its own quota, and the next starts. One pass gives no quota twice."""
    limited(ray, instances={"ana/*/*": 1})
    on_ray(ray, "first", user="ana")
    on_ray(ray, "second", since=1, user="ana")
    on_ray(ray, "third", since=2, user="bob")
    ray.deliver()
    assert status(ray, "first", "second", "third") == [S.SUBMITTED, S.PENDING_RESOURCES, S.SUBMITTED]
    waits = ray.functions.job("second")
    assert waits.short_of == "quota"
    assert waits.reason == "needs 1 instance(s); 1 of the quota of 1 of ana/NORMAL/ are taken"


def test_a_pass_of_the_scheduler_during_a_pass_of_ray_gives_no_place_twice(
    ray: RayFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both functions count the jobs at once. The later term wins, and the other function counts again."""
    limited(ray, max_running_jobs=1)
    on_ray(ray, "ray-1")
    counted = ray.pool.total_gpus
    passes: list[int] = []

    def overtaken() -> float:
        passes.append(ray.functions.store.load_last_pass().term)
        if passes == [0, 1]:  # the Ray pass has begun its term, and has read that no job runs
            on_ecs(ray, "ecs-1", priority=Priority.HIGH)
            scheduled(ray)
        return counted()

    monkeypatch.setattr(ray.pool, "total_gpus", overtaken)
    ray.deliver()
    assert passes == [0, 1, 3]
    assert status(ray, "ecs-1", "ray-1") == [S.SUBMITTED, S.PENDING_RESOURCES]


def test_a_pass_of_ray_during_a_pass_of_the_scheduler_gives_no_place_twice(
    ray: RayFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler's pass is refused, and the next tick repeats it."""
    limited(ray, max_running_jobs_per_user=1)
    on_ecs(ray, "ecs-1")
    place = schedule.place

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(schedule, "place", place)
        found = place(*arguments)
        on_ray(ray, "ray-1", since=-1)
        ray.deliver()
        return found

    monkeypatch.setattr(schedule, "place", overtaken)
    scheduled(ray)
    assert status(ray, "ecs-1", "ray-1") == [S.QUEUED, S.SUBMITTED]
    ray.functions.call("scheduler", {"Records": [{"body": '{"key": "#tick/1"}'}]})
    assert status(ray, "ecs-1") == [S.PENDING_RESOURCES]


def test_a_pass_of_ray_counts_what_it_placed_before_its_term_was_over(
    ray: RayFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass of the scheduler begins after the first of two placements. The second follows in another term."""
    limited(ray, max_running_jobs=4)
    on_ray(ray, "ray-1")
    on_ray(ray, "ray-2", since=1)
    submit = ray.pool.submit

    def overtaken(submission: DriverSubmission) -> Refusal | None:
        if not ray.pool.submitted:
            ray.functions.store.begin_term()
        return submit(submission)

    monkeypatch.setattr(ray.pool, "submit", overtaken)
    loop = replace(wiring.recovery(), ray=DirectRayCommands(ray.pool, wiring.ray_queue()))
    assert run_ray_pass(loop, ray.pool) == 2
    assert status(ray, "ray-1", "ray-2") == [S.SUBMITTED, S.SUBMITTED]
    assert ray.functions.store.load_last_pass().term == 3


def test_a_pass_of_ray_without_a_term_of_its_own_still_tells_what_it_could_not_read(
    ray: RayFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler begins a term each time. The unreadable record is an error all the same, and nothing is placed."""
    limited(ray, max_running_jobs=4)
    on_ray(ray, "ray-1")
    on_ray(ray, "ray-2", since=1)
    ray.functions.store.jobs.update("ray-2", "SET spec = :s", "attribute_exists(job_id_rank)", {}, {":s": "no spec"})
    free = ray.pool.free_gpus_per_node

    def overtaken() -> dict[str, float]:
        ray.functions.store.begin_term()
        return free()

    monkeypatch.setattr(ray.pool, "free_gpus_per_node", overtaken)
    loop = replace(wiring.recovery(), ray=DirectRayCommands(ray.pool, wiring.ray_queue()))
    with pytest.raises(ExceptionGroup, match="not every job on Ray"):
        run_ray_pass(loop, ray.pool)
    assert status(ray, "ray-1") == [S.QUEUED]


@pytest.mark.parametrize(("limits", "messages"), [({"max_running_jobs": 1}, 1), ({}, 0)])
def test_the_end_of_a_job_on_ray_wakes_the_scheduler_if_there_are_limits(
    ray: RayFunction, limits: dict[str, Any], messages: int
) -> None:
    """A job on ECS may have waited for its place."""
    if limits:
        limited(ray, **limits)
    on_ray(ray, "ray-1")
    ray.deliver()
    ray.functions.aws.forget()
    ray.ends("ray-1--a01", DriverStatus(DriverState.SUCCEEDED, "", 0))
    sent = [asked for asked in ray.functions.aws.asked("SendMessage") if asked["QueueUrl"].endswith(SCHEDULER_QUEUE)]
    assert len(sent) == messages


def test_a_pass_of_ray_without_limits_begins_no_term(ray: RayFunction) -> None:
    """It interrupts no pass of the scheduler, and costs no further call."""
    on_ray(ray, "ray-1")
    ray.deliver()
    assert status(ray, "ray-1") == [S.SUBMITTED]
    assert ray.functions.store.load_last_pass().term == 0


def test_a_job_on_ray_larger_than_its_quota_is_refused(ray: RayFunction) -> None:
    """In the words that a job on ECS gets."""
    limited(ray, instances={"*/*/*": 2})
    asked = {"workload": "ppo", "nnodes": 3, "n_gpus_per_node": 8, "backend": "ray", "entrypoint": "true"}
    assert "it can never run" in refused(Api(ray.functions).post("/jobs", asked), 422, "nnodes")
