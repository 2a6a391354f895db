"""Behaviour 1: every row of the three flows of seed 001, under `classic`."""

from __future__ import annotations

from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from simulator.world import World
from tests.simulator import incidents


def checks_of(world: World) -> list[str]:
    """Which instance each health check was run on, in order."""
    return [step.given["startedBy"] for step in world.calls("RunTask") if step.given["startedBy"].startswith("check/")]


def failures_told(world: World) -> list[str]:
    """The incident ids under which a job's failure was announced."""
    return [message.incident_id for message in world.messages() if ": FAILED" in message.subject]


def test_exit_1_stops_the_gang_and_checks_its_instances() -> None:
    """Flow 1: exit code 1 stops every other task of the job and runs the check on each of their instances."""
    world, job_id = incidents.classic_healthy()
    job = world.job(job_id)
    assert [entry.after for entry in job.history[-3:]] == ["STOPPING", "DIAGNOSING", "FAILED"]
    stopped = {step.given["task"] for step in world.calls("StopTask")}
    tasks = [task for task in world.cluster.tasks.values() if task.started_by == f"{job_id}--a01"]
    assert len(tasks) == 2 and stopped == {task.task_id for task in tasks if task.containers[0].exit_code != 1}
    assert sorted(checks_of(world)) == sorted(f"check/{i}/1" for i in job.instances)


def test_exit_0_of_all_ranks_completes_the_job() -> None:
    """Flow 1: exit code 0 is success, once every rank has it; nobody is stopped, checked or told."""
    world, job_id = incidents.classic_exit_0()
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert world.calls("StopTask") == [] and checks_of(world) == [] and world.messages() == []


def test_one_exit_0_does_not_complete_the_job() -> None:
    """The seed's letter would lie here: complete needs every rank."""
    world, job_id = incidents.running(policy=incidents.CLASSIC, train_s=None)
    world.exit(job_id, 0, 0)
    world.let_pass(600)
    assert world.job(job_id).status is JobStatus.RUNNING


def test_a_persons_stop_marks_the_job_other() -> None:
    """Flow 1: a task that a person stopped ends the job as CANCELED, the seed's "Other", without any check.

    Operators are told what the stop did.
    """
    world, job_id = incidents.classic_user_stop()
    assert world.job(job_id).status is JobStatus.CANCELED
    (told,) = world.messages()
    assert checks_of(world) == [] and "a user stopped a rank, the job is CANCELED" in told.subject


def test_another_non_zero_exit_fails_without_a_check() -> None:
    """The seed's letter would hang here: any other exit stops the gang and fails."""
    world, job_id = incidents.classic(lambda world, job_id: world.exit(job_id, 0, 3))
    assert world.job(job_id).status is JobStatus.FAILED
    assert checks_of(world) == [] and len(failures_told(world)) == 1
    assert world.ranks(job_id) == []


def test_healthy_check_fails_the_job() -> None:
    """Flow 2: check exit 0 marks the job FAILED; nothing is rebooted and nothing run again."""
    world, job_id = incidents.classic_healthy()
    assert world.job(job_id).status is JobStatus.FAILED
    assert world.job(job_id).attempt == 1 and not world.fleet.boots
    assert failures_told(world) == [f"{job_id}--a01"]
    assert {one.status for one in world.instances()} == {InstanceStatus.AVAILABLE}


def test_faulty_check_in_the_first_run_reboots_and_runs_again() -> None:
    """Flows 2 and 3: check exit 1 in run 1 reboots the instance; on its return run 2 starts where run 1 was."""
    world, job_id = incidents.classic_faulty()
    job = world.job(job_id)
    assert (job.status, job.attempt, job.attempts_counted) == (JobStatus.SUCCEEDED, 2, 1)
    assert dict(world.fleet.boots) == {world.model_instance(0).instance_id: 1}
    assert job.instances == tuple(machine.instance_id for machine in world.model_instances())
    assert failures_told(world) == []


def test_faulty_check_in_the_second_run_fails_the_job() -> None:
    """Flow 2: check exit 1 in run 2 marks the job FAILED, quarantines the instance and reboots nothing."""
    world, job_id = incidents.classic_faulty_twice()
    job = world.job(job_id)
    assert (job.status, job.attempt, job.attempts_counted) == (JobStatus.FAILED, 2, 2)
    assert len(world.calls("RebootInstances")) == 1
    assert world.instance(world.model_instance(0)).status is InstanceStatus.QUARANTINED
    assert failures_told(world) == [f"{job_id}--a01"]  # the training never went on, so it is one incident


def test_a_check_that_could_not_tell_fails_the_job_and_says_so() -> None:
    """The seed's letter would hang here: neither 0 nor 1 is FAILED with a message."""
    world, job_id = incidents.running(policy=incidents.CLASSIC)
    world.checks.script(world.model_instance(0), incidents.INCONCLUSIVE)
    world.exit(job_id, 0, 1)
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.FAILED and len(failures_told(world)) == 1
    assert not world.fleet.boots


def test_an_instance_that_does_not_return_fails_the_job() -> None:
    """Flow 3: recovery failed, so the job is FAILED and technicians hear of the job and of the instance."""
    world, job_id = incidents.classic_reboot_never_returns()
    assert world.job(job_id).status is JobStatus.FAILED
    told = [message.subject for message in world.messages() if "SEV2" in message.subject]
    assert len(told) == 2 and any("FAILED" in line for line in told) and any("quarantined" in line for line in told)
    assert world.instance(world.model_instance(0)).status is InstanceStatus.QUARANTINED
    assert world.cluster.instances[world.model_instance(0).instance_id].status == "DRAINING"
