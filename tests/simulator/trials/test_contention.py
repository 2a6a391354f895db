"""Runs with users, priorities and quotas: what a scenario says of them, what people want, and what seeds draw."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.job.record import TERMINAL, JobStatus

from simulator.faults.operators import JobResumed, JobSuspended
from simulator.trials import campaign
from simulator.trials.generator import CONTENTION_EVERY, scenario_of
from simulator.trials.scenario import ScenarioInvalid, parse
from simulator.trials.trial import play
from simulator.world import World

CROWDS = tuple(range(1, 120, CONTENTION_EVERY))


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"job": [{"priority": "URGENT"}]}, "job priority must be one of"),
        ({"job": [{"under_notice": "sulks"}]}, "job under_notice must be one of leaves, saves, stays, hangs"),
        ({"cluster": {"limits": {"instances": {"ada": 1}}}}, "must be written user/PRIORITY/group"),
    ],
)
def test_a_crowd_that_cannot_be_says_why(document: dict[str, Any], sentence: str) -> None:
    """Priorities, habits and limits are read before the run begins."""
    with pytest.raises(ScenarioInvalid, match=sentence):
        parse(document)


def test_who_was_placed_when_is_something_to_expect() -> None:
    """Each placement in its order, and any other order is broken."""
    asleep = {"kind": "exit", "at_s": 120, "code": 75}
    assert play(parse({"fault": [asleep], "expect": {"placed": [0, 0]}})).violations == []
    assert play(parse({"fault": [asleep], "expect": {"placed": [0]}})).violations == [
        "expected placed to be (0,), found (0, 0)"
    ]


def test_wishes_are_said_of_a_job_in_any_status_and_of_none_that_there_is_not() -> None:
    """Before it runs, twice, while it leaves, when it has ended: nothing is refused, and what has ended stays so."""
    world = World(instances=1, train_s=60)
    assert not JobSuspended(at_s=0).strike(world)
    job_id = world.submit(1)
    seen = set()
    for wish in (JobSuspended, JobSuspended, JobResumed, JobResumed):
        seen.add(world.job(job_id).status)
        assert wish(at_s=0).strike(world)
    world.until_status(job_id, JobStatus.RUNNING)
    for wish in (JobSuspended, JobResumed, JobSuspended, JobSuspended, JobResumed):
        seen.add(world.job(job_id).status)
        assert wish(at_s=0).strike(world)
    assert {JobStatus.QUEUED, JobStatus.SUSPENDED, JobStatus.RUNNING, JobStatus.SUSPENDING} <= seen
    ended = world.until_end(job_id)
    assert ended.status is JobStatus.SUCCEEDED and ended.attempt == 2
    assert JobSuspended(at_s=0).strike(world) and JobResumed(at_s=0).strike(world)
    assert world.job(job_id).status in TERMINAL


def test_a_held_job_that_nobody_resumes_is_remembered_by_a_person() -> None:
    """Else the run could not end: what a person holds only a person lets go."""
    played = play(parse({"fault": [{"kind": "suspend", "at_s": 100}], "expect": {"placed": [0, 0]}}))
    assert played.violations == []
    assert "which is held, and resumes it" in played.world.transcript.text()


def test_crowds_have_users_priorities_quotas_and_programs_of_every_kind() -> None:
    """Whatever is never drawn is never tried."""
    scenarios = [scenario_of(seed) for seed in CROWDS]
    jobs = [job for one in scenarios for job in one.jobs]
    assert {job.user for job in jobs} >= {"ada", "ben", "cleo"}
    assert len({job.priority for job in jobs}) == 6 and len({job.under_notice for job in jobs}) == 4
    assert {name for one in scenarios for name in one.cluster.limits} == {
        "instances",
        "max_running_jobs",
        "max_running_jobs_per_user",
    }
    assert any(one.cluster.agents for one in scenarios) and any(not one.faults for one in scenarios)


@pytest.mark.full
def test_many_crowds_have_to_make_room() -> None:
    """In a third of them a job is suspended for another, and in most of them some job waits."""
    runs = [campaign.play_seed(seed)[1] for seed in CROWDS]
    assert sum("suspended to make room" in one.world.transcript.text() for one in runs) >= len(runs) / 3
    assert sum("-> PENDING_RESOURCES" in one.world.transcript.text() for one in runs) > len(runs) / 2
