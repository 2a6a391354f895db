"""What the modules of `simulator.fast` save: passes over ticks, comparisons, and memory."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from simulator.fast.fidelity import LARGE
from simulator.fast.leave_out import ATTEMPTS_KEPT
from simulator.memory_store.store import MemoryStore
from simulator.world import World
from tests.simulator.incidents import QUICK

DAY_S = 86_400.0


def test_an_idle_cluster_is_looked_at_once_an_hour() -> None:
    """Of the ticks of a day on which nothing happens almost all are passed over."""
    world = World(instances=3, fidelity=QUICK)
    world.let_pass(3_600)
    assert world.idle_skip is not None
    before = world.idle_skip.skipped
    world.let_pass(DAY_S)
    assert 2 * 1_440 - (world.idle_skip.skipped - before) <= 2 * 24 + 2


def test_a_job_that_runs_is_looked_at_without_comparing_the_cluster() -> None:
    """Its look is due every other minute; the whole cluster is compared with the tables once an hour."""
    world = World(instances=3, fidelity=QUICK)
    world.until_status(world.submit(), JobStatus.RUNNING)
    world.let_pass(3_600)
    assert world.idle_skip is not None
    before = world.idle_skip.resyncs_skipped + world.idle_skip.skipped
    world.let_pass(DAY_S)
    left_out = world.idle_skip.resyncs_skipped + world.idle_skip.skipped - before
    assert 1_440 + 1_440 - left_out <= 2 * 24 + 2


def test_a_look_at_a_gang_that_runs_writes_nothing_about_its_ranks() -> None:
    """What is known is not written again: for each look the job's record twice, however many ranks there are."""
    world = World(instances=6)
    world.until_status(world.submit(6), JobStatus.RUNNING)
    world.let_pass(600)
    before = len(world.invocations.done)
    world.let_pass(3_600)
    written = Counter(step.name for step in world.invocations.done[before:])
    assert written == {"store.save_job": 30, "store.remove_finished_job_commands": 30}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_attempts() -> None:
    """Plans, verdicts and pokes of long ago are gone, and ECS forgets tasks after a day."""
    world = World(instances=4, fidelity=LARGE)
    job_id = world.submit(2, attempts_max=20)
    store = world.store
    assert isinstance(store, MemoryStore)
    for attempt in range(1, 9):
        runs = (attempt, JobStatus.RUNNING)
        world.until(lambda runs=runs: (world.job(job_id).attempt, world.job(job_id).status) == runs, "no start")
        world.let_pass(DAY_S / 2)
        world.exit(job_id, 1, 139)
    world.until_status(job_id, JobStatus.RUNNING)
    assert len(store.plans) <= ATTEMPTS_KEPT and len(store.progress) <= ATTEMPTS_KEPT
    assert len(world.checks.bucket) <= 2 * 4
    assert len(world.cluster.tasks) <= 3 * (2 + 2) + 2
    assert len(world.cluster.tokens) <= 3 * (2 + 2) + 2


def test_an_instance_is_not_forgotten_with_its_old_verdicts() -> None:
    """The verdict of the check before last is gone, the last one is there."""
    world = World(instances=2, fidelity=LARGE, train_s=None)
    job_id = world.submit(2)
    for _ in range(2):
        world.until_status(job_id, JobStatus.RUNNING)
        world.exit(job_id, 1, 139)
        world.until(lambda: world.job(job_id).status is JobStatus.DIAGNOSING, "no check")
    world.until(lambda: all(i.status is InstanceStatus.AVAILABLE for i in world.instances()), "no end of the checks")
    checks = {instance.instance_id: instance.checks for instance in world.instances()}
    for name, last in checks.items():
        assert f"check/{name}/{last}" in world.checks.bucket
    assert world.timeline.now - world.timeline.start < timedelta(hours=1)
