"""Behaviour 7: training tasks that people start themselves, which is the only way in that seed 001 knows."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from gpu_recovery.core.cluster_snapshot import is_usable
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import JobStatus, Origin

from simulator.cloud.task_environment import environment
from simulator.cloud.workloads import ScriptedCheck
from simulator.faults.aws_notifications import StatusCheckFails
from simulator.faults.delivery import Envelope, is_task, losing
from simulator.faults.operators import DeregisteredByHand
from simulator.world import World
from tests.simulator import incidents
from tests.simulator.incidents import HAND_JOB


def test_recover_heals_a_persons_gang_from_its_own_template() -> None:
    """Attempt 2 runs what the person's tasks ran, started by us, on the same instances once they are healed."""
    world, job_id = incidents.adopted_recover()
    job = world.job(job_id)
    assert (job.status, job.origin, job.attempt) == (JobStatus.SUCCEEDED, Origin.ADOPTED, 2)
    assert dict(world.fleet.boots) == {world.model_instance(0).instance_id: 1}
    again = [task for task in world.cluster.tasks.values() if task.started_by == f"{job_id}--a02"]
    assert [environment(task)["EPOCHS"] for task in again] == ["3", "3"]


def test_observe_reports_and_touches_nothing() -> None:
    """The failure is told once; no task is stopped, checked or started, and no instance rebooted."""
    world, job_id = incidents.adopted_observe()
    assert world.calls("RunTask") == [] and world.calls("StopTask") == [] and world.calls("RebootInstances") == []
    told = [message for message in world.messages() if "observed only" in message.subject]
    assert len(told) == 1
    assert world.job(job_id).status is JobStatus.FAILED


def test_observe_reboots_no_instance_that_a_person_deregistered_under_the_job() -> None:
    """The process runs on, and its GPUs go to no other job. The cancellation of a user is carried out in full."""
    world = incidents.started_by_hand(Adoption.OBSERVE, train_s=7200.0)
    orphan, instance = world.rank(HAND_JOB, 1), world.model_instance(1)
    DeregisteredByHand(at_s=0, machines=(1,)).strike(world)
    world.let_pass(3_600)
    assert orphan.runs and world.calls("RebootInstances") == [] and world.calls("StopTask") == []
    record = world.instance(instance)
    assert HAND_JOB in record.claims and not is_usable(record)
    assert world.job(HAND_JOB).status is JobStatus.RUNNING
    (told,) = world.messages()
    assert "observed only" in told.subject and "deregistered by force" in told.body
    world.cancel(HAND_JOB)
    assert world.until_end(HAND_JOB, 3_600).status is JobStatus.CANCELED
    assert not orphan.runs and len(world.calls("RebootInstances")) == 1


def test_a_health_report_reboots_no_instance_under_the_orphan_of_an_observed_job() -> None:
    """Nobody has asked to end the orphan, so the repair waits for its job as for any other (I12)."""
    world = incidents.started_by_hand(Adoption.OBSERVE, train_s=7200.0)
    orphan = world.rank(HAND_JOB, 1)
    DeregisteredByHand(at_s=0, machines=(1,), registers_every_s=1).strike(world)
    StatusCheckFails(at_s=0, machines=(1,)).strike(world)
    world.let_pass(3_000)
    assert orphan.runs and world.calls("RebootInstances") == []
    assert world.instance(world.model_instance(1)).held is not None


def shared_with_an_observed_job() -> tuple[World, str]:
    """Half of an instance belongs to a job that is only observed, and half to a job of the queue."""
    world = World(instances=1, train_s=None, adoption=Adoption.OBSERVE)
    world.start_by_hand(HAND_JOB, 0, 1, world.model_instance(0), gpus=4)
    world.until(lambda: world.store.load_job(HAND_JOB) is not None, "not adopted")
    world.until_status(HAND_JOB, JobStatus.RUNNING)
    job_id = world.submit(1, 4)
    world.until_status(job_id, JobStatus.RUNNING)
    return world, job_id


def test_no_rank_that_cannot_be_stopped_is_ended_at_the_expense_of_an_observed_job() -> None:
    """The reboot is held back for as long as the observed job is there. The reasons name it, and a person is asked."""
    world, job_id = shared_with_an_observed_job()
    machine, watched = world.model_instance(0), world.rank(HAND_JOB, 0)
    world.fleet.stuck.add(machine.instance_id)
    world.cancel(job_id)
    in_the_way = f"its reboot is blocked: {HAND_JOB} must leave it first"
    world.until(lambda: in_the_way in world.instance(machine).reason, "not held", 900)
    world.until(lambda: in_the_way in world.job(job_id).reason, "the job does not say so", 7200)
    assert world.job(job_id).status is JobStatus.STOPPING
    world.until(
        lambda: world.instance(machine).needs_operator, "no person is asked", world.policy.repair_hold_timeout_s
    )
    world.until_end(job_id)
    assert world.job(job_id).status is JobStatus.FAILED and in_the_way.split(": ")[1] in world.job(job_id).reason
    assert watched.runs and not world.calls("RebootInstances")


def test_a_fault_that_the_check_of_another_job_finds_reboots_nothing_under_an_observed_job() -> None:
    """The passive check blames a GPU. The repair begins when the observed job has left by itself."""
    world, job_id = shared_with_an_observed_job()
    machine, watched = world.model_instance(0), world.rank(HAND_JOB, 0)
    world.checks.script(machine, *[ScriptedCheck(CheckOutcome.REBOOT)] * 2)
    world.exit(job_id, 0, 139)
    world.until(lambda: world.instance(machine).held is not None, "not held", 900)
    world.let_pass(3600)
    assert watched.runs and not world.calls("RebootInstances")
    assert f"{HAND_JOB} must leave it first" in world.instance(machine).reason
    world.fleet.end(watched, 0)
    world.until(lambda: world.instance(machine).healed_at is not None, "not repaired", 1800)


def test_off_reads_nothing_and_keeps_nothing() -> None:
    """Without adoption a person's task leaves no trace."""
    world = incidents.started_by_hand(Adoption.OFF)
    world.let_pass(600)
    assert world.jobs() == () and world.messages() == []


def test_a_job_id_of_ours_is_refused_once() -> None:
    """The stranger's task is left alone, its rank does not count for our job, and people hear of it once."""
    world, job_id = incidents.adoption_refused()
    refused = [message for message in world.messages() if "not adopted" in message.subject]
    assert len(refused) == 1
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.SUCCEEDED, 1)
    assert world.calls("StopTask") == []


def test_another_task_of_a_rank_that_is_known_is_refused_once() -> None:
    """Its crash neither ends nor stops an adopted gang: the rank is the task that was seen first."""
    world = incidents.started_by_hand(Adoption.RECOVER, instances=3)
    own = world.rank(HAND_JOB, 0)
    stranger = world.start_by_hand(HAND_JOB, 0, 2, world.model_instance(2))
    world.let_pass(30)
    world.fleet.end(stranger, 139)
    world.let_pass(120)
    assert (world.job(HAND_JOB).status, world.job(HAND_JOB).attempt) == (JobStatus.RUNNING, 1)
    assert own.is_live and world.calls("StopTask") == []
    refused = [message for message in world.messages() if "not adopted" in message.subject]
    assert len(refused) == 1 and own.task_id in refused[0].body


def test_a_newer_task_after_the_end_opens_the_next_attempt() -> None:
    """The person starts the job anew: one record, its next attempt."""
    world, job_id = incidents.started_by_hand(Adoption.RECOVER), HAND_JOB
    world.finish(job_id)
    ended = world.until_end(job_id)
    world.let_pass(2)
    assert (ended.status, ended.attempt) == (JobStatus.SUCCEEDED, 1)
    for rank in range(2):
        world.start_by_hand(job_id, rank, 2, world.model_instance(rank))
    world.until_status(job_id, JobStatus.RUNNING)
    assert world.job(job_id).attempt == ended.attempt + 1
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def test_one_check_answers_for_every_rank_that_a_person_has_on_the_instance() -> None:
    """Two ranks share a machine: its one check completes the set, and nobody waits for a second one."""
    world = World(adoption=Adoption.RECOVER, train_s=incidents.TRAIN_S)
    world.let_pass(32)
    for rank in range(2):
        world.start_by_hand(HAND_JOB, rank, 2, world.model_instance(0), gpus=4)
    world.let_pass(15)
    world.until_status(HAND_JOB, JobStatus.RUNNING)
    world.exit(HAND_JOB, 1, 139)
    world.until(lambda: world.job(HAND_JOB).attempt == 2, "it was not launched again")
    progress = world.store.load_progress(HAND_JOB, 1)
    assert progress is not None and set(progress.checked) == {0, 1}
    assert len([step for step in world.calls("RunTask") if "CHECK_ID" in str(step.given)]) == 1


def test_a_rank_whose_events_were_lost_is_stopped_with_its_gang() -> None:
    """Nobody told us of rank 1 when rank 0 fails: it is looked for, stopped and confirmed, not taken for unborn."""

    def about_rank_1(envelope: Envelope) -> bool:
        overrides = envelope["detail"].get("overrides", {}).get("containerOverrides", [])
        pairs = [pair for one in overrides for pair in one.get("environment", [])]
        return is_task(envelope, "RUNNING") and {"name": "RANK", "value": "1"} in pairs

    world = World(adoption=Adoption.RECOVER, train_s=incidents.TRAIN_S, delivery=losing(about_rank_1))
    world.let_pass(32)  # just after a round of the reconciler, which would find it too
    for rank in range(2):
        world.start_by_hand(HAND_JOB, rank, 2, world.model_instance(rank))
    world.let_pass(15)
    world.exit(HAND_JOB, 0, 139)
    incidents.ended(world, HAND_JOB)
    job = world.job(HAND_JOB)
    assert (job.status, job.attempt, job.attempts_counted) == (JobStatus.SUCCEEDED, 2, 1)
    assert [task.stop_code for task in world.cluster.tasks.values() if task.started_by == "alice"] == [
        "EssentialContainerExited",
        "UserInitiated",
    ]


def test_a_rank_that_starts_after_its_gang_was_stopped_is_stopped_too() -> None:
    """It would hang for ever on GPUs that the next attempt needs."""
    world = World(adoption=Adoption.RECOVER, train_s=incidents.TRAIN_S)
    world.let_pass(5)
    world.start_by_hand(HAND_JOB, 0, 2, world.model_instance(0))
    world.let_pass(15)
    world.exit(HAND_JOB, 0, 139)
    world.until_status(HAND_JOB, JobStatus.DIAGNOSING)
    late = world.start_by_hand(HAND_JOB, 1, 2, world.model_instance(1))
    incidents.ended(world, HAND_JOB)
    assert late.stop_code == "UserInitiated"
    assert (world.job(HAND_JOB).status, world.job(HAND_JOB).attempt) == (JobStatus.SUCCEEDED, 2)


@pytest.mark.parametrize("adoption", [Adoption.RECOVER, Adoption.OBSERVE])
def test_a_gang_whose_relaunch_ecs_would_refuse_is_not_adopted_to_recover(adoption: Adoption) -> None:
    """Its own overrides fit into ECS's limit, but not with our variables. People hear of it once, in numbers."""
    world = World(instances=2, adoption=adoption)
    for rank, instance in enumerate(world.model_instances()):
        world.start_by_hand("run-1", rank, 2, instance, CONFIG="x" * 7_700)
    world.let_pass(300)
    told = [message for message in world.messages() if "not adopted" in message.subject]
    if adoption is Adoption.OBSERVE:  # it relaunches nothing
        assert world.job("run-1").status is JobStatus.RUNNING and told == []
        return
    assert world.jobs() == () and len(told) == 1
    assert re.search(r"would have 8\d{3} characters of overrides; ECS allows 8192", told[0].body)
    assert re.search(r"at least \d{2,3} characters shorter", told[0].body)


def test_an_adopted_job_of_an_older_release_with_too_long_overrides_fails_at_its_first_relaunch() -> None:
    """It was adopted before its length was checked. ECS would refuse every launch, so one refusal is enough."""
    world = World(instances=3, adoption=Adoption.OBSERVE)
    for rank, instance in enumerate(world.model_instances()[:2]):
        world.start_by_hand("run-1", rank, 2, instance, CONFIG="x" * 7_700)
    world.let_pass(60)
    world.store.save_job(replace(world.job("run-1"), hands_off=False))
    world.recovery = replace(world.recovery, adoption=Adoption.RECOVER)
    world.break_gpu(world.model_instance(0))
    job = world.until_end("run-1")
    assert (job.status, job.attempt) == (JobStatus.FAILED, 2)
    assert "ECS allows 8192" in str([entry.reason for entry in job.history])
    assert not [step for step in world.calls("RunTask") if step.given["startedBy"].startswith("run-1")]
