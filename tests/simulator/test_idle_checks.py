"""Idle checks in the simulated world: a fault is found before a job lands there, and a job waits only for a stop."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.ports.values import Refusal

from sandbox.cluster.model.records import Task
from sandbox.cluster.model.statuses import CuredBy
from simulator.cloud.workloads import ONLY_DEEP, JobBehaviour, NoticeBehaviour, ScriptedCheck, level_of
from simulator.trials import generator, idle_checks
from simulator.trials.trial import play
from simulator.world import World
from tests import tiers

HOUR_S = 3_600
OFF = PRESETS[Preset.ADAPTIVE]
POLICY = replace(OFF, idle_check_every_s=HOUR_S)
STOP_S = 2.0
"""Virtual seconds from SIGTERM to the end of a check (`FleetTimings.leave_s`)."""


def world_of(instances: int = 2, policy: Any = POLICY, **more: Any) -> World:
    """Return a world without jobs, whose gangs train until they are ended."""
    return World(instances=instances, policy=policy, **{"train_s": None, **more})


def checks(world: World) -> list[Task]:
    """Return the tasks of the health checks that ECS has started, in order."""
    tasks = (task for task in world.cluster.tasks.values() if (task.started_by or "").startswith("check/"))
    return sorted(tasks, key=lambda task: task.created_at)


def under_check(world: World) -> list[Instance]:
    """Return the instances under an idle check."""
    return [one for one in world.instances() if one.check is not None and one.check.idle is not None]


def until_check(world: World) -> Instance:
    """Let time pass until the task of an idle check runs, and return the instance."""
    world.until(lambda: any(one.check and one.check.task_id for one in under_check(world)), "no idle check", 2 * HOUR_S)
    world.let_pass(60)
    return under_check(world)[0]


def seconds_to_run(world: World, **given: Any) -> float:
    """Submit a job and return the seconds until it runs."""
    began = world.timeline.now
    world.until_status(world.submit(**given), JobStatus.RUNNING)
    return (world.timeline.now - began).total_seconds()


def test_idle_checks_are_off_in_both_presets() -> None:
    """Without the setting no idle instance is checked."""
    assert not any(preset.idle_check_every_s for preset in PRESETS.values())
    world = world_of(policy=OFF)
    world.let_pass(3 * HOUR_S)
    assert not checks(world)


def test_every_idle_instance_is_checked_once_in_a_period() -> None:
    """Two instances for three periods: the check of each begins an hour after the last, at level 3."""
    world = world_of(2)
    world.let_pass(HOUR_S - 60)
    assert not checks(world)
    world.let_pass(4 * HOUR_S)
    started: dict[str, list[datetime]] = {}
    for task in checks(world):
        started.setdefault(task.instance_id, []).append(task.created_at)
        assert level_of(task) == 3
    assert len(started) == 2 and all(len(times) >= 2 for times in started.values())
    for times in started.values():
        assert all((later - sooner).total_seconds() >= HOUR_S for sooner, later in pairwise(times))
    assert all(one.idle_check and one.idle_check.level == 3 for one in world.instances())


def test_one_of_several_idle_instances_stays_without_a_check() -> None:
    """A job for one instance starts at once although checks go on. Only a share of them is checked at a time."""
    world = world_of(10)
    until_check(world)
    assert len(under_check(world)) == 2
    busy = [world.submit(nnodes=1) for _ in range(7)]
    for job_id in busy:
        world.until_status(job_id, JobStatus.RUNNING)
    assert len(under_check(world)) == 2
    assert seconds_to_run(world, nnodes=1) < 15
    assert len(under_check(world)) == 2


def test_a_job_waits_for_the_confirmed_stop_of_the_check_and_no_longer() -> None:
    """The job gets the instance of the check, and waits the stop longer than in a world without checks."""
    without, world = world_of(policy=OFF), world_of()
    without.let_pass(HOUR_S)
    checked = until_check(world)
    fastest = seconds_to_run(without, nnodes=2)
    took = seconds_to_run(world, nnodes=2)
    assert fastest < took <= fastest + STOP_S + 3, world.transcript.text()
    record = world.store.load_instance(checked.instance_id)
    assert record is not None and record.idle_check is not None and record.idle_check.outcome == ""
    assert not world.messages() and record.blamed_at is None and not record.past
    (task,) = checks(world)
    ranks = [task for task in world.cluster.tasks.values() if "--a" in (task.started_by or "")]
    assert task.stopped_at is not None and all(rank.created_at >= task.stopped_at for rank in ranks)


def test_a_stopped_check_is_not_repeated_before_the_next_period() -> None:
    """The instance is free again after the job, and has its next idle check a period after the stop."""
    world = world_of(1)
    until_check(world)
    job_id = world.submit(nnodes=1)
    world.until_status(job_id, JobStatus.RUNNING)
    world.finish(job_id)
    world.until_end(job_id)
    world.let_pass(HOUR_S - 300)
    assert len(checks(world)) == 1
    world.let_pass(600)
    assert len(checks(world)) == 2


def test_a_fault_that_only_level_3_finds_is_found_before_a_job_lands_there() -> None:
    """The instance is rebooted, and used again after a check at level 3. The message names the idle check."""
    world = world_of(2)
    sick = next(iter(world.model_instances()))
    world.break_gpu(sick, ONLY_DEEP, CuredBy.REBOOT)
    world.until(lambda: world.instance(sick).healed_at is not None, "the fault is not repaired", 4 * HOUR_S)
    assert all(task in checks(world) for task in world.cluster.tasks.values()), "a job ran meanwhile"
    levels = [level_of(task) for task in checks(world) if task.instance_id == sick.instance_id]
    assert levels == [3, 3], "the check after the repair must be able to see the fault"
    first = world.messages()[0]
    assert "found by the idle check at level 3" in first.body and "No job waits for it" in first.body
    assert world.instance(sick).failed_level == 0


def test_a_fault_that_the_reboot_does_not_cure_keeps_the_instance_out_of_use() -> None:
    """A check at level 2 would pass, so the check after the reboot has the level of the idle check."""
    world = world_of(2)
    sick = next(iter(world.model_instances()))
    world.break_gpu(sick, ONLY_DEEP, CuredBy.NEVER)
    world.until(lambda: world.instance(sick).needs_operator, "the instance is in use", 8 * HOUR_S)
    assert world.instance(sick).failed_level == 3


def test_a_verdict_from_before_the_stop_counts() -> None:
    """The check ends with a fault while the order to stop is on its way: the job is not placed there."""
    world = world_of(1)
    (sick,) = world.model_instances()
    world.checks.script(sick, ScriptedCheck(CheckOutcome.REBOOT, seconds=400))
    world.checks.leave_s = 1_000
    until_check(world)
    world.let_pass(325)
    job_id = world.submit(nnodes=1)
    world.until(lambda: world.instance(sick).status is InstanceStatus.REBOOTING, "the verdict does not count", 600)
    assert world.job(job_id).attempt == 0 or not world.ranks(job_id)


def test_no_idle_check_begins_beside_a_job_that_waits() -> None:
    """Two of four instances are idle and due, and a gang waits for four."""
    world = world_of(4)
    world.until_status(world.submit(nnodes=2), JobStatus.RUNNING)
    world.until_status(world.submit(nnodes=4), JobStatus.PENDING_RESOURCES)
    world.let_pass(3 * HOUR_S)
    assert not checks(world)


def test_a_job_over_its_quota_keeps_no_instance_from_its_idle_check() -> None:
    """The job could not start on the instance, however long it waits."""
    world = world_of(2)
    world.store.save_limits({"instances": {"*/*/*": 1}}, 0)
    for _ in range(2):
        world.submit(nnodes=1)
    world.let_pass(HOUR_S + 300)
    assert len(checks(world)) == 1
    assert [job.short_of for job in world.jobs() if job.status is JobStatus.PENDING_RESOURCES] == ["quota"]


def test_a_check_that_ecs_refuses_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task has taken the GPUs meanwhile: the instance stays in use, and operators hear nothing."""
    world = world_of(1)
    monkeypatch.setattr(world.actions, "run_check", lambda *given: Refusal("RESOURCE:GPU"))
    world.let_pass(HOUR_S + 120)
    (record,) = world.instances()
    assert record.status is InstanceStatus.AVAILABLE and "ECS did not start it: RESOURCE:GPU" in record.reason
    assert not world.messages() and not checks(world)


def test_an_instance_that_passed_its_idle_check_is_used_first() -> None:
    """Of two equal instances the job gets the one whose check passed, although the other has the lower id."""
    world = world_of(2)
    low, high = world.model_instances()
    world.store.release_instance(low.instance_id, "nobody", False)
    for task in (low, high):
        assert world.instance(task).idle_check is None
    world.recovery.handle(low.instance_id, events.QuarantineRequested(at=world.timeline.now, by="ops"))
    until_check(world)
    world.until(lambda: world.instance(high).idle_check is not None, "the check does not end", HOUR_S)
    world.release(low)
    world.until(lambda: world.instance(low).status is InstanceStatus.AVAILABLE, "it is not released", HOUR_S)
    job_id = world.submit(nnodes=1)
    world.until_status(job_id, JobStatus.RUNNING)
    assert world.job(job_id).instances == (high.instance_id,)


def test_a_lost_report_of_the_stop_is_noticed() -> None:
    """The event of the end of the check is lost: the reconciler asks ECS, and the job starts within two minutes."""

    def delivery(envelope: Any) -> tuple[float, ...]:
        detail = envelope["detail"]
        lost = detail.get("lastStatus") == "STOPPED" and str(detail.get("startedBy", "")).startswith("check/")
        return () if lost else (1.0,)

    world = world_of(1, delivery=delivery)
    until_check(world)
    assert seconds_to_run(world, nnodes=1) < 150


def test_nobody_is_suspended_for_a_job_that_a_check_keeps_waiting() -> None:
    """A job of high priority waits for the stop of the check instead of the place of a running job."""
    world = world_of(2, replace(POLICY, preemption_protect_s=1))
    low = world.submit(nnodes=1, priority="LOW")
    world.until_status(low, JobStatus.RUNNING)
    until_check(world)
    assert seconds_to_run(world, nnodes=1, priority="HIGH") < 30
    assert world.job(low).status is JobStatus.RUNNING and world.job(low).attempt == 1


def test_a_job_of_high_priority_that_needs_both_instances_waits_for_no_check() -> None:
    """A job of low priority runs on one instance and a check goes on on the other: both are vacated at once."""
    world = world_of(2, replace(POLICY, preemption_protect_s=1))
    low = world.submit(nnodes=1, priority="LOW")
    world.until_status(low, JobStatus.RUNNING)
    until_check(world)
    assert seconds_to_run(world, nnodes=2, priority="HIGH") < 60, world.transcript.text()
    assert world.job(low).status is not JobStatus.RUNNING


# -- elastic jobs ------------------------------------------------------------------------------------------------------


def elastic_job(world: World, least: int, most: int, width: int) -> str:
    """Submit an elastic job that saves its state when it is asked to, and let it run on `width` instances."""
    job_id = world.submit(nnodes={"min": least, "max": most})
    world.training.habits[job_id] = JobBehaviour(NoticeBehaviour.SAVES)
    runs_on(world, job_id, width)
    return job_id


def runs_on(world: World, job_id: str, width: int, limit_s: float = HOUR_S) -> None:
    """Let time pass until the job runs on `width` instances."""

    def is_so() -> bool:
        job = world.job(job_id)
        return job.status is JobStatus.RUNNING and job.width == width

    world.until(is_so, f"it does not run on {width} instances", limit_s)


def elastic_world(instances: int, **policy: Any) -> World:
    """Return a world with node agents and diagnosis, so that a lost rank names its instance."""
    return world_of(instances, replace(POLICY, pending_retry_s=1, **policy), agents=True, diagnose=True)


def test_no_idle_check_begins_on_the_instance_that_a_job_is_about_to_take() -> None:
    """A narrow job grows once, although the free instance is due for a check when the job leaves its ranks."""
    world = elastic_world(3, idle_check_every_s=60)
    other = world.submit(nnodes=1)
    world.until_status(other, JobStatus.RUNNING)
    job_id = elastic_job(world, 2, 3, 2)
    world.let_pass(POLICY.elastic_grow_every_s - 120)
    world.finish(other)
    runs_on(world, job_id, 3)
    world.let_pass(HOUR_S)
    assert (world.job(job_id).attempt, world.job(job_id).width, len(checks(world))) == (2, 3, 0)


def test_a_gang_that_loses_an_instance_stops_the_check_of_the_only_spare() -> None:
    """It waits for the stop, and continues on all its instances without a growth."""
    world = elastic_world(5)
    job_id = elastic_job(world, 2, 4, 4)
    spare = until_check(world).instance_id
    world.break_gpu(world.cluster.instances[world.job(job_id).instances[2]])
    world.until_status(job_id, JobStatus.RECOVERING)
    runs_on(world, job_id, 4, 60)
    assert (spare in world.job(job_id).instances, world.job(job_id).attempt) == (True, 2), world.transcript.text()


def test_a_growth_stops_the_check_of_the_only_free_instance() -> None:
    """The check began while the quota of the job kept it from growing."""
    world = elastic_world(3)
    other = world.submit(nnodes=1)
    world.until_status(other, JobStatus.RUNNING)
    job_id = elastic_job(world, 2, 3, 2)
    world.store.save_limits({"instances": {"*/*/*": 2}}, 0)
    world.finish(other)
    until_check(world)
    world.store.save_limits({}, 1)
    at = world.timeline.now
    runs_on(world, job_id, 3)
    assert (world.timeline.now - at).total_seconds() < 300, world.transcript.text()
    assert world.job(job_id).attempt == 2


def test_hourly_checks_leave_the_rest_of_the_history_alone() -> None:
    """The history of an instance has its last idle check only."""
    world = world_of(1)
    world.let_pass(8 * HOUR_S)
    assert len(checks(world)) > 4
    (record,) = world.instances()
    assert [entry.event for entry in record.history].count("IdleCheckDue") == 1
    assert record.history[0].event == "InstanceObserved" and len(record.history) <= 3


@pytest.mark.parametrize("seed", range(tiers.scaled(fast=4, default=4, full=200)))
def test_drawn_runs_keep_the_invariants(seed: int) -> None:
    """Jobs arrive while idle checks run, with the faults of every other run: no invariant is broken."""
    played = play(idle_checks.scenario_of(seed), generator.in_passing(seed), begun=idle_checks.checks_of(seed))
    assert not played.violations, played.violations
