"""Kept work: up to when the work of a job survived a recovery, by the progress reports of its attempts.

An attempt goes on from its last checkpoint, so its first value of progress was reached by a former attempt before. What
the former attempts did after that is done again. Nothing is known if the program reports no progress, or if its
progress does not grow all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from gpu_recovery.core.diagnosis.observations import ProgressReport

Point = tuple[float, float]
"""Seconds since 1970, and the progress that was reached then."""


def kept_until_s(former: Sequence[Iterable[ProgressReport]], resumed: Iterable[ProgressReport]) -> float | None:
    """Return the time up to which the work of the former attempts was kept, in seconds since 1970; None if unknown.

    A former attempt that had begun with the same value, or a higher value, kept nothing: it failed before a checkpoint
    of its own. Then an attempt before it had reached the value. If it kept a part of its work, the attempts before it
    have lost work all the same. So the earliest of the times is returned, because one time stands for all of them.

    Between two reports the progress is taken to grow evenly. If the checkpoint is older than the stored reports of the
    first attempt, it is taken to have grown before them as on average within them.

    Args:
        former: the progress reports of each former attempt of the incident, the newest attempt first. The last is the
            attempt whose failure began the incident.
        resumed: those of the attempt that has gone on, from its first report on.
    """
    before, after = [_by_reporter(reports) for reports in former], _by_reporter(resumed)
    common = set(after).intersection(*before) if before else set()
    for reporter in sorted(common):
        value, kept = after[reporter][0][1], list[float]()
        for number, points in enumerate(attempt[reporter] for attempt in before):
            is_first = number == len(before) - 1
            if is_first or value > points[0][1]:
                at_s = _reached(points, value)
                if at_s is None:
                    return None
                kept.append(at_s)
            value = min(value, points[0][1])
        return min(kept)
    return None


def _by_reporter(reports: Iterable[ProgressReport]) -> dict[str, list[Point]]:
    """Return when which progress was reached, by reporter, the oldest first."""
    points: dict[str, list[Point]] = {}
    for report in sorted(reports, key=lambda report: report.at_s):
        if report.value is not None:
            since_s = report.at_s - max(report.unchanged_s or 0.0, 0.0)
            points.setdefault(report.reporter, []).append((since_s, report.value))
    return points


def _reached(points: list[Point], value: float) -> float | None:
    """Return the time at which the progress was `value`; None if that cannot be known."""
    if any(later[1] < earlier[1] for earlier, later in pairwise(points)):
        return None
    (first_s, first), (last_s, last) = points[0], points[-1]
    if value >= last:
        return min(at_s for at_s, reached in points if reached == last)
    if value < first:
        slope = (last - first) / (last_s - first_s) if last_s > first_s else 0.0
        return first_s - (first - value) / slope if slope > 0 else None
    for (begin_s, begin), (end_s, end) in pairwise(points):
        if begin <= value < end:
            return begin_s + max(0.0, end_s - begin_s) * (value - begin) / (end - begin)
    return None
