"""Traps of a reboot, in whole incidents: what looks like a return and is none, and what never returns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import RecoveryPolicy

from sandbox.cluster import model_tasks
from sandbox.cluster.model import Ec2State, Task
from simulator.fleet import Fleet
from simulator.world import World
from tests.simulator import incidents

REPLACING = replace(incidents.ADAPTIVE, replace=True)


class NoDevices:
    """A host without `/dev/nvidia*`: its agent goes on advertising GPUs, and no container that wants one starts."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def heeds(self, task: Task) -> bool:
        """Nothing runs that could be asked to stop."""
        return True

    def started(self, task: Task) -> None:
        """What docker says when the device of a container is not there."""
        reason = "could not select device driver with capabilities: [[gpu]]"
        self.fleet.change(lambda now: model_tasks.process_failed(self.fleet.cluster, task, reason, now))


def statuses(world: World, number: int) -> list[InstanceStatus]:
    """Every status that the record of a machine has been in, in order."""
    return [InstanceStatus(entry.after) for entry in world.instance(world.machine(number)).history]


@pytest.mark.parametrize("policy", [incidents.ADAPTIVE, REPLACING], ids=["a person replaces", "we may replace"])
def test_a_machine_that_advertises_gpus_it_lost_in_the_reboot_never_works_again(policy: RecoveryPolicy) -> None:
    """Agent back, GPUs registered, tasks placed on it, and no container starts: the check fails to start, too."""
    world, job_id = incidents.running(instances=3, policy=policy)
    sick, usual, lost = world.machine(0), world.fleet.program, NoDevices(world.fleet)
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


def test_a_machine_that_is_terminated_while_its_reboot_is_awaited_is_gone() -> None:
    """EC2 ignores the reboot of a terminated instance and answers success; a dead agent tells ECS nothing either."""
    world, job_id = incidents.running(instances=3)
    dying = world.machine(0)
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
    world.happens("a person reboots gpu-0")
    world.fleet.reboot(world.machine(0).instance_id)
    world, job_id = incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and world.job(job_id).attempt == 2
    assert world.calls("RebootInstances") == [] and world.fleet.boots == {world.machine(0).instance_id: 1}
