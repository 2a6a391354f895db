"""The preflight in the simulated world: a fault that only it finds costs seconds instead of an attempt of minutes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preflight, Preset, RecoveryPolicy
from gpu_recovery.core.task import PREFLIGHT, FailureKind, failure_kind_of

from sandbox.cluster.model.statuses import CuredBy
from simulator.cloud.preflight import ASKS_REBOOT, MISSING
from simulator.cloud.task_environment import environment
from simulator.cloud.workloads import COLLECTIVES_TIME_OUT_S
from simulator.trials import generator, preflights
from simulator.trials.trial import play
from simulator.world import World
from tests import tiers

POLICY = replace(PRESETS[Preset.ADAPTIVE], pending_retry_s=1, attempts_max=6)
QUICK = replace(POLICY, preflight=Preflight.QUICK)
IN_PLACE = replace(QUICK, restart_in_place=True)


def gang(
    kind: str = MISSING, policy: RecoveryPolicy = QUICK, agents: bool = True, nnodes: int = 4, **job: Any
) -> tuple[World, str, str]:
    """A job whose rank 1 will run on an instance with a fault. Return also the job and the instance."""
    world = World(instances=nnodes + 1, policy=policy, agents=agents, diagnose=True)
    if world.agents is not None:
        world.agents.reports_exits = True
    sick = world.model_instances()[1]
    if kind:
        world.break_gpu(sick, kind, CuredBy.REBOOT)
    return world, world.submit(nnodes=nnodes, **job), sick.instance_id


def trains(world: World, job_id: str) -> float:
    """Let time pass until the job trains on healthy instances. Return the seconds since its submission."""

    def is_whole() -> bool:
        if world.job(job_id).status is not JobStatus.RUNNING:
            return False
        return not any(world.cluster.instances[name].faults for name in world.job(job_id).instances)

    world.until(is_whole, "it does not train", 7_200)
    return (world.timeline.now - world.job(job_id).queued_at).total_seconds()


def checked(world: World) -> list[str]:
    """Instances of the health checks that ECS has started, in order."""
    tasks = sorted(world.cluster.tasks.values(), key=lambda task: task.created_at)
    return [(task.started_by or "").split("/")[1] for task in tasks if (task.started_by or "").startswith("check/")]


def reasons(world: World, job_id: str) -> str:
    return "\n".join(entry.reason for entry in world.job(job_id).history)


@pytest.mark.parametrize("policy", [QUICK, IN_PLACE], ids=["new tasks", "in place"])
@pytest.mark.parametrize("kind", [MISSING, ASKS_REBOOT])
def test_a_fault_that_only_the_preflight_finds_costs_seconds(kind: str, policy: RecoveryPolicy) -> None:
    """The training does not start there; that instance alone is left out, checked and repaired, in the background."""
    world, job_id, sick = gang(kind, policy)
    took_s = trains(world, job_id)
    without, other, _ = gang(kind, replace(policy, preflight=Preflight.OFF))
    took_without_s = trains(without, other)
    assert took_s < 120 < COLLECTIVES_TIME_OUT_S < took_without_s
    job = world.job(job_id)
    assert (job.attempt, job.attempts_counted, job.repairs) == (2, 1, 1)
    assert sick not in job.instances and sick in job.blamed
    assert "GPU_FAULT" in reasons(world, job_id) and "as after a failed preflight" in reasons(world, job_id)
    world.until(lambda: world.fleet.boots[sick] == 1, "it is not repaired", 3_600)
    record = world.store.load_instance(sick)
    assert record is not None
    world.until(lambda: world.instance(world.cluster.instances[sick]).status is InstanceStatus.AVAILABLE, "no", 3_600)
    assert set(checked(world)) == {sick}
    world.finish(job_id)
    assert world.until_end(job_id).status is JobStatus.SUCCEEDED
    world.check_end()


def test_the_attempt_of_a_failed_preflight_counts_as_one_of_the_hardware() -> None:
    """The end of the rank says so, by its exit code and by the variable of its launch."""
    world, job_id, sick = gang()
    world.until(lambda: world.job(job_id).failure is not None, "no rank has ended", 600)
    failure = world.job(job_id).failure
    assert failure is not None and failure.instance_id == sick
    assert (failure.ending.exit_code, failure_kind_of(failure.ending)) == (76, FailureKind.HARDWARE)


def test_the_preflight_is_off_unless_the_job_or_the_policy_asks_for_it() -> None:
    """The job decides before the policy."""
    assert all(preset.preflight is Preflight.OFF for preset in PRESETS.values())
    for policy, job, wanted in (
        (POLICY, {}, False),
        (QUICK, {}, True),
        (POLICY, {"preflight": "quick"}, True),
        (QUICK, {"preflight": "off"}, False),
    ):
        world, job_id, _ = gang("", policy, **job)
        world.until_status(job_id, JobStatus.RUNNING)
        assert {PREFLIGHT in environment(task) for task in world.ranks(job_id)} == {wanted}
        assert not world.training.preflights.failed


def test_without_an_agent_a_failed_preflight_has_the_gang_checked() -> None:
    """The exit code alone proves nothing, so the check of every instance finds the fault."""
    world, job_id, sick = gang(agents=False)
    trains(world, job_id)
    assert world.training.preflights.failed == 1
    assert len(checked(world)) >= 4 and sick not in world.job(job_id).instances


def test_a_silent_agent_does_not_make_a_preflight_pass() -> None:
    """The rank ends, although nobody has its results."""
    world = World(instances=5, policy=QUICK, agents=True, diagnose=True)
    assert world.agents is not None
    sick = world.model_instances()[1]
    world.break_gpu(sick, MISSING, CuredBy.REBOOT)
    world.agents.cut_off.add(sick.instance_id)
    job_id = world.submit(nnodes=4)
    trains(world, job_id)
    assert sick.instance_id not in world.job(job_id).instances


def test_a_failed_preflight_that_nobody_can_explain_is_tried_again_elsewhere() -> None:
    """The program had not started, so no exit of the program ends the job. The agent is silent, and the checks pass."""
    world, job_id, sick = gang()
    assert world.agents is not None
    world.agents.cut_off.add(sick)
    world.until(lambda: world.training.preflights.failed == 1, "no preflight fails", 600)
    world.cluster.instances[sick].faults.clear()  # before the check begins
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 3_600)
    world.until_status(job_id, JobStatus.RUNNING)
    assert len(checked(world)) >= 4 and not world.fleet.boots
    assert sick not in world.job(job_id).instances and "its program had not started" in reasons(world, job_id)


@pytest.mark.parametrize("policy", [QUICK, IN_PLACE], ids=["new tasks", "in place"])
def test_an_instance_whose_all_reduce_did_not_end_is_checked_first_after_a_failure(policy: RecoveryPolicy) -> None:
    """It trains. After a later failure of another rank it is checked in the background, and the gang is not."""
    world, job_id, _ = gang("", policy)
    unclear = world.model_instances()[2].instance_id
    world.training.preflights.unclear.add(unclear)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(120)
    job = world.job(job_id)
    assert job.attempt == 1 and unclear in job.instances and checked(world) == []
    rank = next(rank for rank, name in enumerate(job.instances) if name != unclear)
    world.exit(job_id, rank, 134)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 600)
    assert unclear not in world.job(job_id).instances
    assert unclear in world.job(job_id).blamed
    assert f"{unclear}: its preflight: nccl_loopback inconclusive" in reasons(world, job_id)
    world.let_pass(600)
    assert unclear in checked(world) and len(set(checked(world))) <= 2


def test_an_all_reduce_that_ends_nowhere_sets_no_instance_apart() -> None:
    """The image is slow, not an instance."""
    world, job_id, _ = gang("")
    world.training.preflights.unclear |= {one.instance_id for one in world.model_instances()}
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(120)
    world.exit(job_id, 1, 134)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 600)
    assert world.job(job_id).repairs == 0 and "its preflight" not in reasons(world, job_id)


@pytest.mark.parametrize("seed", tiers.seeds(300, default=3))
def test_drawn_runs_with_a_preflight_keep_every_invariant(seed: int) -> None:
    """With faults that only a preflight finds, lost agents, and commands that are late, doubled or lost."""
    played = play(preflights.scenario_of(seed), generator.in_passing(seed), begun=preflights.commands_of(seed))
    assert not played.violations, "\n".join(map(str, played.violations))
