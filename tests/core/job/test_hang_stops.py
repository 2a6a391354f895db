"""Stops for a hang: those that lengthen the next progress timeout, and those that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.job import hang_stops
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import DecisionContext

from tests.core.build import ADAPTIVE, NOW
from tests.core.job.test_in_place import job

CONTEXT = DecisionContext(replace(ADAPTIVE, attempts_max=100), NOW)


def stopped(before: Job, progress: int | None, confirmed: bool = True) -> Job:
    """The job after a stop for a hang at this progress."""
    event = events.ProgressStopped(at=NOW, attempt=before.attempt, sentence="", progress=progress, confirmed=confirmed)
    return replace(before, **hang_stops.counted(before, event, CONTEXT))


@pytest.mark.parametrize(
    ("stops", "backoffs"),
    [
        ([(1_000, True)], 0),
        ([(1_000, False)], 1),
        ([(None, True)], 1),
        ([(1_000, True), (2_000, True)], 0),
        ([(1_000, True), (1_000, True)], 1),
        ([(1_000, True), (900, True), (950, True)], 2),
        ([(1_000, True), (None, False), (1_000, True)], 2),
        ([(1_000 * number, True) for number in range(1, hang_stops.CONFIRMED_MAX + 3)], 2),
    ],
)
def test_a_confirmed_stop_beyond_all_before_is_spared(stops: list[tuple[int | None, bool]], backoffs: int) -> None:
    """An unconfirmed stop counts, and so does a stop without progress beyond that of every stop before."""
    after = job()
    for progress, confirmed in stops:
        after = stopped(after, progress, confirmed)
    assert hang_stops.backoffs(after, CONTEXT.policy) == backoffs
    assert after.hang_stops == len(stops)


def test_in_the_last_attempt_every_stop_counts() -> None:
    """With the longest timeout a program that only waits may get over its wait."""
    after = stopped(stopped(job(), 1_000), 2_000)
    last = replace(CONTEXT.policy, attempts_max=1)
    assert hang_stops.backoffs(after, last) == 2


def test_the_fault_of_an_instance_takes_back_what_the_stop_has_set() -> None:
    """The next confirmed hang is spared as if the explained stop had not been."""
    once = stopped(job(), 1_000)
    taken_back = replace(once, **hang_stops.explained(once, ["i-1"]))
    assert (taken_back.hang_stops, taken_back.hangs_confirmed) == (0, 0)
    assert hang_stops.explained(once, []) == {}
