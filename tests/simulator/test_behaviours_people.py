"""What people do in ECS beside the product: deregister an instance, drain it, stop a rank. Each with its mails."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from simulator.faults.operators import DeregisteredByHand
from simulator.world import World
from tests.simulator import incidents


def subjects(world: World) -> list[str]:
    """The subjects of all mails, with the names of instances in place of their ids."""
    names = {machine.instance_id: machine.tags["Name"] for machine in world.model_instances()}
    told = [message.subject for message in world.messages()]
    for instance_id, name in names.items():
        told = [subject.replace(instance_id, name) for subject in told]
    return told


def deregistered(registers_every_s: float = 120, **given: Any) -> tuple[World, str]:
    """A gang of two with spares, of which a person deregisters the instance of rank 1 by force."""
    world, job_id = incidents.running(**{"instances": 4, "train_s": 7200.0, **given})
    DeregisteredByHand(at_s=0, machines=(1,), registers_every_s=registers_every_s).strike(world)
    return world, job_id


def test_a_forced_deregistration_starts_no_attempt_beside_the_orphan() -> None:
    """The process runs on, unknown to ECS: the instance is rebooted, and only then attempt 2 starts (I4, I1)."""
    world, job_id = deregistered()
    orphan = world.rank(job_id, 1)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt")
    assert not orphan.runs
    assert len(world.calls("RebootInstances")) == 1
    job = world.job(job_id)
    assert (job.attempts_counted, dict(job.attempts_uncounted)) == (0, {"INTERRUPTED": 1})
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert world.instance(world.model_instance(1)).status is InstanceStatus.AVAILABLE


@pytest.mark.parametrize("registers_every_s", [1, 20])
def test_an_instance_that_registers_again_with_an_orphan_is_not_given_out(registers_every_s: float) -> None:
    """ECS counts its GPUs as free at once; another job waits until the reboot is proved."""
    world, job_id = deregistered(registers_every_s, instances=2)
    orphan = world.rank(job_id, 1)
    other = world.submit(1)
    world.until(lambda: not orphan.runs, "the orphan was never ended")
    world.until_status(other, JobStatus.SUCCEEDED)
    incidents.ended(world, job_id)


def test_a_boot_that_the_node_agent_reports_ends_the_orphan_of_an_instance_that_never_registers_again() -> None:
    """Usual after a forced deregistration: the agent of ECS keeps its dead registration."""
    world, job_id = deregistered(0, agents=True)
    orphan = world.rank(job_id, 1)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 1200)
    assert not orphan.runs


def test_without_any_proof_the_job_waits_for_a_person_who_terminates_the_instance() -> None:
    """No agent speaks after the reboot, so nothing proves it. EC2's word that the instance is off does."""
    world, job_id = deregistered(0)
    world.let_pass(1200)
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.STOPPING, 1)
    world.fleet.terminate(world.model_instance(1))
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 120)
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def test_two_jobs_orphaned_on_one_instance_are_ended_by_one_reboot() -> None:
    """Neither can leave it: the reboot ends both, and both go on elsewhere."""
    world = World(instances=1, train_s=7200.0)
    both = [world.submit(1, 4), world.submit(1, 4)]
    for job_id in both:
        world.until_status(job_id, JobStatus.RUNNING)
    DeregisteredByHand(at_s=0, machines=(0,)).strike(world)
    world.until(lambda: all(world.job(job_id).attempt == 2 for job_id in both), "no second attempts", 1800)
    assert len(world.calls("RebootInstances")) == 1


def test_a_registration_that_ends_with_its_instance_reboots_nothing() -> None:
    """A group scales in: ECS says INACTIVE, EC2 says terminated, and the job goes on at once."""
    world, job_id = incidents.running(instances=3, train_s=7200.0)
    world.fleet.terminate(world.model_instance(1))
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 120)
    assert not world.calls("RebootInstances")
    assert world.instance(world.model_instance(1)).status is InstanceStatus.GONE
