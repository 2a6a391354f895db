"""Traps of a reboot, in whole incidents: what looks like a return and is none, and what never returns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import RecoveryPolicy

from sandbox.cluster.model import tasks
from sandbox.cluster.model.records import Task
from sandbox.cluster.model.statuses import Ec2State
from simulator.cloud.fleet import VirtualFleet
from simulator.invocations import Effect, Killed
from simulator.world import World
from tests.simulator import incidents

REPLACING = replace(incidents.ADAPTIVE, replace=True)


class NoDevices:
    """A host without `/dev/nvidia*`: its agent goes on advertising GPUs, and no container that wants one starts."""

    def __init__(self, fleet: VirtualFleet) -> None:
        self.fleet = fleet

    def leaves_in(self, task: Task) -> float:
        """Nothing runs that could be asked to stop."""
        return 0.0

    def leaves(self, task: Task) -> int:
        """Nor anything that could end."""
        return 0

    def started(self, task: Task) -> None:
        """What docker says when the device of a container is not there."""
        reason = f"OCI runtime create failed: nvidia-container-cli: device error: {task.gpu_ids[0]}: unknown device"
        self.fleet.change(lambda now: tasks.process_failed(self.fleet.cluster, task, reason, now))


class BrokenImage(NoDevices):
    """An image without its program."""

    def started(self, task: Task) -> None:
        """What docker says then."""
        reason = 'exec: "python": executable file not found in $PATH'
        self.fleet.change(lambda now: tasks.process_failed(self.fleet.cluster, task, reason, now))


def statuses(world: World, number: int) -> list[InstanceStatus]:
    """Every status that the record of a machine has been in, in order."""
    return [InstanceStatus(entry.after) for entry in world.instance(world.model_instance(number)).history]


@pytest.mark.parametrize("policy", [incidents.ADAPTIVE, REPLACING], ids=["a person replaces", "we may replace"])
def test_a_machine_that_advertises_gpus_it_lost_in_the_reboot_never_works_again(policy: RecoveryPolicy) -> None:
    """Agent back, GPUs registered, tasks placed on it, and no container starts: the check fails to start, too."""
    world, job_id = incidents.running(instances=3, policy=policy)
    sick, usual, lost = world.model_instance(0), world.fleet.program, NoDevices(world.fleet)
    world.break_gpu(sick)
    world.until(lambda: bool(world.calls("RebootInstances")), "it was not rebooted")
    world.fleet.program = lambda task: lost if task.instance_id == sick.instance_id else usual(task)
    world, job_id = incidents.ended(world, job_id)
    assert world.fleet.boots == {sick.instance_id: 1} and sick.agent_connected and len(sick.gpus) == 8
    placed = [task for task in world.cluster.tasks.values() if task.instance_id == sick.instance_id]
    failed = [task for task in placed if task.stop_code == "TaskFailedToStart"]
    assert failed and {task.started_by.split("/")[0] for task in failed if task.started_by} == {"check"}
    world.let_pass(3600)
    record = world.instance(sick)
    assert record.status is InstanceStatus.QUARANTINED and sick.status == "DRAINING"
    assert InstanceStatus.AVAILABLE not in statuses(world, 0)[statuses(world, 0).index(InstanceStatus.REBOOTING) :]
    assert any(sick.instance_id in message.subject + message.body for message in world.messages())
    assert world.job(job_id).status is JobStatus.SUCCEEDED and sick.instance_id not in world.job(job_id).instances


@pytest.mark.parametrize("cured", [True, False], ids=["the reboot brings them back", "they are gone for good"])
def test_a_machine_that_lost_its_gpus_by_itself_is_no_black_hole(cured: bool) -> None:
    """Nobody ran a check after somebody else's reboot: jobs are placed there, start nowhere, and must not go on so."""
    world = World(instances=3, train_s=incidents.TRAIN_S)
    sick, usual, lost = world.model_instance(0), world.fleet.program, NoDevices(world.fleet)

    def program(task: Task) -> Any:
        is_lost = task.instance_id == sick.instance_id and not (cured and world.fleet.boots)
        return lost if is_lost else usual(task)

    world.fleet.program = program
    job_id = world.submit()
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and world.job(job_id).attempt == 2
    assert world.fleet.boots == {sick.instance_id: 1} and len(world.calls("RebootInstances")) == 1
    world.let_pass(3600)
    left = InstanceStatus.AVAILABLE if cured else InstanceStatus.QUARANTINED
    assert world.instance(sick).status is left
    assert any("nvidia-container-cli" in entry.reason for entry in world.instance(sick).history)


def test_a_check_whose_image_is_broken_costs_no_machine() -> None:
    """It starts nowhere, and that says nothing about any machine."""
    world, job_id = incidents.running(instances=3)
    usual = world.fleet.program
    broken = BrokenImage(world.fleet)
    world.fleet.program = lambda task: broken if (task.started_by or "").startswith("check/") else usual(task)
    world.exit(job_id, 0, 139)
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert world.calls("RebootInstances") == []
    assert {one.status for one in world.instances()} == {InstanceStatus.AVAILABLE}


def test_a_machine_that_is_terminated_while_its_reboot_is_awaited_is_gone() -> None:
    """EC2 ignores the reboot of a terminated instance and answers success; a dead agent tells ECS nothing either."""
    world, job_id = incidents.running(instances=3)
    dying = world.model_instance(0)
    world.break_gpu(dying)
    world.until(lambda: bool(world.calls("RebootInstances")), "it was not rebooted")
    world.fleet.disconnect(dying)
    world.fleet.terminate(dying)
    world, job_id = incidents.ended(world, job_id)
    assert dying.ec2_state is Ec2State.TERMINATED and not world.fleet.boots
    assert world.instance(dying).status is InstanceStatus.GONE
    assert len(world.calls("RebootInstances")) == 1
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def test_a_reboot_of_somebody_else_is_no_fault_of_the_gpus() -> None:
    """A person reboots a machine under a rank: its end comes with 137 once the agent is back, and the check passes."""
    world, job_id = incidents.running()
    world.transcript.happened("a person reboots gpu-0")
    world.fleet.reboot(world.model_instance(0).instance_id)
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and world.job(job_id).attempt == 2
    assert world.calls("RebootInstances") == [] and world.fleet.boots == {world.model_instance(0).instance_id: 1}


class KillTheReboot:
    """Kills the function that asks for the first reboot, before or after EC2 has the request."""

    def __init__(self, heard: bool) -> None:
        self.heard, self.done = heard, False

    def before(self, step: Effect) -> None:
        """Kill the function before EC2 has the request."""
        if not self.heard:
            self._kill(step)

    def after(self, step: Effect) -> None:
        """Kill the function when EC2 has the request."""
        if self.heard:
            self._kill(step)

    def _kill(self, step: Effect) -> None:
        if step.name == "RebootInstances" and not self.done:
            self.done = True
            raise Killed


@pytest.mark.parametrize("heard", [False, True])
def test_an_uncertain_reboot_is_looked_at_though_its_rank_holds_the_gpus(heard: bool) -> None:
    """No check that needs GPUs can start beside a rank that ignores every signal. So the check only reads the boot."""
    world, job_id = incidents.running(nemesis=KillTheReboot(heard))
    world.fleet.stuck.add(world.job(job_id).instances[1])
    world.exit(job_id, 0, 139)
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and world.job(job_id).attempt == 2
    assert world.fleet.boots == {world.job(job_id).instances[1]: 1}
    assert len(world.calls("RebootInstances")) == 1
