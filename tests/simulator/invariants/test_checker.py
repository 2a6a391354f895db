"""Asking the invariants only of what has changed finds what asking them of everything finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.store import Store

from sandbox.cluster.model import tasks
from simulator.fast.fidelity import THOROUGH, Checking, Fidelity
from simulator.invariants.records import InvariantBroken
from simulator.world import World
from tests.simulator.incidents import QUICK

RECORDS_ONLY = Fidelity(checking=Checking.RECORDS)


def running(fidelity: Fidelity) -> tuple[World, Store]:
    """A gang of two runs on three instances, and nothing is wrong."""
    world = World(instances=3, fidelity=fidelity)
    world.until_status(world.submit(), JobStatus.RUNNING)
    world.let_pass(120)
    return world, world.recovery.store


def write(world: World, store: Store, number: int, **changes: object) -> None:
    """Somebody writes the record of a machine, and should not have."""
    record = world.instance(world.model_instance(number))
    store.save_instance(replace(record, **changes))  # type: ignore[arg-type]


def two_owners(world: World, store: Store) -> None:
    """Another job claims GPUs that are taken."""
    claims = world.instance(world.model_instance(0)).claims
    write(world, store, 0, claims={**claims, "sft-other": Claim(1, 8, 0)})


def claimed_twice(world: World, store: Store) -> None:
    """The same by a claim that asks nobody."""
    store.claim_instance(world.model_instance(0).instance_id, "sft-other", Claim(1, 8, 0), None)


def nothing_will_look(world: World, store: Store) -> None:
    """An instance is checked, with no end to it."""
    write(world, store, 2, status=InstanceStatus.CHECKING, deadline_at=None, look_at=None, commands=())


def job_without_a_look(world: World, store: Store) -> None:
    """A job runs, and nobody will ever look at it."""
    store.save_job(replace(world.jobs()[0], look_at=None, deadline_at=None, commands=()))


def too_many_attempts(world: World, store: Store) -> None:
    """A job has had its attempts and goes on."""
    store.save_job(replace(world.jobs()[0], attempts_counted=9))


def lost_claim(world: World, store: Store) -> None:
    """A rank runs where nobody keeps its place."""
    write(world, store, 0, claims={})


def uncounted_repair(world: World, store: Store) -> None:
    """An instance is repaired, and the brakes know nothing of it."""
    write(world, store, 2, status=InstanceStatus.REBOOTING, look_at=world.timeline.now)


def second_attempt(world: World, store: Store) -> None:
    """A rank of another attempt runs beside the first."""
    started(world, f"{world.jobs()[0].job_id}--a02")


def second_task(world: World, store: Store) -> None:
    """A rank is started twice."""
    started(world, f"{world.jobs()[0].job_id}--a01")


def started(world: World, started_by: str) -> None:
    """Rank 0 runs once more, under the name `started_by`, on the machine that was free."""
    machine, job = world.model_instance(2), world.jobs()[0]
    task = world.start_by_hand(job.job_id, 0, 2, machine)
    del world.cluster.tasks[task.task_id]
    task.started_by = started_by
    world.cluster.tasks[task.task_id] = task
    world.fleet.change(lambda now: tasks.process_started(world.cluster, task, now))


OF_RECORDS = [two_owners, claimed_twice, nothing_will_look, job_without_a_look, too_many_attempts, uncounted_repair]
OF_PROCESSES = [lost_claim, second_attempt, second_task]


@pytest.mark.parametrize("wrong", [*OF_RECORDS, *OF_PROCESSES])
def test_what_changed_is_found_wrong_as_everything_is(wrong: Callable[[World, Store], None]) -> None:
    """The same step raises, and for the same reason."""
    said: list[str] = []
    for fidelity in (THOROUGH, QUICK):
        world, store = running(fidelity)
        world.timeline.after(1, wrong, world, store)
        with pytest.raises(InvariantBroken) as broken:
            world.let_pass(1)
        said.append(str(broken.value).split("\n\n")[0])
    assert said[0] == said[1]


@pytest.mark.parametrize("wrong", OF_RECORDS)
def test_a_large_world_finds_at_once_what_is_wrong_with_a_record(wrong: Callable[[World, Store], None]) -> None:
    """Records are asked after each step."""
    world, store = running(RECORDS_ONLY)
    world.timeline.after(1, wrong, world, store)
    with pytest.raises(InvariantBroken):
        world.let_pass(1)


@pytest.mark.parametrize("wrong", OF_PROCESSES)
def test_a_large_world_finds_now_and_then_what_is_wrong_with_a_process(
    wrong: Callable[[World, Store], None],
) -> None:
    """Processes are asked after so many steps."""
    world, store = running(replace(RECORDS_ONLY, everything_every=5))
    world.timeline.after(1, wrong, world, store)
    with pytest.raises(InvariantBroken):
        world.let_pass(600)


@pytest.mark.parametrize("fidelity", [THOROUGH, QUICK, RECORDS_ONLY])
def test_work_without_proof_is_found(fidelity: Fidelity) -> None:
    """An instance that comes back from its repair without a check is wrong in every way of asking."""
    world, store = running(fidelity)
    world.break_gpu(world.model_instance(0))

    def repaired(instance: Instance) -> bool:
        return instance.status is InstanceStatus.REBOOTING

    world.until(lambda: any(map(repaired, world.instances())), "no reboot")
    fleet = store.load_fleet()

    def back_to_work() -> None:
        one = next(filter(repaired, world.instances()))
        healed = replace(one, status=InstanceStatus.AVAILABLE, reboot=None)
        store.save_instance(healed, replace(fleet, repairing=frozenset()))

    world.timeline.after(1, back_to_work)
    with pytest.raises(InvariantBroken, match="I6"):
        world.let_pass(1)
