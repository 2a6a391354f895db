"""Texts of a day's figures and of what stood at its end, and their parts: an item of the table holds 400 KB."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import date, datetime, timedelta
from typing import Any

from gpu_recovery.core.event_history.recorded_event import RecordedEventUnreadable
from gpu_recovery.core.event_history.roll_up import (
    Figures,
    GroupKey,
    JobCourse,
    JobStanding,
    PartOfDay,
    Runs,
    Standing,
)
from gpu_recovery.core.event_history.streams import DAYS_KEPT, HistoryItem, StoredItem
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.published_events import utc_text

DAYS, STANDINGS, LATE_DAYS = "days", "standings", "days#late"
"""Streams of the figures of each day, of what stood at its end, and of the days for which events arrived late."""
PROGRESS = "days#progress"
"""Stream of the days that are rolled up in part."""
PART_CHARACTERS_MAX = 300_000
"""Characters of a part. The texts are ASCII."""
TEXT, UNTIL, PARTS = "text", "until", "parts"
"""Attributes of a part: its text, the time until which the day was rolled up, and the number of parts."""


def day_items(
    stream: str, day: date, until: datetime, text: str, kept: timedelta = DAYS_KEPT
) -> tuple[HistoryItem, ...]:
    """Return the items that hold a text about a day.

    Args:
        stream: the stream of such texts.
        day: the day.
        until: time until which the text holds.
        text: the text.
        kept: how long it is kept from then on.
    """
    parts = [text[start : start + PART_CHARACTERS_MAX] for start in range(0, len(text), PART_CHARACTERS_MAX)]
    return tuple(
        HistoryItem(
            stream,
            f"{day.isoformat()}#{number:03d}",
            {TEXT: part, UNTIL: utc_text(until), PARTS: str(len(parts))},
            until + kept,
        )
        for number, part in enumerate(parts)
    )


def day_texts(items: Iterable[StoredItem]) -> dict[date, tuple[datetime, str]]:
    """Return the text about each day and the time until which it holds. A day with a missing part is left out."""
    parts: dict[str, list[StoredItem]] = {}
    for item in sorted(items, key=lambda item: item.position):
        parts.setdefault(item.position.partition("#")[0], []).append(item)
    found: dict[date, tuple[datetime, str]] = {}
    for name, stored in parts.items():
        first = stored[0].attributes
        same = [one for one in stored if one.attributes.get(UNTIL) == first.get(UNTIL)]
        if len(same) < int(first[PARTS]):
            continue
        text = "".join(one.attributes[TEXT] for one in same[: int(first[PARTS])])
        found[date.fromisoformat(name)] = (datetime.fromisoformat(first[UNTIL]), text)
    return found


@frozen_dataclass()
class DayProgress:
    """A day that is rolled up in part.

    at:       time up to which it is rolled up.
    part:     the day after the last event before that time.
    figures:  the figures until then.
    begun_with: digest of what stood at the beginning of the day.
    mark:     the mark of the day as late when its roll-up began; "" without a mark.
    begun_at: time at which its roll-up began.
    """

    at: datetime
    part: PartOfDay
    figures: Mapping[GroupKey, Figures]
    begun_with: str
    mark: str
    begun_at: datetime


def progress_text(progress: DayProgress) -> str:
    """Return the text of a day that is rolled up in part."""
    part = progress.part
    document = {
        "at": utc_text(progress.at),
        "begun_with": progress.begun_with,
        "mark": progress.mark,
        "begun_at": utc_text(progress.begun_at),
        "figures": figures_text(progress.figures),
        "begin": utc_text(part.begin),
        "jobs": {job_id: _course_row(job) for job_id, job in sorted(part.jobs.items())},
        "instances": {name: [status, utc_text(at)] for name, (status, at) in sorted(part.instances.items())},
        "recoveries": {
            job_id: [[version, _time_text(kept_until)] for version, kept_until in each]
            for job_id, each in sorted(part.recoveries.items())
        },
        "incidents": sorted(part.incidents),
    }
    return json.dumps(document, separators=(",", ":"))


def progress_of(text: str) -> DayProgress:
    """Return a day that is rolled up in part, by its text.

    Raises:
        RecordedEventUnreadable: the text is malformed, or of another release.
    """
    try:
        document = json.loads(text)
        part = PartOfDay(
            datetime.fromisoformat(document["begin"]),
            {job_id: _course_of(row) for job_id, row in document["jobs"].items()},
            {name: (status, datetime.fromisoformat(at)) for name, (status, at) in document["instances"].items()},
            {
                job_id: tuple((version, _time(kept_until)) for version, kept_until in rows)
                for job_id, rows in document["recoveries"].items()
            },
            frozenset(document["incidents"]),
        )
        return DayProgress(
            datetime.fromisoformat(document["at"]),
            part,
            figures_of(document["figures"]),
            document["begun_with"],
            document["mark"],
            datetime.fromisoformat(document["begun_at"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordedEventUnreadable(f"the progress of a day cannot be read: {error}") from error


def _course_row(job: JobCourse) -> Sequence[Any]:
    return [_job_row(job.standing), utc_text(job.at), job.held, job.line, job.work, job.is_known]


def _course_of(row: Sequence[Any]) -> JobCourse:
    standing, at, held, line, work, is_known = row
    return JobCourse(_job_of(standing), datetime.fromisoformat(at), held, line, work, is_known)


def standing_digest(standing: Standing) -> str:
    """Return a digest of what stands, which tells whether a day begins with the same."""
    return hashlib.sha256(standing_text(standing).encode()).hexdigest()[:32]


def figures_text(figures: Mapping[GroupKey, Figures]) -> str:
    """Return the text of the figures of a day."""
    rows = [[*key, _rounded(asdict(group))] for key, group in sorted(figures.items())]
    return json.dumps(rows, separators=(",", ":"))


def figures_of(text: str) -> dict[GroupKey, Figures]:
    """Return the figures of a text.

    Raises:
        RecordedEventUnreadable: the text is malformed.
    """
    known = {each.name for each in fields(Figures)}
    try:
        return {
            (user, priority): Figures(**{name: value for name, value in row.items() if name in known})
            for user, priority, row in json.loads(text)
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise RecordedEventUnreadable(f"the figures of a day cannot be read: {error}") from error


def standing_text(standing: Standing) -> str:
    """Return the text of what stands at a moment."""
    jobs = {job_id: _job_row(job) for job_id, job in sorted(standing.jobs.items())}
    return json.dumps({"jobs": jobs, "instances": dict(sorted(standing.instances.items()))}, separators=(",", ":"))


def standing_of(text: str) -> Standing:
    """Return what stood, by a text.

    Raises:
        RecordedEventUnreadable: the text is malformed.
    """
    try:
        document = json.loads(text)
        return Standing({job_id: _job_of(row) for job_id, row in document["jobs"].items()}, document["instances"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordedEventUnreadable(f"what stood at the end of a day cannot be read: {error}") from error


def _job_of(row: Sequence[Any]) -> JobStanding:
    status, gpus, user, priority, has_run, stopped_at, *runs = row
    since, ended = runs or (None, [])
    times = [datetime.fromisoformat(text) for text in ended]
    known = Runs(tuple(zip(times[::2], times[1::2], strict=True)), _time(since))
    return JobStanding(status, gpus, user, priority, has_run, _time(stopped_at), known)


def _time_text(at: datetime | None) -> str | None:
    return None if at is None else utc_text(at)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _job_row(job: JobStanding) -> Sequence[Any]:
    stopped_at, since = _time_text(job.stopped_at), _time_text(job.runs.since)
    known = [job.status, job.gpus, job.user, job.priority, job.has_run, stopped_at]
    if job.runs == Runs():
        return known
    return [*known, since, [utc_text(at) for run in job.runs.ended for at in run]]


def _rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures with six decimal places, without those that are zero."""
    shorter = {
        name: [round(each, 3) for each in value]
        if isinstance(value, list)
        else round(value, 6)
        if isinstance(value, float)
        else value
        for name, value in values.items()
    }
    return {name: value for name, value in shorter.items() if value}
