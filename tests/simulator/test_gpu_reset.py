"""Reset of GPUs in the simulated world: the level below a reboot, proved by a check, and never under a rank."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery import fleet_controls
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset

from sandbox.cluster.model.statuses import CuredBy
from simulator.trials import generator, gpu_resets
from simulator.trials.trial import play
from simulator.world import World
from tests import tiers

POLICY = replace(PRESETS[Preset.ADAPTIVE], gpu_reset=True)


def broken(
    resets: tuple[bool | None, ...] = (True,),
    cured_by: CuredBy = CuredBy.RESET,
    kind: str = "xid119",
    policy: Any = POLICY,
    before: Any = lambda world, sick: None,
) -> tuple[World, str, str]:
    """A world with a running gang and a spare; a GPU under rank 1 fails. Return also the job and the instance."""
    world = World(instances=3, policy=policy, agents=True)
    assert world.agents is not None
    world.agents.resets = resets
    job_id = world.submit(nnodes=2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(60)
    sick = world.ranks(job_id)[1].instance_id
    before(world, sick)
    world.break_gpu(world.cluster.instances[sick], kind, cured_by)
    return world, job_id, sick


def until_back(world: World, sick: str) -> list[str]:
    """Let time pass until the instance works again. Return its statuses since the fault."""
    world.until(lambda: record(world, sick).status is InstanceStatus.CHECKING, "it is not checked")
    world.until(lambda: record(world, sick).status is InstanceStatus.AVAILABLE, "it does not work again")
    return statuses(world, sick)


def statuses(world: World, instance_id: str) -> list[str]:
    """Return the statuses of an instance in order, without repetitions."""
    each = [entry.after for entry in record(world, instance_id).history]
    return [status for n, status in enumerate(each) if n == 0 or status != each[n - 1]]


def record(world: World, instance_id: str) -> Instance:
    found = world.store.load_instance(instance_id)
    assert found is not None
    return found


def boots(world: World) -> int:
    return sum(world.fleet.boots.values())


def resets(world: World) -> int:
    assert world.agents is not None
    return world.agents.resets_done


def test_a_fault_that_a_reset_cures_needs_no_reboot() -> None:
    """The driver asks for a reset: the agent resets the GPUs, a check proves it, and the boot stays."""
    world, job_id, sick = broken()
    boot_id = world.cluster.instances[sick].boot_id
    assert until_back(world, sick) == ["AVAILABLE", "CHECKING", "RESETTING", "VERIFYING", "AVAILABLE"]
    assert (resets(world), boots(world)) == (1, 0)
    assert record(world, sick).boot_id == boot_id == world.cluster.instances[sick].boot_id
    assert not record(world, sick).avoid_reason
    world.until_status(job_id, JobStatus.RUNNING)
    world.finish(job_id)
    assert world.until_end(job_id).status is JobStatus.SUCCEEDED
    world.check_end()


@pytest.mark.parametrize(
    ("ends", "cured_by", "why"),
    [
        ((False,), CuredBy.RESET, "its GPUs could not be reset: the driver refused"),
        ((None,), CuredBy.RESET, "its agent reported no reset of the GPUs within 300 s"),
        ((), CuredBy.RESET, "its agent is not set up to reset GPUs"),
        ((True,), CuredBy.REBOOT, "after the reset of its GPUs"),
    ],
    ids=["refused", "never ends", "agent is not set up", "does not cure"],
)
def test_a_reset_that_fails_is_followed_by_a_reboot(ends: tuple[bool | None, ...], cured_by: CuredBy, why: str) -> None:
    """Each way in which a reset fails leads to the reboot, whose reason names it."""
    world, job_id, sick = broken(ends, cured_by)
    checked = ["VERIFYING"] if cured_by is CuredBy.REBOOT else []
    assert until_back(world, sick)[2:] == ["RESETTING", *checked, "REBOOTING", "VERIFYING", "AVAILABLE"]
    assert (resets(world), boots(world)) == (len(checked), 1)
    assert any(why in entry.reason for entry in record(world, sick).history if entry.after == "REBOOTING")
    world.finish(job_id)
    assert world.until_end(job_id).status is JobStatus.SUCCEEDED
    world.check_end()


def as_daemons(world: World, sick: str) -> None:
    """Let the agents be tasks of a daemon service, which ECS stops on an instance that is DRAINING."""
    assert world.agents is not None
    world.agents.as_daemons = True
    world.let_pass(60)


def test_an_agent_that_is_a_daemon_of_ecs_resets_the_gpus() -> None:
    """The repair waits for the job and for the reset without a drain, so ECS does not stop the agent."""
    world, job_id, sick = broken(before=as_daemons)
    assert until_back(world, sick) == ["AVAILABLE", "CHECKING", "RESETTING", "VERIFYING", "AVAILABLE"]
    assert (resets(world), boots(world)) == (1, 0)
    assert not record(world, sick).drained
    world.finish(job_id)
    assert world.until_end(job_id).status is JobStatus.SUCCEEDED
    world.check_end()


def test_a_daemon_runs_on_while_a_reset_waits_for_another_job() -> None:
    """Two jobs share the instance. The repair waits until the second job has left, without a drain."""
    world = World(instances=1, policy=POLICY, agents=True)
    assert world.agents is not None
    world.agents.resets = (True,)
    jobs = [world.submit(nnodes=1, gpus=4) for _ in range(2)]
    for job_id in jobs:
        world.until_status(job_id, JobStatus.RUNNING)
    sick = world.ranks(jobs[0])[0].instance_id
    as_daemons(world, sick)
    world.break_gpu(world.cluster.instances[sick], "xid119", CuredBy.RESET)
    world.until(lambda: record(world, sick).held is not None, "the repair is not held")
    assert "must leave it first" in record(world, sick).reason and not record(world, sick).drained
    world.until(lambda: record(world, sick).status is InstanceStatus.AVAILABLE, "it does not work again")
    assert statuses(world, sick)[-4:] == ["QUARANTINED", "RESETTING", "VERIFYING", "AVAILABLE"]
    assert (resets(world), boots(world)) == (1, 0)
    for job_id in jobs:
        world.until_status(job_id, JobStatus.RUNNING)
        world.finish(job_id)
        assert world.until_end(job_id).status is JobStatus.SUCCEEDED
    world.check_end()


def test_an_agent_that_ecs_stopped_on_a_draining_instance_is_asked_for_no_reset() -> None:
    """A pause holds the repair, so the instance is drained and its daemon ends. After the pause it is rebooted."""

    def paused(world: World, sick: str) -> None:
        as_daemons(world, sick)
        fleet_controls.pause(world.recovery, "ada", "looking into something")

    world, job_id, sick = broken(before=paused)
    world.until(lambda: record(world, sick).held is not None, "the repair is not held")
    assert record(world, sick).drained
    world.let_pass(120)
    fleet_controls.unpause(world.recovery)
    world.until(lambda: record(world, sick).status is InstanceStatus.AVAILABLE, "it does not work again")
    assert statuses(world, sick)[-4:] == ["RESETTING", "REBOOTING", "VERIFYING", "AVAILABLE"]
    assert (resets(world), boots(world)) == (0, 1)
    history = {entry.after: entry for entry in reversed(record(world, sick).history)}
    assert "ECS stops its agent while the instance is drained" in history["REBOOTING"].reason
    assert history["REBOOTING"].at - history["RESETTING"].at < timedelta(seconds=10)
    world.finish(job_id)
    assert world.until_end(job_id).status is JobStatus.SUCCEEDED
    world.check_end()


def test_the_next_fault_soon_after_a_reset_is_a_reboot() -> None:
    """A reset that held for less than `relapse_window_s` is not repeated, and the reboot is no replacement."""
    world, _, sick = broken()
    until_back(world, sick)
    world.let_pass(600)
    world.break_gpu(world.cluster.instances[sick], "xid119", CuredBy.RESET)
    world.until(lambda: boots(world) == 1, "it is not rebooted")
    assert resets(world) == 1
    assert any("its GPUs were reset less than" in entry.reason for entry in record(world, sick).history)


@pytest.mark.parametrize(
    ("kind", "policy"),
    [("xid79", POLICY), ("xid119", PRESETS[Preset.ADAPTIVE])],
    ids=["the driver asks for more", "switched off"],
)
def test_nothing_is_reset_that_should_not_be(kind: str, policy: Any) -> None:
    """Only the driver's request and the setting together lead to a reset."""
    world, _, sick = broken(kind=kind, policy=policy)
    assert "RESETTING" not in until_back(world, sick)
    assert (resets(world), boots(world)) == (0, 1)


def test_messages_and_history_name_the_reset_and_no_reboot() -> None:
    """Operators read about an idle instance: its GPUs are reset, and the reset is proved. Nothing is rebooted."""
    world = World(instances=3, policy=POLICY, agents=True)
    assert world.agents is not None
    world.agents.resets = (True,)
    world.let_pass(60)
    sick = world.model_instance(0)
    world.break_gpu(sick, "xid119", CuredBy.RESET)
    until_back(world, sick.instance_id)
    begun, back = [one for one in world.messages() if sick.instance_id in one.subject][-2:]
    assert "gpu-recovery ordered the reset of its GPUs" in begun.body
    assert f"{sick.instance_id} is in use again: the reset of its GPUs is proved and its check passed" in back.body
    assert not any("reboot" in one.body.lower() for one in (begun, back)), begun.body + back.body
    reasons = [entry.reason for entry in record(world, sick.instance_id).history]
    assert reasons[-1] == "the reset of its GPUs is proved and its check passed"


@pytest.mark.slow
@pytest.mark.parametrize("seed", tiers.seeds(400, default=3))
def test_no_invariant_breaks_however_resets_end(seed: int) -> None:
    """Resets fail, never end, do not cure, and lose their agents, in runs with every other fault."""
    played = play(gpu_resets.scenario_of(seed), generator.in_passing(seed), begun=gpu_resets.resets_of(seed))
    assert not played.violations, played.violations
