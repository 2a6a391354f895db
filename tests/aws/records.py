"""Records that tests start from: a queued job, a free instance, commands, facts of ranks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_recovery.core import commands
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.events import Checked
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Claim, Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import Ending, EndingKind, RankFailure

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
JOB, OTHER_JOB = "sft-20261121-090000-0a1b", "sft-20261121-090001-ffff"
A, B = "i-0aaaaaaaaaaaaaaaa", "i-0bbbbbbbbbbbbbbbb"


def later(seconds: float) -> datetime:
    """`seconds` after the tests' present."""
    return NOW + timedelta(seconds=seconds)


def spec(**changes: Any) -> JobSpec:
    """Two instances with eight GPUs each."""
    return replace(
        JobSpec("sft", 2, 8, "gpu-training:3", "main", ("python", "train.py"), {"LR": "0.1"}, "ana"), **changes
    )


def job(job_id: str = JOB, **changes: Any) -> Job:
    """A job that has just been submitted."""
    return replace(Job(job_id, spec(), queued_at=NOW, status_at=NOW), **changes)


def instance(instance_id: str = A, **changes: Any) -> Instance:
    """A free instance with eight GPUs, registered under an id derived from its own."""
    blank = Instance(instance_id, NOW, container_instance_id=f"ci-{instance_id}", ecs_version=3, gpus=8, gpus_most=8)
    return replace(blank, **changes)


def pending(
    record_id: str, number: int, command: Any = None, *, version: int = 1, until: float = 180.0
) -> PendingCommand:
    """The saved command `<record>/<version>/<number>`."""
    order = command or commands.PokeScheduler(f"{record_id}/{version}")
    return PendingCommand(f"{record_id}/{version}/{number}", order, later(until))


def plan(job_id: str = JOB, attempt: int = 1, world: int = 2) -> Plan:
    """An assignment of `world` ranks whose tasks are not known yet."""
    instances = tuple(f"i-0{rank:016x}" for rank in range(world))
    return Plan(job_id, attempt, instances, (0,) * world, 0, ("",) * world)


def launched(job_id: str = JOB, attempt: int = 1, world: int = 2) -> Plan:
    """The same assignment once the launch has recorded its tasks, with the ids that `rank_event` gives them."""
    task_ids = tuple(f"{job_id}-{attempt}-{rank}" for rank in range(world))
    return replace(plan(job_id, attempt, world), task_ids=task_ids, signed=True)


def failure(rank: int, instance_id: str = A) -> RankFailure:
    """Rank `rank` ended with exit code 1."""
    return RankFailure(rank, instance_id, NOW, Ending(EndingKind.FAILED, 1, "exited with code 1"))


def checked(outcome: CheckOutcome = CheckOutcome.HEALTHY) -> Checked:
    """A check's result."""
    return Checked(outcome, "all GPUs passed", repairing=outcome.blames_hardware)


def claim(attempt: int = 1) -> Claim:
    """A claim on eight GPUs."""
    return Claim(attempt, 8, 0)
