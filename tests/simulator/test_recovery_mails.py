"""When operators hear that a job has recovered: once its training goes on, and not when its ranks run again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.execution.training_progress import describe_continued

from simulator.world import World
from tests.simulator import incidents

PROGRESS_S = incidents.ADAPTIVE.progress_timeout_s


def reports_progress(world: World, job_id: str, value: float) -> None:
    """Rank 0 of the present attempt reports its progress."""
    job, now = world.job(job_id), world.timeline.now
    report = ProgressReport(
        report_id=f"p{value}", at_s=now.timestamp(), instance_id=job.instances[0], rank=0, value=value
    )
    world.store.add_observations(job_id, job.attempt, job.instances[0], (report,))


def relaunched(*, progress: bool) -> tuple[World, str]:
    """A job that runs again after its rank 1 crashed. `progress`: its first attempt reported progress."""
    world, job_id = incidents.running(instances=2, train_s=None)
    if progress:
        reports_progress(world, job_id, 40)
    world.exit(job_id, 1, 139)
    world.until(lambda: world.job(job_id).attempt == 2, "it was not relaunched", 3_600)
    world.until_status(job_id, JobStatus.RUNNING)
    return world, job_id


def subjects(world: World) -> list[str]:
    return [message.subject.rpartition(": ")[2] for message in world.messages()]


def test_a_job_without_progress_reports_recovers_when_it_has_run_for_a_minute() -> None:
    """Its ranks may die in the seconds after their start."""
    world, job_id = relaunched(progress=False)
    world.let_pass(50)
    assert subjects(world) == ["attempt 1 failed, recovering"] and world.job(job_id).incident_id
    world.let_pass(120)
    assert subjects(world)[1:] == ["recovered on attempt 2"] and world.job(job_id).incident_id is None
    assert world.job(job_id).blamed == () and world.job(job_id).recovery_since is None


def test_the_messages_of_the_last_attempt_promise_no_recovery() -> None:
    """The job had one attempt. The first message says that it will end, and the second that it has failed."""
    policy = replace(incidents.ADAPTIVE, attempts_max=1)
    world, job_id = incidents.running(instances=2, train_s=None, policy=policy)
    world.exit(job_id, 1, 139)
    world.until_end(job_id)
    assert world.job(job_id).status is JobStatus.FAILED
    assert subjects(world) == ["attempt 1 failed, the job will end", "FAILED on attempt 1"]
    assert all("submit the job again" in message.body for message in world.messages())


def test_a_job_with_progress_reports_recovers_with_the_first_report_of_its_attempt() -> None:
    """Loading a model takes longer than a minute, and it often fails there."""
    world, job_id = relaunched(progress=True)
    world.let_pass(600)
    assert subjects(world) == ["attempt 1 failed, recovering"]
    reports_progress(world, job_id, 41)
    world.let_pass(130)
    assert subjects(world)[1:] == ["recovered on attempt 2"]
    assert "attempt 2 reports progress: 41" in world.messages()[-1].body


def test_a_poll_within_the_first_minute_ends_no_recovery() -> None:
    """An exit that an agent reports brings the poll forward."""
    world, job_id = relaunched(progress=False)
    record = world.job(job_id)
    plan = world.store.load_plan(job_id, 2)
    assert plan is not None and record.running_at is not None
    began_s = record.running_at.timestamp()

    def continued(after_s: float) -> str | None:
        return describe_continued(world.store, incidents.ADAPTIVE, record, plan, began_s + after_s)

    assert continued(59) is None and continued(60) == "attempt 2 has run for 60 s"


def test_a_job_that_never_reports_again_is_not_waited_for_for_ever() -> None:
    """The mail says that it runs and reports nothing."""
    world, _ = relaunched(progress=True)
    world.let_pass(PROGRESS_S + 200)
    assert subjects(world)[1:] == ["recovered on attempt 2"]
    assert "and reports no progress" in world.messages()[-1].body


@pytest.mark.parametrize("rank", [0, 1])
def test_a_job_that_crashes_before_it_recovered_sends_no_further_mail(rank: int) -> None:
    """The one call for help is the last."""
    world, job_id = relaunched(progress=False)
    world.let_pass(20)
    world.exit(job_id, rank, 139)
    world.until(lambda: world.job(job_id).attempt == 3, "it was not relaunched", 3_600)
    world.until_status(job_id, JobStatus.RUNNING)
    world.exit(job_id, rank, 139)
    world.until_end(job_id)
    first, last = world.messages()[0], world.messages()[-1]
    failed = [message for message in world.messages() if message.job_id == job_id and not message.instance_id]
    assert failed == [first, last] and first.incident_id == last.incident_id
    assert "attempt 1, " in last.body and "attempt 2, " in last.body


def test_a_job_that_succeeds_before_a_poll_closes_its_incident() -> None:
    """Nothing is left open."""
    world, job_id = incidents.running(instances=2, train_s=30)
    world.exit(job_id, 1, 139)
    world.until_end(job_id)
    assert world.job(job_id).status is JobStatus.SUCCEEDED and world.job(job_id).incident_id is None
    assert subjects(world)[1:] == ["has ended, nothing is left to recover"]
