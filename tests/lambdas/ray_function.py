"""`ray_runner` as Lambda runs it, with a Ray cluster in memory. Ray's own clients are not needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.ray.driver import DriverState, DriverStatus
from gpu_recovery.core.ray.submission import DriverSubmission
from gpu_recovery.ports.values import Refusal

import ray_runner
from tests.aws.environment import QUEUES
from tests.aws.records import A, B, instance
from tests.lambdas.conftest import Context, Functions

QUEUE = f"{QUEUES}/gpu-recovery-ray.fifo"
SETTINGS = {"RAY_QUEUE_URL": QUEUE, "RAY_DASHBOARD": "http://head:8265", "RAY_CONTROL_STORE": "head:6379"}


@dataclass
class RayInMemory:
    """`execution.ray.RayPool` in memory. A test sets the status and the log of a driver.

    Like Ray, it does not know a driver that was never submitted, and has no log of it.
    """

    gpus: float = 8.0
    used: float = 0.0
    refusal: Refusal | None = None
    drivers: dict[str, DriverStatus] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    submitted: list[DriverSubmission] = field(default_factory=list)

    def submit(self, submission: DriverSubmission) -> Refusal | None:
        """Start a driver that is pending, once."""
        if self.refusal is None and submission.submission_id not in self.drivers:
            self.submitted.append(submission)
            self.drivers[submission.submission_id] = DriverStatus(DriverState.PENDING)
        return self.refusal

    def status(self, submission_id: str) -> DriverStatus:
        """The status that the test has set."""
        return self.drivers.get(submission_id, DriverStatus(DriverState.GONE))

    def logs(self, submission_id: str, tail: int) -> str:
        """The last lines of what the test has set."""
        text = self.written.get(submission_id, "") if submission_id in self.drivers else ""
        return "".join(text.splitlines(keepends=True)[-tail:])

    def stop(self, submission_id: str) -> None:
        """Stop a driver that is alive."""
        if submission_id in self.drivers and not self.drivers[submission_id].has_ended:
            self.drivers[submission_id] = DriverStatus(DriverState.STOPPED)

    def free_gpus_per_node(self) -> Mapping[str, float]:
        """The GPUs that are not used, on one node."""
        return {"node": self.gpus - self.used} if self.gpus > self.used else {}

    def total_gpus(self) -> float:
        """Every GPU."""
        return self.gpus


@dataclass
class RayFunction:
    """The function, its cluster, and what is behind all functions."""

    functions: Functions
    pool: RayInMemory
    handler: Any

    def deliver(self, job_id: str = "", key: str = "tick/1", **fields: Any) -> None:
        """Deliver one message of the queue."""
        body = json.dumps({"job_id": job_id, "key": key, **fields})
        self.handler.handler({"Records": [{"body": body}]}, Context("ray_runner"))

    def ends(self, submission_id: str, status: DriverStatus, log: str = "") -> None:
        """Let a driver end, and deliver a message about its job when its next poll is due."""
        self.functions.now += timedelta(seconds=RecoveryPolicy().poll_interval_s)
        self.pool.drivers[submission_id], self.pool.written[submission_id] = status, log
        self.deliver(submission_id.rpartition("--")[0], f"end/{submission_id}")


@contextmanager
def ray_runner_of(functions: Functions) -> Iterator[RayFunction]:
    """The function of a deployment with a Ray cluster."""
    pool = RayInMemory()
    clients = ModuleType("ray_runner.cluster")
    vars(clients)["RayCluster"] = lambda *_: pool
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        functions.chill()
        patch.setitem(sys.modules, "ray_runner.cluster", clients)
        patch.delitem(sys.modules, "ray_runner.handler", raising=False)
        yield RayFunction(functions, pool, import_module("ray_runner.handler"))
        # A later import must find the handler with Ray's own clients.
        sys.modules.pop("ray_runner.handler")
        vars(ray_runner).pop("handler")


@contextmanager
def ray_with_one_place(functions: Functions) -> Iterator[RayFunction]:
    """A Ray cluster of 16 GPUs beside two free instances of ECS; one job may run."""
    for host in (A, B):
        functions.store.save_instance(instance(host))
    functions.store.save_limits({"max_running_jobs": 1}, 0)
    with ray_runner_of(functions) as made:
        made.pool.gpus = 16.0
        yield made
