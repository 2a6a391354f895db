"""Elastic jobs in the simulated world: a job continues with the instances that are there, and grows again later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset

from simulator.cloud.task_environment import environment
from simulator.cloud.workloads import JobBehaviour, NoticeBehaviour
from simulator.world import World

POLICY = replace(PRESETS[Preset.ADAPTIVE], pending_retry_s=1)
SAVES = JobBehaviour(NoticeBehaviour.SAVES)


def running(instances: int = 4, policy: Any = POLICY, **more: Any) -> tuple[World, str]:
    """A world whose job of 2 to 4 instances has run for a minute on as many as it got."""
    world = World(instances=instances, policy=policy, agents=True, diagnose=True, **more)
    job_id = world.submit(nnodes={"min": 2, "max": 4})
    world.training.habits[job_id] = SAVES
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(60)
    return world, job_id


def runs_with(world: World, job_id: str, width: int, limit_s: float = 3600) -> None:
    """Let time pass until the job runs on `width` instances."""

    def is_so() -> bool:
        job = world.job(job_id)
        return job.status is JobStatus.RUNNING and len(job.instances) == width

    world.until(is_so, f"it does not run on {width} instances", limit_s)


def test_a_job_that_loses_an_instance_continues_with_the_others_and_grows_when_it_is_back() -> None:
    """It does not wait for the reboot. Each rank hears the number of ranks of its attempt."""
    world, job_id = running()
    runs_with(world, job_id, 4)
    sick = world.job(job_id).instances[2]
    world.break_gpu(world.cluster.instances[sick])
    runs_with(world, job_id, 3)
    runs_with(world, job_id, 4)
    assert False, world.transcript.text()
