"""Worlds in which failed attempts are diagnosed: what is found out may be late or never, and ends nothing wrong."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observations import Delivery, EventReport
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.errors import TryAgainSoon

from simulator.faults.delivery import Unruly
from simulator.trials.campaign import play_seed
from simulator.world import World
from tests.simulator.incidents import TRAIN_S, ending, troubled
from tests.tiers import seeds

SEEDS = 60


def failing(world: World) -> str:
    """A gang of two whose second instance loses a GPU after a while; its job."""
    job_id = world.submit()
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(20)
    return job_id


def lost_notice(world: World) -> EventReport:
    """What rank 1 tells of a notice that its worker took and never acted upon."""
    return EventReport(
        report_id="e",
        at_s=world.timeline.now.timestamp() - 700,
        instance_id=world.model_instance(1).instance_id,
        rank=1,
        request_id="q",
        event="rollout_start",
        state=Delivery.FAILED,
        last_state=Delivery.DELIVERED,
    )


def test_a_gpu_fault_heals_the_same_with_and_without_a_diagnosis() -> None:
    """The exit of a rank alone decides nothing: the check does."""
    ends = []
    for diagnose in (False, True):
        world = World(instances=2, train_s=TRAIN_S, diagnose=diagnose)
        job_id = failing(world)
        world.break_gpu(world.model_instance(1))
        world.until_end(job_id)
        ends.append(ending(world, job_id))
        assert (world.job(job_id).conclusion is not None) == diagnose
    assert ends[0] == ends[1]


def test_a_lost_notice_starts_the_gang_again_without_a_check() -> None:
    """Its instances are given back at once, and no check runs."""
    world = World(instances=2, train_s=TRAIN_S, diagnose=True)
    job_id = failing(world)
    world.store.add_observations(job_id, 1, world.model_instance(1).instance_id, (lost_notice(world),))
    world.exit(job_id, 1, 1)
    world.until_end(job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt, job.attempts_counted) == (JobStatus.SUCCEEDED, 2, 1)
    assert not [step for step in world.calls("RunTask") if "check/" in str(step.given)]


def test_a_witness_that_comes_while_the_checks_run_is_heard_before_the_job_ends() -> None:
    """A rank's exit alone would be the end once its machines have passed; the agent's report was late."""
    world = World(instances=2, train_s=TRAIN_S, diagnose=True)
    job_id = failing(world)
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.DIAGNOSING)
    world.store.add_observations(job_id, 1, world.model_instance(1).instance_id, (lost_notice(world),))
    world.until_end(job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt, job.heard_again) == (JobStatus.SUCCEEDED, 2, 1)
    assert len([step for step in world.calls("RunTask") if "check/" in str(step.given)]) == 2


@pytest.mark.parametrize("trouble", [TryAgainSoon("busy"), RuntimeError("a rule")], ids=["busy", "broken"])
def test_the_second_hearing_is_waited_for_while_aws_is_busy_and_not_where_it_fails(trouble: Exception) -> None:
    """Many gangs that fail together make it busy, which is when the word of one agent matters to all of them."""
    world = World(instances=2, train_s=TRAIN_S, diagnose=True)
    job_id = failing(world)
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.DIAGNOSING)
    read, raised = world.store.observations_of, []

    def once(*given: Any) -> Any:
        if world.job(job_id).heard_again and not raised:
            raised.append(trouble)
            raise trouble
        return read(*given)

    world.store.observations_of = once  # type: ignore[method-assign]
    world.store.add_observations(job_id, 1, world.model_instance(1).instance_id, (lost_notice(world),))
    with suppress(ExceptionGroup):
        world.until_end(job_id)
    world.until_end(job_id)
    assert raised == [trouble]
    ended = JobStatus.SUCCEEDED if isinstance(trouble, TryAgainSoon) else JobStatus.FAILED
    assert world.job(job_id).status is ended


def test_a_job_of_which_nobody_can_say_more_ends_after_the_second_hearing() -> None:
    """There is no third."""
    world = World(instances=2, train_s=TRAIN_S, diagnose=True)
    job_id = failing(world)
    world.exit(job_id, 1, 1)
    world.until_end(job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt, job.heard_again) == (JobStatus.FAILED, 1, 1)


LOST_GPU = ("step 812 loss 1.93", "RuntimeError: CUDA error: GPU is lost")


def says(world: World, job_id: str, rank: int, *lines: str) -> None:
    """The log of a rank that runs."""
    world.training.written[world.rank(job_id, rank).task_id] = lines


def checks(world: World) -> list[str]:
    """The orders to check a machine, one after the other."""
    return [str(step.given) for step in world.calls("RunTask") if "check/" in str(step.given)]


def test_a_machine_that_its_log_names_is_checked_beside_the_job_and_mended() -> None:
    """The gang trains again, on the spare, while the machine is looked at; no other is."""
    world = World(instances=3, train_s=10 * TRAIN_S, diagnose=True)
    job_id = failing(world)
    named = world.model_instance(1)
    says(world, job_id, 1, *LOST_GPU)
    world.break_gpu(named)
    world.until_status(job_id, JobStatus.RECOVERING)
    world.until_status(job_id, JobStatus.RUNNING)
    record = world.instance(named)
    assert (record.status, record.claims) == (InstanceStatus.CHECKING, {})
    assert world.job(job_id).instances == (world.model_instance(0).instance_id, world.model_instance(2).instance_id)
    world.until_end(job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and world.job(job_id).attempt == 2
    assert [named.instance_id in one for one in checks(world)] == [True, True]  # what it has, and what the reboot did
    assert [step.given["instance"] for step in world.calls("RebootInstances")] == [named.instance_id]
    record = world.instance(named)
    assert (record.status, record.reserved_for) == (InstanceStatus.AVAILABLE, "")


def test_without_a_spare_the_job_waits_for_the_machine_that_is_named() -> None:
    """And for no other: it goes on where it was, under other ranks."""
    world = World(instances=2, train_s=TRAIN_S, diagnose=True)
    job_id = failing(world)
    says(world, job_id, 1, *LOST_GPU)
    world.break_gpu(world.model_instance(1))
    world.until_end(job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt, job.repairs) == (JobStatus.SUCCEEDED, 2, 1)
    assert len(checks(world)) == 2


def test_a_log_that_names_the_wrong_machine_costs_one_attempt() -> None:
    """The job fails again soon, and now its log names the instance that is faulty: only that one is checked."""
    world = World(instances=3, train_s=TRAIN_S, diagnose=True)
    job_id = failing(world)
    sick = world.model_instance(0)
    says(world, job_id, 1, *LOST_GPU)
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.RECOVERING)
    world.until_status(job_id, JobStatus.RUNNING)
    first = len(checks(world))
    says(world, job_id, world.job(job_id).instances.index(sick.instance_id), *LOST_GPU)
    world.break_gpu(sick)
    world.until_end(job_id)
    job = world.job(job_id)
    assert (job.status, job.attempt) == (JobStatus.SUCCEEDED, 3)
    assert first == 1 and len(checks(world)) == first + 1 + 1  # one by one in the background, the proof of the repair
    assert [step.given["instance"] for step in world.calls("RebootInstances")] == [sick.instance_id]


def test_a_machine_that_passes_its_check_aside_is_left_alone() -> None:
    """A log may be wrong: what is repaired, the check decides."""
    world = World(instances=3, train_s=TRAIN_S, diagnose=True)
    job_id = failing(world)
    says(world, job_id, 1, *LOST_GPU)
    world.exit(job_id, 1, 1)
    world.until_end(job_id)
    assert (world.job(job_id).attempt, len(checks(world)), world.calls("RebootInstances")) == (2, 1, [])


def test_a_check_aside_that_is_put_off_finds_its_machine_as_it_was() -> None:
    """AWS is busy when the named machine is to hear of it: nobody is placed on it before, another job neither."""
    world = World(instances=3, train_s=TRAIN_S, diagnose=True)
    job_id = failing(world)
    named, saves, refused = world.model_instance(1), world.store.save_instance, []

    def busy(record: Any, *given: Any) -> Any:
        if record.instance_id == named.instance_id and record.status is InstanceStatus.CHECKING and not refused:
            refused.append(record)
            raise TryAgainSoon("busy")
        return saves(record, *given)

    world.store.save_instance = busy  # type: ignore[method-assign]
    says(world, job_id, 1, *LOST_GPU)
    world.break_gpu(named)
    other = world.submit(nnodes=1)
    world.until_end(job_id)
    world.until_end(other)
    assert refused
    assert [world.job(one).status for one in (job_id, other)] == [JobStatus.SUCCEEDED] * 2
    assert world.job(other).attempt == 1
    assert [step.given["instance"] for step in world.calls("RebootInstances")] == [named.instance_id]
    assert world.instance(named).reserved_for == ""


def test_a_check_that_begins_when_its_job_has_gone_on_keeps_the_machine_for_nobody() -> None:
    """Until it begins the machine is nobody's either: its claim stands."""
    world = World(instances=3, train_s=10 * TRAIN_S, diagnose=True)
    job_id = failing(world)
    named, saves = world.model_instance(1), world.store.save_instance

    def busy(record: Any, *given: Any) -> Any:
        if record.status is InstanceStatus.CHECKING and world.job(job_id).attempt == 1:
            raise TryAgainSoon("busy")
        return saves(record, *given)

    world.store.save_instance = busy  # type: ignore[method-assign]
    says(world, job_id, 1, *LOST_GPU)
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.RECOVERING)
    world.until_status(job_id, JobStatus.RUNNING)
    assert set(world.instance(named).claims) == {job_id}
    world.let_pass(600)
    assert len(checks(world)) == 1
    record = world.instance(named)
    assert (record.status, record.claims, record.reserved_for) == (InstanceStatus.AVAILABLE, {}, "")


@pytest.mark.parametrize("named", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", seeds(15, default=4))
def test_nothing_breaks_when_everything_goes_wrong_beside_a_check_aside(seed: int, named: int) -> None:
    """Whether the log names the machine that is sick or another; the world itself asks the invariants."""
    trouble = troubled(seed)
    world = World(instances=5, train_s=TRAIN_S, nemesis=trouble, delivery=Unruly(seed), diagnose=True)
    job_id = world.submit(nnodes=4)
    trouble.begin(world)
    world.let_pass(20 + seed * 37 % 300)
    for task in world.ranks(job_id):
        if task.instance_id == world.model_instance(named).instance_id:
            world.training.written[task.task_id] = LOST_GPU
    world.break_gpu(world.model_instance(seed % 4))
    world.until_end(job_id)


@pytest.mark.parametrize("seed", seeds(SEEDS, fast=3, default=15))
def test_nothing_breaks_when_everything_goes_wrong_beside_a_diagnosis(seed: int) -> None:
    """Functions die between any two steps, events come twice, late or never; the world itself asks the invariants."""
    trouble = troubled(seed)
    world = World(instances=4, train_s=TRAIN_S, nemesis=trouble, delivery=Unruly(seed), diagnose=True)
    job_id = world.submit()
    trouble.begin(world)
    world.let_pass(20 + seed * 37 % 300)
    world.break_gpu(world.model_instance(seed % 4))
    world.until_end(job_id)


def test_a_machine_whose_check_is_told_but_not_settled_is_kept_for_nobody() -> None:
    """Seed 1050: who told it died before that was entered, and its job went on elsewhere."""
    assert play_seed(1050)[1].violations == []
