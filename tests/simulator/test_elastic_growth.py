"""Growth in the simulated world: it stops no job in vain, and takes no instance that another job needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.job.record import CloseCause, JobStatus

from sandbox.cluster.model.records import ModelInstance
from simulator.cloud.log_output import LogStory
from simulator.world import World
from tests.simulator.test_elastic import DAY_S, POLICY, SAVES, loses_an_instance, runs_on, succeeds
from tests.simulator.test_warm_spares import spares

SPARES = replace(POLICY, restart_in_place=True, warm_spares=1)
GROWS_AT_S = POLICY.elastic_grow_every_s + 2 * POLICY.poll_interval_s
"""Seconds of a run after which a growth has begun if it was possible."""


def elastic(world: World, least: int = 2, most: int = 3, **more: Any) -> str:
    """Submit an elastic job whose rank 0 saves under the notice."""
    job_id = world.submit(nnodes={"min": least, "max": most}, **more)
    world.training.habits[job_id] = SAVES
    return job_id


def new_world(instances: int, policy: Any = POLICY) -> World:
    return World(instances=instances, policy=policy, agents=True, diagnose=True, train_s=DAY_S)


def narrow(*, ends: bool = True, **more: Any) -> tuple[World, str, ModelInstance]:
    """A world of three with an elastic job on two instances, which may grow.

    Another job uses the third instance, which is returned, too. If it `ends`, it ends now.
    """
    world = new_world(3)
    other = world.submit(nnodes=1)
    world.until_status(other, JobStatus.RUNNING)
    job_id = elastic(world, **more)
    runs_on(world, job_id, 2, 600)
    third = world.cluster.instances[world.job(other).instances[0]]
    world.let_pass(POLICY.elastic_grow_every_s)
    if ends:
        world.finish(other)
    return world, job_id, third


def refused(world: World, job_id: str) -> int:
    """The number of attempts of the job of which ECS refused a rank."""
    return sum("ECS refused" in entry.reason and entry.after == "STOPPING" for entry in world.job(job_id).history)


def test_a_growth_that_ecs_refuses_costs_no_instance_and_is_not_repeated_at_once() -> None:
    """The job runs on its former instances. Later growths leave the refusing instance out for a time."""
    world, job_id, bad = narrow()
    bad.memory = 0
    former = set(world.job(job_id).instances)
    world.until(lambda: refused(world, job_id) == 1, "no growth was refused", 600)
    runs_on(world, job_id, 2, 60)
    job = world.job(job_id)
    assert set(job.instances) == former and job.attempts_uncounted == {CloseCause.GROWN: 1}
    world.let_pass(5 * GROWS_AT_S)
    job = world.job(job_id)
    assert (job.status, job.attempt, set(job.instances)) == (JobStatus.RUNNING, 3, former)
    bad.memory = 1 << 20
    runs_on(world, job_id, 3, 2 * DAY_S)
    succeeds(world, job_id)


def test_a_recovery_that_ecs_refuses_goes_on_without_the_refusing_instance() -> None:
    """The spare of a lost instance has no room. No pause passes, and no other job gets the instances."""
    world = new_world(4)
    job_id = elastic(world)
    runs_on(world, job_id, 3, 60)
    world.let_pass(60)
    (spare,) = [one for one in world.model_instances() if one.instance_id not in world.job(job_id).instances]
    spare.memory = 0
    sick = loses_an_instance(world, job_id)
    world.until(lambda: refused(world, job_id) == 1, "no launch was refused", 600)
    runs_on(world, job_id, 2, 60)
    job = world.job(job_id)
    assert not {sick, spare.instance_id} & set(job.instances)
    assert CloseCause.INSUFFICIENT_RESOURCES not in job.attempts_uncounted
    runs_on(world, job_id, 3)
    assert sick in world.job(job_id).instances
    succeeds(world, job_id)


def test_a_job_that_ecs_refuses_everywhere_fails() -> None:
    """It has no smaller number of instances to continue on."""
    world = new_world(4)
    for instance in world.model_instances():
        instance.memory = 0
    job_id = elastic(world)
    assert world.until_end(job_id, 3600).status is JobStatus.FAILED


def test_no_job_grows_onto_the_instance_of_a_job_that_pauses() -> None:
    """A job of higher priority waits for its next try after a refused launch. The instance is free meanwhile."""
    world, low, instance = narrow(ends=False, priority="LOW")
    memory, instance.memory = instance.memory, 0
    high = world.submit(nnodes=1, priority="HIGH")
    world.until_status(high, JobStatus.PENDING_RESOURCES)
    (other,) = [job.job_id for job in world.jobs() if job.job_id not in (low, high)]
    world.finish(other)
    world.until(lambda: world.job(high).not_before is not None, "its launch was not refused", 120)
    instance.memory = memory
    world.until_status(high, JobStatus.RUNNING, 300)
    assert world.job(high).instances == (instance.instance_id,)
    assert (world.job(low).status, world.job(low).attempt) == (JobStatus.RUNNING, 1)


def test_a_job_whose_training_has_not_gone_on_does_not_grow() -> None:
    """It loads its checkpoint and compiles for 700 s after a failure, and reports its first progress then."""
    world = new_world(3)
    assert world.agents is not None
    world.agents.step_s = 1.0
    job_id = elastic(world)
    runs_on(world, job_id, 3, 60)
    world.let_pass(300)
    loses_an_instance(world, job_id)
    world.agents.step_s = None
    runs_on(world, job_id, 2, 600)
    world.let_pass(700)
    job = world.job(job_id)
    assert (job.status, job.attempt) == (JobStatus.RUNNING, 2) and job.incident_id is not None
    world.agents.step_s = 1.0
    runs_on(world, job_id, 3, 600)
    assert world.job(job_id).incident_id is None
    succeeds(world, job_id)


def test_a_job_grows_onto_its_own_warm_spare() -> None:
    """It failed while the spare started, so it runs without it. No other instance is left."""
    world = new_world(4, SPARES)
    job_id = elastic(world)
    runs_on(world, job_id, 3, 60)
    world.until(lambda: any(not one.runs for one in world.job(job_id).spares), "no warm spare", 900)
    loses_for_ever(world, job_id)
    runs_on(world, job_id, 2, 60)
    world.until(lambda: len(spares(world, job_id)) == 1, "the warm spare does not run", 60)
    (spare,) = spares(world, job_id)
    before = len([call for call in world.calls("RunTask") if "--a" in call.given["startedBy"]])
    runs_on(world, job_id, 3, 2 * GROWS_AT_S)
    assert spare.instance_id in world.job(job_id).instances
    after = len([call for call in world.calls("RunTask") if "--a" in call.given["startedBy"]])
    assert after == before + 2, "the spare was not used"
    succeeds(world, job_id)


def loses_for_ever(world: World, job_id: str) -> None:
    """End rank 1 because of its GPU, and terminate its instance."""
    sick = world.job(job_id).instances[1]
    world.log_output.next[sick] = LogStory.ECC
    world.exit(job_id, 1, 1)
    world.fleet.terminate(world.cluster.instances[sick])


@pytest.mark.parametrize(("priority", "grows"), [("NORMAL", True), ("HIGH", True), ("LOW", False)])
def test_the_warm_spare_of_another_job_gives_way_to_a_growth(priority: str, grows: bool) -> None:
    """Unless the other job has a higher priority. The other job runs on."""
    world = new_world(3, SPARES)
    lender = world.submit(nnodes=1)
    world.until_status(lender, JobStatus.RUNNING)
    other = world.submit(nnodes=1)
    world.until_status(other, JobStatus.RUNNING)
    job_id = elastic(world, 1, 2, priority=priority)
    runs_on(world, job_id, 1, 600)
    world.finish(other)
    world.until(lambda: len(spares(world, lender)) == 1, "no warm spare", 400)
    world.let_pass(2 * GROWS_AT_S)
    assert len(world.job(job_id).instances) == (2 if grows else 1)
    assert len(spares(world, lender)) == (0 if grows else 1)
    assert (world.job(lender).status, world.job(lender).attempt) == (JobStatus.RUNNING, 1)
