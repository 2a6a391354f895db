"""What watchers say of machines, and what the product does about it: in a world where any of them may fall silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.cluster_snapshot import is_usable
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from sandbox.cluster.model import health
from sandbox.cluster.model.instances import MANAGED_TAG
from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import ContainerInstanceStatus, CuredBy, Ec2State, StatusCheck, TaskStatus
from simulator.faults.delivery import PROMPT_S, Delivery, Unruly, losing, prompt
from simulator.world import World
from tests.simulator import incidents
from tests.tiers import seeds

REPLACING = replace(incidents.ADAPTIVE, replace=True)
HOUR_S = 3600.0
ECS_STATE = ("ECS Task State Change", "ECS Container Instance State Change")


def of_ecs(envelope: Mapping[str, Any]) -> bool:
    """ECS guarantees the delivery of its state changes; nobody guarantees that of anything else."""
    return envelope["detail-type"] in ECS_STATE


SILENT: Delivery = losing(lambda envelope: not of_ecs(envelope))


class OnlyEc2Unruly:
    """ECS is prompt; what EC2 and the others say is lost, doubled, late and out of order."""

    def __init__(self, seed: int) -> None:
        self.unruly = Unruly(seed, lost=0.2, doubled=0.5, late=0.7)

    def __call__(self, envelope: Mapping[str, Any]) -> Sequence[float]:
        return (PROMPT_S,) if of_ecs(envelope) else self.unruly(envelope)


def idle(**given: Any) -> tuple[World, ModelInstance]:
    """Machines that wait for work, and the first of them."""
    world = World(**{"instances": 2, "policy": REPLACING, **given})
    world.let_pass(5)
    return world, world.model_instance(0)


def status(world: World, machine: ModelInstance) -> InstanceStatus:
    return world.instance(machine).status


def until(world: World, machine: ModelInstance, wanted: InstanceStatus) -> None:
    """Let time pass until the machine's record is in this status."""
    world.until(lambda: status(world, machine) is wanted, f"{machine.tags['Name']} never was {wanted}", HOUR_S)


# -- ECS's health checks -----------------------------------------------------------------------------------------------


def test_a_gpu_that_ecs_finds_impaired_is_checked_and_mended() -> None:
    """Nobody runs on the machine, so no rank tells; the check of our own decides, not the watcher."""
    world, machine = idle()
    world.break_gpu(machine)
    world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", "IMPAIRED", "XID_79")
    until(world, machine, InstanceStatus.REBOOTING)
    until(world, machine, InstanceStatus.AVAILABLE)
    assert world.fleet.boots == {machine.instance_id: 1}


def test_a_gpu_that_ecs_finds_impaired_is_checked_although_no_event_says_so() -> None:
    """The event is lost: the reconciler reads the health checks of ECS when it polls the cluster."""
    world, machine = idle(delivery=SILENT)
    world.break_gpu(machine)
    world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", "IMPAIRED", "XID_79")
    until(world, machine, InstanceStatus.REBOOTING)
    until(world, machine, InstanceStatus.AVAILABLE)
    world.let_pass(HOUR_S)
    assert world.fleet.boots == {machine.instance_id: 1}
    assert status(world, machine) is InstanceStatus.AVAILABLE


def test_a_watcher_that_is_wrong_costs_a_check() -> None:
    """The GPUs pass it: nothing is rebooted."""
    world, machine = idle()
    world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", "IMPAIRED", "XID_79")
    until(world, machine, InstanceStatus.CHECKING)
    until(world, machine, InstanceStatus.AVAILABLE)
    assert not world.fleet.boots


def cut_off(world: World, machine: ModelInstance) -> None:
    """The agent of ECS disconnects, and ECS reports it at once."""
    world.fleet.disconnect(machine)
    world.fleet.announce(health.report_health, machine, "AGENT_CONNECTIVITY", "IMPAIRED", "Agent disconnected")


def connected(world: World, machine: ModelInstance) -> None:
    """The agent of ECS is back, and ECS reports it at once."""
    world.fleet.reconnect(machine)
    world.fleet.announce(health.report_health, machine, "AGENT_CONNECTIVITY", "OK", None)


def test_an_agent_that_flaps_sends_no_mail_and_takes_nothing_out_of_use() -> None:
    """Three flaps in half an hour are normal operation of ECS; meanwhile nothing is placed there."""
    world, machine = idle(train_s=incidents.TRAIN_S)
    for _ in range(3):
        cut_off(world, machine)
        world.let_pass(40)
        assert not is_usable(world.instance(machine))
        connected(world, machine)
        world.let_pass(560)
        assert is_usable(world.instance(machine))
    assert world.messages() == [] and not world.calls("RunTask")


@pytest.mark.parametrize("reboots", [False, True], ids=["under its check", "under the check after its reboot"])
def test_an_agent_that_flaps_while_its_instance_is_checked_harms_nothing(reboots: bool) -> None:
    """The check goes on, its result counts, and no mail is sent about the agent."""
    world, job_id = incidents.running(instances=2, train_s=incidents.TRAIN_S)
    machine = world.model_instance(0)
    if reboots:
        world.break_gpu(machine)
    else:
        world.exit(job_id, 0, 139)
    until(world, machine, InstanceStatus.VERIFYING if reboots else InstanceStatus.CHECKING)
    world.let_pass(20)
    cut_off(world, machine)
    world.let_pass(15)
    connected(world, machine)
    incidents.ended(world, job_id)
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.SUCCEEDED, 2)
    assert sum(world.fleet.boots.values()) == reboots
    assert not [message for message in world.messages() if "impaired" in message.subject]


def test_a_machine_whose_agent_is_silent_gets_no_job_until_it_speaks() -> None:
    """It is not broken, and not to be trusted with a gang either. After five minutes operators are told."""
    world, machine = idle(train_s=incidents.TRAIN_S)
    cut_off(world, machine)
    world.let_pass(5)
    job_id = world.submit(nnodes=2)
    world.until_status(job_id, JobStatus.PENDING_RESOURCES)
    world.let_pass(200)
    assert world.messages() == []
    world.let_pass(220)
    assert world.job(job_id).status is JobStatus.PENDING_RESOURCES
    assert ["impaired" in message.subject for message in world.messages()] == [True]
    connected(world, machine)
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert not world.fleet.boots


# -- status checks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", [prompt, SILENT], ids=["told", "silent"])
def test_a_host_that_fails_is_exchanged_for_another(delivery: Delivery) -> None:
    """Stopped and started the machine has another host; nobody need tell, the reconciler asks EC2 by itself."""
    world, machine = idle(delivery=delivery)
    boot_id = machine.boot_id
    world.fleet.announce(health.impair, machine, StatusCheck.SYSTEM)
    until(world, machine, InstanceStatus.REPLACING)
    until(world, machine, InstanceStatus.AVAILABLE)
    assert (machine.boot_id != boot_id, machine.impaired) == (True, {})
    assert [step.name for step in world.invocations.done if step.name.endswith("Instances")] == [
        "StopInstances",
        "StartInstances",
    ]
    assert not world.fleet.boots


@pytest.mark.parametrize("delivery", [prompt, SILENT], ids=["told", "silent"])
def test_a_machine_that_fails_its_own_check_is_rebooted(delivery: Delivery) -> None:
    """Its network or its kernel: the host under it is well."""
    world, machine = idle(delivery=delivery)
    world.fleet.announce(health.impair, machine, StatusCheck.INSTANCE)
    until(world, machine, InstanceStatus.REBOOTING)
    until(world, machine, InstanceStatus.AVAILABLE)
    assert world.fleet.boots == {machine.instance_id: 1}


def test_a_machine_of_a_group_is_terminated_and_followed_by_another() -> None:
    """The group keeps its size; the new machine registers under ids of its own and may work at once."""
    world, machine = idle()
    machine.tags[health.GROUP_TAG] = "gpus"
    world.fleet.announce(health.impair, machine, StatusCheck.SYSTEM)
    until(world, machine, InstanceStatus.GONE)
    world.until(lambda: len(world.model_instances()) == 3, "the group launched no other", HOUR_S)
    successor = next(one for one in world.cluster.instances.values() if one.tags["Name"] == "gpu-2")
    world.until(lambda: world.store.load_instance(successor.instance_id) is not None, "it never registered")
    assert machine.ec2_state is Ec2State.TERMINATED
    assert status(world, successor) is InstanceStatus.AVAILABLE
    assert len(world.calls("TerminateInstanceInAutoScalingGroup")) == 1


def test_nobody_replaces_a_machine_where_it_is_not_allowed() -> None:
    """The switch is off by default: a person does it."""
    world, machine = idle(policy=incidents.ADAPTIVE)
    world.fleet.announce(health.impair, machine, StatusCheck.SYSTEM)
    until(world, machine, InstanceStatus.QUARANTINED)
    assert not world.calls("StopInstances")
    assert any(machine.instance_id in message.body for message in world.messages())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda machine: machine.tags.pop(MANAGED_TAG),
        lambda machine: setattr(machine, "root_device", "instance-store"),
        lambda machine: setattr(machine, "lifecycle", "capacity-block"),
    ],
    ids=["not ours", "instance store", "capacity block"],
)
def test_a_machine_that_may_not_be_stopped_is_a_persons(spoil: Any) -> None:
    """One that nobody handed over, or that would not come back."""
    world, machine = idle()
    spoil(machine)
    world.fleet.announce(health.impair, machine, StatusCheck.SYSTEM)
    until(world, machine, InstanceStatus.QUARANTINED)
    world.let_pass(HOUR_S)
    assert machine.ec2_state is Ec2State.RUNNING


# -- departures --------------------------------------------------------------------------------------------------------


def test_a_job_leaves_before_its_machine_is_interrupted() -> None:
    """The warning moves it to a spare, and that attempt is not counted."""
    world, job_id = incidents.running(instances=3)
    world.fleet.interrupt(world.model_instance(0))
    incidents.ended(world, job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt, job.attempts_counted) == (JobStatus.SUCCEEDED, 2, 0)
    assert status(world, world.model_instance(0)) is InstanceStatus.GONE


def test_a_retirement_is_met_once() -> None:
    """Stopped and started in time the machine has another host, so that there is nothing left to be met."""
    world, machine = idle()
    world.fleet.plan(machine, "instance-retirement", 2 * HOUR_S)
    world.let_pass(4 * HOUR_S)
    assert status(world, machine) is InstanceStatus.AVAILABLE
    assert len(world.calls("StopInstances")) == len(world.calls("StartInstances")) == 1
    assert world.instance(machine).departure is None


def test_a_retirement_that_is_called_off_is_forgotten() -> None:
    """The machine stays, and works on."""
    world, machine = idle()
    world.fleet.plan(machine, "instance-retirement", 3 * HOUR_S)
    world.let_pass(60)
    assert world.instance(machine).departure is not None
    world.fleet.announce(health.call_off, machine)
    world.let_pass(4 * HOUR_S)
    assert (world.instance(machine).departure, status(world, machine)) == (None, InstanceStatus.AVAILABLE)
    assert not world.calls("StopInstances")


@pytest.mark.parametrize("delivery", [prompt, SILENT], ids=["told", "silent"])
def test_maintenance_passes(delivery: Delivery) -> None:
    """EC2 reboots the machine itself; once that is over, the machine takes jobs again."""
    world, machine = idle(delivery=delivery)
    world.fleet.plan(machine, "instance-reboot", 2 * HOUR_S)
    world.let_pass(60)
    assert world.instance(machine).avoid_reason
    world.let_pass(3 * HOUR_S)
    assert world.fleet.boots == {machine.instance_id: 1}
    assert (status(world, machine), world.instance(machine).avoid_reason) == (InstanceStatus.AVAILABLE, "")


def test_a_plan_that_is_known_is_told_once() -> None:
    """AWS Health and EC2 name the same plan differently; seen every minute, it is no news every minute."""
    world, machine = idle()
    world.fleet.plan(machine, "instance-retirement", 24 * HOUR_S)
    world.let_pass(HOUR_S)
    assert world.transcript.text().count("DepartureAnnounced") == 1


def test_a_machine_that_has_gone_is_not_checked_for_an_old_word_of_its_agent() -> None:
    """ECS tells that the agent has left after EC2 has told that the machine has."""
    world, machine = idle()
    world.fleet.terminate(machine)
    world.let_pass(600)
    assert status(world, machine) is InstanceStatus.GONE
    assert not world.calls("RunTask")


# -- machines that go without a word -----------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", [prompt, SILENT], ids=["told", "silent"])
def test_a_terminated_machine_behind_a_dead_agent_leaves_no_zombies(delivery: Delivery) -> None:
    """ECS would list its rank as running for ever; its registration is taken away, and the job heals."""
    world, job_id = incidents.running(instances=3, delivery=delivery)
    dead = world.model_instance(0)
    world.fleet.disconnect(dead)
    world.fleet.terminate(dead)
    world.exit(job_id, 1, 134)
    incidents.ended(world, job_id)
    world.let_pass(600)
    assert (world.job(job_id).status, status(world, dead)) == (JobStatus.SUCCEEDED, InstanceStatus.GONE)
    assert dead.status is ContainerInstanceStatus.INACTIVE
    zombies = [task for task in world.cluster.tasks.values() if task.instance_id == dead.instance_id]
    assert {task.last_status for task in zombies} == {TaskStatus.STOPPED}


@pytest.mark.parametrize("seed", seeds(24, fast=2, default=6))
def test_words_of_ec2_in_any_order_come_to_the_same_end(seed: int) -> None:
    """Lost, doubled, late and out of order: a change of state is a reason to look, and the look decides."""
    world, machine = idle(delivery=OnlyEc2Unruly(seed))
    world.fleet.announce(health.impair, machine, StatusCheck.SYSTEM)
    until(world, machine, InstanceStatus.REPLACING)
    until(world, machine, InstanceStatus.AVAILABLE)
    world.let_pass(900)
    assert status(world, machine) is InstanceStatus.AVAILABLE
    assert len(world.calls("StopInstances")) == len(world.calls("StartInstances")) == 1


def test_a_fault_that_only_another_host_cures_is_cured() -> None:
    """The ladder to its end: the check asks for a replacement, and the check after it passes."""
    world, machine = idle()
    world.break_gpu(machine, "ecc", CuredBy.REPLACE)
    world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", "IMPAIRED", "XID_48")
    until(world, machine, InstanceStatus.REPLACING)
    until(world, machine, InstanceStatus.AVAILABLE)
    assert not machine.faults
