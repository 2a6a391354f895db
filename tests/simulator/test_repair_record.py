"""Who rebooted the machine: the line on its disk, its tag, and its history, in the world of the simulator."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy
from gpu_recovery.core.repair_record import TAG_KEY

from sandbox.cluster.model.records import ModelInstance
from simulator.cloud.workloads import ScriptedCheck
from simulator.world import World
from tests.simulator import test_gpu_reset

ADAPTIVE = PRESETS[Preset.ADAPTIVE]
RECORDING = replace(ADAPTIVE, record_repairs=True, tag_repairs=True)


def rebooted(policy: RecoveryPolicy, *, as_daemons: bool = False) -> tuple[World, ModelInstance]:
    """A world in which an instance with a fault was rebooted, and the instance works again."""
    world = World(instances=3, policy=policy, train_s=None, agents=True)
    assert world.agents is not None
    world.agents.as_daemons = as_daemons
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    bad = world.cluster.instances[world.job(job_id).instances[0]]
    world.break_gpu(bad, "xid79")
    world.exit(job_id, 0, 134)
    world.until(lambda: world.instance(bad).status is InstanceStatus.REBOOTING, "no reboot is ordered", 7_200)
    world.until(lambda: world.instance(bad).status is InstanceStatus.AVAILABLE, "it does not work again", 7_200)
    world.let_pass(60)
    return world, bad


def entries(world: World, bad: ModelInstance) -> list[str]:
    """The sentences of the history about the line."""
    known = ("RepairAnnounced", "RepairRecordFound")
    return [entry.reason for entry in world.instance(bad).history if entry.event in known]


def test_a_rebooted_machine_says_who_ordered_it() -> None:
    """The line is on its disk and in its tag, and the history of the instance shows the same line."""
    world, bad = rebooted(RECORDING)
    assert world.agents is not None
    line = world.agents.lines[bad.instance_id]
    asked, *found = entries(world, bad)
    assert asked == "its agent was asked to write who ordered this; its tag says it"
    assert found[-1].endswith(line.line) and "ordered the reboot" in line.line and "fallen off the bus" in line.line
    assert re.search(r"repair 1, incident sft-[0-9-]+--a01; decision: ", line.line)
    assert bad.tags[TAG_KEY].startswith(f"gpu-recovery ordered the reboot of {bad.instance_id}")
    (beat,) = world.store.load_heartbeats([bad.instance_id]).values()
    assert beat.orders == {}


def test_the_machine_is_told_after_its_reboot_was_ordered() -> None:
    """So nothing about the line can delay the reboot."""
    world, _ = rebooted(RECORDING)
    reboot, *_ = world.calls("RebootInstances")
    told = [*world.calls("CreateTags"), *world.calls("store.add_agent_command")]
    assert len(told) == 2 and all(effect.number > reboot.number for effect in told)


def test_without_the_policy_nothing_is_written() -> None:
    """It is off in both presets."""
    world, bad = rebooted(ADAPTIVE)
    assert world.agents is not None and world.agents.lines == {}
    assert entries(world, bad) == [] and TAG_KEY not in bad.tags


def test_a_reset_is_recorded_as_a_reboot_is() -> None:
    """The boot stays, so the line was written before the reset ended."""
    world, _, sick = test_gpu_reset.broken(policy=replace(test_gpu_reset.POLICY, record_repairs=True))
    test_gpu_reset.until_back(world, sick)
    world.let_pass(60)
    assert world.agents is not None
    assert "ordered the GPU reset of" in world.agents.lines[sick].line
    bad = world.cluster.instances[sick]
    asked, found = entries(world, bad)
    assert asked == "its agent was asked to write who ordered this"
    assert found == f"written by its agent under the boot that the repair began in: {world.agents.lines[sick].line}"


def replaced(group: str) -> tuple[World, ModelInstance]:
    """A world whose health check asks for a replacement of an instance with an agent, and that has ended a job since.

    `group`: the Auto Scaling group of the instance; "" for an instance that is stopped and started.
    """
    world = World(instances=3, policy=replace(RECORDING, replace=True), agents=True)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(60)
    sick = world.cluster.instances[world.job(job_id).instances[0]]
    sick.tags |= {"aws:autoscaling:groupName": group} if group else {}
    world.checks.script(sick, ScriptedCheck(CheckOutcome.REPLACE))
    world.exit(job_id, 0, 139)
    ends = InstanceStatus.GONE if group else InstanceStatus.AVAILABLE
    world.until(lambda: world.instance(sick).status is InstanceStatus.REPLACING, "no replacement is ordered", 7_200)
    world.until(lambda: world.instance(sick).status is ends, "the replacement does not end", 7_200)
    world.let_pass(60)
    return world, sick


def test_a_stop_and_start_is_recorded_as_a_reboot_is() -> None:
    """The disk outlives the stop: the line is on the machine when it runs again, on another host."""
    world, sick = replaced(group="")
    assert len(world.calls("StopInstances")) == len(world.calls("StartInstances")) == 1
    assert world.agents is not None
    line = world.agents.lines[sick.instance_id].line
    asked, *found = entries(world, sick)
    assert asked == "its agent was asked to write who ordered this; its tag says it"
    assert found[-1].endswith(line) and line.startswith(f"gpu-recovery ordered the stop of {sick.instance_id}")
    assert sick.tags[TAG_KEY].startswith(f"gpu-recovery ordered the stop of {sick.instance_id}")


def test_a_termination_is_in_the_tag_and_in_the_history() -> None:
    """No agent of a later boot can find a line: the disk is lost with the instance."""
    world, sick = replaced(group="gpu-nodes")
    assert len(world.calls("TerminateInstanceInAutoScalingGroup")) == 1 and not world.calls("StopInstances")
    asked, *_ = entries(world, sick)
    assert asked == "its agent was asked to write who ordered this; its tag says it"
    assert sick.tags[TAG_KEY].startswith(f"gpu-recovery ordered the termination of {sick.instance_id}")


def test_an_agent_that_ecs_has_stopped_hears_of_the_reboot_after_it() -> None:
    """ECS stops the task of a daemon as the instance is drained, and starts it again after the boot."""
    world, bad = rebooted(RECORDING, as_daemons=True)
    assert world.agents is not None
    line = world.agents.lines[bad.instance_id]
    assert line.boot_id == bad.boot_id
    late = f"written on the machine after the boot, because its agent heard of it only then: {line.line}"
    assert entries(world, bad)[1:] == [late]


@pytest.mark.parametrize("fails", ["CreateTags", "the store"])
def test_a_line_that_cannot_be_written_stops_no_reboot(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """The machine is rebooted and works again; the history says what failed."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no answer")

    if fails == "CreateTags":
        monkeypatch.setattr("gpu_recovery.aws.ec2.Ec2.tag", broken)
    else:
        monkeypatch.setattr("simulator.memory_store.store.MemoryStore.add_agent_command", broken)
    world, bad = rebooted(RECORDING)
    (sentence, *_) = entries(world, bad)
    expected = (
        "no tag was written" if fails == "CreateTags" else "its agent could not be asked to write who ordered this"
    )
    assert f"{expected}: RuntimeError: no answer" in sentence
