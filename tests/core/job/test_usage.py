"""The quota that a job uses, from its placement to its suspension or end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.job.record import PLACED, JobStatus
from gpu_recovery.core.task import EndingKind

from tests.core.build import (
    IDS,
    NOW,
    SPEC,
    applied,
    checked,
    diagnosing,
    failure,
    queued,
    results,
    running,
    suspending,
    tell,
)
from tests.core.job.test_recovering import MAKE

S = JobStatus


def quota(decision: Any) -> tuple[str, int] | None:
    return (decision.quota.key, decision.quota.nodes) if decision.quota is not None else None


def test_a_place_takes_up_quota_until_it_is_given_up() -> None:
    """Entered with the placement and taken out with the suspension, in the decisions themselves."""
    record = queued(spec=replace(SPEC, user="ada"))
    event = events.JobPlaced(at=NOW, attempt=0, version=1, instances=IDS, epochs=(0, 0), term=7)
    decision = tell(record, event)
    assert quota(decision) == ("ada/NORMAL/", 2) and decision.quota is not None and decision.quota.term == 7
    record = running(record=replace(decision.record, status=S.QUEUED, attempt=0))
    record = suspending(record=replace(record, quota_nodes=2))
    gone = tell(record, events.AllRanksStopped(at=NOW, attempt=1, failure=failure(EndingKind.STOPPED_BY_US)))
    assert quota(gone) == ("ada/NORMAL/", -2)


@pytest.mark.parametrize("status", list(JobStatus))
def test_whoever_is_placed_takes_up_quota_and_nobody_else_does(status: JobStatus) -> None:
    """A gang that recovers keeps its place; what waits, is suspended or has ended has none."""
    assert MAKE[status]().quota_nodes == (2 if status in PLACED else 0)


def test_a_gang_that_recovers_is_not_counted_twice() -> None:
    """Its next attempt takes the place that it still has."""
    record = applied(checked(diagnosing(failure(EndingKind.CRASHED)), results()))
    assert record.status is S.RECOVERING and record.quota_nodes == 2
    event = events.JobPlaced(at=NOW, attempt=1, version=record.version, instances=IDS, epochs=(0, 0), term=3)
    decision = tell(record, event)
    assert quota(decision) == (record.quota_key, 0)
