"""Warm spares in the simulated world: a lost rank starts in a waiting container, and the queue gets it back at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset

from sandbox.cluster.model import describe
from sandbox.cluster.model.records import Task
from sandbox.cluster.model.statuses import RebootBehaviour
from simulator.cloud.log_output import LogStory
from simulator.faults.delivery import PROMPT_S, Envelope
from simulator.faults.operators import DeregisteredByHand
from simulator.world import World

POLICY = replace(PRESETS[Preset.ADAPTIVE], restart_in_place=True, pending_retry_s=1, warm_spares=1)


def running(instances: int = 4, policy: Any = POLICY, **more: Any) -> tuple[World, str]:
    """A world whose gang of two runs, with as many warm spares as the policy says. The agents report after 15 s."""
    world = World(instances=instances, policy=policy, agents=True, diagnose=True, **more)
    job_id = world.submit(nnodes=2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.until(lambda: len(spares(world, job_id)) == policy.warm_spares, "no warm spare", 900)
    world.let_pass(60)
    return world, job_id


def loses_a_gpu(world: World, job_id: str) -> str:
    """End rank 1 with an error of its GPU, and return its instance."""
    sick = world.job(job_id).instances[1]
    world.log_output.next[sick] = LogStory.ECC
    world.exit(job_id, 1, 1)
    return sick


def runs_again(world: World, job_id: str, attempt: int = 2) -> None:
    """Let time pass until this attempt of the job runs."""
    job = world.job
    world.until(
        lambda: job(job_id).attempt == attempt and job(job_id).status is JobStatus.RUNNING, "it does not run again"
    )


def spares(world: World, job_id: str) -> list[Task]:
    """The tasks that wait as warm spares."""
    held = world.fleet.ranks.held
    return [task for task in world.ranks(job_id) if task.task_id in held and held[task.task_id].code is None]


def succeeds(world: World, job_id: str) -> None:
    """Let the gang train for ten minutes and end it: no container and no claim is left."""
    world.let_pass(600)
    world.finish(job_id)
    assert world.until_end(job_id).status is JobStatus.SUCCEEDED, world.transcript.text()
    world.until(lambda: not world.ranks(job_id), "a container is left", 120)
    world.until(lambda: not any(job_id in one.claims for one in world.instances()), "a claim is left", 120)
    world.check_end()


def starts(world: World) -> int:
    """Number of tasks of jobs that were started."""
    return len([step for step in world.calls("RunTask") if "--a" in step.given["startedBy"]])


def test_a_lost_rank_starts_in_the_container_of_a_warm_spare() -> None:
    """No task is started for the second attempt, and a new spare follows while the job runs."""
    world, job_id = running()
    (spare,) = spares(world, job_id)
    assert starts(world) == 3 and spare.instance_id not in world.job(job_id).instances
    at, sick = world.timeline.now, loses_a_gpu(world, job_id)
    runs_again(world, job_id)
    assert starts(world) == 3
    assert (world.timeline.now - at).total_seconds() < 20
    job = world.job(job_id)
    assert spare.instance_id in job.instances and sick not in job.instances and job.ranks_in_place == 2
    world.until(lambda: len(spares(world, job_id)) == 1, "no new spare", 600)
    succeeds(world, job_id)


def test_without_the_setting_no_container_waits() -> None:
    """The setting is off in both presets."""
    assert not any(preset.warm_spares for preset in PRESETS.values())
    world, job_id = running(policy=replace(POLICY, warm_spares=0))
    assert not spares(world, job_id) and starts(world) == 2
    succeeds(world, job_id)


def test_a_warm_spare_gives_way_to_a_job_that_waits() -> None:
    """Nobody is suspended for it, and the spare comes back when the other job has ended."""
    world, job_id = running(instances=3)
    assert len(spares(world, job_id)) == 1
    other = world.submit(nnodes=1)
    world.until_status(other, JobStatus.RUNNING)
    assert not spares(world, job_id) and world.job(job_id).attempt == 1
    world.let_pass(300)
    assert not spares(world, job_id)
    world.finish(other)
    world.until_end(other)
    world.until(lambda: len(spares(world, job_id)) == 1, "the spare does not come back", 300)
    succeeds(world, job_id)


@pytest.mark.parametrize("ends", ["cancel", "suspend"])
def test_a_job_that_leaves_ends_its_warm_spares(ends: str) -> None:
    """Their GPUs come back after the confirmed end."""
    world, job_id = running()
    getattr(world, ends)(job_id)
    world.until(lambda: not world.ranks(job_id), "a container is left", 120)
    world.until(lambda: not any(instance.claims for instance in world.instances()), "a claim is left", 120)
    if ends == "suspend":
        world.resume(job_id)
        runs_again(world, job_id)
        world.finish(job_id)
        world.until_end(job_id)
    world.let_pass(120)
    world.check_end()


def test_a_warm_spare_whose_host_dies_is_forgotten_and_replaced() -> None:
    """The job runs on."""
    world, job_id = running()
    (spare,) = spares(world, job_id)
    world.fleet.end(spare, None)
    world.until(lambda: [one.task_id for one in spares(world, job_id)] not in ([], [spare.task_id]), "no spare", 600)
    assert world.job(job_id).attempt == 1
    succeeds(world, job_id)


def test_warm_spares_that_end_at_once_are_not_started_again_and_again() -> None:
    """An image whose containers end on these instances would otherwise be started without a pause."""
    world, job_id = running()
    known: set[str] = set()
    before = starts(world)

    def ends_each() -> bool:
        for spare in spares(world, job_id):
            known.add(spare.task_id)
            world.fleet.end(spare, None)
        return len(known) > 3

    at = world.timeline.now
    world.until(ends_each, "no further spare", 3_600)
    assert (world.timeline.now - at).total_seconds() > 600
    assert starts(world) - before == 3
    world.let_pass(30)
    assert "has ended unused" in world.job(job_id).reason
    succeeds(world, job_id)


def test_a_job_without_the_wrapper_gets_no_warm_spare() -> None:
    """Nothing would wait in its container: its command would run there as one rank too many."""
    world = World(instances=4, policy=POLICY, agents=True, diagnose=True)
    world.fleet.ranks.wrapped = False
    job_id = world.submit(nnodes=2)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(900)
    assert starts(world) == 2 and len(world.ranks(job_id)) == 2
    succeeds(world, job_id)


def test_a_warm_spare_on_an_instance_that_leaves_is_given_back() -> None:
    """A Spot notice for the spare stops no rank."""
    world, job_id = running()
    (spare,) = spares(world, job_id)
    world.fleet.interrupt(world.cluster.instances[spare.instance_id])
    world.let_pass(60)
    job = world.job(job_id)
    assert (job.status, job.attempt) == (JobStatus.RUNNING, 1)
    assert spare.task_id not in [one.task_id for one in spares(world, job_id)]
    succeeds(world, job_id)


def test_a_warm_spare_that_does_not_start_costs_an_uncounted_attempt_at_most() -> None:
    """Its agent dies as the start is on its way: the job goes on elsewhere."""
    world, job_id = running(instances=5)
    (spare,) = spares(world, job_id)
    assert world.agents is not None
    world.agents.ended.add(spare.instance_id)
    loses_a_gpu(world, job_id)
    world.until(
        lambda: world.job(job_id).status is JobStatus.RUNNING and world.job(job_id).attempt > 1, "it hangs", 3_600
    )
    assert world.job(job_id).attempts_counted <= 2
    succeeds(world, job_id)


def test_an_instance_with_a_spare_is_usable_again_after_the_job() -> None:
    """The sick instance is checked while the spare works in its place."""
    world, job_id = running()
    sick = loses_a_gpu(world, job_id)
    runs_again(world, job_id)
    world.let_pass(600)
    record = world.store.load_instance(sick)
    assert record is not None and record.status is InstanceStatus.AVAILABLE
    succeeds(world, job_id)


def test_a_warm_spare_that_one_answer_of_ecs_does_not_know_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """DescribeTasks may say MISSING of a task that ListTasks shows. Its GPUs stay claimed until its end."""
    world, job_id = running()
    (spare,) = spares(world, job_id)
    hidden: list[Any] = []
    whole = describe.describe_tasks

    def some_are_missing(cluster: Any, params: Any, now: Any) -> dict[str, Any]:
        answer = whole(cluster, params, now)
        if spare.task_id in params["tasks"] and len(hidden) < 2:
            hidden.append(params)
            answer["tasks"] = [one for one in answer["tasks"] if not one["taskArn"].endswith(spare.task_id)]
        return answer

    monkeypatch.setattr(describe, "describe_tasks", some_are_missing)
    world.suspend(job_id)
    world.until(lambda: not world.ranks(job_id), "a container is left", 600)
    assert hidden
    world.until(lambda: not any(one.claims for one in world.instances()), "a claim is left", 600)
    world.cancel(job_id)
    world.let_pass(120)
    world.check_end()


def test_a_warm_spare_that_cannot_be_stopped_is_ended_by_a_reboot() -> None:
    """Otherwise its GPUs would stay claimed for ever, and the command would be tried for ever."""
    world, job_id = running()
    (spare,) = spares(world, job_id)
    world.fleet.stuck.add(spare.instance_id)
    world.finish(job_id)
    world.until_end(job_id)
    world.until(lambda: world.fleet.boots[spare.instance_id] == 1, "it is not rebooted", 3_600)
    world.until(lambda: not any(job_id in one.claims for one in world.instances()), "a claim is left", 1_200)
    world.let_pass(600)
    world.check_end()


@pytest.mark.parametrize("canceled", [False, True])
def test_a_warm_spare_that_ecs_has_forgotten_keeps_its_claim(canceled: bool) -> None:
    """A forced deregistration ends no container. Before, the GPUs were free as soon as ECS had forgotten the task."""
    world, job_id = running()
    (spare,) = spares(world, job_id)
    sick = world.cluster.instances[spare.instance_id]
    sick.reboot_behaviour = RebootBehaviour.IGNORED
    number = [machine.instance_id for machine in world.model_instances()].index(sick.instance_id)
    DeregisteredByHand(at_s=0, machines=(number,), registers_every_s=0).strike(world)
    world.let_pass(60)
    if canceled:
        world.cancel(job_id)
    world.let_pass(4_200)  # ECS forgets a stopped task after about an hour
    assert spare.runs and not world.actions.describe_tasks([spare.task_id])
    assert world.instance(sick).claims[job_id].attempt == 1
    world.fleet.terminate(sick)
    world.until(lambda: not world.instance(sick).claims, "its claim is left", 120)
    if not canceled:
        succeeds(world, job_id)
    world.until(world.is_quiet, "a command is left", 600)
    assert world.job(job_id).spares == ()


@pytest.mark.parametrize("outage_s", [0, 4_500])
def test_a_warm_spare_whose_end_is_lost_is_replaced(outage_s: int) -> None:
    """The poll of the job finds the end. After an outage of more than an hour ECS has forgotten the task."""
    lost = set[str]()

    def deliver(envelope: Envelope) -> tuple[float, ...]:
        return () if envelope.get("detail", {}).get("taskArn") in lost else (PROMPT_S,)

    world, job_id = running(delivery=deliver)
    (ended,) = spares(world, job_id)
    lost.add(ended.arn)
    world.asleep["reconciler"] = world.timeline.now + timedelta(seconds=outage_s)
    world.fleet.ranks.give_up(ended.task_id)
    world.let_pass(outage_s + 300)
    assert ended.task_id not in {spare.task_id for spare in world.job(job_id).spares}
    world.until(lambda: len(spares(world, job_id)) == 1, "no new spare", 900)
    succeeds(world, job_id)


def test_a_warm_spare_whose_description_cannot_be_read_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """ECS shows something else than before. That is no end of the container."""
    world, job_id = running()
    (spare,) = spares(world, job_id)
    whole = world.actions.describe_tasks

    def spoilt(task_ids: Any, unreadable: Any = None) -> Any:
        if unreadable is not None and spare.task_id in task_ids:
            unreadable.append(ValueError("an unknown status"))
        return tuple(fact for fact in whole(task_ids, unreadable) if fact.task_id != spare.task_id)

    monkeypatch.setattr(world.actions, "describe_tasks", spoilt)
    monkeypatch.setattr(world.actions, "tasks_started_by", lambda started_by: ())
    world.let_pass(600)
    assert [one.task_id for one in world.job(job_id).spares] == [spare.task_id]
