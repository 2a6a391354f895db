"""Hangs of jobs that report no progress, through the whole product: told by what the agents see of the ranks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from gpu_recovery.core.hang_signals import QUIET_S
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, HangAction, Preset

from simulator.cloud.rank_course import COURSES, HANGS, TRAINING, Course, Phase, course_of
from simulator.world import World
from tests.simulator.incidents import QUICK

EVEN, EVEN_LOAD = COURSES["even steps"], TRAINING.first


def training(
    action: HangAction = HangAction.NOTIFY, course: Course = EVEN, nnodes: int = 3, observe_only: bool = False
) -> tuple[World, str]:
    """A gang that runs, whose agents see its ranks."""
    policy = replace(PRESETS[Preset.ADAPTIVE], hang_without_progress=action, observe_only=observe_only)
    world = World(instances=nnodes, train_s=None, agents=True, diagnose=True, policy=policy, fidelity=QUICK)
    assert world.agents is not None
    world.agents.course = course
    job_id = world.submit(nnodes)
    world.until_status(job_id, JobStatus.RUNNING)
    return world, job_id


def hangs(world: World, job_id: str, phase: Phase) -> None:
    """From now on the gang hangs."""
    assert world.agents is not None
    world.agents.hung[job_id] = world.timeline.now, phase


def told(world: World, job_id: str) -> list[str]:
    """The messages about a suspected hang of the job."""
    return [mail.body for mail in world.messages() if "may hang" in mail.subject and mail.job_id == job_id]


@pytest.mark.parametrize("name", HANGS)
def test_a_hang_without_reports_is_told_once_within_three_minutes(name: str) -> None:
    """The job runs on."""
    world, job_id = training()
    world.let_pass(1_800)
    assert not told(world, job_id)
    hangs(world, job_id, HANGS[name])
    since = world.timeline.now
    if "computes without end" in name:
        world.let_pass(1_500)
        assert not told(world, job_id)  # rank 0 may be saving: half an hour must pass
        world.until(lambda: bool(told(world, job_id)), "the hang was not told", 600)
    else:
        world.until(lambda: bool(told(world, job_id)), "the hang was not told", 300)
        assert QUIET_S <= (world.timeline.now - since).total_seconds() <= 180
    world.let_pass(900)
    assert len(told(world, job_id)) == 1
    assert world.job(job_id).status is JobStatus.RUNNING


PAUSES = [name for name in COURSES if "remote service" not in name and "heavy tail" not in name]


@pytest.mark.parametrize("name", PAUSES)
def test_a_pause_of_a_training_is_no_hang(name: str) -> None:
    """Compilation, checkpoints, evaluations and slow loading, over three hours."""
    world, job_id = training(course=COURSES[name])
    world.let_pass(3 * 3_600)
    assert not told(world, job_id)
    assert world.job(job_id).status is JobStatus.RUNNING


def test_with_act_operators_are_told_first_and_the_gang_is_stopped_after_the_second_window() -> None:
    """The stop is that of a progress timeout: the attempt is diagnosed, and the next limit is longer."""
    world, job_id = training(HangAction.ACT)
    world.let_pass(1_800)
    hangs(world, job_id, HANGS["all ranks sleep"])
    world.until(lambda: bool(told(world, job_id)), "the hang was not told", 300)
    told_at = world.timeline.now
    assert "the gang is stopped and diagnosed" in told(world, job_id)[0]
    world.until(lambda: world.job(job_id).status is not JobStatus.RUNNING, "it was not stopped", 300)
    assert QUIET_S <= (world.timeline.now - told_at).total_seconds() <= QUIET_S + 60
    job = world.job(job_id)
    assert job.status is JobStatus.STOPPING and "is idle" in job.stop_reason and job.hang_stops == 1
    assert job.downtime is not None and job.downtime.since <= told_at - timedelta(seconds=QUIET_S)
    assert world.agents is not None
    world.agents.hung.clear()
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 3_600)


def test_an_observed_job_is_told_of_and_the_message_announces_no_stop() -> None:
    """A second message says what would have been done."""
    world, job_id = training(HangAction.ACT, observe_only=True)
    world.let_pass(1_800)
    hangs(world, job_id, HANGS["all ranks sleep"])
    world.let_pass(900)
    [first] = told(world, job_id)
    assert "The job is only observed." in first and "the gang is stopped" not in first
    assert world.messages()[-1].subject.endswith(f"{job_id}: would be stopped (observed only)")
    assert world.job(job_id).status is JobStatus.RUNNING


def test_a_gang_that_works_again_within_the_second_window_is_not_stopped() -> None:
    """Its agents have learned the pause, so the next one of the same length is not told either."""
    course = course_of(Phase(HANGS["all ranks sleep"].first), (130.0, 140.0), 1_800.0)
    world, job_id = training(HangAction.ACT, course)
    world.let_pass(4 * 3_600)
    assert len(told(world, job_id)) == 1
    assert world.job(job_id).status is JobStatus.RUNNING and world.job(job_id).attempt == 1


def test_a_job_that_reports_progress_is_judged_by_its_progress_alone() -> None:
    """Its steps go on, although its GPUs seem to rest."""
    world, job_id = training()
    assert world.agents is not None
    world.agents.step_s = 5.0
    world.let_pass(1_800)
    hangs(world, job_id, HANGS["all ranks sleep"])
    world.let_pass(900)
    assert not told(world, job_id)
    assert world.job(job_id).status is JobStatus.RUNNING


def test_one_rank_that_works_prevents_the_conclusion() -> None:
    """The others wait for it."""
    world, job_id = training()
    world.let_pass(1_800)
    hangs(world, job_id, Phase(EVEN_LOAD, HANGS["all ranks wait in a collective"].first))
    world.let_pass(1_200)
    assert not told(world, job_id)


def test_a_job_is_not_judged_before_it_has_trained() -> None:
    """In the first compilation nothing is usual yet."""
    world, job_id = training()
    world.let_pass(60)
    hangs(world, job_id, HANGS["all ranks sleep"])
    world.let_pass(1_500)
    assert not told(world, job_id)


def test_nothing_is_told_unless_the_policy_asks() -> None:
    """The default. The activity is kept, because it may confirm a hang that the progress shows."""
    world, job_id = training(HangAction.OFF)
    world.let_pass(1_800)
    hangs(world, job_id, HANGS["all ranks sleep"])
    world.let_pass(600)
    assert not told(world, job_id)
    assert all(beat.activity for beat in world.store.load_heartbeats(world.job(job_id).instances).values())
