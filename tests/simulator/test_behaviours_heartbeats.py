"""Heartbeats through the whole product: what must not come of them."""

from __future__ import annotations

import pytest
from gpu_recovery.core.events import InstanceSilent, QuarantineRequested
from gpu_recovery.core.heartbeat import AgentReport, GpuHealth, RankExit, ReportedXid
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver

from sandbox.cluster.model.records import ModelInstance
from simulator.world import World


def reporting(instances: int) -> World:
    """A world whose agents have spoken."""
    world = World(instances=instances, agents=True)
    world.let_pass(60)
    return world


def host_of(world: World, job_id: str, rank: int) -> ModelInstance:
    """The machine on which the rank runs."""
    return world.cluster.instances[world.rank(job_id, rank).instance_id]


def hang(world: World, machine: ModelInstance) -> None:
    """Nothing on the machine answers any more."""
    world.fleet.disconnect(machine)
    world.fleet.hang(machine)


def report(world: World, machine: ModelInstance, sequence: int, **said: object) -> AgentReport:
    """What an agent of the machine reports."""
    uptime_s = (world.timeline.now - machine.booted_at).total_seconds()
    given: dict[str, object] = {"running": (), "health": GpuHealth.OK, **said}
    return AgentReport(machine.instance_id, machine.boot_id, uptime_s, sequence, interval_s=15, **given)  # type: ignore[arg-type]


def test_a_machine_whose_check_passes_after_an_xid_is_used_again() -> None:
    """The agent goes on saying that all is well: its word of the XID is taken back."""
    world = World(instances=2)
    hearing, machine = HeartbeatReceiver(world.recovery), world.model_instance(0)
    hearing.receive(report(world, machine, 1))
    hearing.receive(report(world, machine, 2, xids=(ReportedXid(109, "GPU-1"),)))
    assert world.instance(machine).status is InstanceStatus.CHECKING
    world.until(world.is_quiet, "the check did not end")
    for sequence in range(3, 12):
        world.let_pass(15)
        hearing.receive(report(world, machine, sequence))
    assert world.instance(machine).status is InstanceStatus.AVAILABLE and not world.instance(machine).avoid_reason
    world.until_status(world.submit(2), JobStatus.RUNNING)


def test_what_an_agent_says_of_its_gpus_is_told_even_if_nobody_listened_at_first() -> None:
    """The function died between writing it and telling of it: the word still reaches the record."""
    world = World(instances=2)
    hearing, machine = HeartbeatReceiver(world.recovery), world.model_instance(0)
    hearing._handle_event = lambda to, event: None  # type: ignore[method-assign]
    hearing.receive(report(world, machine, 1, health=GpuHealth.IMPAIRED))
    assert world.instance(machine).status is InstanceStatus.AVAILABLE
    world.let_pass(60)
    assert world.instance(machine).status is InstanceStatus.CHECKING


def test_a_host_that_hung_while_its_gang_started_makes_the_job_lost_all_the_same() -> None:
    """The silence was told while not every rank ran, and nobody listened: it is told again."""
    world = reporting(5)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(60)
    machine = host_of(world, job_id, 0)
    hang(world, machine)
    world.let_pass(170)
    seen_at = world.store.load_heartbeats([machine.instance_id])[machine.instance_id].seen_at
    unheard = InstanceSilent(at=world.timeline.now, seen_at=seen_at, heard={})  # as long as no job listens
    world.recovery.handle(machine.instance_id, unheard)
    assert world.job(job_id).status is JobStatus.RUNNING
    world.until_status(job_id, JobStatus.LOST, 300)


@pytest.mark.parametrize("fate", ["scaled in", "silent"])
def test_a_rank_that_has_succeeded_takes_nobody_with_it(fate: str) -> None:
    """Its end is confirmed: what becomes of its machine is no matter of the others."""
    world = reporting(6)
    job_id = world.submit(3)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(120)
    machine = host_of(world, job_id, 0)
    world.exit(job_id, 0, 0)
    world.let_pass(400)
    assert world.job(job_id).status is JobStatus.RUNNING
    world.fleet.terminate(machine) if fate == "scaled in" else hang(world, machine)
    world.let_pass(1_800)
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.RUNNING, 1)


def test_a_machine_that_reports_is_not_dead_because_its_ecs_agent_is_away() -> None:
    """Its agent only says nothing of the rank: whoever speaks lives."""
    world = reporting(5)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(60)
    machine = host_of(world, job_id, 0)
    assert world.agents is not None
    world.agents.unable.add(machine.instance_id)
    world.until_status(job_id, JobStatus.LOST, 600)
    world.fleet.disconnect(machine)
    world.until_status(job_id, JobStatus.RUNNING, 3_600)
    assert world.job(job_id).attempt == 1 and not world.fleet.boots


def test_a_dead_machine_that_waits_for_a_person_does_not_make_the_fleet_deaf() -> None:
    """It says nothing of the network: the next that hangs is recovered from."""
    world = reporting(6)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    idle = next(one for one in world.model_instances() if one.instance_id not in world.job(job_id).instances)
    order = QuarantineRequested(at=world.timeline.now, by="ada", because="its board is dead")
    world.recovery.handle(idle.instance_id, order)
    hang(world, idle)
    world.let_pass(600)
    hang(world, host_of(world, job_id, 0))
    world.until(lambda: world.job(job_id).attempt == 2, "it was not recovered", 3 * 3600)
    assert world.store.load_fleet().deaf is None


def test_a_token_speaks_about_the_ranks_of_its_own_instance_only() -> None:
    """Another machine's word about a rank brings nothing forward."""
    world = World(instances=3)
    job_id = world.submit(2)
    world.until_status(job_id, JobStatus.RUNNING)
    other = next(one for one in world.model_instances() if one.instance_id not in world.job(job_id).instances)
    before = world.job(job_id)
    HeartbeatReceiver(world.recovery).receive(report(world, other, 1, exits=(RankExit(job_id, 1, 0, code=1),)))
    assert world.job(job_id) == before
