"""Elastic jobs in the simulated world: a job continues with the instances that are there, and grows again later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import CloseCause, JobStatus
from gpu_recovery.core.policy import PRESETS, Preset

from simulator.cloud.log_output import LogStory
from simulator.cloud.workloads import JobBehaviour, NoticeBehaviour
from simulator.trials import elastic, generator
from simulator.trials.trial import play
from simulator.world import World
from tests import tiers

POLICY = replace(PRESETS[Preset.ADAPTIVE], pending_retry_s=1)
SAVES = JobBehaviour(NoticeBehaviour.SAVES)
RANGE = {"min": 2, "max": 4}
DAY_S = 86_400.0


def running(instances: int = 4, policy: Any = POLICY, **more: Any) -> tuple[World, str]:
    """A world whose job of 2 to 4 instances has run for a minute on as many as it got."""
    world = World(instances=instances, policy=policy, agents=True, diagnose=True, train_s=DAY_S)
    job_id = world.submit(nnodes=RANGE, **more)
    world.training.habits[job_id] = SAVES
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(60)
    return world, job_id


def runs_on(world: World, job_id: str, width: int, limit_s: float = 3600) -> None:
    """Let time pass until the job runs on `width` instances."""

    def is_so() -> bool:
        job = world.job(job_id)
        return job.status is JobStatus.RUNNING and len(job.instances) == width

    world.until(is_so, f"it does not run on {width} instances", limit_s)


def told(world: World, job_id: str) -> set[tuple[str, str, str]]:
    """What the running ranks of the job were told: RANK, WORLD_SIZE and NNODES."""
    present = [world.fleet.ranks.environment(task) for task in world.fleet.running()]
    ranks = [variables for variables in present if variables.get("JOB_ID") == job_id]
    return {(variables["RANK"], variables["WORLD_SIZE"], variables["NNODES"]) for variables in ranks}


def every_rank_of(width: int) -> set[tuple[str, str, str]]:
    return {(str(rank), str(width), str(width)) for rank in range(width)}


def loses_an_instance(world: World, job_id: str) -> str:
    """Break a GPU of rank 2, and return its instance."""
    sick = world.job(job_id).instances[2]
    world.break_gpu(world.cluster.instances[sick])
    return sick


def succeeds(world: World, job_id: str) -> None:
    """End the training: no claim is left."""
    world.finish(job_id)
    assert world.until_end(job_id).status is JobStatus.SUCCEEDED, world.transcript.text()
    world.until(lambda: not any(job_id in one.claims for one in world.instances()), "a claim is left", 120)
    world.check_end()


def test_a_job_that_loses_an_instance_continues_on_the_others_and_grows_when_it_is_back() -> None:
    """It does not wait for the reboot. Each rank hears the number of ranks of its attempt."""
    world, job_id = running()
    assert told(world, job_id) == every_rank_of(4)
    at, sick = world.timeline.now, loses_an_instance(world, job_id)
    runs_on(world, job_id, 3)
    assert (world.timeline.now - at).total_seconds() < 60
    assert told(world, job_id) == every_rank_of(3) and sick not in world.job(job_id).instances
    assert world.job(job_id).quota_nodes == 3
    since = world.job(job_id).running_at
    runs_on(world, job_id, 4)
    assert (world.timeline.now - since).total_seconds() < POLICY.stable_run_s, "the repaired instance was avoided"
    job = world.job(job_id)
    assert told(world, job_id) == every_rank_of(4) and sick in job.instances
    assert (job.quota_nodes, job.attempt, job.attempts_counted) == (4, 3, 1)
    assert job.attempts_uncounted == {CloseCause.GROWN: 1}
    assert world.training.saved_s[job_id] > 0, "it was not asked to save"
    succeeds(world, job_id)


def test_a_new_job_waits_for_an_instance_that_is_about_to_come_free() -> None:
    """It gets all four, although two were free before."""
    world = World(instances=4, policy=POLICY, agents=True, diagnose=True)
    other = world.submit(nnodes=2)
    world.until_status(other, JobStatus.RUNNING)
    job_id = world.submit(nnodes=RANGE)
    world.let_pass(60)
    assert world.job(job_id).status is JobStatus.PENDING_RESOURCES and world.job(job_id).attempt == 0
    world.finish(other)
    runs_on(world, job_id, 4, 60)


def test_a_new_job_starts_after_the_wait_and_grows_when_others_end() -> None:
    """The wait is bounded by `elastic_wait_s`."""
    world = World(instances=4, policy=POLICY, agents=True, diagnose=True)
    other = world.submit(nnodes=2)
    world.until_status(other, JobStatus.RUNNING)
    at, job_id = world.timeline.now, world.submit(nnodes=RANGE)
    world.training.habits[job_id] = SAVES
    runs_on(world, job_id, 2, 600)
    waited_s = (world.timeline.now - at).total_seconds()
    assert POLICY.elastic_wait_s <= waited_s < POLICY.elastic_wait_s + 90
    world.let_pass(POLICY.elastic_grow_every_s + 120)
    assert len(world.job(job_id).instances) == 2
    world.finish(other)
    runs_on(world, job_id, 4, 300)
    succeeds(world, job_id)


def test_no_other_job_gets_the_instances_of_a_job_that_grows() -> None:
    """A job of the highest priority comes while the ranks leave: it takes the free instance, and no other."""
    world, job_id = running()
    loses_an_instance(world, job_id)
    runs_on(world, job_id, 3)
    kept = set(world.job(job_id).instances)
    world.until(lambda: world.job(job_id).status is JobStatus.SUSPENDING, "it does not grow", 3600)
    other = world.submit(nnodes=1, priority="EXTREME_HIGH")
    world.until(lambda: world.job(job_id).attempt == 3, "it is not placed again", 300)
    assert set(world.job(job_id).instances) >= kept
    world.until_status(other, JobStatus.RUNNING)
    assert not kept & set(world.job(other).instances)
    runs_on(world, job_id, 3)
    world.finish(other)
    world.until_end(other)
    runs_on(world, job_id, 4)
    succeeds(world, job_id)


@pytest.mark.parametrize("ends", ["cancel", "suspend"])
def test_a_user_may_end_a_job_that_grows(ends: str) -> None:
    """Its claims are released after the end of its ranks."""
    world, job_id = running()
    loses_an_instance(world, job_id)
    runs_on(world, job_id, 3)
    world.until(lambda: world.job(job_id).status is JobStatus.SUSPENDING, "it does not grow", 3600)
    getattr(world, ends)(job_id)
    status = JobStatus.CANCELED if ends == "cancel" else JobStatus.SUSPENDED
    world.until_status(job_id, status)
    world.until(lambda: not any(job_id in one.claims for one in world.instances()), "a claim is left", 120)


def test_a_job_that_returns_only_to_its_own_instances_grows_as_well() -> None:
    """The policy `relaunch_on_same_instances` holds for recoveries."""
    world = World(instances=4, policy=replace(PRESETS[Preset.CLASSIC], pending_retry_s=1), agents=True)
    other = world.submit(nnodes=2)
    world.until_status(other, JobStatus.RUNNING)
    job_id = world.submit(nnodes=RANGE)
    world.training.habits[job_id] = SAVES
    runs_on(world, job_id, 2, 600)
    world.finish(other)
    runs_on(world, job_id, 4, 1200)
    succeeds(world, job_id)


def test_a_job_that_needs_all_its_instances_waits_for_the_repair() -> None:
    """A number instead of a range."""
    world = World(instances=4, policy=POLICY, agents=True, diagnose=True)
    job_id = world.submit(nnodes=4)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(60)
    loses_an_instance(world, job_id)
    world.let_pass(200)
    assert world.job(job_id).status is JobStatus.RECOVERING


def test_the_other_ranks_restart_in_place_with_the_smaller_width() -> None:
    """Their containers hear the new number of ranks, and no task is started."""
    world, job_id = running(policy=replace(POLICY, restart_in_place=True))
    sick = world.job(job_id).instances[0]
    world.log_output.next[sick] = LogStory.ECC
    before = len(world.calls("RunTask"))
    world.exit(job_id, 0, 1)
    runs_on(world, job_id, 3, 120)
    assert world.job(job_id).ranks_in_place == 3
    assert told(world, job_id) >= every_rank_of(3)
    started = [call for call in world.calls("RunTask")[before:] if "--a" in call.given["startedBy"]]
    assert started == []
    runs_on(world, job_id, 4)
    succeeds(world, job_id)


def test_a_job_grows_onto_a_suspected_instance_only_after_a_stable_run() -> None:
    """The check of the instance found nothing, so nothing is repaired. The job does not stay narrow for that."""
    world, job_id = running()
    suspect = world.job(job_id).instances[0]
    world.log_output.next[suspect] = LogStory.ECC
    world.exit(job_id, 0, 1)
    runs_on(world, job_id, 3, 120)
    since = world.job(job_id).running_at
    assert since is not None
    checked = world.cluster.instances[suspect]
    world.until(lambda: world.instance(checked).status is InstanceStatus.AVAILABLE, "it is not checked", 600)
    assert [(one.instance_id, one.stands) for one in world.job(job_id).suspicions] == [(suspect, True)]
    runs_on(world, job_id, 4)
    job = world.job(job_id)
    assert suspect in job.instances and world.instance(checked).healed_at is None
    assert job.instances[0] != suspect, "it is not used under the rank that failed there"
    grew_s = (world.timeline.now - since).total_seconds()
    assert POLICY.stable_run_s <= grew_s < POLICY.stable_run_s + 2 * POLICY.poll_interval_s
    succeeds(world, job_id)


def test_another_instance_that_comes_free_is_used_before_the_suspected() -> None:
    """At once, and the suspected instance stays unused."""
    world = World(instances=5, policy=POLICY, agents=True, diagnose=True, train_s=DAY_S)
    other = world.submit(nnodes=1)
    world.until_status(other, JobStatus.RUNNING)
    job_id = world.submit(nnodes=RANGE)
    world.training.habits[job_id] = SAVES
    runs_on(world, job_id, 4, 60)
    world.let_pass(60)
    suspect = world.job(job_id).instances[0]
    world.log_output.next[suspect] = LogStory.ECC
    world.exit(job_id, 0, 1)
    runs_on(world, job_id, 3, 120)
    since = world.job(job_id).running_at
    world.let_pass(POLICY.elastic_grow_every_s + 60)
    assert len(world.job(job_id).instances) == 3
    world.finish(other)
    runs_on(world, job_id, 4, 300)
    assert suspect not in world.job(job_id).instances
    assert since is not None and (world.timeline.now - since).total_seconds() < POLICY.stable_run_s
    succeeds(world, job_id)


def test_the_quota_bounds_the_width() -> None:
    """Only the instances of the attempt are charged, so another job of the user starts beside it."""
    world = World(instances=6, policy=POLICY, agents=True, diagnose=True)
    world.store.save_limits({"instances": {"ada/*/*": 3}}, 0)
    job_id = world.submit(nnodes=RANGE, user="ada")
    runs_on(world, job_id, 3, 60)
    assert world.store.quota_used([world.job(job_id).quota_key]) == {world.job(job_id).quota_key: 3}
    world.let_pass(POLICY.elastic_grow_every_s + 600)
    assert len(world.job(job_id).instances) == 3


@pytest.mark.slow
def test_a_held_rank_on_a_hung_instance_without_a_registration_keeps_its_gpus() -> None:
    """A person deregisters both instances of a gang by force, and one ignores its reboot. An operator terminates it."""
    played = play(elastic.scenario_of(42), generator.in_passing(42), begun=elastic.commands_of(42) or (lambda _: None))
    assert not played.violations, played.violations
    assert "as the mail asks" in played.world.transcript.text()


@pytest.mark.slow
@pytest.mark.parametrize("seed", tiers.seeds(200, default=4))
def test_no_invariant_breaks_whatever_is_lost_late_or_broken(seed: int) -> None:
    """No quota is exceeded, no place is lost, and every rank knows the width of its attempt."""
    begun = elastic.commands_of(seed) or (lambda world: None)
    played = play(elastic.scenario_of(seed), generator.in_passing(seed), begun=begun)
    assert not played.violations, played.violations


def test_the_drawn_runs_have_elastic_jobs() -> None:
    """Most of them."""
    scenarios = [elastic.scenario_of(seed) for seed in range(20)]
    ranged = [job for scenario in scenarios for job in scenario.jobs if job.nnodes_min is not None]
    assert len(ranged) > len(scenarios) / 2 and all(job.nnodes_min < job.nnodes for job in ranged)
