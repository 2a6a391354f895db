"""A rank that starts under a new registration before the product knows of it is no orphan of the old registration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.ports.errors import TryAgainSoon

from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import ContainerInstanceStatus
from simulator.faults.delivery import PROMPT_S, Envelope
from simulator.faults.operators import DeregisteredByHand
from simulator.trials import generator, in_place
from simulator.trials.trial import play
from simulator.world import World
from tests.simulator import incidents

LATE_S = 40.0
Delays = Callable[[str], tuple[float, ...]]


def late(status: str) -> tuple[float, ...]:
    """Every event about the container instance is late."""
    return (LATE_S,)


def late_end(status: str) -> tuple[float, ...]:
    """The end of the old registration is late, and the new registration is later."""
    return (LATE_S,) if status == ContainerInstanceStatus.INACTIVE else (LATE_S + 20,)


def lost_end(status: str) -> tuple[float, ...]:
    """Only the new registration is reported, and late."""
    return () if status == ContainerInstanceStatus.INACTIVE else (LATE_S,)


def lost(status: str) -> tuple[float, ...]:
    """No event arrives. The reconciler finds the new registration."""
    return ()


@dataclass
class Delivery:
    """Once it is `disturbed`, `delays` decides about the events of container instances."""

    delays: Delays
    disturbed: bool = False

    def __call__(self, envelope: Envelope) -> tuple[float, ...]:
        detail = envelope.get("detail", {})
        if not self.disturbed or "agentConnected" not in detail:
            return (PROMPT_S,)
        return self.delays(detail["status"])


def register_anew(world: World, delivery: Delivery) -> ModelInstance:
    """A person deregisters the only instance by force. It registers again, and the product does not know of it yet."""
    delivery.disturbed = True
    machine = world.model_instance(0)
    DeregisteredByHand(at_s=0, machines=(0,), registers_every_s=5).strike(world)
    world.let_pass(6)
    known = world.instance(machine).container_instance_id
    assert machine.status is ContainerInstanceStatus.ACTIVE and known not in machine.arn
    return machine


def registered_anew(delays: Delays) -> tuple[World, ModelInstance]:
    """A world with one idle instance that has registered anew."""
    delivery = Delivery(delays)
    world = World(instances=1, delivery=delivery, train_s=7200.0)
    world.let_pass(60)
    return world, register_anew(world, delivery)


@pytest.mark.parametrize("delays", [late, late_end, lost_end, lost])
def test_a_rank_that_started_under_the_new_registration_is_not_rebooted(delays: Delays) -> None:
    """ECS shows its task there. Before, the instance was rebooted under a rank that no one had to end (I12)."""
    world, machine = registered_anew(delays)
    job_id = world.submit(1)
    world.until_status(job_id, JobStatus.RUNNING)
    assert world.instance(machine).container_instance_id not in machine.arn
    world.let_pass(900)
    record = world.instance(machine)
    assert record.container_instance_id in machine.arn and not record.orphaned_ranks and not record.avoid_reason
    assert record.status is InstanceStatus.AVAILABLE and "EC2" not in record.reason
    assert not world.calls("RebootInstances") and not world.messages()
    incidents.ended(world, job_id)
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.SUCCEEDED, 1)


def test_a_launch_that_has_not_started_its_rank_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new registration becomes known between the claim and RunTask, when no task shows where the rank will be."""
    world, machine = registered_anew(lost)
    run_ranks, known = world.actions.run_ranks, list[bool]()

    def run(*given: Any) -> Any:
        if not known:
            known.append(True)
            world.recovery.deliver(*world.actions.describe_instance(machine.arn.rsplit("/", 1)[-1]))
            assert world.instance(machine).orphaned_ranks
        return run_ranks(*given)

    monkeypatch.setattr(world.actions, "run_ranks", run)
    job_id = world.submit(1)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(900)
    assert known and not world.calls("RebootInstances") and not world.instance(machine).orphaned_ranks
    incidents.ended(world, job_id)
    assert world.job(job_id).attempt == 1


def test_a_warm_spare_that_started_under_the_new_registration_is_not_rebooted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task is no rank of the plan. The instance registers anew just before RunTask."""
    policy = replace(PRESETS[Preset.ADAPTIVE], restart_in_place=True, warm_spares=1)
    world = World(instances=3, train_s=7200.0, policy=policy, agents=True, diagnose=True)
    run_ranks, machine = world.actions.run_ranks, world.model_instance(2)
    first = machine.arn

    def run(job: Any, plan: Any, ranks: Any, *given: Any) -> Any:
        if tuple(ranks) == (2,):
            world.fleet.deregister(machine)
            world.fleet.register_again(machine)
        return run_ranks(job, plan, ranks, *given)

    monkeypatch.setattr(world.actions, "run_ranks", run)
    job_id = world.submit(2)
    world.until(lambda: len(world.ranks(job_id)) == 3, "no warm spare", 300)
    world.let_pass(900)
    record = world.instance(machine)
    assert machine.arn != first and record.container_instance_id in machine.arn and not record.orphaned_ranks
    assert len(world.ranks(job_id)) == 3 and not world.calls("RebootInstances")


def test_an_orphan_of_the_old_registration_is_ended_after_the_rank_of_the_new_one_has_left() -> None:
    """Both have a claim. ECS shows only one of them, so the other is ended by a reboot, and the first leaves before."""
    delivery = Delivery(late)
    world = World(instances=1, delivery=delivery, train_s=7200.0)
    before, first = world.submit(1, 4), world.submit(1, 4)
    world.until_status(first, JobStatus.RUNNING)
    world.cancel(before)  # ECS gives its GPUs first, and those of the orphan last
    world.let_pass(60)
    orphan, machine = world.rank(first, 0), register_anew(world, delivery)
    second = world.submit(1, 4)
    world.until(lambda: bool(world.ranks(second)), "it is not launched", 30)
    world.until(lambda: bool(world.calls("RebootInstances")), "it is not rebooted", 1200)
    assert not world.ranks(second) and [rank.job_id for rank in world.instance(machine).orphaned_ranks] == [first]
    world.until(lambda: all(world.job(job_id).attempt == 2 for job_id in (first, second)), "no second attempts", 1800)
    assert not orphan.runs and len(world.calls("RebootInstances")) == 1
    assert world.instance(machine).status is InstanceStatus.AVAILABLE


def test_an_end_of_the_new_registration_makes_an_orphan_of_its_rank() -> None:
    """The rank was found under the new registration. A person deregisters the instance once more."""
    world, machine = registered_anew(late)
    job_id = world.submit(1)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(300)
    assert not world.calls("RebootInstances")
    orphan = world.rank(job_id, 0)
    DeregisteredByHand(at_s=0, machines=(0,), registers_every_s=5).strike(world)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 1800)
    assert not orphan.runs and len(world.calls("RebootInstances")) == 1
    assert world.instance(machine).status is InstanceStatus.AVAILABLE


def test_a_rank_of_a_registration_that_has_ended_unknown_to_the_product_is_an_orphan() -> None:
    """The instance is deregistered twice, and no event arrives. The record has the first registration only."""
    world, machine = registered_anew(lost)
    job_id = world.submit(1)
    world.until(lambda: any(task.runs for task in world.ranks(job_id)), "no rank", 60)
    orphan, known = world.rank(job_id, 0), world.instance(machine).container_instance_id
    DeregisteredByHand(at_s=0, machines=(0,), registers_every_s=5).strike(world)
    world.let_pass(6)
    assert world.instance(machine).container_instance_id == known
    world.until(lambda: bool(world.calls("RebootInstances")), "it is not rebooted", 120)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 1800)
    assert not orphan.runs and len(world.calls("RebootInstances")) == 1


def test_a_rank_that_ecs_shows_as_running_under_the_old_registration_is_an_orphan() -> None:
    """The agent of ECS has lost its data directory, so the old registration has not ended in ECS."""
    world, job_id = incidents.running(1, train_s=7200.0)
    orphan, machine = world.rank(job_id, 0), world.model_instance(0)
    machine.status = ContainerInstanceStatus.INACTIVE  # as in `register_again`, but ECS ends no task
    world.fleet.register_again(machine)
    world.until(lambda: bool(world.calls("RebootInstances")), "it is not rebooted", 300)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 1800)
    assert not orphan.runs


def test_a_rank_is_looked_for_again_if_the_answer_of_ecs_was_outdated(monkeypatch: pytest.MonkeyPatch) -> None:
    """DescribeContainerInstances returns an earlier version than that of the last event."""
    world, machine = registered_anew(late)
    describe, asked = world.actions.describe_instance, list[str]()

    def describe_instance(container_instance_id: str) -> Any:
        instance_id, seen = describe(container_instance_id) or ("", None)
        if seen is None or container_instance_id not in machine.arn:
            return None
        asked.append(container_instance_id)
        return instance_id, replace(seen, ecs_version=0) if len(asked) == 1 else seen

    monkeypatch.setattr(world.actions, "describe_instance", describe_instance)
    job_id = world.submit(1)
    world.until(lambda: len(asked) == 1, "nobody asks", 300)
    assert world.instance(machine).orphaned_ranks
    world.let_pass(300)
    assert not world.instance(machine).orphaned_ranks and not world.calls("RebootInstances")
    incidents.ended(world, job_id)


def only_end(status: str) -> tuple[float, ...]:
    """Only the end of the old registration is reported, and late."""
    return (LATE_S,) if status == ContainerInstanceStatus.INACTIVE else ()


def test_a_rank_under_a_registration_that_has_lost_its_agent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of ECS disconnects before the new registration is known. The question must end all the same."""
    world, machine = registered_anew(only_end)
    describe_ec2, asked = world.actions.describe_ec2, list[bool]()

    def describe(ids: Any) -> Any:
        asked.extend([True] * bool(world.instance(machine).orphaned_ranks))
        return describe_ec2(ids)

    monkeypatch.setattr(world.actions, "describe_ec2", describe)
    job_id = world.submit(1)
    world.until(lambda: any(task.runs for task in world.ranks(job_id)), "no rank", 60)
    world.fleet.disconnect(machine)
    world.let_pass(900)
    record = world.instance(machine)
    assert record.container_instance_id in machine.arn and not record.orphaned_ranks and not record.agent_connected
    assert len(asked) == 1 and not world.calls("RebootInstances")


@pytest.mark.parametrize("hidden_s", [5.0, 3600.0])
def test_a_task_that_is_listed_and_not_described_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, hidden_s: float
) -> None:
    """The answers of ECS are not consistent yet. If that never ends, the instance is rebooted after ten minutes."""
    world, machine = registered_anew(lost_end)
    describe, since = world.actions.describe_tasks, list[datetime]()

    def described(task_ids: Any, *given: Any) -> Any:
        if world.instance(machine).orphaned_ranks and not since:
            since.append(world.timeline.now)
        facts = describe(task_ids, *given)
        is_hidden = since and (world.timeline.now - since[0]).total_seconds() < hidden_s
        return () if is_hidden else facts

    monkeypatch.setattr(world.actions, "describe_tasks", described)
    job_id = world.submit(1)
    world.until(lambda: any(task.runs for task in world.ranks(job_id)), "no rank", 60)
    world.let_pass(540)
    assert since and not world.calls("RebootInstances")
    world.let_pass(120)
    assert len(world.calls("RebootInstances")) == (hidden_s > 600)
    assert bool(world.instance(machine).orphaned_ranks) is (hidden_s > 600)


def test_a_task_that_is_neither_listed_nor_described_is_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    """ECS has forgotten the task. Nothing is waited for."""
    world, machine = registered_anew(lost_end)
    monkeypatch.setattr(world.actions, "describe_tasks", lambda task_ids, *given: ())
    monkeypatch.setattr(world.actions, "tasks_started_by", lambda started_by: ())
    job_id = world.submit(1)
    world.until(lambda: bool(world.instance(machine).orphaned_ranks), "no end of the registration", 120)
    assert world.ranks(job_id)
    world.let_pass(60)
    assert len(world.calls("RebootInstances")) == 1


def test_a_registration_that_ecs_does_not_describe_is_asked_about_for_ten_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DescribeTasks names it, and DescribeContainerInstances does not know it."""
    world, machine = registered_anew(only_end)
    monkeypatch.setattr(world.actions, "describe_instance", lambda container_instance_id: None)
    monkeypatch.setattr(world.actions, "container_instances", lambda unreadable=None: ())
    job_id = world.submit(1)
    world.until(lambda: bool(world.instance(machine).orphaned_ranks), "no end of the registration", 120)
    assert world.ranks(job_id)
    world.let_pass(540)
    assert not world.calls("RebootInstances")
    world.let_pass(120)
    assert len(world.calls("RebootInstances")) == 1


def test_a_registration_without_its_agent_does_not_replace_one_with_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of ECS lost its data directory twice. ECS still shows the rank under the second registration."""
    world, machine = registered_anew(lost)
    second = machine.arn.rsplit("/", 1)[-1]
    job_id = world.submit(1)
    world.until(lambda: any(task.runs for task in world.ranks(job_id)), "no rank", 60)
    orphan, describe = world.rank(job_id, 0), world.actions.describe_instance
    name, seen = describe(second) or ("", None)
    assert seen is not None
    machine.status = ContainerInstanceStatus.INACTIVE  # as in `register_again`, but ECS ends no task
    world.fleet.register_again(machine)
    left = replace(seen, agent_connected=False, ecs_version=seen.ecs_version + 1)
    monkeypatch.setattr(
        world.actions, "describe_instance", lambda asked: (name, left) if asked == second else describe(asked)
    )
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt", 1200)
    assert not orphan.runs and len(world.calls("RebootInstances")) == 1
    assert world.instance(machine).container_instance_id in machine.arn


def test_an_outage_of_aws_makes_no_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    """EC2 answers nothing for eleven minutes. The first answer of ECS after that names the registration."""
    world, machine = registered_anew(lost_end)
    describe_ec2, since = world.actions.describe_ec2, list[datetime]()

    def describe(ids: Any) -> Any:
        if world.instance(machine).orphaned_ranks and not since:
            since.append(world.timeline.now)
        if since and (world.timeline.now - since[0]).total_seconds() < 660:
            raise TryAgainSoon("DescribeInstances: no answer")
        return describe_ec2(ids)

    monkeypatch.setattr(world.actions, "describe_ec2", describe)
    job_id = world.submit(1)
    world.until(lambda: any(task.runs for task in world.ranks(job_id)), "no rank", 60)
    world.let_pass(1800)
    assert since and not world.instance(machine).orphaned_ranks and not world.calls("RebootInstances")


@pytest.mark.parametrize("hidden_s", [0.0, 5.0])
def test_a_warm_spare_that_is_not_described_once_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, hidden_s: float
) -> None:
    """DescribeTasks leaves its task out of every answer for some seconds."""
    policy = replace(PRESETS[Preset.ADAPTIVE], restart_in_place=True, warm_spares=1)
    world = World(instances=3, train_s=7200.0, policy=policy, agents=True, diagnose=True)
    run_ranks, machine = world.actions.run_ranks, world.model_instance(2)
    describe, since = world.actions.ecs.describe_tasks, list[datetime]()

    def run(job: Any, plan: Any, ranks: Any, *given: Any) -> Any:
        if tuple(ranks) == (2,):
            world.fleet.deregister(machine)
            world.fleet.register_again(machine)
        return run_ranks(job, plan, ranks, *given)

    def described(task_ids: Any, *given: Any) -> Any:
        if world.instance(machine).orphaned_ranks and not since:
            since.append(world.timeline.now)
        facts = describe(task_ids, *given)
        is_hidden = since and (world.timeline.now - since[0]).total_seconds() < hidden_s
        return tuple(one for one in facts if not is_hidden or one.container_instance_id not in machine.arn)

    monkeypatch.setattr(world.actions, "run_ranks", run)
    monkeypatch.setattr(world.actions.ecs, "describe_tasks", described)
    job_id = world.submit(2)
    world.until(lambda: len(world.ranks(job_id)) == 3, "no warm spare", 300)
    world.let_pass(900)
    assert since and not world.calls("RebootInstances") and not world.instance(machine).orphaned_ranks


def test_a_rank_on_an_instance_that_was_registered_anew_is_not_rebooted_in_a_run_of_faults() -> None:
    """The seed that found it: the end of the registration is lost, and the new registration is late."""
    played = play(in_place.scenario_of(987), generator.in_passing(987), begun=in_place.commands_of(987))
    assert not played.violations, played.violations
