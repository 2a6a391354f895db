"""The function of the Ray cluster wakes itself by its own queue: its handler passes the length of the chain on."""

from __future__ import annotations

import json

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.execution.context import HOPS_MAX
from gpu_recovery.ports.values import Refusal

from tests.aws.records import job, spec
from tests.lambdas.conftest import Functions
from tests.lambdas.ray_function import QUEUE, ray_runner_of

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


@pytest.mark.parametrize(("hops", "further"), [(0, [1]), (HOPS_MAX - 1, [HOPS_MAX]), (HOPS_MAX, [])])
def test_a_chain_of_the_ray_queue_ends(functions: Functions, hops: int, further: list[int]) -> None:
    """A job that fails at once wakes the function for the next job; after the last message the clock goes on."""
    wanted = spec(nnodes=1, gpus_per_node=8, backend=Backend.RAY, entrypoint="python train.py", task_definition="")
    functions.store.create_job(job("ppo-1", spec=wanted), "")
    functions.aws.forget()
    with ray_runner_of(functions) as ray:
        ray.pool.refusal = Refusal("no such resource", lasting=True)
        ray.deliver(key="ppo-0/1", hops=hops)
    assert functions.job("ppo-1").status is JobStatus.FAILED
    sent = [
        json.loads(asked["MessageBody"]) for asked in functions.aws.asked("SendMessage") if asked["QueueUrl"] == QUEUE
    ]
    assert [message["hops"] for message in sent] == further
