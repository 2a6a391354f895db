"""The timeline of a job: phases of attempts, and rows of ranks."""

from __future__ import annotations

from datetime import timedelta

from gpu_recovery.core.event_history.timeline import ROWS_MAX, attempt_phases, moments_of, rank_rows
from gpu_recovery.core.state_machine import HistoryEntry

from tests.core.event_history.recorded import COURSE, OPENED, SICK, instance_moved, read

EVENTS = [read(event) for event in COURSE]
OF_JOB = [event for event in EVENTS if not event.is_about_instance]
OF_INSTANCES = [event for event in EVENTS if event.is_about_instance]


def test_the_phases_of_each_attempt() -> None:
    """The wait for the next attempt belongs to the attempt before it; the last phase lasts."""
    phases = attempt_phases(moments_of(reversed(OF_JOB), ()))
    assert [phase.status for phase in phases[1]] == ["STOPPING", "DIAGNOSING", "RECOVERING"]
    assert [phase.status for phase in phases[2]] == ["SUBMITTING", "SUBMITTED", "RUNNING"]
    assert phases[1][-1].until == phases[2][0].since == OPENED + timedelta(seconds=510)
    assert phases[2][-1].until is None


def test_events_and_the_history_of_the_record_complete_each_other() -> None:
    """The record has lost the middle, and the event history may have begun late."""
    history = [
        HistoryEntry(OPENED - timedelta(seconds=9), "", "QUEUED", "JobSubmitted", 0, "submitted"),
        HistoryEntry(OPENED, "RUNNING", "STOPPING", "RankFailed", 1, "it is STOPPING"),
        HistoryEntry(OPENED, "STOPPING", "STOPPING", "JobLookDue", 1, "looked"),
    ]
    moments = moments_of(OF_JOB, history)
    assert [moment.after for moment in moments][:3] == ["QUEUED", "STOPPING", "DIAGNOSING"]
    assert len(moments) == 7


def test_an_ended_job_has_an_end() -> None:
    """Its last status does not last."""
    moments = moments_of((), [HistoryEntry(OPENED, "RUNNING", "SUCCEEDED", "AllRanksStopped", 1, "done")])
    (phase,) = attempt_phases(moments)[1]
    assert phase.since == phase.until == OPENED


def test_ranks_of_equal_course_are_one_row() -> None:
    """Rank 1 failed, and its instance was rebooted. The others were checked at different times, and passed."""
    names = [f"i-{rank:017x}" for rank in range(3_000)]
    names[1] = SICK
    passed = [
        read(instance_moved(version, *move, seconds + rank / 100, instance_id=name))
        for rank, name in enumerate(names)
        if name != SICK
        for version, move, seconds in ((1, ("AVAILABLE", "CHECKING"), 13), (2, ("CHECKING", "AVAILABLE"), 100))
    ]
    first, second = rank_rows(names, [*passed, *OF_INSTANCES], 1)
    assert (first.ranks, first.number, first.instances, first.has_first_failure) == ("1", 1, (SICK,), True)
    assert [mark.status for mark in first.marks] == ["CHECKING", "REBOOTING", "VERIFYING"]
    assert first.marks[-1].until == OPENED + timedelta(seconds=500)
    assert (second.ranks, second.number, second.has_first_failure) == ("0,2-2999", 2_999, False)
    assert [mark.status for mark in second.marks] == ["CHECKING"]
    assert second.marks[0].since == OPENED + timedelta(seconds=13)
    assert second.marks[0].until == OPENED + timedelta(seconds=129.99)


def test_rows_are_bounded() -> None:
    """Ranks beyond are one row without marks."""
    names = [f"i-{rank:017x}" for rank in range(200)]
    events = [
        read(instance_moved(version, "REBOOTING", "VERIFYING", version, instance_id=name))
        for rank, name in enumerate(names)
        for version in range(1, rank + 2)
    ]
    rows = rank_rows(names, events, None)
    assert len(rows) == ROWS_MAX + 1
    assert rows[-1].marks == () and rows[-1].ranks == "100-199" and rows[-1].number == 100


def test_a_rank_whose_instance_is_not_known_has_a_row() -> None:
    """A gang that a user started is seen rank by rank."""
    (row,) = rank_rows(("", ""), (), None)
    assert (row.ranks, row.instances, row.marks) == ("0-1", (), ())
