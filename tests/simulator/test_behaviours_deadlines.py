"""Behaviours 4 and 5: nothing waits for ever, every escalation is told, and no repair goes round in circles."""

from __future__ import annotations

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import RecoveryPolicy

from sandbox.cluster.model.statuses import CuredBy, RebootBehaviour
from simulator.faults.aws_notifications import StatusCheckFails
from simulator.faults.operators import RepairsPaused
from simulator.world import World
from tests.simulator import incidents


def serious(world: World) -> list[str]:
    """The subjects of the messages that need a person."""
    return [message.subject for message in world.messages() if "[SEV2]" in message.subject]


@pytest.mark.parametrize("behaviour", [RebootBehaviour.SILENT, RebootBehaviour.IGNORED], ids=str)
@pytest.mark.parametrize("policy", [incidents.ADAPTIVE, incidents.CLASSIC], ids=["adaptive", "classic"])
def test_a_reboot_that_never_comes_back_is_escalated(policy: RecoveryPolicy, behaviour: RebootBehaviour) -> None:
    """The reboot's deadline quarantines the instance and tells people; it is asked for once, and the job ends."""
    world, job_id = incidents.running(policy=policy)
    world.training.abort_code = 1 if policy is incidents.CLASSIC else 134
    world.model_instance(0).reboot_behaviour = behaviour
    world.break_gpu(world.model_instance(0))
    world.until(lambda: world.instance(world.model_instance(0)).status is InstanceStatus.QUARANTINED, "no escalation")
    assert len(world.calls("RebootInstances")) == 1
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.FAILED
    assert len(serious(world)) == 2


def test_a_job_goes_on_elsewhere_when_its_instance_never_comes_back() -> None:
    """Under `adaptive` the healed job needs no repair to end: capacity that appears later is taken."""
    world, job_id = incidents.running()
    world.model_instance(0).reboot_behaviour = RebootBehaviour.SILENT
    world.break_gpu(world.model_instance(0))
    world.until(lambda: world.instance(world.model_instance(0)).status is InstanceStatus.QUARANTINED, "no escalation")
    world.fleet.launch(8)
    incidents.ended(world, job_id)
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.SUCCEEDED, 2)


def test_a_check_that_never_ends_is_stopped_and_escalated() -> None:
    """The deadline stops the check, quarantines the instance and takes the barrier down."""
    world, job_id = incidents.running(instances=3)
    world.checks.script(world.model_instance(1), incidents.NEVER_ENDS)
    world.exit(job_id, 1, 139)
    incidents.ended(world, job_id)
    check = next(
        t for t in world.cluster.tasks.values() if t.started_by == f"check/{world.model_instance(1).instance_id}/1"
    )
    assert check.stop_code == "UserInitiated"
    assert world.instance(world.model_instance(1)).status is InstanceStatus.QUARANTINED
    assert len(serious(world)) == 1
    assert world.job(job_id).status is JobStatus.SUCCEEDED and world.job(job_id).attempt == 2


def test_a_check_that_never_starts_is_escalated() -> None:
    """An instance whose agent is away refuses its check every minute until the deadline; the barrier comes down."""
    world, job_id = incidents.running(instances=3)
    world.exit(job_id, 1, 139)
    world.until_status(job_id, JobStatus.STOPPING)
    world.until(lambda: not world.ranks(job_id), "the gang was not stopped")
    world.fleet.disconnect(world.model_instance(1))
    incidents.ended(world, job_id)
    record = world.instance(world.model_instance(1))
    assert record.status is InstanceStatus.QUARANTINED
    assert len(serious(world)) == 1
    assert not [t for t in world.cluster.tasks.values() if t.started_by == f"check/{record.instance_id}/1"]
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def test_a_quarantined_instance_works_again_only_after_a_check() -> None:
    """An operator's word is not proof: released, it must pass a check first."""
    world, _ = incidents.classic_faulty_twice()
    sick = world.model_instance(0)
    world.release(sick)
    world.until(lambda: world.instance(sick).status is InstanceStatus.QUARANTINED, "a sick instance was let back")
    sick.faults.clear()
    world.release(sick)
    assert world.instance(sick).status is InstanceStatus.VERIFYING
    world.until(lambda: world.instance(sick).status is InstanceStatus.AVAILABLE, "a healthy instance was kept out")


def test_a_rank_that_cannot_be_stopped_is_rebooted_away() -> None:
    """Its GPUs are not free on suspicion: only the proved reboot confirms the end, and only then it is relaunched."""
    world, job_id = incidents.running()
    stuck = world.model_instance(0)
    world.fleet.stuck.add(stuck.instance_id)
    world.exit(job_id, 1, 139)
    incidents.ended(world, job_id)
    assert dict(world.fleet.boots) == {stuck.instance_id: 1}
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.SUCCEEDED, 2)


def test_an_unreachable_rank_that_nothing_ends_keeps_its_claim() -> None:
    """Lost is not free: the job fails, says so, and the GPUs stay claimed."""
    world, job_id = incidents.running()
    lost = world.model_instance(0)
    lost.reboot_behaviour = RebootBehaviour.IGNORED
    world.fleet.disconnect(lost)
    world.exit(job_id, 1, 139)
    incidents.ended(world, job_id)
    job = world.job(job_id)
    assert job.status is JobStatus.FAILED and "never confirmed" in job.reason
    assert job_id in world.instance(lost).claims
    assert world.instance(lost).status is InstanceStatus.QUARANTINED


def quarantine_mail(world: World) -> str:
    """The one message that asks a person to act on an instance."""
    (body,) = [message.body for message in world.messages() if "quarantined, needs an operator" in message.subject]
    return body


def test_a_reboot_that_does_nothing_under_a_rank_that_holds_the_gpus_is_given_up() -> None:
    """EC2 accepts the request, and no boot follows. The check after it waits for the GPUs until its deadline."""
    world, job_id = incidents.running(instances=3)
    stuck = world.model_instance(0)
    stuck.reboot_behaviour = RebootBehaviour.IGNORED
    world.fleet.stuck.add(stuck.instance_id)
    world.exit(job_id, 1, 139)
    policy, begun = world.policy, world.timeline.now
    incidents.ended(world, job_id)
    job, record = world.job(job_id), world.instance(stuck)
    limit_s = 2 * policy.stop_timeout_s + policy.reboot_settle_s + policy.poll_interval_s + policy.verify_timeout_s
    assert (world.timeline.now - begun).total_seconds() < limit_s + 300 and len(world.calls("RebootInstances")) == 1
    assert job.status is JobStatus.FAILED and "never confirmed to have ended" in job.reason
    assert "ECS never started the check after its repair" in job.reason and "RESOURCE:GPU" in job.reason
    assert record.needs_operator and job_id in record.claims and world.rank(job_id, 0).runs
    assert f"{job_id}--a01 may still run on it" in quarantine_mail(world)


def test_a_stuck_rank_on_an_instance_that_only_a_replacement_cures_goes_to_a_person() -> None:
    """Replacing is switched off. The person hears which rank may still run, and the job ends in bounded time."""
    world, job_id = incidents.running(instances=3, train_s=7200.0)
    stuck = world.model_instance(0)
    world.fleet.stuck.add(stuck.instance_id)
    StatusCheckFails(at_s=0, machines=(0,), check="system").strike(world)
    world.until(lambda: world.instance(stuck).held is not None, "its replacement is not held", 900)
    world.until_end(job_id, 2 * world.policy.stop_timeout_s + 120)
    job = world.job(job_id)
    assert job.status is JobStatus.FAILED and "replacing is switched off" in job.reason
    assert "never confirmed to have ended" in job.reason and world.rank(job_id, 0).runs
    assert world.instance(stuck).needs_operator and not world.fleet.boots
    assert f"{job_id}--a01 may still run on it" in quarantine_mail(world)


def test_attempts_exhausted_fail_the_job_and_tell_once() -> None:
    """A rank that crashes every time on healthy GPUs ends the job after its last counted attempt.

    Its machine is suspected once, and rebooted once; no other is.
    """
    world, job_id = incidents.running()
    suspect = world.job(job_id).instances[0]
    for attempt in (1, 2, 3):
        world.until(lambda n=attempt: world.job(job_id).attempt == n, "no further attempt")  # type: ignore[misc]
        world.until_status(job_id, JobStatus.RUNNING)
        world.exit(job_id, 0, 139)
    incidents.ended(world, job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt, job.attempts_counted) == (JobStatus.FAILED, 3, 3)
    assert [subject for subject in serious(world) if "FAILED" in subject] == serious(world) and len(serious(world)) == 1
    assert world.fleet.boots == {suspect: 1}


def test_a_gpu_that_no_reboot_cures_is_not_rebooted_for_ever() -> None:
    """Past the cap the instance is quarantined; the job ends within its own deadline."""
    world, job_id = incidents.running()
    world.break_gpu(world.model_instance(0), cured_by=CuredBy.NEVER)
    incidents.ended(world, job_id)
    assert len(world.calls("RebootInstances")) == incidents.ADAPTIVE.reboots_max
    assert world.instance(world.model_instance(0)).status is InstanceStatus.QUARANTINED
    assert world.job(job_id).status is JobStatus.FAILED and world.job(job_id).attempt == 1


def test_faulty_memory_goes_to_a_person_without_a_reboot() -> None:
    """What only a replacement cures is quarantined at once, and the job goes on with the spare."""
    world, job_id = incidents.running(instances=3)
    world.break_gpu(world.model_instance(0), kind="ecc", cured_by=CuredBy.REPLACE)
    incidents.ended(world, job_id)
    assert world.calls("RebootInstances") == []
    assert world.instance(world.model_instance(0)).status is InstanceStatus.QUARANTINED
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.SUCCEEDED, 2)


def test_an_instance_without_the_tag_is_never_rebooted() -> None:
    """EC2 refuses for want of the opt-in tag: a person hears of it at once, and the job goes on with the spare."""
    world, job_id = incidents.running(instances=3)
    world.model_instance(0).tags.pop("gpu-recovery:managed")
    world.break_gpu(world.model_instance(0))
    incidents.ended(world, job_id)
    assert not world.fleet.boots and world.calls("RebootInstances") == []
    assert world.instance(world.model_instance(0)).status is InstanceStatus.QUARANTINED and len(serious(world)) == 1
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def test_blame_without_a_document_reboots_nothing() -> None:
    """Exit code 1 is also what a broken image gives: without the check's own document it blames no instance."""
    world, job_id = incidents.running()
    for machine in world.model_instances():
        world.checks.script(machine, incidents.BLAMED_WITHOUT_DOCUMENT)
    world.exit(job_id, 0, 139)
    incidents.ended(world, job_id)
    assert not world.fleet.boots and world.job(job_id).status is JobStatus.SUCCEEDED


def test_a_wrongly_configured_host_is_told_and_not_rebooted() -> None:
    """A CONFIG finding never reboots: people hear of it, and the instance stays in use."""
    world, job_id = incidents.running()
    world.checks.script(world.model_instance(0), incidents.MISCONFIGURED)
    world.exit(job_id, 0, 139)
    incidents.ended(world, job_id)
    assert not world.fleet.boots
    assert [m.subject for m in world.messages() if "configuration" in m.subject] != []
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def test_a_job_waits_for_the_background_repair_of_the_instance_that_its_diagnosis_blamed() -> None:
    """The cluster has no other instance. The repair was held back by a pause, and goes on when the job's time is up."""
    world, job_id = incidents.running(instances=2, train_s=7200.0, agents=True, diagnose=True)
    world.let_pass(120)
    RepairsPaused(at_s=0, for_s=incidents.ADAPTIVE.recover_timeout_s - 300).strike(world)
    world.break_gpu(world.model_instance(1))
    world.until_status(job_id, JobStatus.RECOVERING)
    assert world.job(job_id).repairing == () and world.job(job_id).blamed
    job = world.until_end(job_id, 10 * 3_600)
    assert (job.status, job.attempt) == (JobStatus.SUCCEEDED, 2)
    assert "the repair of 1 instance(s) goes on" in [entry.reason for entry in job.history]
