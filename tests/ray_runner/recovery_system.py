"""Everything of ours around a Ray head: the API and the reconciler, which cannot reach it, and what can."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.job.spec import Backend, JobSpec
from gpu_recovery.core.policy import policy_from
from gpu_recovery.core.ray.submission import DriverSubmission
from gpu_recovery.execution.ray import QueuedRayCommands
from gpu_recovery.ports.store import Store
from gpu_recovery.reconciler.reconcile import reconcile
from gpu_recovery.recovery import Recovery

from ray_runner import handler as function
from ray_runner.cluster import RayCluster
from tests.core.build import NOW
from tests.lambdas.conftest import Context
from tests.ray_runner.head import GPUS, Head
from tests.recovery.heartbeat_world import Aws, Quiet

PATIENCE_S = 300
POLICY = policy_from(
    {"poll_interval_s": 1, "launch_timeout_s": 100_000, "start_timeout_s": 100_000, "stop_timeout_s": 100_000}
)
"""Looks as often as the tests take them, and no deadline that a slow machine could reach."""


@dataclass
class Scene:
    """`afar` is any function that is not in the cluster's network; `messages` is the queue to the one that is."""

    store: Store
    pool: RayCluster
    now: datetime = NOW
    aws: Aws = field(default_factory=Aws)
    messages: dict[str, str] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    @property
    def afar(self) -> Recovery:
        """The loop as the API and the reconciler have it."""
        actions: Any = self.aws
        return Recovery(
            store=self.store,
            actions=actions,
            policy=POLICY,
            clock=lambda: self.now,
            decision_log=Quiet(),
            ray=QueuedRayCommands(self),
        )

    def wake(self, job_id: str, key: str, hops: int = 1) -> None:
        """The queue: the same message is kept once."""
        body = json.dumps({"job_id": job_id, "key": key})
        self.messages[body] = json.dumps({"job_id": job_id, "key": key, "hops": hops})

    def submit(self, entrypoint: str, gpus: int = 8, **changes: Any) -> str:
        """The id of a new job, as the API keeps it."""
        job_id = f"ppo-{len(self.jobs)}-{time.monotonic_ns()}"  # Ray remembers those of other tests
        spec = JobSpec("ppo", 1, gpus, backend=Backend.RAY, entrypoint=entrypoint, user="ada")
        decision = state_machine.created(job_id, replace(spec, **changes), POLICY, self.now)
        assert self.afar.create_job(decision, "{}")
        self.jobs.append(job_id)
        return job_id

    def cancel(self, job_id: str) -> None:
        """A person's wish, as the API tells it."""
        wish = events.CancelRequested(at=self.now, attempt=self.job(job_id).attempt, by="ada")
        self.afar.handle(job_id, wish)

    def job(self, job_id: str) -> Job:
        """The record, which must be there."""
        found = self.store.load_job(job_id)
        assert found is not None
        return found

    def deliver(self) -> None:
        """Let the function in the cluster's network run until no message is left."""
        for _ in range(20):
            if not self.messages:
                return
            records = [{"body": body} for body in self.messages.values()]
            self.messages.clear()
            function.handler({"Records": records}, Context("ray_runner"))
        raise AssertionError(f"it wakes itself for ever: {self.messages}")

    def tick(self) -> None:
        """The schedule's message."""
        self.wake("", f"tick/{self.now}")
        self.deliver()

    def passes(self, seconds: int) -> None:
        """Some time, the reconciler, and the schedule."""
        self.now += timedelta(seconds=seconds)
        reconcile(self.afar, resyncs=())
        self.tick()

    def until(self, job_id: str, status: JobStatus) -> Job:
        """The job once it has come to `status`: Ray works in its own time, and each look costs a second of ours."""
        patience = time.monotonic() + PATIENCE_S
        while self.job(job_id).status is not status:
            found = self.job(job_id)
            assert time.monotonic() < patience, f"{found.status}: {found.reason}"
            assert found.status not in TERMINAL, f"{found.status}: {found.reason}"
            time.sleep(0.2)
            self.passes(1)
        return self.job(job_id)

    def until_free(self, gpus: int) -> None:
        """Until so many GPUs of the head are nobody's."""
        patience = time.monotonic() + PATIENCE_S
        while sum(self.pool.free_gpus_per_node().values()) != gpus:
            assert time.monotonic() < patience, self.pool.free_gpus_per_node()
            time.sleep(0.1)

    def held_by_a_stranger(self, head: Head, gpus: int, end: Path) -> None:
        """GPUs that somebody takes who does not use the queue, until `end` is there."""
        name = f"stranger-{time.monotonic_ns()}"
        self.strangers.append(name)
        self.pool.submit(DriverSubmission(name, head.driver(gpus, end), resources={"worker_node": 1}))
        self.until_free(GPUS - gpus)

    def end(self) -> None:
        """Leave the head as it was: whatever a failed test left running is stopped."""
        attempts = [f"{job_id}--a{max(1, self.job(job_id).attempt):02d}" for job_id in self.jobs]
        for name in [*attempts, *self.strangers]:
            self.pool.stop(name)


def over(store: Store, pool: RayCluster, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A scene in which the handler finds these instead of AWS."""
    scene = Scene(store, pool)
    monkeypatch.setattr(function, "_pool", lambda: scene.pool)
    monkeypatch.setattr(function, "recovery", lambda: scene.afar)
    monkeypatch.setattr(function, "ray_queue", lambda: scene)
    return scene
