"""What people do in ECS beside the product: deregister an instance, drain it, stop a rank. Each with its mails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.cluster_snapshot import is_usable
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import JobStatus

from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import ContainerInstanceStatus
from simulator.cloud.power import VirtualPower
from simulator.cloud.task_environment import environment
from simulator.faults.instances import NodeAgentSilent
from simulator.faults.operators import DeregisteredByHand, DrainedByHand, QuarantinedByHand, RepairsPaused
from simulator.world import World
from tests.simulator import incidents


def subjects(world: World) -> list[str]:
    """The subjects of all mails, with the names of instances in place of their ids."""
    names = {machine.instance_id: machine.tags["Name"] for machine in world.model_instances()}
    told = [message.subject.rsplit("] ", 1)[-1] for message in world.messages()]
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
    assert subjects(world) == ["gpu-1: deregistered under running ranks", "gpu-1: in use again"]
    assert f"{job_id}--a01" in world.messages()[0].body and "the attempt is not counted" in world.messages()[0].body


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


def test_a_person_who_quarantines_an_instance_during_the_reboot_of_a_rank_fails_no_job() -> None:
    """The reboot that is to end the rank is ordered already. Its end is confirmed, and the job goes on elsewhere."""
    world, job_id = incidents.running(instances=4)
    machine = world.model_instance(0)
    world.fleet.stuck.add(machine.instance_id)
    world.exit(job_id, 1, 139)
    world.until(lambda: bool(world.calls("RebootInstances")), "not rebooted", 5400)
    assert world.instance(machine).status is InstanceStatus.REBOOTING
    QuarantinedByHand(at_s=0, machines=(0,)).strike(world)
    world.let_pass(30)
    job = world.job(job_id)
    assert (job.status, job.attempt) == (JobStatus.STOPPING, 1), job.reason
    assert "rebooting to end them" in job.reason
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 1200)
    assert machine.instance_id not in world.job(job_id).instances
    assert world.instance(machine).status is InstanceStatus.QUARANTINED
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def quarantined_and_deregistered(**given: Any) -> tuple[World, str]:
    """A person quarantines the instance of rank 1, and then deregisters it by force."""
    world, job_id = incidents.running(instances=4, train_s=7200.0, **given)
    QuarantinedByHand(at_s=0, machines=(1,)).strike(world)
    world.let_pass(60)
    DeregisteredByHand(at_s=0, machines=(1,), registers_every_s=60).strike(world)
    world.let_pass(120)
    return world, job_id


def test_a_person_who_quarantined_an_instance_is_asked_to_end_its_orphan() -> None:
    """The instance is not rebooted, and the job waits for its orphan: the person hears of both at once."""
    world, job_id = quarantined_and_deregistered()
    assert subjects(world) == ["gpu-1: taken out of use by an operator", "gpu-1: deregistered under running ranks"]
    told = world.messages()[-1]
    assert "it is not rebooted" in told.body and "Reboot the instance, and release it" in told.body
    assert world.messages()[0].incident_id == told.incident_id and not world.calls("RebootInstances")
    world.let_pass(600)
    assert len(world.messages()) == 2
    machine = world.model_instance(1)
    world.fleet.reboot(machine.instance_id)
    world.let_pass(300)
    world.release(machine)
    incidents.ended(world, job_id)
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.SUCCEEDED, 2)
    assert world.instance(machine).status is InstanceStatus.AVAILABLE


def test_a_job_names_the_orphan_that_only_a_person_can_end() -> None:
    """In STOPPING and at its end, with what the person can do. No reboot is claimed, and nothing else runs."""
    world, job_id = quarantined_and_deregistered()
    orphan, sick = world.rank(job_id, 1), world.model_instance(1).instance_id
    names = (f"{sick} is not rebooted: {job_id}--a01 may still run on it", "quarantined by an operator: a fan is loud")
    act = "reboot and release it, or terminate it"
    for tries in (1, 2):
        world.until(lambda n=tries: world.job(job_id).stop_tries == n, "no deadline", 600)  # type: ignore[misc]
        job = world.job(job_id)
        assert job.status is JobStatus.STOPPING and all(words in job.reason for words in (*names, act)), job.reason
        assert "rebooting" not in job.reason
    job = world.until_end(job_id)
    assert job.status is JobStatus.FAILED and job.attempt == 1 and orphan.runs
    assert all(words in world.messages()[-1].body for words in (*names, act, job.reason))
    world.fleet.terminate(world.model_instance(1))
    world.until(lambda: not world.job(job_id).claims_kept, "its GPUs stay claimed", 120)


def test_a_job_says_that_a_limit_holds_the_reboot_back_that_is_to_end_its_rank() -> None:
    """Recovery is paused. Later the reboot takes place, and the job goes on."""
    world, job_id = incidents.running(instances=3)
    RepairsPaused(at_s=0, for_s=7200).strike(world)
    world.fleet.stuck.add(world.model_instance(0).instance_id)
    world.exit(job_id, 1, 139)
    world.until(lambda: world.instance(world.model_instance(0)).held is not None, "not held", 900)
    world.until(lambda: "cannot be stopped; " in world.job(job_id).reason, "the reason is not named", 5400)
    assert "is not rebooted: " in world.job(job_id).reason and "recovery is paused by" in world.job(job_id).reason
    incidents.ended(world, job_id)
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.SUCCEEDED, 2)


def test_a_release_gives_back_no_instance_with_an_orphan() -> None:
    """A rank of its job runs on, unknown to ECS: it is not "in use again" without a proof of the end."""
    world, job_id = quarantined_and_deregistered()
    orphan, machine = world.rank(job_id, 1), world.model_instance(1)
    world.release(machine)
    world.until(lambda: world.instance(machine).status is InstanceStatus.QUARANTINED, "not quarantined", 600)
    assert orphan.runs and "reboot it, then release it" in world.instance(machine).reason
    assert "gpu-1: in use again" not in subjects(world)


def _leaves_and_returns(world: World, way: str, number: int = 0) -> None:
    """The instance leaves the cluster in one of the ways in which people do that, and registers again."""
    machine = world.model_instance(number)
    if way == "deregistered":
        DeregisteredByHand(at_s=0, machines=(number,), registers_every_s=60).strike(world)
    elif way == "stopped and started":
        VirtualPower(world.fleet).stop([machine.instance_id])
        world.let_pass(300)
        assert world.instance(machine).status is InstanceStatus.GONE
        VirtualPower(world.fleet).start([machine.instance_id])
    elif way == "agent with an empty data directory":
        DeregisteredByHand(at_s=0, machines=(number,), registers_every_s=1).strike(world)
    else:
        world.fleet.reboot(machine.instance_id)
    world.let_pass(900)


WAYS = ("deregistered", "stopped and started", "agent with an empty data directory", "rebooted")


@pytest.mark.parametrize("way", WAYS)
def test_the_quarantine_of_a_person_outlasts_every_return_of_the_instance(way: str) -> None:
    """It is drained again under its new registration, gets no check and no job, and its release still works (I13)."""
    world = World(instances=1, train_s=600)
    machine = world.model_instance(0)
    QuarantinedByHand(at_s=0, machines=(0,)).strike(world)
    world.let_pass(60)
    _leaves_and_returns(world, way)
    job_id = world.submit(1)
    world.let_pass(600)
    record = world.instance(machine)
    assert record.status is InstanceStatus.QUARANTINED and "a fan is loud" in record.reason, record.reason
    assert machine.status is ContainerInstanceStatus.DRAINING
    assert not world.ranks(job_id) and record.checks == 0
    world.release(machine)
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def test_a_registration_that_ends_with_its_instance_reboots_nothing() -> None:
    """A group scales in: ECS says INACTIVE, EC2 says terminated, and the job goes on at once."""
    world, job_id = incidents.running(instances=3, train_s=7200.0)
    world.fleet.terminate(world.model_instance(1))
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 120)
    assert not world.calls("RebootInstances")
    assert world.instance(world.model_instance(1)).status is InstanceStatus.GONE


# -- an instance that a person drains ----------------------------------------------------------------------------------


def drained(for_s: float = 0, **given: Any) -> tuple[World, str]:
    """A gang of two with spares; a person drains the instance of rank 1, then a rank crashes."""
    world, job_id = incidents.running(**{"instances": 4, "train_s": 7200.0, **given})
    DrainedByHand(at_s=0, machines=(1,), for_s=for_s).strike(world)
    world.let_pass(5)
    world.exit(job_id, 0, 139)
    return world, job_id


def test_a_job_does_not_wait_for_the_check_of_an_instance_that_a_person_drained() -> None:
    """ECS starts no check there. After a minute it counts as one that could not tell, and the instance is left out."""
    world, job_id = drained()
    begun = world.timeline.now
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt")
    assert (world.timeline.now - begun).total_seconds() < 180
    left_out = world.model_instance(1)
    assert left_out.instance_id not in world.job(job_id).instances
    record = world.instance(left_out)
    assert record.status is InstanceStatus.AVAILABLE and not is_usable(record)
    assert "set to DRAINING in ECS, not by gpu-recovery" in record.reason
    assert any("set to DRAINING in ECS" in entry.reason for entry in record.history[:-1])
    never = [message for message in world.messages() if "its health check never started" in message.subject]
    assert len(never) == 1
    world.until_status(job_id, JobStatus.RUNNING, 120)
    world.until(lambda: len(subjects(world)) == 3, "no third message")
    assert "set to DRAINING in ECS, not by gpu-recovery" in never[0].body
    assert "aws ecs update-container-instances-state" in never[0].body and "--status ACTIVE" in never[0].body
    assert subjects(world) == [
        f"{job_id}: attempt 1 failed, recovering",
        "gpu-1: its health check never started",
        f"{job_id}: recovered on attempt 2",
    ]
    assert "INCONCLUSIVE (it is set to DRAINING in ECS" in " ".join(entry.reason for entry in world.job(job_id).history)


def test_a_check_that_a_person_lets_begin_within_the_minute_counts() -> None:
    """Set ACTIVE again in time: the check starts, and its result decides."""
    world, job_id = drained(for_s=40)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt")
    assert not [message for message in world.messages() if "never started" in message.subject]


def test_an_instance_that_a_person_drained_gets_work_again_once_it_is_active() -> None:
    """Nothing else is needed: it is not quarantined and not checked."""
    world, job_id = drained(instances=2)
    world.until(lambda: world.job(job_id).status is JobStatus.RECOVERING, "not assessed")
    world.let_pass(600)
    assert world.job(job_id).attempt == 1
    machine = world.model_instance(1)
    world.fleet.set_state(machine, ContainerInstanceStatus.ACTIVE)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 120)


def drained_under_repair(for_s: float = 0) -> tuple[World, ModelInstance]:
    """An instance that a person drains during its health check. The check finds a fault, and the instance reboots."""
    world, job_id = incidents.running(instances=4, train_s=7200.0)
    sick = world.model_instance(1)
    world.break_gpu(sick)
    world.until_status(job_id, JobStatus.DIAGNOSING)
    world.until(lambda: bool(getattr(world.instance(sick).check, "task_id", "")), "the check has not started")
    DrainedByHand(at_s=0, machines=(1,), for_s=for_s).strike(world)
    world.until(lambda: world.instance(sick).status is InstanceStatus.VERIFYING, "not rebooted")
    return world, sick


def test_the_check_after_a_repair_does_not_wait_long_for_an_instance_that_a_person_drained() -> None:
    """After five minutes the person hears what to do; the check that they then allow returns the instance."""
    world, sick = drained_under_repair()
    world.until(lambda: world.instance(sick).status is InstanceStatus.QUARANTINED, "still waiting", 420)
    assert "set to DRAINING in ECS, not by gpu-recovery; set it to ACTIVE, then release" in world.instance(sick).reason
    assert "gpu-1: quarantined, needs an operator" in subjects(world)
    world.fleet.set_state(sick, ContainerInstanceStatus.ACTIVE)
    world.let_pass(5)
    world.release(sick)
    world.until(lambda: world.instance(sick).status is InstanceStatus.AVAILABLE, "not given back", 600)


def test_the_check_after_a_repair_starts_once_a_person_sets_the_instance_active() -> None:
    """Within the five minutes nobody is asked."""
    world, sick = drained_under_repair(for_s=400)
    world.until(lambda: world.instance(sick).status is InstanceStatus.AVAILABLE, "not given back", 600)
    assert not [entry for entry in world.instance(sick).history if entry.after == InstanceStatus.QUARANTINED]


def test_our_own_drain_is_not_taken_for_a_persons() -> None:
    """An instance that is rebooted is DRAINING, too; its check after the boot has its whole time."""
    world, _ = incidents.running(instances=3, train_s=7200.0)
    sick = world.model_instance(0)
    world.break_gpu(sick)
    world.until(lambda: world.instance(sick).status is InstanceStatus.VERIFYING, "not rebooted")
    assert not [entry for entry in world.instance(sick).history if "not by gpu-recovery" in entry.reason]


# -- a rank that a person stops ----------------------------------------------------------------------------------------


def test_a_stopped_rank_cancels_the_job_and_operators_are_told() -> None:
    """One mail with who, what it did to the job, and how to move a job without losing it."""
    world, job_id = incidents.user_stop()
    assert world.job(job_id).status is JobStatus.CANCELED
    (told,) = world.messages()
    assert told.subject == f"[GPU-RECOVERY][SEV3] {job_id}: a user stopped a rank, the job is CANCELED"
    assert "maintenance" in told.body and "gpu-recovery suspend" in told.body
    assert "relaunch_after_manual_stop" in told.body


def test_a_stopped_rank_is_recovered_from_if_the_policy_says_so() -> None:
    """Uncounted, from the last checkpoint; still with a mail."""
    world, job_id = incidents.user_stop(policy=replace(incidents.ADAPTIVE, relaunch_after_manual_stop=True))
    job = world.job(job_id)
    assert (job.status, job.attempt, job.attempts_counted) == (JobStatus.SUCCEEDED, 2, 0)
    (told,) = world.messages()
    assert told.subject == f"[GPU-RECOVERY][SEV3] {job_id}: a user stopped a rank, the job continues"


@pytest.mark.parametrize("relaunches", [False, True])
def test_a_rank_that_a_person_stops_before_it_runs_counts_as_one_that_runs(relaunches: bool) -> None:
    """The job is SUBMITTED. It is CANCELED, or relaunched if the policy says so, and operators get the same mail."""
    world = World(train_s=600.0, policy=replace(incidents.ADAPTIVE, relaunch_after_manual_stop=relaunches))
    job_id = world.submit()
    world.until_status(job_id, JobStatus.SUBMITTED)
    (task,) = [task for task in world.cluster.tasks.values() if environment(task)["RANK"] == "1"]
    world.stop_by_hand(task, "maintenance")
    incidents.ended(world, job_id)
    job = world.job(job_id)
    ends = (JobStatus.SUCCEEDED, 2) if relaunches else (JobStatus.CANCELED, 1)
    assert (job.status, job.attempt, job.attempts_counted) == (*ends, 0)
    goes = "continues" if relaunches else "is CANCELED"
    assert subjects(world) == [f"{job_id}: a user stopped a rank, the job {goes}"]


def test_a_job_moves_off_an_instance_with_the_commands_of_the_runbook() -> None:
    """`quarantine`, `suspend`, `resume`: it goes on elsewhere, and no attempt is counted."""
    world, job_id = incidents.running(instances=3, train_s=7200.0)
    machine = world.model_instance(0)
    QuarantinedByHand(at_s=0, machines=(0,)).strike(world)
    world.suspend(job_id)
    world.until_status(job_id, JobStatus.SUSPENDED, 300)
    world.resume(job_id)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 300)
    assert machine.instance_id not in world.job(job_id).instances and world.job(job_id).attempts_counted == 0
    world.release(machine)
    world.until(lambda: world.instance(machine).status is InstanceStatus.AVAILABLE, "not given back", 600)


# -- a released instance, on which a job still works, is checked -------------------------------------------------------


def released_under_a_job(**given: Any) -> tuple[World, str]:
    """A person quarantines the instance of rank 1, whose agent is silent, and releases it: it must pass a check."""
    world, job_id = incidents.running(instances=4, train_s=7200.0, agents=True, **given)
    world.let_pass(120)
    NodeAgentSilent(at_s=0, machines=(1,), for_s=7200).strike(world)
    world.until(lambda: world.instance(world.model_instance(1)).silent_since is not None, "it is heard of", 600)
    released(world)
    return world, job_id


def released(world: World) -> None:
    """A person quarantines instance 1 and releases it, and a rank still holds its GPUs: its check cannot start."""
    machine = world.model_instance(1)
    QuarantinedByHand(at_s=0, machines=(1,)).strike(world)
    world.let_pass(2)
    world.release(machine)
    assert world.instance(machine).status is InstanceStatus.VERIFYING and world.instance(machine).claims
    world.let_pass(10)


@pytest.mark.parametrize("registers_every_s", [1, 60])
def test_an_orphan_under_the_check_of_a_release_is_ended_by_a_reboot(registers_every_s: float) -> None:
    """No reboot was under way that would end it. The check of the release does not run beside it (I1)."""
    world, job_id = released_under_a_job()
    orphan = world.rank(job_id, 1)
    DeregisteredByHand(at_s=0, machines=(1,), registers_every_s=registers_every_s).strike(world)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 1200)
    assert not orphan.runs and len(world.calls("RebootInstances")) == 1
    assert "gpu-1: deregistered under running ranks" in subjects(world)
    incidents.ended(world, job_id)
    assert world.instance(world.model_instance(1)).status is InstanceStatus.AVAILABLE


def test_no_check_runs_beside_the_orphan_of_a_job_that_is_only_observed() -> None:
    """Its instance is not rebooted for it. The check of the release takes no GPU, and a person is asked (I1)."""
    world = World(instances=2, train_s=7200.0, agents=True, adoption=Adoption.OBSERVE)
    machine = world.model_instance(1)
    world.let_pass(5)
    orphan = world.start_by_hand(incidents.HAND_JOB, 0, 1, machine)
    world.until(lambda: bool(world.instance(machine).claims), "not adopted")
    world.let_pass(120)
    NodeAgentSilent(at_s=0, machines=(1,), for_s=7200).strike(world)
    world.until(lambda: world.instance(machine).silent_since is not None, "it is heard of", 600)
    released(world)
    DeregisteredByHand(at_s=0, machines=(1,), registers_every_s=1).strike(world)
    world.until(lambda: world.instance(machine).status is InstanceStatus.QUARANTINED, "no person is asked", 600)
    assert orphan.runs and "reboot it, then release it" in world.instance(machine).reason
    assert not world.calls("RebootInstances")


def test_a_rank_that_cannot_be_stopped_under_the_check_of_a_release_is_ended_by_a_reboot() -> None:
    """The job does not wait for the deadline of a check that cannot start, and it does not fail."""
    world, job_id = released_under_a_job()
    world.fleet.stuck.add(world.model_instance(1).instance_id)
    world.exit(job_id, 0, 139)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 1200)
    assert len(world.calls("RebootInstances")) == 1
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED
