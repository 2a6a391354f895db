"""The recovery contract of a job in the virtual world: its deadline, its message, its bill, and crashes in between."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.job.downtime import LossCause
from gpu_recovery.core.job.record import Job, JobStatus

from simulator.invocations import KillAt
from simulator.world import World
from tests.simulator.incidents import TRAIN_S
from tests.simulator.test_behaviours_crashes import crash_points
from tests.tiers import scaled

LIMIT = "recovery contract not kept, still down"


def gpu_fault(minutes: int = 3, **given: Any) -> tuple[World, Job]:
    """A GPU falls off the bus. There is no spare, so the job waits for the reboot for longer than its contract says."""
    world = World(instances=2, train_s=TRAIN_S, **given)
    job_id = world.submit(2, max_down_minutes=minutes)
    world.until_status(job_id, JobStatus.RUNNING)
    world.break_gpu(world.model_instance(0))
    world.until_end(job_id)
    world.check_end()
    return world, world.job(job_id)


def told(world: World) -> list[Any]:
    """The messages that the contract is not kept."""
    return [message for message in world.messages() if LIMIT in message.subject]


def limit_publication(world: World) -> int:
    """The number of the step that publishes the message: after that of the failure, before that of the recovery."""
    _, limit, _ = world.calls("Publish")
    return limit.number


def entries(job: Job) -> list[Any]:
    """The decisions about the limit."""
    return [entry for entry in job.history if entry.event == "RecoveryLimitPassed"]


def test_the_limit_is_told_once_when_it_passes_and_the_bill_adds_up() -> None:
    """Not afterwards: the job is still down, and the message says what it waits for."""
    world, job = gpu_fault()
    (entry,), (message,), down = entries(job), told(world), job.downtime
    assert down is not None and not down.is_open and down.told and down.recovered
    assert timedelta(0) <= entry.at - (down.since + timedelta(minutes=3)) <= timedelta(minutes=2)
    assert (
        entry.before == entry.after == JobStatus.RECOVERING and "it waits to repair an instance" in message.body.lower()
    )
    assert message.incident_id == f"{job.job_id}--a01"
    assert sum(down.by_phase(world.timeline.now).values()) == int((down.until - down.since).total_seconds())
    assert down.cause is LossCause.HARDWARE and job.lost_s == {"hardware": down.lost_s(world.timeline.now)}
    (recovered,) = [one for one in world.messages() if "recovered on attempt 2" in one.subject]
    assert "The recovery contract is not kept: down for" in recovered.body


def test_a_contract_that_is_kept_sends_no_message_and_says_so() -> None:
    """Only the message of the recovery mentions it."""
    world, job = gpu_fault(minutes=60)
    assert told(world) == [] and entries(job) == [] and job.limit_at is None
    (recovered,) = [one for one in world.messages() if "recovered on attempt 2" in one.subject]
    assert "The recovery contract is kept: down for" in recovered.body


@pytest.mark.slow
def test_a_crash_at_any_step_neither_loses_the_message_nor_decides_it_twice() -> None:
    """Between save and send, too: the message is sent again under the same incident, from the one decision."""
    world, expected = gpu_fault()
    number, reach = limit_publication(world), scaled(fast=6, default=12, full=200)
    near = [point for point in crash_points(world.invocations.steps) if abs(point.number - number) <= reach]
    assert len(near) > 5
    for nemesis in near:
        world, job = gpu_fault(nemesis=nemesis, retries=False)
        assert len(entries(job)) == 1 and job.status is expected.status, world.invocations.killed
        mails = told(world)
        assert 1 <= len(mails) <= 2 and len({mail.incident_id for mail in mails}) == 1, world.invocations.killed


def test_a_crash_between_publish_and_mark_repeats_the_message_under_one_incident() -> None:
    """Readers can tell that it is the same message."""
    world, _ = gpu_fault()
    number = limit_publication(world)
    for after_it, mails in ((False, 1), (True, 2)):
        again, job = gpu_fault(nemesis=KillAt(number, after_it=after_it), retries=False)
        assert len(told(again)) == mails and len(entries(job)) == 1


def test_the_work_that_is_done_again_is_on_the_bill() -> None:
    """By the progress reports of both attempts: reached at 100 s, resumed from the value of 40 s."""
    world = World(instances=2, train_s=None)
    job_id = world.submit(2, max_down_minutes=60, max_lost_minutes=60)
    world.until_status(job_id, JobStatus.RUNNING)

    def reports(value: float) -> None:
        job, now = world.job(job_id), world.timeline.now
        report = ProgressReport(
            report_id=f"p{value}{job.attempt}", at_s=now.timestamp(), instance_id=job.instances[0], rank=0, value=value
        )
        world.store.add_observations(job_id, job.attempt, job.instances[0], (report,))

    for value in range(11):
        reports(float(value))
        world.let_pass(60)
    failed_at = world.timeline.now
    world.exit(job_id, 1, 139)
    world.until(lambda: world.job(job_id).attempt == 2, "it was not relaunched", 3_600)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(20)
    resumed_at = world.timeline.now
    reports(4.0)
    world.let_pass(130)
    down = world.job(job_id).downtime
    assert down is not None and down.until is not None
    assert abs((down.until - resumed_at).total_seconds()) <= 1
    assert abs((down.since - failed_at).total_seconds()) <= 2
    assert down.repeated_s is not None and abs(down.repeated_s - 7 * 60) <= 2
    assert down.lost_s(world.timeline.now) == down.down_s(world.timeline.now) + down.repeated_s


@pytest.mark.slow
def test_a_crash_at_any_step_leaves_phases_that_add_up() -> None:
    """Whatever dies, the phases of the bill are the whole downtime."""
    world, _ = gpu_fault()
    points = list(crash_points(world.invocations.steps))
    for nemesis in islice(points, 0, None, scaled(fast=40, default=20, full=1)):
        world, job = gpu_fault(nemesis=nemesis, retries=False)
        down = job.downtime
        assert down is not None and down.until is not None, world.invocations.killed
        assert sum(down.by_phase(down.until).values()) == int((down.until - down.since).total_seconds())
