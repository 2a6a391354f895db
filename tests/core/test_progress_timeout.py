"""How long a gang may stay without progress, by its step times."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.progress_timeout import STEPS_MIN, are_hangs_forgotten, progress_timeout

POLICY = RecoveryPolicy()
REPORT = ProgressReport(report_id="p", at_s=0.0, value=40.0, steps=STEPS_MIN, step_s=10.0, slowest_s=12.0)


@pytest.mark.parametrize(
    ("step_s", "slowest_s", "seconds", "told"),
    [
        (0.5, 2.0, 60.0, "the limit is 60 s"),
        (10.0, 12.0, 80.0, "the limit is 80 s: 8 steps of 10.0 s"),
        (10.0, 90.0, 180.0, "the limit is 180 s: 2 times its longest step"),
        (112.0, 112.0, 896.0, "the limit is 896 s: 8 steps of 112.0 s"),
        (10.0, 451.0, 900.0, "the limit is 900 s"),
        (1e9, 1e9, 900.0, "the limit is 900 s"),
    ],
)
def test_the_largest_of_three_bounds_counts_up_to_the_last(
    step_s: float, slowest_s: float, seconds: float, told: str
) -> None:
    """A floor, a number of median steps, and twice the longest step, which may have had a checkpoint in it."""
    limit = progress_timeout([replace(REPORT, step_s=step_s, slowest_s=slowest_s)], POLICY)
    assert (limit.seconds, limit.reason) == (seconds, told)


@pytest.mark.parametrize(
    "unknown",
    [
        {"steps": STEPS_MIN - 1},
        {"steps": None},
        {"step_s": None},
        {"slowest_s": None},
        {"paused": "checkpoint"},
    ],
)
def test_one_process_without_step_times_keeps_the_gang_at_the_longest(unknown: dict[str, object]) -> None:
    """Its first steps, a phase that it marks, or a library of an older release."""
    assert progress_timeout([REPORT, replace(REPORT, **unknown)], POLICY).seconds == 900.0
    assert progress_timeout([REPORT, replace(REPORT, step_s=20.0)], POLICY).seconds == 160.0
    assert progress_timeout([], POLICY).seconds == 900.0


def test_stops_for_a_hang_lengthen_it_up_to_the_longest() -> None:
    """At most two attempts are lost by a program with an unmarked long phase, then it has the whole time."""
    floor = replace(REPORT, step_s=1.0, slowest_s=1.0)
    assert [progress_timeout([floor], POLICY, None, stops).seconds for stops in (0, 1, 2, 9, 10_000)] == [
        60.0,
        240.0,
        900.0,
        900.0,
        900.0,
    ]
    assert progress_timeout([floor], POLICY, None, 1).reason == "the limit is 240 s, after 1 stop(s) for a hang"
    told = progress_timeout([replace(REPORT, step_s=20.0)], POLICY, None, 1).reason
    assert told == "the limit is 640 s, after 1 stop(s) for a hang: 8 steps of 20.0 s"


@pytest.mark.parametrize(
    ("report", "policy", "seconds"),
    [
        ({}, {}, 60.0),
        ({"step_s": 20.0}, {}, 80.0),
        ({"step_s": 20.0, "slowest_s": 60.0}, {}, 120.0),
        ({"step_s": 20.0}, {"progress_timeout_confirmed_percent": 100}, 160.0),
        ({"step_s": 20.0}, {"progress_timeout_confirmed_percent": 30}, 60.0),
        ({"step_s": 20.0}, {"progress_timeout_confirmed_percent": 26}, 60.0),
        ({"step_s": 20.0}, {"progress_timeout_steps": 30}, 300.0),
        ({"step_s": 20.0}, {"progress_timeout_steps": 5}, 60.0),
        ({"step_s": 20.0, "steps": 3}, {}, 900.0),
        ({"step_s": 20.0, "paused": "evaluation"}, {}, 900.0),
    ],
)
def test_a_confirmed_hang_takes_fewer_steps(report: dict[str, object], policy: dict[str, int], seconds: float) -> None:
    """A part of the steps that the policy asks for. The floor, the longest step and the first steps count as before."""
    newest, setting = [replace(REPORT, **report)], replace(POLICY, **policy)
    assert progress_timeout(newest, setting, confirmed=True).seconds == seconds
    assert progress_timeout(newest, setting, 30, confirmed=True).seconds == 30.0
    assert progress_timeout(newest, setting, hang_stops=1, confirmed=True).seconds == min(900.0, 4 * seconds)


def test_the_setting_of_the_job_and_a_shorter_one_of_the_policy_win() -> None:
    """A user knows the program."""
    assert progress_timeout([REPORT], POLICY, own_s=20, hang_stops=5).seconds == 20.0
    assert progress_timeout([], POLICY, own_s=7_200).reason == "the job allows 7200 s"
    assert progress_timeout([REPORT], replace(POLICY, progress_timeout_s=12)).seconds == 12.0


def test_the_longest_step_of_former_attempts_counts_like_that_of_this_attempt() -> None:
    """An attempt that has not come to its first evaluation knows of it."""
    limit = progress_timeout([REPORT], POLICY, former_slowest_s=70.0)
    assert (limit.seconds, limit.reason) == (140.0, "the limit is 140 s: 2 times its longest step")


@pytest.mark.parametrize(
    ("hang_run_s", "ran_s", "forgotten"),
    [(10, 1_799, False), (10, 1_800, True), (7_200, 14_399, False), (7_200, 14_400, True)],
)
def test_hangs_are_forgotten_after_a_stable_run_twice_as_long(hang_run_s: int, ran_s: int, forgotten: bool) -> None:
    """A phase at intervals would otherwise be a hang again and again: each attempt is stable before it comes to one."""
    assert are_hangs_forgotten(hang_run_s, ran_s, POLICY) is forgotten
