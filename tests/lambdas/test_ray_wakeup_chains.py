"""The function of the Ray cluster wakes itself by its own queue: its handler passes the length of the chain on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.execution.context import HOPS_MAX
from gpu_recovery.ports.values import Refusal

import ray_runner
from tests.aws.environment import QUEUES
from tests.aws.records import job, spec
from tests.lambdas.conftest import Context, Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
QUEUE = f"{QUEUES}/gpu-recovery-ray.fifo"
SETTINGS = {"RAY_QUEUE_URL": QUEUE, "RAY_DASHBOARD": "http://head:8265", "RAY_CONTROL_STORE": "head:6379"}


def _refuse(submission: Any) -> Refusal:
    return Refusal("no such resource", lasting=True)


@pytest.fixture
def deliver(functions: Functions) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Deliver one message to the handler, which finds a Ray cluster that refuses every driver. Ray is not needed."""
    pool = SimpleNamespace(submit=_refuse, free_gpus_per_node=lambda: {"node": 8.0}, total_gpus=lambda: 8.0)
    clients = ModuleType("ray_runner.cluster")
    vars(clients)["RayCluster"] = lambda *_: pool
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        patch.setitem(sys.modules, "ray_runner.cluster", clients)
        patch.delitem(sys.modules, "ray_runner.handler", raising=False)
        handler = import_module("ray_runner.handler")
        yield lambda body: handler.handler({"Records": [{"body": json.dumps(body)}]}, Context("ray_runner"))
        # A later import must find the handler with Ray's own clients.
        sys.modules.pop("ray_runner.handler")
        vars(ray_runner).pop("handler")


@pytest.mark.parametrize(("hops", "further"), [(0, [1]), (HOPS_MAX - 1, [HOPS_MAX]), (HOPS_MAX, [])])
def test_a_chain_of_the_ray_queue_ends(
    functions: Functions, deliver: Callable[[dict[str, Any]], None], hops: int, further: list[int]
) -> None:
    """A job that fails at once wakes the function for the next job; after the last message the clock goes on."""
    wanted = spec(nnodes=1, gpus_per_node=8, backend=Backend.RAY, entrypoint="python train.py", task_definition="")
    functions.store.create_job(job("ppo-1", spec=wanted), "")
    functions.aws.forget()
    deliver({"job_id": "", "key": "ppo-0/1", "hops": hops})
    assert functions.job("ppo-1").status is JobStatus.FAILED
    sent = [
        json.loads(asked["MessageBody"]) for asked in functions.aws.asked("SendMessage") if asked["QueueUrl"] == QUEUE
    ]
    assert [message["hops"] for message in sent] == further
