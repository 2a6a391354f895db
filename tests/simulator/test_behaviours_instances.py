"""What the machine itself says counts: before a reboot, after one, and when it is gone without a word."""

from __future__ import annotations

import pytest
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.events import CheckEnded, CheckRequested, RepairRequested
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.instance.record import Claim, InstanceStatus
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import JobStatus

from sandbox.cluster.model.records import Task
from simulator.actions import SimulatedActions
from simulator.world import World
from tests.simulator import incidents


def test_a_host_that_ec2_has_terminated_is_left_behind_though_ecs_says_nothing() -> None:
    """Its agent died first, so ECS lists its task as running for ever; a spare takes its place all the same."""
    world, job_id = incidents.running(instances=3)
    dead = world.model_instance(1)
    world.fleet.disconnect(dead)
    world.fleet.terminate(dead)
    world.exit(job_id, 0, 134)
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert dead.instance_id not in world.job(job_id).instances
    assert world.instance(dead).status is InstanceStatus.GONE


def blamed_while_a_stranger_works() -> tuple[World, Task]:
    """A machine that a check has blamed, and on which somebody's task has taken the GPUs since."""
    world = World(instances=1, train_s=86_400.0, adoption=Adoption.OFF)
    machine = world.model_instance(0)
    world.until(lambda: world.store.load_instance(machine.instance_id) is not None, "not registered")
    stranger = world.start_by_hand("somebody", 0, 1, machine)
    world.until(lambda: stranger in world.fleet.running(), "the stranger's task does not run")
    now = world.timeline.now
    asked = CheckRequested(at=now, job_id="sft-1", attempt=1, may_reboot=True)
    blame = CheckEnded(
        at=now,
        check_id=f"check/{machine.instance_id}/1",
        verdict=Verdict(CheckOutcome.REBOOT, "a GPU is broken", machine.boot_id),
    )
    for event in (asked, blame):
        world.recovery.handle(machine.instance_id, event)
    assert world.instance(machine).status is InstanceStatus.REBOOTING
    return world, stranger


@pytest.mark.parametrize("name", ["alice", "check/{machine}/1"])
def test_no_machine_is_rebooted_under_a_task_that_somebody_started_there(name: str) -> None:
    """The look before the reboot finds its GPUs in use: the reboot waits, and at its deadline a person is asked."""
    world, stranger = blamed_while_a_stranger_works()
    stranger.started_by = name.format(machine=stranger.instance_id)
    world.until(lambda: world.instance(world.model_instance(0)).status is InstanceStatus.QUARANTINED, "no escalation")
    assert not world.calls("RebootInstances")
    assert stranger in world.fleet.running()


def test_no_machine_is_rebooted_under_a_task_that_has_only_the_name_of_the_rank_that_the_reboot_ends() -> None:
    """A rank could not be stopped, and its instance is to be rebooted for it: the other task there is somebody's."""
    world = World(instances=1, train_s=86_400.0, adoption=Adoption.OFF)
    machine = world.model_instance(0)
    world.until(lambda: world.store.load_instance(machine.instance_id) is not None, "not registered")
    own, stranger = (world.start_by_hand("", rank, 2, machine, gpus=4) for rank in (0, 1))
    world.store.claim_instance(machine.instance_id, "sft-1", Claim(1, 4), None)
    own.started_by = stranger.started_by = "sft-1--a01"
    world.until(lambda: len(world.fleet.running()) == 2, "the tasks do not run")
    world.store.begin_attempt(Plan("sft-1", 1, (machine.instance_id,), task_ids=(own.task_id,)))
    asked = RepairRequested(at=world.timeline.now, job_id="sft-1", attempt=1, sentence="rank 0 cannot be stopped")
    world.ask(lambda: world.recovery.handle(machine.instance_id, asked))
    world.let_pass(120)
    assert world.instance(machine).status is InstanceStatus.REBOOTING and not world.calls("RebootInstances")
    world.stop_by_hand(stranger)
    world.until(lambda: bool(world.calls("RebootInstances")), "the rank kept its own reboot waiting")


def test_a_reboot_that_waited_for_somebody_is_made_once_they_have_left() -> None:
    """The order stays in the record until the GPUs are free."""
    world, stranger = blamed_while_a_stranger_works()
    world.let_pass(120)
    assert not world.calls("RebootInstances")
    world.stop_by_hand(stranger)
    world.until(lambda: bool(world.calls("RebootInstances")), "the reboot was never made")
    world.until(
        lambda: world.instance(world.model_instance(0)).status is InstanceStatus.AVAILABLE, "it never came back"
    )
    assert len(world.calls("RebootInstances")) == 1


def test_a_bus_and_a_topic_that_refuse_every_word_keep_no_job_from_healing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be said is raised and tried again, but nothing that heals waits for it."""

    def refuse(self: SimulatedActions, word: object) -> None:
        raise ConnectionRefusedError(f"nobody takes {type(word).__name__}")

    monkeypatch.setattr(SimulatedActions, "notify", refuse)
    monkeypatch.setattr(SimulatedActions, "publish", refuse)
    world, job_id = incidents.running()
    world.break_gpu(world.model_instance(0))
    world.until_status(job_id, JobStatus.SUCCEEDED)
    assert world.job(job_id).attempt == 2
    assert world.failures, "the refusals were swallowed"


def test_a_hung_machine_that_two_jobs_share_is_rebooted_for_both() -> None:
    """Neither rank can be stopped, so neither job can leave it for the other: one reboot ends both, and both go on."""
    world = World(instances=2, train_s=7200.0, agents=True)
    both = [world.submit(1, 4), world.submit(1, 4)]
    for job_id in both:
        world.until_status(job_id, JobStatus.RUNNING)
    (name,) = {world.job(job_id).instances[0] for job_id in both}
    world.let_pass(60)
    world.fleet.disconnect(world.cluster.instances[name])
    world.fleet.hang(world.cluster.instances[name])
    world.until(lambda: all(world.job(job_id).attempt == 2 for job_id in both), "not relaunched", 3_600)
    assert len(world.calls("RebootInstances")) == 1
    assert [world.until_end(job_id).status for job_id in both] == [JobStatus.SUCCEEDED] * 2
    world.check_end()
    assert world.instance(world.cluster.instances[name]).status is InstanceStatus.AVAILABLE
