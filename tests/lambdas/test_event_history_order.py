"""Acceptance: the order and the repetition of a run's events change no answer of the job API.

The runs are those of the simulator. `tests/simulator/test_event_history.py` has the same of the stored items.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import quote

import pytest
from gpu_recovery.core.job.record import Job

from tests.core.event_history.recorded import instance_moved
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions
from tests.lambdas.test_event_recorder import Event, deliver
from tests.simulator.incidents import INCIDENTS as COURSES
from tests.simulator.test_event_history import as_sent
from tests.tiers import sampled, seeds

TIMES = 2
"""How often an event is delivered."""


@cache
def run(name: str) -> tuple[Job, tuple[Event, ...]]:
    """The job of a run at its end, and the events of the run in order."""
    world, job_id = COURSES[name]()
    return world.job(job_id), tuple(map(as_sent, world.actions.published, world.actions.causes))


def happened_at(event: Event) -> datetime:
    """The time of an event."""
    return datetime.fromisoformat(event[1]["data"]["at"])


def answers(api: Api, job_id: str, now: datetime) -> dict[str, Any]:
    """What a client reads after the last roll-up."""
    for minutes in (0, 5):
        api.functions.now = now + timedelta(minutes=minutes)
        data = {"at": now.isoformat(), "instance_id": "i-last", "incident_id": None, "job_id": None}
        deliver(api, instance_moved(1, "GONE", "AVAILABLE", 0, **data))
    incidents = [one["incident_id"] for one in api.get("/incidents").body["incidents"]]
    paths = ["/events", "/incidents", "/summary", f"/jobs/{job_id}/timeline"]
    paths += [f"/incidents/{quote(name, safe='')}" for name in incidents]
    read = {path: api.get(path, **({"limit": "200"} if path == "/events" else {})) for path in paths}
    assert {answer.status for answer in read.values()} == {200}, {path: read[path].status for path in paths}
    return {path: answer.body for path, answer in read.items()}


@pytest.mark.parametrize("seed", seeds(20, fast=1, default=1))
@pytest.mark.parametrize("name", sampled(COURSES, fast=4, default=8))
def test_order_and_repetition_change_no_answer(functions: Functions, name: str, seed: int) -> None:
    """The days are rolled up now and then, while some events are still to come."""
    job, events = run(name)
    functions.store.create_job(job, "")
    api, drawn = Api(functions), random.Random(seed)
    end = max(map(happened_at, events)) + timedelta(days=3)
    for event in events:
        functions.now = happened_at(event) + timedelta(seconds=1)
        deliver(api, event)
    expected = answers(api, job.job_id, end)
    assert len(expected["/events"]["events"]) == len(events) + 1
    table = functions.aws.tables.tables["gpu-recovery-event-history"]
    for key in list(table.items):
        table.delete(key)
    shuffled = [*events] * TIMES
    drawn.shuffle(shuffled)
    times = sorted(end - timedelta(days=3 * drawn.random()) for _ in shuffled)
    for functions.now, event in zip(times, shuffled, strict=True):
        deliver(api, event)
    assert answers(api, job.job_id, end) == expected
