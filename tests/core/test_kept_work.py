"""Up to when work was kept: the time at which the former attempt had reached what the next attempt begins with."""

from __future__ import annotations

import pytest
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.kept_work import kept_until_s
from hypothesis import given
from hypothesis import strategies as st


def reports(*points: tuple[float, float], rank: int = 0, unchanged_s: float | None = None) -> list[ProgressReport]:
    """Progress reports of a rank, each a time and a value."""
    return [
        ProgressReport(report_id=f"i/{rank}/{at_s}", at_s=at_s, rank=rank, value=value, unchanged_s=unchanged_s)
        for at_s, value in points
    ]


def steady(begin_s: float, end_s: float, first: float, per_s: float) -> list[ProgressReport]:
    """A report each 10 s of a progress that grows evenly."""
    times = [begin_s + 10 * n for n in range(int((end_s - begin_s) // 10) + 1)]
    return reports(*((at_s, first + (at_s - begin_s) * per_s) for at_s in times))


@given(
    per_s=st.floats(0.01, 100),
    length_s=st.integers(300, 20_000),
    kept_s=st.floats(0, 1),
    seen_s=st.integers(100, 1_280),
)
def test_the_time_of_the_checkpoint_is_found(per_s: float, length_s: int, kept_s: float, seen_s: int) -> None:
    """Also if only the last minutes of the former attempt are stored."""
    former = [report for report in steady(0, length_s, 5, per_s) if report.at_s >= length_s - seen_s]
    checkpoint_s = kept_s * (former[-1].at_s)
    resumed = steady(length_s + 500, length_s + 600, 5 + checkpoint_s * per_s, per_s)
    assert kept_until_s([former], resumed) == pytest.approx(checkpoint_s, abs=1e-3 * length_s)


def test_a_stall_before_the_end_is_no_kept_work() -> None:
    """The value has not changed for 300 s, and all of it was saved."""
    former = [*reports((0, 1.0), (100, 9.0)), *reports((400, 9.0), unchanged_s=300)]
    assert kept_until_s([former], reports((900, 9.0))) == kept_until_s([former], reports((900, 12.0))) == 100


@pytest.mark.parametrize(
    ("former", "resumed"),
    [
        ([], reports((900, 1.0))),
        (reports((0, 1.0), (100, 9.0)), []),
        (reports((0, 1.0), (100, 9.0)), reports((900, 5.0), rank=1)),
        (reports((0, 9.0), (100, 1.0), (200, 5.0)), reports((900, 2.0))),
        (reports((0, 9.0)), reports((900, 2.0))),
        (reports((0, 9.0), (100, 9.0)), reports((900, 2.0))),
    ],
    ids=["no report", "not gone on", "another reporter", "a progress that falls", "one report", "no growth"],
)
def test_what_cannot_be_known_is_none(former: list[ProgressReport], resumed: list[ProgressReport]) -> None:
    """And not a guess."""
    assert kept_until_s([former], resumed) is None


@given(
    checkpoints=st.lists(st.integers(0, 900), min_size=1, max_size=4),
    lasted_s=st.lists(st.integers(60, 900), min_size=4, max_size=4),
)
def test_no_work_counts_as_kept_that_any_attempt_of_the_incident_has_lost(
    checkpoints: list[int], lasted_s: list[int]
) -> None:
    """Each attempt goes on from some step that it, or an attempt before, has reached. The earliest loss counts."""
    begin_s, first, lost_from_s, attempts = 0.0, 0.0, [], []
    for checkpoint, lasts_s in zip(checkpoints, lasted_s, strict=False):
        attempts.append((begin_s, first, steady(begin_s, begin_s + lasts_s, first, 1.0)))
        end_s, reached = attempts[-1][2][-1].at_s, attempts[-1][2][-1].value
        assert reached is not None
        resumed_at = min(float(checkpoint), reached)
        began = next((begin, at) for begin, at, reports_of in reversed(attempts) if at < resumed_at or begin == 0)
        lost_from_s.append(began[0] + resumed_at - began[1])
        begin_s, first = end_s + 500, resumed_at
    resumed = steady(begin_s, begin_s + 60, first, 1.0)
    kept_s = kept_until_s([reports_of for _, _, reports_of in reversed(attempts)], resumed)
    assert kept_s is not None and kept_s <= min(lost_from_s) + 1e-6
    if len(attempts) == 1:
        assert kept_s == pytest.approx(lost_from_s[0])
