"""The MPS daemon of an EC2 instance fails, in the virtual world: ECS reports it under the type of the GPUs.

The sentences are those of the ECS agent (decision 71). No GPU is blamed, whatever follows.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.cluster_snapshot import is_usable
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from sandbox.cluster.model import health
from sandbox.cluster.model.records import ModelInstance
from simulator.faults.delivery import Delivery, losing, prompt
from simulator.world import World
from tests.simulator import incidents

WEDGED = "mps control daemon probe timed out after 3s (daemon wedged?): signal: killed"
NO_EVENT: Delivery = losing(lambda envelope: envelope["detail-type"] == "ECS Container Instance Health State Change")
HOUR_S = 3_600.0


def mps_fails(world: World, machine: ModelInstance, reason: str = WEDGED) -> None:
    """ECS reports the MPS daemon IMPAIRED, as an event and in its description of the instance."""
    world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", "IMPAIRED", reason)


def idle_instance() -> tuple[World, ModelInstance]:
    """A world with one instance, which no job uses."""
    world = World(instances=1, train_s=incidents.TRAIN_S)
    world.let_pass(5)
    [machine] = world.model_instances()
    return world, machine


def blamed(world: World) -> list[str]:
    """The calls that take an instance out of use or check it, and the instances that are not AVAILABLE."""
    calls = [name for name in ("RebootInstances", "TerminateInstanceInAutoScalingGroup") for _ in world.calls(name)]
    checks = [
        task.started_by or "" for task in world.cluster.tasks.values() if (task.started_by or "").startswith("check/")
    ]
    records = [world.instance(machine) for machine in world.model_instances()]
    return [*calls, *checks, *(record.reason for record in records if record.status is not InstanceStatus.AVAILABLE)]


@pytest.mark.parametrize("delivery", [prompt, NO_EVENT], ids=["by the event", "by the poll alone"])
@pytest.mark.parametrize("agents", [False, True], ids=["without agents", "with agents"])
def test_the_mps_daemon_of_an_instance_with_a_job_blames_no_gpu(delivery: Delivery, *, agents: bool) -> None:
    """The job trains to its end on the same instances, and operators hear once of the daemon."""
    world, job_id = incidents.running(delivery=delivery, agents=agents)
    before = world.job(job_id).instances
    mps_fails(world, world.cluster.instances[before[0]])
    incidents.ended(world, job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt, job.instances) == (JobStatus.SUCCEEDED, 1, before)
    assert blamed(world) == []
    told = [message for message in world.messages() if "MPS daemon" in message.subject]
    assert len(told) == 1 and WEDGED in told[0].body


def test_an_idle_instance_whose_mps_daemon_fails_gets_the_next_job() -> None:
    """A container with whole GPUs needs no MPS daemon."""
    world, machine = idle_instance()
    mps_fails(world, machine)
    world.let_pass(60)
    assert is_usable(world.instance(machine)) and blamed(world) == []
    job_id = world.submit(1)
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and blamed(world) == []


def test_a_crash_after_the_report_is_not_laid_on_the_instance_of_the_daemon() -> None:
    """Every agent reports healthy GPUs, so the gang is not checked, and the instance stays in the gang."""
    policy = replace(incidents.ADAPTIVE, attempts_max=10)
    world, job_id = incidents.running(agents=True, diagnose=True, policy=policy)
    first, second = world.job(job_id).instances
    mps_fails(world, world.cluster.instances[first])
    world.let_pass(60)
    world.exit(job_id, 1, 134)
    world.until(lambda: world.job(job_id).attempt == 2, "it was not relaunched", HOUR_S)
    world.until_status(job_id, JobStatus.RUNNING)
    assert set(world.job(job_id).instances) == {first, second}
    assert not [reason for reason in blamed(world) if first in reason]
    incidents.ended(world, job_id)
    assert world.instance(world.cluster.instances[first]).past == ()


@pytest.mark.parametrize("reason", ["XID_79", f"XID_79, {WEDGED}"])
def test_an_xid_in_the_report_is_checked(reason: str) -> None:
    """The contrast: a GPU may take the daemon with it. The report about the daemon hides no fault."""
    world, machine = idle_instance()
    world.break_gpu(machine)
    mps_fails(world, machine, reason)
    world.until(lambda: world.fleet.boots == {machine.instance_id: 1}, "it was not rebooted", HOUR_S)


def test_a_gpu_that_fails_after_the_daemon_is_found() -> None:
    """ECS names the GPU in a later report of the same type."""
    world, machine = idle_instance()
    mps_fails(world, machine)
    world.let_pass(120)
    assert blamed(world) == []
    world.break_gpu(machine)
    mps_fails(world, machine, "XID_79")
    world.until(lambda: world.fleet.boots == {machine.instance_id: 1}, "it was not rebooted", HOUR_S)
