"""A launch that meets a surprise fails for its own job alone, and at once if the answer is definite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from simulator.cloud.rate_limits import Costs
from simulator.fast.fidelity import UNCHECKED
from simulator.faults.delivery import nothing
from simulator.invocations import Effect
from simulator.world import World
from tests.tiers import scaled


class Refusing:
    """Lets every RunTask of one job fail, until it is told not to."""

    def __init__(self) -> None:
        self.job_id = "none"
        self.error: Callable[[], Exception] | None = None

    def before(self, step: Effect) -> None:
        """Fail instead of the call."""
        if step.name == "RunTask" and self.error is not None and step.given["startedBy"].startswith(self.job_id):
            raise self.error()

    def after(self, step: Effect) -> None:
        """Nothing more."""


def answer(code: str, status: int) -> Callable[[], Exception]:
    """An error response of RunTask."""
    body: Any = {"Error": {"Code": code, "Message": "as ECS words it"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return lambda: ClientError(body, "RunTask")


def two_jobs(refusing: Refusing, instances: int = 3) -> tuple[World, str, str]:
    """Two jobs of one instance each, of which the first is refused. Both wait for the same pass."""
    world = World(instances=instances, nemesis=refusing, delivery=nothing)
    first = refusing.job_id = world.submit(1)
    return world, first, world.submit(1)


def statuses(world: World, *job_ids: str) -> list[JobStatus]:
    """The status of each job."""
    return [world.job(job_id).status for job_id in job_ids]


def reasons(world: World, job_id: str) -> list[str]:
    """The reasons in the history of the job."""
    return [entry.reason for entry in world.job(job_id).history]


def test_the_instance_of_rank_0_that_ec2_has_terminated_delays_no_other_job() -> None:
    """ECS still lists it as ACTIVE. The second job is placed in the same pass, the first by the next one."""
    world, first, second = two_jobs(Refusing())
    gone = world.model_instance(0)
    world.fleet.terminate(gone)
    world.let_pass(2)
    assert world.job(second).status is JobStatus.SUBMITTED
    assert world.job(first).status is not JobStatus.SUBMITTING
    assert f"EC2 shows {gone.instance_id} terminated" in str(reasons(world, first))
    assert world.instance(gone).status is InstanceStatus.GONE
    world.let_pass(150)
    assert world.job(first).status is JobStatus.SUBMITTED
    assert not world.failures and not world.functions.asked


def test_a_rank_is_not_started_beside_a_terminated_instance() -> None:
    """Another rank's instance is gone: no claim is made and no task is started, so none must be stopped."""
    world = World(instances=4, delivery=nothing)
    job_id = world.submit(3)
    world.fleet.terminate(world.model_instance(1))
    world.let_pass(2)
    assert not world.calls("RunTask") and not world.calls("store.claim_instance")
    world.let_pass(120)
    assert world.job(job_id).status is JobStatus.SUBMITTED
    assert len(world.calls("RunTask")) == 3


@pytest.mark.parametrize(
    "code", ["PlatformTaskDefinitionIncompatibilityException", "UnsupportedFeatureException", "ClientException"]
)
def test_a_refusal_that_lasts_fails_its_job_at_once_with_its_words(code: str) -> None:
    """Nobody waits for the launch timeout, and the other job has its place."""
    refusing = Refusing()
    world, first, second = two_jobs(refusing)
    refusing.error = answer(code, 400)
    world.let_pass(2)
    assert statuses(world, first, second) == [JobStatus.FAILED, JobStatus.SUBMITTED]
    assert f"{code}: as ECS words it" in str(reasons(world, first))


@pytest.mark.parametrize("code", ["BlockedException", "InvalidParameterException", "ExceptionOfTheYear2031"])
def test_any_other_refusal_puts_its_job_back_in_line(code: str) -> None:
    """Also one that nobody has heard of: it is a definite answer."""
    refusing = Refusing()
    world, first, second = two_jobs(refusing)
    refusing.error = answer(code, 400)
    world.let_pass(2)
    assert statuses(world, first, second) == [JobStatus.PENDING_RESOURCES, JobStatus.SUBMITTED]
    assert f"{code}: as ECS words it" in str(reasons(world, first))
    refusing.error = None
    world.let_pass(120)
    assert world.job(first).status is JobStatus.SUBMITTED


@pytest.mark.parametrize("error", [answer("ServerException", 500), lambda: ReadTimeoutError(endpoint_url="ecs")])
def test_an_unknown_outcome_leaves_the_order_to_the_reconciler_and_blocks_no_queue(
    error: Callable[[], Exception],
) -> None:
    """The pass goes on, its message is not shown again, and the failure is in the log."""
    refusing = Refusing()
    world, first, second = two_jobs(refusing)
    refusing.error = error
    world.let_pass(2)
    assert statuses(world, first, second) == [JobStatus.SUBMITTING, JobStatus.SUBMITTED]
    assert not world.functions.failures
    assert "could not finish a job" in world.transcript.text()
    third = world.submit(1)
    world.let_pass(2)
    assert world.job(third).status is JobStatus.SUBMITTED
    refusing.error = None
    world.let_pass(300)
    assert world.job(first).status is JobStatus.SUBMITTED
    assert world.job(first).attempt == 1


@pytest.mark.slow
def test_a_pass_that_cannot_place_all_jobs_in_time_ends_and_the_next_one_goes_on() -> None:
    """Six hundred jobs of one instance at 50 ms a call, or 150 at 200 ms, take more than the scheduler's timeout."""
    number = scaled(fast=150, default=150, full=600)
    world = World(instances=number, fidelity=UNCHECKED, costs=Costs(call_s=30 / number, store_s=6 / number))
    jobs = [world.submit(1) for _ in range(number)]
    world.let_pass(300)
    assert {world.job(job_id).status for job_id in jobs} == {JobStatus.RUNNING}
    assert {world.job(job_id).attempt for job_id in jobs} == {1}
    assert not world.invocations.killed and not world.failures
