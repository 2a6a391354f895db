"""Warm spares in the record of a job: offered, seen, taken, recalled, given back and forgotten, in every status."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.job import warm_spares
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import Job, JobStatus, Origin, WarmSpare
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.state_machine import DecisionContext
from gpu_recovery.core.task import EndingKind

from tests.core.build import ADAPTIVE, NOW, failure, tell

ON = replace(ADAPTIVE, restart_in_place=True, warm_spares=2)
IDS = ("i-1", "i-2")
ABOUT: dict[str, Any] = {"at": NOW, "attempt": 1}
READY = WarmSpare("i-8", 2, 1, 0, "t-8", runs=True)


def job(status: JobStatus = JobStatus.RUNNING, *spares: WarmSpare, **changes: Any) -> Job:
    """A gang of two in its first attempt."""
    record = Job("sft-1", JobSpec("sft", 2, 8), NOW, NOW, status=status, attempt=1, instances=IDS, incident_at=NOW)
    started = 1 + max((spare.number - 2 for spare in spares), default=-1)
    return replace(record, spares=spares, spares_started=started, **changes)


def orders(record: Job, kind: type) -> list[Any]:
    """The pending commands of one kind."""
    return [pending.command for pending in record.commands if isinstance(pending.command, kind)]


@pytest.mark.parametrize(
    ("spec", "changes", "policy", "number"),
    [
        ({}, {}, {}, 2),
        ({"warm_spares": 0}, {}, {}, 0),
        ({"warm_spares": 5}, {}, {"warm_spares": 0}, 5),
        ({"restart_in_place": False}, {}, {}, 0),
        ({}, {}, {"restart_in_place": False}, 0),
        ({}, {"origin": Origin.ADOPTED}, {}, 0),
        ({}, {"hands_off": True}, {}, 0),
        ({}, {"started_by_person": True}, {}, 0),
    ],
)
def test_which_job_has_warm_spares(spec: Any, changes: Any, policy: Any, number: int) -> None:
    """A job that may restart in place, by its own word or that of the deployment."""
    record = replace(job(**changes), spec=replace(job().spec, **spec))
    assert warm_spares.wanted(record, replace(ON, **policy)) == number


def test_an_offer_starts_as_many_as_are_missing() -> None:
    """Each number is used once in a job, also after the end of its spare."""
    offer = events.SparesOffered(**ABOUT, instances=("i-1", "i-8", "i-9", "i-7"), epochs=(0, 3, 4, 5))
    record = tell(job(), offer, ON).record
    assert [(one.instance_id, one.number, one.epoch) for one in record.spares] == [("i-8", 2, 3), ("i-9", 3, 4)]
    assert orders(record, commands.StartSpare) == [commands.StartSpare(2), commands.StartSpare(3)]
    assert tell(record, offer, ON).record is record
    fewer = tell(record, events.SpareEnded(**ABOUT, number=2, sentence="it ended"), ON).record
    assert tell(fewer, offer, ON).record is fewer
    later = NOW + timedelta(seconds=warm_spares.RETRY_S)
    assert [one.number for one in tell(fewer, offer, ON, later).record.spares] == [3, 4]


def test_the_end_of_a_spare_that_was_asked_for_delays_no_other() -> None:
    """It has given way to another job, and comes back as soon as no job waits."""
    leaves = job(JobStatus.RUNNING, replace(READY, leaves=True))
    record = tell(leaves, events.SpareEnded(**ABOUT, number=2, sentence="it was ended"), ON).record
    assert record.spares_after is None and warm_spares.missing(record, DecisionContext(ON, NOW)) == 2


@pytest.mark.parametrize("status", JobStatus)
def test_what_is_known_of_a_spare_is_recorded_in_every_status_and_attempt(status: JobStatus) -> None:
    """Its container outlives attempts and even the job. Its number is the fence."""
    record = job(status, replace(READY, task_id="", runs=False, leaves=True))
    other = {"at": NOW, "attempt": 7}
    seen = tell(record, events.SpareSeen(**other, number=2, task_id="t-8", runs=True), ON).record
    assert seen.spares == (replace(READY, leaves=True),) and seen.status is status
    assert tell(seen, events.SpareSeen(**other, number=2, task_id="t-8"), ON).record is seen
    over = events.SpareEnded(**other, number=2, sentence="it ended")
    ended = tell(seen, over, ON).record
    assert not ended.spares and ended.status is status
    assert [one.instances for one in orders(ended, commands.ReleaseInstances)] == [("i-8",)]
    assert tell(ended, over, ON).record is ended


def test_the_end_of_a_taken_spare_releases_nothing() -> None:
    """The instance is that of a rank."""
    record = job(JobStatus.RUNNING, replace(READY, taken_by=1))
    ended = tell(record, events.SpareEnded(**ABOUT, number=2, sentence="it ended"), ON).record
    assert not ended.spares and not orders(ended, commands.ReleaseInstances)


@pytest.mark.parametrize(
    "status", [one for one in JobStatus if one in warm_spares.MAY_KEEP or one is JobStatus.SUSPENDING]
)
def test_a_recall_gives_every_waiting_spare_back(status: JobStatus) -> None:
    """The record keeps the spare until the end of its container."""
    taken = WarmSpare("i-2", 3, 1, 0, "t-9", runs=True, taken_by=1)
    record = tell(job(status, READY, taken), events.SparesRecalled(**ABOUT, sentence="big-1 waits"), ON).record
    assert record.status is status and record.spares == (replace(READY, leaves=True), taken)
    assert [one.instances for one in orders(record, commands.ReleaseInstances)] == [("i-8",)]
    assert orders(record, commands.PokeScheduler)


def test_a_job_that_ends_gives_its_spares_back() -> None:
    """Also those that are still being started."""
    record = job(JobStatus.DIAGNOSING, replace(READY, task_id="", runs=False))
    record = tell(record, events.CancelRequested(**ABOUT, by="ada"), ON).record
    assert record.status is JobStatus.CANCELED and record.spares[0].leaves
    released = [one.instances for one in orders(record, commands.ReleaseInstances)]
    assert ("i-8",) in released and orders(record, commands.PokeScheduler)


@pytest.mark.parametrize("kind", [events.InstanceLeaving, events.InstanceNeedsRepair])
def test_an_instance_that_leaves_under_a_spare_stops_no_rank(kind: type) -> None:
    """Only the spare is released."""
    record = tell(job(JobStatus.RUNNING, READY), kind(**ABOUT, instance_id="i-8", sentence="a Spot notice"), ON).record
    assert record.status is JobStatus.RUNNING and record.spares[0].leaves
    assert not orders(record, commands.StopAttempt)


def test_a_ready_spare_is_kept_and_taken_by_the_next_attempt() -> None:
    """A spare whose container does not run yet is not."""
    starting = WarmSpare("i-9", 3, 1, 0, "t-9")
    record = job(JobStatus.RECOVERING, READY, starting)
    entry = entry_of(record)
    assert entry is not None and entry.kept == ("i-8",)
    given = {"version": record.version, "instances": ("i-1", "i-8"), "epochs": (0, 0)}
    placed = tell(record, events.JobPlaced(**ABOUT, **given), ON).record
    assert placed.spares == (replace(READY, taken_by=2), starting) and placed.ranks_in_place == 1
    assert "1 rank(s) start on warm spares" in placed.reason
    entry = entry_of(placed)
    assert entry is not None and entry.kept == () and entry.spares == ("i-9",)


def test_a_job_that_grows_keeps_its_warm_spares() -> None:
    """The next attempt starts on those that are ready. A suspension gives them back."""
    elastic = replace(job().spec, nnodes=3, nnodes_min=2)
    record = replace(job(JobStatus.RUNNING, READY), spec=elastic)
    about = {**ABOUT, "version": record.version}
    growing = tell(record, events.GrowRequested(**about, width=3), ON).record
    assert (growing.status, growing.spares) == (JobStatus.SUSPENDING, (READY,))
    after = tell(growing, events.AllRanksStopped(**ABOUT, failure=failure(EndingKind.FAILED, 75)), ON).record
    entry = entry_of(after)
    assert after.status is JobStatus.RECOVERING and entry is not None and entry.kept == (*IDS, "i-8")
    suspended = tell(record, events.SuspendRequested(**about, by="the scheduler", for_job="big-1"), ON).record
    assert (suspended.status, suspended.spares) == (JobStatus.SUSPENDING, (replace(READY, leaves=True),))
