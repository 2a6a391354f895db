"""Behaviour 3: what the end of a task means, where a plainer reading gets it wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.task import OUR_STOP

from sandbox.cluster.model import instances as model_instances
from simulator.faults.delivery import PROMPT_S, Envelope, is_task
from simulator.world import World
from tests.simulator import incidents


def rewritten(world: World, rank: int, change: Callable[[dict[str, Any]], None]) -> None:
    """From here on the STOPPED events of a rank are delivered with `change` made to their detail."""

    def deliver(envelope: Envelope) -> tuple[float, ...]:
        detail = envelope["detail"]
        if is_task(envelope, "STOPPED") and {"name": "RANK", "value": str(rank)} in _environment(detail):
            change(detail)
        return (PROMPT_S,)

    world.delivery = deliver


def _environment(detail: dict[str, Any]) -> list[dict[str, str]]:
    return [pair for one in detail["overrides"]["containerOverrides"] for pair in one.get("environment", [])]


def test_our_own_stop_is_not_a_persons() -> None:
    """The rank that we stop ends as UserInitiated too, but with our reason: the job is healed, not canceled."""
    world, job_id = incidents.gpu_fault()
    ours = [task for task in world.cluster.tasks.values() if task.stop_code == "UserInitiated"]
    assert len(ours) == 1 and (ours[0].stopped_reason or "").startswith(OUR_STOP)
    assert world.job(job_id).status is JobStatus.SUCCEEDED
    assert all(entry.after != JobStatus.CANCELED for entry in world.job(job_id).history)


def test_active_noise_is_not_a_finished_reboot() -> None:
    """Between the request and the machine going down ECS says ACTIVE and connected many times: nothing follows."""
    world, _ = incidents.running()
    sick = world.model_instance(0)
    world.break_gpu(sick)
    world.until(lambda: world.instance(sick).status is InstanceStatus.REBOOTING, "no reboot was asked for")
    checks = len(world.calls("RunTask"))
    for _ in range(5):
        world.fleet.change(lambda now: model_instances.announce(world.cluster, now))
        world.let_pass(2)
    assert world.fleet.boots[sick.instance_id] == 0
    assert world.instance(sick).status is InstanceStatus.REBOOTING
    assert len(world.calls("RunTask")) == checks


def test_a_stale_attempts_stopped_changes_nothing() -> None:
    """Every event of attempt 1 again while attempt 2 runs: no record moves and no call is made."""
    kept: list[Envelope] = []

    def keep(envelope: Envelope) -> tuple[float, ...]:
        kept.append(envelope)
        return (PROMPT_S,)

    world, job_id = incidents.running(delivery=keep)
    world.break_gpu(world.model_instance(0))
    world.until(lambda: world.job(job_id).attempt == 2, "attempt 2 was not placed")
    world.until_status(job_id, JobStatus.RUNNING)
    before, instances, steps = world.job(job_id), world.instances(), len(world.calls("StopTask"))
    for envelope in [one for one in kept if is_task(one) and one["detail"].get("startedBy", "").endswith("--a01")]:
        world.deliver(envelope)
    assert world.job(job_id) == before and world.instances() == instances
    assert len(world.calls("StopTask")) == steps


def test_exit_0_under_a_persons_stop_is_not_success() -> None:
    """Ranks that end well on SIGTERM were stopped all the same: the job is canceled."""
    world, job_id = incidents.running()
    for task in world.ranks(job_id):
        world.stop_by_hand(task, "maintenance")
        world.fleet.end(task, 0)
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.CANCELED


def test_137_from_a_scale_in_is_not_a_gpu_fault() -> None:
    """A rank killed because its instance was reclaimed: relaunched, not counted, nothing checked or rebooted."""
    world, job_id = incidents.running(instances=3)

    def killed(detail: dict[str, Any]) -> None:
        if detail["stopCode"] == "TerminationNotice":
            detail["containers"][0]["exitCode"] = 137

    rewritten(world, 0, killed)
    world.fleet.terminate(world.model_instance(0))
    incidents.ended(world, job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt, job.attempts_counted) == (JobStatus.SUCCEEDED, 2, 0)
    assert job.attempts_uncounted == {"INTERRUPTED": 1}
    assert not [s for s in world.calls("RunTask") if s.given["startedBy"].startswith("check/")]
    assert not world.fleet.boots


def test_a_missing_exit_code_is_a_crash() -> None:
    """A container that vanished is no success: its instances are checked and, being well, the job is restarted."""
    world, job_id = incidents.running()
    world.exit(job_id, 1, None)
    incidents.ended(world, job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt, job.attempts_counted) == (JobStatus.SUCCEEDED, 2, 1)


def test_no_containers_with_resource_gpu_is_a_shortage() -> None:
    """A task that ECS gave up for want of GPUs has no containers: relaunched soon, not counted, nothing checked."""

    def short(detail: dict[str, Any]) -> None:
        detail |= {"containers": [], "stopCode": "TaskFailedToStart", "stoppedReason": "RESOURCE:GPU"}

    world = World(train_s=incidents.TRAIN_S)
    job_id = world.submit()
    world.until_status(job_id, JobStatus.SUBMITTED)
    rewritten(world, 1, short)
    world.until(lambda: len(world.ranks(job_id)) == 2, "the ranks did not start")
    world.exit(job_id, 1, None)
    world.let_pass(PROMPT_S)
    rewritten(world, -1, short)
    incidents.ended(world, job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt, job.attempts_counted) == (JobStatus.SUCCEEDED, 2, 0)
    assert job.attempts_uncounted == {"INSUFFICIENT_RESOURCES": 1}


def test_task_failed_to_start_with_exit_0_is_success() -> None:
    """A program that is done before ECS saw it run is reported as failed to start, with exit code 0."""
    world, job_id = incidents.running(train_s=None)

    def quick(detail: dict[str, Any]) -> None:
        detail |= {"stopCode": "TaskFailedToStart", "stoppedReason": "Task failed to start"}

    rewritten(world, 1, quick)
    world.finish(job_id)
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def test_a_refused_launch_is_tried_again_a_minute_later() -> None:
    """A stranger holds the GPUs of an instance that we think free: five tries are not burnt within seconds."""
    world = World(train_s=incidents.TRAIN_S)
    stranger = world.start_by_hand("somebody-elses", 0, 1, world.model_instance(0))
    job_id = world.submit()
    world.until(lambda: world.job(job_id).attempt == 2, "the launch was not tried again")
    assert (world.timeline.now - world.timeline.start).total_seconds() >= 60
    world.stop_by_hand(stranger)
    incidents.ended(world, job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and world.job(job_id).attempts_counted == 0


def test_an_attempt_is_not_judged_by_the_failure_of_another() -> None:
    """Attempt 1 lost its capacity; what ends attempt 2 is told by attempt 2 alone."""
    world = World(instances=3, train_s=None)
    job_id = world.submit(max_runtime_s=600)
    world.until_status(job_id, JobStatus.RUNNING)
    world.fleet.terminate(world.model_instance(0))
    incidents.ended(world, job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt) == (JobStatus.FAILED, 2)
    assert "longer than its limit" in job.reason and "instance" not in job.reason
