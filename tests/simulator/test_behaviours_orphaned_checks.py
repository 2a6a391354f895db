"""What follows when a person deregisters an instance by force under its health check: the check runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import RecoveryPolicy

from sandbox.cluster.model.records import Task
from simulator.cloud.task_environment import environment
from simulator.cloud.workloads import ScriptedCheck
from simulator.faults.delivery import Delivery, Envelope, is_task, losing, prompt
from simulator.faults.operators import DeregisteredByHand, QuarantinedByHand
from simulator.world import World
from tests.simulator import incidents

RETRIES = RecoveryPolicy(retry_exits=True)


def ends_registration(envelope: Envelope) -> bool:
    """Whether the event reports the end of a registration."""
    return not is_task(envelope) and envelope["detail"].get("status") == "INACTIVE"


def checks(world: World) -> list[Task]:
    """The health checks that run now."""
    return [task for task in world.fleet.running() if "CHECK_ID" in environment(task)]


def deregistered(registers_every_s: float, **given: Any) -> tuple[World, str, Task]:
    """A rank fails on the only instance, and a person deregisters the instance by force in the middle of its check."""
    world, job_id = incidents.running(1, **{"policy": RETRIES, **given})
    world.exit(job_id, 0, 1)
    world.until(lambda: bool(checks(world)), "no check began", 300)
    (check,) = checks(world)
    world.let_pass(20)
    DeregisteredByHand(at_s=0, machines=(0,), registers_every_s=registers_every_s).strike(world)
    return world, job_id, check


@pytest.mark.parametrize("lost", [None, ends_registration, is_task], ids=["none", "its end", "of tasks"])
@pytest.mark.parametrize("registers_every_s", [1, 30, 400])
def test_nothing_runs_beside_the_check_of_an_ended_registration(
    registers_every_s: float, lost: Callable[[Envelope], bool] | None
) -> None:
    """ECS counts the GPUs as free at once. The next task starts when the check has ended (I1 after each step)."""
    delivery: Delivery = losing(lost) if lost else prompt
    world, job_id, check = deregistered(registers_every_s, delivery=delivery)
    world.until(lambda: not check.runs, "the check never ended", 300)
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert world.instance(world.model_instance(0)).status is InstanceStatus.AVAILABLE
    assert not world.calls("RebootInstances")


def test_the_verdict_document_of_the_check_counts() -> None:
    """The instance has registered again before its check ends: the same check returns it to work, and no other runs."""
    world, job_id, _ = deregistered(1)
    incidents.ended(world, job_id)
    assert world.instance(world.model_instance(0)).checks == 1


def test_a_job_does_not_wait_for_a_check_that_ecs_no_longer_knows() -> None:
    """Its instance never registers again. The attempt goes on at once, on the spare."""
    world, job_id, check = deregistered(0, instances=2)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 30)
    assert check.runs and check.instance_id not in world.job(job_id).instances


def test_the_instance_is_gone_when_its_check_has_ended() -> None:
    """The registration is over, so nothing can be placed on the instance."""
    world, _, check = deregistered(0)
    instance = world.model_instance(0)
    assert world.instance(instance).status is InstanceStatus.CHECKING
    world.until(lambda: world.instance(instance).status is InstanceStatus.GONE, "it never left", 300)
    assert not check.runs


def test_a_check_that_a_boot_has_ended_is_repeated_at_its_deadline() -> None:
    """The instance reboots and registers again: no document comes, and that is no evidence against the instance."""
    world, job_id, check = deregistered(0)
    instance = world.model_instance(0)
    world.fleet.reboot(instance.instance_id)
    world.until(lambda: not check.runs, "it did not boot", 300)
    world.let_pass(300)
    world.fleet.register_again(instance)
    world.until(lambda: world.instance(instance).status is InstanceStatus.AVAILABLE, "never in use again", 3600)
    assert world.instance(instance).checks == 2
    incidents.ended(world, job_id)


def test_a_check_that_hangs_after_its_registration_is_for_an_operator() -> None:
    """The node agent reports no boot, so its process still holds the GPUs (I1). A second check runs after a reboot."""
    world, job_id = incidents.running(1, policy=RETRIES, agents=True)
    instance = world.model_instance(0)
    world.checks.script(instance, ScriptedCheck(None))
    world.exit(job_id, 0, 1)
    world.until(lambda: bool(checks(world)), "no check began", 300)
    DeregisteredByHand(at_s=0, machines=(0,), registers_every_s=1).strike(world)
    world.until(lambda: world.instance(instance).status is InstanceStatus.QUARANTINED, "no operator was asked", 3600)
    assert "only a boot ends it" in world.instance(instance).reason and world.instance(instance).checks == 1
    world.fleet.reboot(instance.instance_id)
    world.let_pass(600)
    world.release(instance)
    world.until(lambda: world.instance(instance).status is InstanceStatus.AVAILABLE, "never in use again", 3600)
    incidents.ended(world, job_id)


def test_an_instance_that_is_terminated_under_its_check_leaves_at_once() -> None:
    """ECS ends the registration, and EC2 says that the instance is off."""
    world, job_id, _ = deregistered(0, instances=2)
    world.fleet.terminate(world.model_instance(0))
    instance = world.model_instance(0)
    world.until(lambda: world.instance(instance).status is InstanceStatus.GONE, "it never left", 180)
    incidents.ended(world, job_id)


# -- an operator quarantines and releases ------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [None, is_task], ids=["none", "of tasks"])
@pytest.mark.parametrize("after_s", [2, 30])
def test_a_release_starts_no_check_beside_the_orphaned_check(
    after_s: float, lost: Callable[[Envelope], bool] | None
) -> None:
    """The instance is checked for the release when the earlier check has ended (I1 after each step)."""
    world, job_id, check = deregistered(1, delivery=losing(lost) if lost else prompt)
    instance = world.model_instance(0)
    world.let_pass(5)
    QuarantinedByHand(at_s=0, machines=(0,)).strike(world)
    world.let_pass(after_s)
    world.release(instance)
    assert check.runs and world.instance(instance).status is InstanceStatus.VERIFYING
    assert "an earlier check may still run, unknown to ECS" in world.instance(instance).reason
    world.until(lambda: world.instance(instance).status is InstanceStatus.AVAILABLE, "not given back", 900)
    assert not check.runs and world.instance(instance).checks == 2
    incidents.ended(world, job_id)


def test_an_orphaned_check_without_an_answer_delays_a_release_until_its_deadline_at_most() -> None:
    """A boot has ended the check, and no node agent tells. The time in quarantine counts."""
    world, job_id, check = deregistered(0)
    instance = world.model_instance(0)
    world.fleet.reboot(instance.instance_id)
    world.until(lambda: not check.runs, "it did not boot", 300)
    world.let_pass(300)
    world.fleet.register_again(instance)
    QuarantinedByHand(at_s=0, machines=(0,)).strike(world)
    begun = world.timeline.now
    world.let_pass(1200)
    world.release(instance)
    world.until(lambda: world.instance(instance).status is InstanceStatus.AVAILABLE, "not given back", 3600)
    assert (world.timeline.now - begun).total_seconds() < RETRIES.verify_timeout_s
    incidents.ended(world, job_id)


def test_a_release_after_the_time_of_the_orphaned_check_waits_for_nothing() -> None:
    """The check has given up by itself long ago, so the check of the release begins at once."""
    world, job_id, _ = deregistered(1)
    instance = world.model_instance(0)
    world.let_pass(5)
    QuarantinedByHand(at_s=0, machines=(0,)).strike(world)
    world.let_pass(RETRIES.verify_timeout_s)
    world.release(instance)
    assert world.instance(instance).checks == 2
    world.until(lambda: world.instance(instance).status is InstanceStatus.AVAILABLE, "not given back", 120)
    incidents.ended(world, job_id)


@pytest.mark.parametrize("registers_every_s", [0, 1], ids=["never registered again", "deregistered once more"])
def test_an_instance_in_quarantine_leaves_when_the_time_of_its_orphaned_check_is_over(registers_every_s: float) -> None:
    """A person took it out of the cluster, so no operator is reminded of it for ever."""
    world, _, _ = deregistered(registers_every_s)
    instance = world.model_instance(0)
    world.let_pass(5)
    QuarantinedByHand(at_s=0, machines=(0,)).strike(world)
    world.let_pass(RETRIES.verify_timeout_s)
    assert registers_every_s == 0 or world.instance(instance).status is InstanceStatus.QUARANTINED
    if registers_every_s:
        DeregisteredByHand(at_s=0, machines=(0,), registers_every_s=0).strike(world)
    world.until(lambda: world.instance(instance).status is InstanceStatus.GONE, "it never left", 300)


# -- a person reboots --------------------------------------------------------------------------------------------------


def rebooted(world: World, check: Task) -> None:
    """A person reboots the only instance under its orphaned check; its node agent reports the boot."""
    world.fleet.reboot(world.model_instance(0).instance_id)
    world.until(lambda: not check.runs, "it did not boot", 300)


@pytest.mark.parametrize("registers_every_s", [1, 400], ids=["registered before", "registers after"])
def test_a_boot_ends_the_wait_for_the_orphaned_check(registers_every_s: float) -> None:
    """No instance waits for the deadline of a check that is over. It is checked afresh, and the job gets it."""
    world, job_id, check = deregistered(registers_every_s, agents=True)
    instance = world.model_instance(0)
    world.let_pass(5)
    rebooted(world, check)
    begun = world.timeline.now
    world.until(lambda: world.instance(instance).status is InstanceStatus.AVAILABLE, "never in use again", 900)
    assert (world.timeline.now - begun).total_seconds() < 900 and world.instance(instance).checks == 2
    incidents.ended(world, job_id)


def test_an_instance_without_a_registration_is_gone_with_the_boot_that_ended_its_check() -> None:
    """It is not left in CHECKING until the deadline of the check."""
    world, _, check = deregistered(0, agents=True)
    rebooted(world, check)
    world.until(lambda: world.instance(world.model_instance(0)).status is InstanceStatus.GONE, "it never left", 300)


def test_a_boot_under_quarantine_lets_a_release_start_its_check_at_once() -> None:
    """The operator has rebooted the instance, and releases it."""
    world, job_id, check = deregistered(1, agents=True)
    instance = world.model_instance(0)
    world.let_pass(5)
    QuarantinedByHand(at_s=0, machines=(0,)).strike(world)
    rebooted(world, check)
    world.until(lambda: world.instance(instance).check is None, "the boot was not heard of", 600)
    world.release(instance)
    assert world.instance(instance).checks == 2
    world.until(lambda: world.instance(instance).status is InstanceStatus.AVAILABLE, "not given back", 600)
    incidents.ended(world, job_id)
