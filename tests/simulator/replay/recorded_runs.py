"""Recorded runs of the simulator: what a deployment of the simulated world would have in its event history."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from gpu_recovery.core.event_history.recorded_event import event_of
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy

from simulator.goodput.assumptions_file import read
from simulator.goodput.failure_trace import FailureTrace
from simulator.replay.player import Played, Recorder, play
from simulator.replay.records import Records, write_records
from simulator.replay.sample_records import INSTANCES, sample_policy, sample_trace, save
from simulator.world import World

DAYS, FAILURES = 6, 6
ASSUMPTIONS = read()


def trace_of(seed: int) -> FailureTrace:
    """The drawn failures of a small job."""
    return sample_trace(seed, DAYS, FAILURES)


def policy(**settings: Any) -> RecoveryPolicy:
    """The policy of the recorded runs, with these settings changed."""
    return replace(sample_policy(), **settings)


def direct(trace: FailureTrace, under: RecoveryPolicy, *, agents: bool = False, spares: int = 1) -> Played:
    """A run of the simulator, with its records."""
    return play(trace, under, instances=INSTANCES + spares, agents=agents, reports_progress=agents)


@cache
def run_of(seed: int, agents: bool = False) -> Played:
    """A run under the policy of the recorded runs."""
    settings = {"restart_in_place": True} if agents else {}
    return direct(trace_of(seed), policy(**settings), agents=agents)


def records_of(texts: tuple[str, ...], until: datetime | None) -> Records:
    """The stored events as the records of an account, collected at `until`."""
    events = tuple(event_of(text) for text in texts)
    return Records("records", events[0].at, until or events[-1].at, events)


def saved(folder: Path, played: Played) -> Path:
    """The folder, with the records of a run in it."""
    return save(folder, played)


def elastic_job(folder: Path) -> tuple[str, int]:
    """Write the records of a job of 2 to 4 instances that loses one of its three instances and grows again.

    Returns:
        The id of the job, and the number of its interruptions.
    """
    world = World(instances=3, policy=PRESETS[Preset.ADAPTIVE], agents=True, diagnose=True, train_s=86_400.0)
    recorder = Recorder()
    recorder.prepare(world)
    begin, job_id = world.timeline.now, world.submit(nnodes={"min": 2, "max": 4})

    def runs_on(width: int) -> bool:
        job = world.job(job_id)
        return job.status is JobStatus.RUNNING and len(job.instances) == width

    world.until(lambda: runs_on(3), "it does not start on three instances")
    world.let_pass(60)
    world.break_gpu(world.cluster.instances[world.job(job_id).instances[2]])
    world.until(lambda: runs_on(2), "it does not continue on two instances")
    world.until(lambda: runs_on(3), "it does not grow")
    write_records(folder, recorder.texts, begin, world.timeline.now)
    return job_id, 1
