"""Hangs through the whole product: found by the step times of the job, and never where no hang can be told."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from gpu_recovery.core.job.hang_stops import CONFIRMED_MAX
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy

from sandbox.cluster.model import instances
from sandbox.cluster.model.records import GpuFault
from sandbox.cluster.model.statuses import CuredBy
from simulator.cloud.agents import INTERVAL_S
from simulator.cloud.rank_course import EVALUATION, FIRST_SAVES, HANGS, Phase, course_of
from simulator.world import NeverHappened, World

ADAPTIVE = PRESETS[Preset.ADAPTIVE]


def training(
    step_s: float = 5.0, nnodes: int = 3, spares: int = 0, policy: RecoveryPolicy = ADAPTIVE
) -> tuple[World, str]:
    """A gang that runs and reports its progress."""
    world = World(instances=nnodes + spares, train_s=None, agents=True, diagnose=True, policy=policy)
    assert world.agents is not None
    world.agents.step_s = step_s
    job_id = world.submit(nnodes)
    world.until_status(job_id, JobStatus.RUNNING)
    return world, job_id


def stalls(world: World, job_id: str) -> datetime:
    """From now on no rank of the job makes progress."""
    assert world.agents is not None
    world.agents.stalled[job_id] = world.timeline.now
    return world.timeline.now


def stopped_after_s(world: World, job_id: str, within_s: float = 1_200.0) -> float:
    """Seconds until the gang is stopped for the hang."""
    since = world.timeline.now
    world.until(lambda: world.job(job_id).status is JobStatus.STOPPING, "no hang was found", within_s)
    assert "no rank has made progress for" in world.job(job_id).stop_reason
    return (world.timeline.now - since).total_seconds()


@pytest.mark.parametrize(
    ("step_s", "limit_s"), [(2.0, 60.0), (5.0, 60.0), (15.0, 120.0), (22.0, 176.0), (200.0, 900.0)]
)
def test_a_hang_is_found_by_the_step_time_within_two_reports(step_s: float, limit_s: float) -> None:
    """Eight steps, between the bounds. The agents of the first ranks bring the poll forward."""
    world, job_id = training(step_s)
    world.let_pass(max(300.0, 32 * step_s))
    stalls(world, job_id)
    took_s = stopped_after_s(world, job_id)
    assert limit_s - step_s <= took_s <= limit_s + 2 * INTERVAL_S + 5
    assert world.job(job_id).hang_stops == 1


def test_the_first_steps_of_an_attempt_have_the_long_limit() -> None:
    """Compilation and the start of the data loaders may take minutes."""
    world, job_id = training()
    world.let_pass(60)
    stalls(world, job_id)
    assert stopped_after_s(world, job_id) >= ADAPTIVE.progress_timeout_s - 5


def test_a_marked_phase_has_the_long_limit() -> None:
    """The program says that it evaluates or saves."""
    world, job_id = training()
    assert world.agents is not None
    world.let_pass(300)
    world.agents.paused.add(job_id)
    stalls(world, job_id)
    assert stopped_after_s(world, job_id) >= ADAPTIVE.progress_timeout_s - 5


def test_each_hang_without_a_stable_run_between_has_a_longer_limit() -> None:
    """So an unmarked long phase of the program costs a bounded number of attempts."""
    world, job_id = training()
    took = []
    for _ in range(2):
        world.let_pass(300)
        stalls(world, job_id)
        took.append(stopped_after_s(world, job_id))
        assert world.agents is not None
        world.agents.stalled.clear()
        world.until_status(job_id, JobStatus.RUNNING)
    assert took[0] < 100
    assert 235 <= took[1] < 280
    world.let_pass(ADAPTIVE.stable_run_s + ADAPTIVE.poll_interval_s + 60)
    assert world.job(job_id).hang_stops == 0


def times_of_hangs(phase: Phase, number: int, kept_steps: int) -> list[float]:
    """Seconds until each of several hangs is noticed, 400 s after the start of its attempt, the first after 700 s.

    Args:
        phase: what the agents see of the ranks meanwhile.
        number: the number of hangs.
        kept_steps: steps of each attempt that the next one does not repeat.
    """
    world, job_id = training(policy=replace(ADAPTIVE, attempts_max=20, relaunch_cooldown_max_s=60))
    agents = world.agents
    assert agents is not None
    agents.course = course_of(compile_s=1.0)
    took = []
    for attempt in range(number):
        agents.kept_steps[job_id] = attempt * kept_steps
        world.let_pass(400 if attempt else 700)
        agents.hung[job_id] = stalls(world, job_id), phase
        took.append(stopped_after_s(world, job_id))
        agents.stalled.clear()
        agents.hung.clear()
        world.until_status(job_id, JobStatus.RUNNING)
    return took


@pytest.mark.parametrize("name", ["all ranks wait in a collective", "one rank sleeps, the others wait in a collective"])
def test_a_hang_that_every_agent_sees_lengthens_no_limit(name: str) -> None:
    """It was no false alarm. Before, a hang that came back was noticed after ten minutes each time."""
    assert max(times_of_hangs(HANGS[name], 3, kept_steps=100)) < 100


@pytest.mark.parametrize(
    ("phase", "kept_steps"),
    [(EVALUATION, 100), (FIRST_SAVES, 100), (HANGS["all ranks sleep"], 0)],
    ids=["an evaluation", "a checkpoint of rank 0", "a wait at the same step"],
)
def test_a_stop_that_may_be_a_false_alarm_lengthens_the_limit(phase: Phase, kept_steps: int) -> None:
    """A rank works, or the job waits at the step at which it waited before."""
    first, *_, last = times_of_hangs(phase, 2 + (kept_steps == 0), kept_steps)
    assert first < 100
    assert last > 235


@pytest.mark.parametrize("kept_steps", [0, 100], ids=["at the same step", "later each time"])
def test_a_job_with_three_attempts_gets_over_a_wait_in_its_last(kept_steps: int) -> None:
    """A wait of five minutes without a mark, which every agent takes for a hang. It ends by itself in time."""
    world, job_id = training()
    agents = world.agents
    assert agents is not None
    agents.course = course_of(compile_s=1.0)
    for attempt in range(ADAPTIVE.attempts_max):
        agents.kept_steps[job_id] = attempt * kept_steps
        world.let_pass(400 if attempt else 700)
        agents.hung[job_id] = stalls(world, job_id), HANGS["all ranks sleep"]
        world.let_pass(300)
        agents.stalled.clear()
        agents.hung.clear()
        world.until_status(job_id, JobStatus.RUNNING)
    assert world.job(job_id).attempt == ADAPTIVE.attempts_max


def test_at_most_six_confirmed_hangs_are_spared() -> None:
    """A program that waits for something remote without a mark looks like a hang. It gets through at the ninth try."""
    took = times_of_hangs(HANGS["all ranks sleep"], CONFIRMED_MAX + 2, kept_steps=100)
    assert max(took[: CONFIRMED_MAX + 1]) < 100
    assert took[-1] > 235


def test_one_rank_that_lags_behind_is_no_hang_and_is_not_polled_with_every_report() -> None:
    """The others make progress, so nothing is stopped, and the poll is brought forward at most twice a minute."""
    world, job_id = training()
    world.let_pass(300)
    assert world.agents is not None
    first = world.job(job_id).instances[0]
    reports = world.agents._progress

    def lags(instance, agent):  # type: ignore[no-untyped-def]
        """The first rank stands still."""
        if instance.instance_id == first:
            world.agents.stalled[job_id] = since  # type: ignore[union-attr]
        yield from reports(instance, agent)
        world.agents.stalled.clear()  # type: ignore[union-attr]

    since = world.timeline.now
    world.agents._progress = lags  # type: ignore[method-assign]
    polls = world.job(job_id).version
    with pytest.raises(NeverHappened):
        stopped_after_s(world, job_id, 600)
    assert world.job(job_id).status is JobStatus.RUNNING
    assert world.job(job_id).version - polls <= 2 * 600 / 30 + 2


def test_a_hang_of_a_gang_is_reported_by_two_agents_only() -> None:
    """A gang of thousands stands still at one moment."""
    world, job_id = training(nnodes=6)
    world.let_pass(300)
    stalls(world, job_id)
    stopped_after_s(world, job_id)
    rows = world.transcript.rows
    told = sum(count for (_, _, event, _), count in rows.items() if event == "StallReported")
    assert 1 <= told <= 4


@pytest.mark.parametrize(("is_faulty", "stops"), [(True, 0), (False, 1)])
def test_a_hang_by_a_faulty_instance_lengthens_no_limit(is_faulty: bool, stops: int) -> None:
    """It was no false alarm. Otherwise the next hang of a large gang, hours later, takes four times as long."""
    world, job_id = training(nnodes=3, spares=1)
    world.let_pass(300)
    if is_faulty:
        sick = world.cluster.instances[world.job(job_id).instances[1]]
        instances.break_gpu(sick, sick.gpus[0], GpuFault("xid79", CuredBy.REBOOT))
    stalls(world, job_id)
    stopped_after_s(world, job_id)
    assert world.job(job_id).hang_stops == 1
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt")
    assert world.job(job_id).hang_stops == stops


def test_stops_for_a_hang_are_forgotten_after_several_stable_runs_together() -> None:
    """A large gang fails too often for one long run. Two runs are together longer than the one that was stopped."""
    world, job_id = training(nnodes=2)
    world.let_pass(1_300)
    stalls(world, job_id)
    stopped_after_s(world, job_id)
    needed_s = 2 * world.job(job_id).hang_run_s
    assert world.agents is not None
    for attempt, stops in ((2, 1), (3, 0)):
        world.agents.stalled.clear()
        world.until(lambda attempt=attempt: world.job(job_id).attempt == attempt, "no further attempt")  # type: ignore[misc]
        world.until_status(job_id, JobStatus.RUNNING)
        world.let_pass(ADAPTIVE.stable_run_s + ADAPTIVE.poll_interval_s + 60)
        assert world.job(job_id).hang_stops == stops
        assert ADAPTIVE.stable_run_s < needed_s < 2 * ADAPTIVE.stable_run_s
        if attempt == 2:
            world.exit(job_id, 1, 134)
