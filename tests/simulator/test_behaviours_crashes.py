"""Behaviour 6, first half: the function dies before, during and after every act of whole incidents.

An act that makes several calls has a step for each, so dying after one of them is dying in the middle of the act.
Dead invocations are not tried again here: what finishes their work is the reconciler alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from gpu_recovery.core.job.record import JobStatus

from simulator.faults.delivery import Envelope, Unruly, is_task, losing
from simulator.invocations import Effect, KillAt
from simulator.world import World
from tests.simulator import incidents
from tests.simulator.incidents import INCIDENTS, Told, ending
from tests.tiers import sampled, scaled

QUICK = ("adaptive_gpu_fault_with_spare", "adaptive_application_error", "adoption_recover")
LONG = (
    "adaptive_gpu_fault",
    "adaptive_crash_on_healthy_gpus",
    "adaptive_spot_interruption",
    "adaptive_user_stop",
    "classic_faulty",
    "classic_faulty_twice",
    "classic_reboot_never_returns",
    "adoption_observe",
)


def crash_points(steps: list[Effect]) -> Iterator[KillAt]:
    """After every effect; and before it where an invocation begins, for there nothing is done and all is lost."""
    for number, step in enumerate(steps):
        if number == 0 or steps[number - 1].invocation != step.invocation:
            yield KillAt(number, after_it=False)
        yield KillAt(number, after_it=True)


def told_of_failure(world: World, job_id: str) -> bool:
    """Whether the job's failure was announced: under its own incident alone, however often a message was sent."""
    told = {message.incident_id for message in world.messages() if ": FAILED" in message.subject}
    assert told <= {world.job(job_id).incident_id}
    return bool(told)


def reboots_asked(world: World) -> list[str]:
    return [step.given["instance"] for step in world.calls("RebootInstances")]


def assert_survives_crashes(incident: Callable[..., Told], every: int = 1) -> None:
    """Whenever it dies, the reconciler brings it to the same end, and nothing happens twice that may not.

    It dies at the first of the points where it can, and at each `every`th point after it.
    That each rank of an attempt is started once, and that no claim, reservation or command is left behind, is asked
    by the world itself.
    """
    world, job_id = incident()
    expected, told, asked = ending(world, job_id), told_of_failure(world, job_id), reboots_asked(world)
    died = 0
    for nemesis in islice(crash_points(world.invocations.steps), 0, None, every):
        world, job_id = incident(nemesis=nemesis, retries=False)
        where = world.invocations.killed
        died += len(where)
        assert ending(world, job_id) == expected, f"{where}\n{world.transcript.text()}"
        assert told_of_failure(world, job_id) == told, where
        assert reboots_asked(world) == asked, where
        assert world.failures == [], where
    assert died * every > len(asked) + 20


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_dying_at_any_step_changes_no_end(name: str) -> None:
    """Every step of the incident, before and after; in the default tier every fifth of these points."""
    assert_survives_crashes(INCIDENTS[name], scaled(fast=5, default=5, full=1))


@pytest.mark.full
@pytest.mark.parametrize("name", LONG)
def test_dying_at_any_step_of_the_other_incidents_changes_no_end(name: str) -> None:
    """Every step of every incident that ends within hours of virtual time."""
    assert_survives_crashes(INCIDENTS[name])


def test_a_reboot_of_unknown_outcome_is_repeated_only_on_the_old_boot() -> None:
    """Died just before the request: the check shows the old boot, so it is asked for. Just after: it is not."""
    world, _ = incidents.gpu_fault()
    number = world.calls("RebootInstances")[0].number
    before, _ = incidents.gpu_fault(nemesis=KillAt(number, after_it=False), retries=False)
    after, _ = incidents.gpu_fault(nemesis=KillAt(number, after_it=True), retries=False)
    assert len(before.calls("RebootInstances")) == len(after.calls("RebootInstances")) == 1
    assert "the instance still runs its old boot" in before.transcript.text()
    assert "the instance still runs its old boot" not in after.transcript.text()


def test_a_message_is_sent_twice_only_under_the_same_incident_id() -> None:
    """Dying between the publication and its mark repeats the message, and readers can tell."""
    world, _ = incidents.application_error()
    number = [step.number for step in world.calls("Publish")][-1]
    again, job_id = incidents.application_error(nemesis=KillAt(number, after_it=True), retries=False)
    told = [message.incident_id for message in again.messages() if ": FAILED" in message.subject]
    assert told == [f"{job_id}--a01"] * 2


@pytest.mark.slow
def test_lambdas_own_retries_do_no_harm() -> None:
    """With the two retries of an asynchronous invocation beside the reconciler, the end is the same."""
    world, job_id = incidents.gpu_fault()
    expected, count = ending(world, job_id), len(world.invocations.steps)
    for number in range(0, count, scaled(fast=7, default=7, full=3)):
        world, job_id = incidents.gpu_fault(nemesis=KillAt(number, after_it=True))
        assert ending(world, job_id) == expected, world.invocations.killed


def test_tasks_that_a_dead_launcher_did_not_enter_are_found_by_the_look() -> None:
    """Died after RunTask, before the plan had the task ids; then an end is lost: only the attempt's name finds it."""

    def lost(envelope: Envelope) -> bool:
        return is_task(envelope, "STOPPED")

    world, _ = incidents.success()
    number = [step.number for step in world.calls("RunTask")][-1]
    world, job_id = incidents.success(nemesis=KillAt(number, after_it=True), delivery=losing(lost), retries=False)
    assert world.job(job_id).status is JobStatus.SUCCEEDED


def test_a_canceled_job_whose_launcher_died_ends_at_once() -> None:
    """Died before the attempt had a plan: nothing was started, so nothing is waited for."""
    world = World(train_s=None)
    world.submit()
    world.until(lambda: bool(world.calls("store.begin_attempt")), "nothing was launched")
    number = world.calls("store.begin_attempt")[0].number
    world = World(train_s=None, nemesis=KillAt(number, after_it=False), retries=False)
    job_id = world.submit()
    world.until_status(job_id, JobStatus.SUBMITTING)
    world.cancel(job_id)
    world.until_end(job_id, limit_s=600)
    assert world.job(job_id).status is JobStatus.CANCELED


@pytest.mark.parametrize("first", sampled(range(0, 120, 20), default=1))
def test_every_job_ends_once_trouble_of_every_kind_has_ended(first: int) -> None:
    """Deaths, overlaps, lost answers and unruly events for half an hour; then every job ends and nothing is left."""
    for seed in range(first, first + 20):
        trouble = incidents.troubled(seed)
        world = World(instances=5, train_s=incidents.TRAIN_S, nemesis=trouble, delivery=Unruly(seed))
        jobs = [world.submit(), world.submit()]
        trouble.begin(world)
        world.let_pass(20 + seed * 7 % 400)
        world.break_gpu(world.model_instance(seed % 5))
        world.let_pass(seed * 13 % 300)
        world.break_gpu(world.model_instance((seed + 2) % 5))
        for job_id in jobs:
            world.until_end(job_id)
        world.check_end()
        assert world.failures == [], seed
