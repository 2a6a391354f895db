"""The timeline of a job: attempts over ranks, by the API."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import timedelta
from importlib import import_module

import pytest
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import HistoryEntry
from gpu_recovery.event_recorder.recorder import record

from tests.aws.records import job
from tests.core.event_history.recorded import COURSE, FAILURE, JOB, OPENED, SICK, instance_moved, job_moved
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions

NAMES = [f"i-{rank:017x}" for rank in range(3_000)]
NAMES[1] = SICK


def _stored(functions: Functions, instances: list[str]) -> None:
    """The job of the course, in its second attempt, and the events of the course."""
    made: Job = replace(job(), job_id=JOB, attempt=2, status=JobStatus.RUNNING, version=11)
    entry = HistoryEntry(OPENED - timedelta(seconds=100), "", "QUEUED", "JobSubmitted", 0, "submitted")
    functions.store.create_job(replace(made, instances=tuple(instances), history=(entry,), commands=()), "")
    for attempt in (1, 2):
        functions.store.begin_attempt(Plan(JOB, attempt, tuple(instances), (0,) * len(instances)))
    history = import_module("gpu_recovery.aws.event_history_wiring").event_history()
    for event in COURSE:
        record(history, *event, "2026-11-23T10:14:05Z")
    for name in instances:
        if name != SICK:
            for version, move in ((1, ("AVAILABLE", "CHECKING", 13.0)), (2, ("CHECKING", "AVAILABLE", 90.0))):
                record(history, *instance_moved(version, *move, instance_id=name), "2026-11-23T10:14:05Z")
    functions.now = OPENED + timedelta(hours=1)


def test_a_timeline_has_phases_and_rows(api: Api) -> None:
    """The failed rank has its own row, with the repair of its instance; the other ranks are one."""
    _stored(api.functions, NAMES[:16])
    answer = api.get(f"/jobs/{JOB}/timeline")
    assert answer.status == 200
    first, second = answer.body["attempts"]
    assert [phase["status"] for phase in first["phases"]] == ["STOPPING", "DIAGNOSING", "RECOVERING"]
    assert [phase["status"] for phase in second["phases"]] == ["SUBMITTING", "SUBMITTED", "RUNNING"]
    assert second["phases"][-1]["until"] is None
    assert [row["ranks"] for row in first["rows"]] == ["1", "0,2-15"]
    assert [mark["status"] for mark in first["rows"][0]["marks"]] == ["CHECKING", "REBOOTING", "VERIFYING"]
    assert [mark["status"] for mark in first["rows"][1]["marks"]] == ["CHECKING"]
    assert [row["ranks"] for row in second["rows"]] == ["0-15"]
    assert [phase["status"] for phase in answer.body["before_first_attempt"]] == ["QUEUED"]
    assert answer.body["is_complete"] is True


def test_the_repairs_of_an_instance_are_read_once(api: Api) -> None:
    """Although both attempts failed on it."""
    _stored(api.functions, NAMES[:16])
    history = import_module("gpu_recovery.aws.event_history_wiring").event_history()
    again = job_moved(12, "RUNNING", "STOPPING", 700, attempt=2, failure=FAILURE)
    record(history, *again, "2026-11-23T10:14:05Z")
    answer = api.get(f"/jobs/{JOB}/timeline")
    assert [attempt["attempt"] for attempt in answer.body["attempts"]] == [1, 2]
    streams = [asked["ExpressionAttributeValues"][":s"]["S"] for asked in api.functions.aws.asked("Query")]
    assert streams.count(f"instance#{SICK}") == 1


@pytest.mark.parametrize("ranks", [300, pytest.param(3_000, marks=pytest.mark.full)])
def test_a_timeline_of_a_large_gang_is_small(api: Api, ranks: int) -> None:
    """A few kilobytes of the 60 that it may have: rows are grouped, and the instances of a row are not listed."""
    _stored(api.functions, NAMES[:ranks])
    answer = api.get(f"/jobs/{JOB}/timeline")
    assert answer.status == 200 and answer.body["attempts"][0]["rows"][1]["number"] == ranks - 1
    assert len(gzip.compress(json.dumps(answer.body).encode())) < 2_000


def test_without_events_there_is_what_the_record_knows(api: Api) -> None:
    """A job of an older release has no events in the history."""
    api.functions.store.create_job(replace(job(), job_id="old-1", attempt=1, instances=("i-0a1",)), "")
    answer = api.get("/jobs/old-1/timeline")
    assert answer.status == 200
    assert answer.body["attempts"][0]["rows"][0]["ranks"] == "0"
    refused(api.get("/jobs/unknown/timeline"), 404)
