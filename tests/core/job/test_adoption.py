"""Tasks that a person started: what they say about themselves, and what they make of a record."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.adoption import TaskIdentity, job_template, task_identity
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.spec import NNODES_MAX
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.core.task import EndingKind, TaskFact

from tests.core.build import ADAPTIVE, IDS, NOW, SPEC, applied, failure, later, orders, stopped, tell

CRASH = failure(EndingKind.CRASHED)


def _adopted(hands_off: bool = False) -> Job:
    return state_machine.adopted("run-1", SPEC, hands_off, ADAPTIVE, NOW).record


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"JOB_ID": "run-1", "RANK": "0", "WORLD_SIZE": "2"}, TaskIdentity("run-1", 0, 2)),
        (
            {"JOB_ID": "team/Run_1", "RANK": "1", "WORLD_SIZE": str(NNODES_MAX), "X": "y"},
            TaskIdentity("team/Run_1", 1, NNODES_MAX),
        ),
        (None, None),
        ({}, None),
        ({"JOB_ID": "run-1", "RANK": "0"}, None),
        ({"JOB_ID": "run-1", "WORLD_SIZE": "2"}, None),
        ({"RANK": "0", "WORLD_SIZE": "2"}, None),
        ({"JOB_ID": "run-1", "RANK": "2", "WORLD_SIZE": "2"}, None),
        ({"JOB_ID": "run-1", "RANK": "-1", "WORLD_SIZE": "2"}, None),
        ({"JOB_ID": "run-1", "RANK": "a", "WORLD_SIZE": "2"}, None),
        ({"JOB_ID": "run-1", "RANK": "0", "WORLD_SIZE": str(NNODES_MAX + 1)}, None),
        ({"JOB_ID": "run-1", "RANK": "0", "WORLD_SIZE": "9" * 5_000}, None),
        ({"JOB_ID": "run-1#a01", "RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"JOB_ID": "run 1\n", "RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"JOB_ID": "r" * 121, "RANK": "0", "WORLD_SIZE": "1"}, None),
    ],
)
def test_a_task_is_ours_to_adopt_only_if_it_says_which_rank_of_which_job_it_is(environment: Any, says: Any) -> None:
    """And under a name that a relaunch can carry and that no other record's key begins with."""
    assert task_identity(environment) == says


def test_the_first_task_is_the_template_of_every_relaunch() -> None:
    """Its definition, container, command and variables, without the ones we set ourselves."""
    fact = TaskFact(
        "0a1b",
        "RUNNING",
        NOW,
        task_definition="gpu-training:3",
        started_by="ada",
        command=("train",),
        environment={"JOB_ID": "run-1", "RANK": "0", "WORLD_SIZE": "2", "LR": "1"},
        main_container="train",
    )
    spec = job_template(fact, 2, 8)
    assert (spec.task_definition, spec.container, spec.command, spec.user) == (
        "gpu-training:3",
        "train",
        ("train",),
        "ada",
    )
    assert spec.env == {"LR": "1"}
    assert (spec.nnodes, spec.gpus_per_node) == (2, 8)


def test_a_person_may_start_an_ended_job_anew() -> None:
    """The next attempt begins as the first did: nothing of what happened before weighs on it."""
    used = replace(
        _adopted(),
        status=JobStatus.FAILED,
        attempts_counted=3,
        attempts_uncounted={"INTERRUPTED": 2},
        failure=CRASH,
        incident_id="run-1--a01",
        repaired={IDS[0]: False},
        stop_tries=3,
        stop_reason="it failed",
        launched=True,
        launch_ended=True,
        in_line_at=NOW,
        started_by_person=False,
        instances=IDS,
    )
    at = later(60)
    record = applied(tell(used, events.NewerTaskSeen(at=at, attempt=1, created_at=at), now=at))
    fresh = _adopted()
    assert record.adopted_after == used.status_at
    same = {
        "adopted_after",
        "history",
        "commands",
        "version",
        "attempt",
        "reason",
        "status_at",
        "deadline_at",
        "look_at",
    }
    for name in (field.name for field in fields(Job)):
        if name not in same:
            assert getattr(record, name) == getattr(fresh, name), name
    assert record.attempt == 2


@pytest.mark.parametrize("created", [later(0), later(-60)])
def test_a_task_from_before_the_end_starts_nothing_anew(created: Any) -> None:
    """Its event was late."""
    record = replace(_adopted(), status=JobStatus.FAILED)
    assert tell(record, events.NewerTaskSeen(at=NOW, attempt=1, created_at=created)).outcome is EventOutcome.IGNORED


def test_an_observed_job_is_told_about_and_left_alone() -> None:
    """Operators hear once what would have been done."""
    failed = events.RankFailed(at=NOW, attempt=1, failure=CRASH)
    decision = tell(_adopted(hands_off=True), failed)
    assert decision.record.status is JobStatus.SUBMITTED
    assert [type(one.command) for one in decision.commands] == [commands.NotifyOperator]
    assert tell(decision.record, failed).outcome is EventOutcome.IGNORED


@pytest.mark.parametrize(
    ("kind", "status"), [(EndingKind.CRASHED, JobStatus.FAILED), (EndingKind.STOPPED_BY_PERSON, JobStatus.CANCELED)]
)
def test_an_observed_job_ends_as_its_ranks_did(kind: EndingKind, status: JobStatus) -> None:
    """Without a check or a relaunch."""
    end = events.AllRanksStopped(at=NOW, attempt=1, failure=failure(kind))
    assert tell(_adopted(hands_off=True), end).record.status is status


def _start_overdue(record: Job) -> Any:
    assert record.deadline_at is not None
    event = events.JobDeadlineReached(at=record.deadline_at, attempt=1, deadline_at=record.deadline_at)
    return tell(record, event, now=record.deadline_at)


@pytest.mark.parametrize("hands_off", [False, True])
def test_a_persons_gang_of_which_ranks_are_never_seen_is_let_go(hands_off: bool) -> None:
    """It was misunderstood: nothing of it is stopped, and operators hear that it is not watched."""
    decision = _start_overdue(replace(_adopted(hands_off), instances=(IDS[0], "")))
    assert decision.record.status is JobStatus.CANCELED
    assert orders(decision, commands.NotifyOperator)
    assert not orders(decision, commands.StopAttempt)


def test_a_persons_gang_that_is_slow_to_start_is_stopped_only_if_we_may() -> None:
    """Observed only, it is noted, and looked at again later."""
    for hands_off, status in ((True, JobStatus.SUBMITTED), (False, JobStatus.STOPPING)):
        decision = _start_overdue(replace(_adopted(hands_off), instances=IDS))
        assert decision.record.status is status
        assert decision.record.deadline_at is not None


def test_a_recovered_adopted_job_is_started_by_us() -> None:
    """From its second attempt on its tasks carry our name."""
    record = applied(tell(_adopted(), events.RankFailed(at=NOW, attempt=1, failure=failure(EndingKind.INTERRUPTED))))
    record = stopped(record)
    placed = events.JobPlaced(at=NOW, attempt=1, version=record.version, instances=IDS, epochs=(0, 0))
    assert tell(record, placed).record.started_by_person is False
