"""Old evidence, repeated evidence, and evidence that says nothing: each has made somebody's system reboot or wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery import fleet_controls
from gpu_recovery.core.events import QuarantineRequested
from gpu_recovery.core.fleet import Breaker
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from sandbox.cluster.model import health
from simulator.faults.delivery import PROMPT_S
from simulator.world import World
from tests.simulator import incidents

DAY_S = 86_400.0
HOUR_S = 3_600.0


@pytest.mark.slow
def test_every_event_of_an_incident_told_again_days_later_repairs_nothing() -> None:
    """A restarted monitor that replays its past has rebooted healthy machines elsewhere."""
    kept: list[Mapping[str, Any]] = []

    def keep(envelope: Mapping[str, Any]) -> tuple[float, ...]:
        kept.append(envelope)
        return (PROMPT_S,)

    world, job_id = incidents.running(delivery=keep)
    world.fleet.announce(health.report_health, world.model_instance(0), "ACCELERATED_COMPUTE", "IMPAIRED", "XID_79")
    world.break_gpu(world.model_instance(0))
    world.until(lambda: bool(world.calls("RebootInstances")), "it was not rebooted")
    world, job_id = incidents.ended(world, job_id)
    world.fleet.announce(health.report_health, world.model_instance(0), "ACCELERATED_COMPUTE", "OK", None)
    world.let_pass(2 * DAY_S)
    told, before, healed = list(kept), world.job(job_id), len(world.invocations.done)
    assert {"ECS Task State Change", "ECS Container Instance State Change", "ECS Container Instance Health Change"} <= {
        envelope["detail-type"] for envelope in told
    }
    for envelope in told:
        world.deliver(envelope)
    world.let_pass(HOUR_S)
    assert world.job(job_id) == before
    acts = [step.name for step in world.invocations.done[healed:] if step.name.endswith(("Instances", "Task"))]
    assert acts == [] and {one.status for one in world.instances()} == {InstanceStatus.AVAILABLE}


def test_a_watcher_that_goes_on_complaining_does_not_put_the_repair_off() -> None:
    """Each complaint is newer than the last: a repair that waits for them to settle never begins."""
    world = World(instances=2)
    world.let_pass(5)
    machine = world.model_instance(0)
    world.break_gpu(machine)
    begun = world.timeline.now
    for number in range(20):
        world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", "IMPAIRED", f"XID_{79 + number % 2}")
        world.let_pass(30)
        if world.calls("RebootInstances"):
            break
    assert len(world.calls("RebootInstances")) == 1
    assert (world.timeline.now - begun).total_seconds() <= 300


def test_too_little_data_neither_blames_a_machine_nor_clears_one() -> None:
    """INSUFFICIENT_DATA is what a monitor says that has died itself."""
    world = World(instances=2, train_s=incidents.TRAIN_S)
    world.let_pass(5)
    machine = world.model_instance(0)
    world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", "INSUFFICIENT_DATA", None)
    world.let_pass(HOUR_S)
    assert world.calls("RunTask") == [] and world.instance(machine).status is InstanceStatus.AVAILABLE
    world.fleet.announce(health.report_health, machine, "DAEMON", "IMPAIRED", "a daemon failed")
    world.let_pass(5)
    world.fleet.announce(health.report_health, machine, "DAEMON", "INSUFFICIENT_DATA", None)
    job_id = world.submit(nnodes=2)
    world.let_pass(300)
    assert world.job(job_id).status is JobStatus.PENDING_RESOURCES


def test_what_got_well_while_recovery_was_paused_is_not_rebooted_afterwards() -> None:
    """The evidence is hours old when the brake is let go: a check looks first, and passes."""
    world, job_id = incidents.running(instances=3)
    sick = world.model_instance(0)
    fleet_controls.pause(world.recovery, "ada", "moving the cluster")
    world.break_gpu(sick)
    world.until(lambda: world.instance(sick).held is not None, "its repair was not held back")
    sick.faults.clear()
    world.let_pass(2 * HOUR_S)
    fleet_controls.unpause(world.recovery)
    world.until(lambda: world.instance(sick).status is InstanceStatus.AVAILABLE, "it did not come back")
    world.check_end()
    assert world.calls("RebootInstances") == [] and world.job(job_id).status is JobStatus.SUCCEEDED


def test_an_open_breaker_keeps_no_healthy_machine_from_work() -> None:
    """It holds repairs back, and nothing else: good news passes."""
    world, _ = incidents.running(10)
    for number in range(6):
        world.break_gpu(world.model_instance(number))
    world.until(lambda: world.store.load_fleet().breaker is Breaker.OPEN, "the breaker did not open")
    well = world.model_instance(8)
    world.until(lambda: world.instance(well).status is InstanceStatus.AVAILABLE, "its check has not ended")
    world.recovery.handle(well.instance_id, QuarantineRequested(at=world.timeline.now, by="an operator"))
    world.fleet.announce(health.report_health, well, "DAEMON", "IMPAIRED", "a daemon failed")
    world.let_pass(30)
    world.fleet.announce(health.report_health, well, "DAEMON", "OK", None)
    world.release(well)
    world.let_pass(240)
    assert world.store.load_fleet().breaker is Breaker.OPEN
    record = world.instance(well)
    assert (record.status, record.avoid_reason) == (InstanceStatus.AVAILABLE, "") and not record.withdrawn


@pytest.mark.parametrize("gpus", [8, 0], ids=["machines with GPUs", "machines without"])
def test_machines_without_gpus_are_not_in_the_brakes_reckoning(gpus: int) -> None:
    """A share of all machines would be a limit that no fault of GPUs ever reaches, or that nothing holds."""
    world = World(instances=4, policy=replace(incidents.ADAPTIVE, repair_budget_percent=50))
    for _ in range(4):
        world.fleet.launch(gpus)
    world.let_pass(120)
    assert world.store.load_fleet().gpu_instances == (8 if gpus else 4)
