"""Seed 004's event types in the history of a job, through the HTTP API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.ray.driver import DriverState, DriverStatus

from tests.aws.ecs_events import rank_event
from tests.aws.records import JOB, job, later, spec
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions
from tests.lambdas.ray_function import RayFunction, ray_runner_of
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
VERL = "ValueError: Total available GPUs 0 is less than total desired GPUs 8"


@pytest.fixture
def ray(functions: Functions) -> Iterator[RayFunction]:
    """A job on Ray that has been submitted there."""
    on_ray = spec(nnodes=1, backend=Backend.RAY, entrypoint="true", task_definition="")
    functions.store.create_job(job(spec=on_ray), "")
    with ray_runner_of(functions) as made:
        made.deliver()
        yield made


def test_a_job_on_ray_tells_its_story_in_the_words_of_seed_004(ray: RayFunction) -> None:
    """Submitted, seen to run, lost its race, tried again, and done; the same in the explanation."""
    ray.ends(f"{JOB}--a01", DriverStatus(DriverState.RUNNING))
    ray.ends(f"{JOB}--a01", DriverStatus(DriverState.FAILED, VERL, 1, "JOB_ENTRYPOINT_COMMAND_ERROR"))
    ray.functions.now = later(1_000)
    ray.deliver(key="tick/2")
    ray.ends(f"{JOB}--a02", DriverStatus(DriverState.SUCCEEDED, "", 0))
    history = Api(ray.functions).get(f"/jobs/{JOB}").body["history"]
    assert [(entry["to"], entry["event_type"]) for entry in history] == [
        ("SUBMITTING", "STATE_TRANSITION"),
        ("SUBMITTED", "SUBMIT"),
        ("RUNNING", "RAY_STATUS_SYNC"),
        ("PENDING_RESOURCES", "RETRY_SCHEDULED"),
        ("SUBMITTING", "STATE_TRANSITION"),
        ("SUBMITTED", "SUBMIT"),
        ("SUCCEEDED", "RAY_STATUS_SYNC"),
    ]
    assert Api(ray.functions).get(f"/jobs/{JOB}/explain").body["decisions"] == history


def test_a_job_on_ecs_has_the_same_types_without_ray(functions: Functions) -> None:
    """Its ranks are reported by events of ECS."""
    gang(functions, status=JobStatus.STOPPING, stop_purpose="RELAUNCH", stop_reason="a Spot notice", attempt=1)
    for rank in (0, 1):
        functions.call("ecs_task_handler", rank_event(JOB, 1, rank, "STOPPED", exit_code=0))
    (entry,) = Api(functions).get(f"/jobs/{JOB}").body["history"]
    assert (entry["from"], entry["to"], entry["event_type"]) == ("STOPPING", "RECOVERING", "RETRY_SCHEDULED")
