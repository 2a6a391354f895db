"""Time stamps of log lines: seconds on a clock, for the comparison of lines of one log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

STAMP_WITHIN = 120
"""A time stamp begins within this number of characters of a line."""
_YEAR = 2024
"""Year of stamps without a year. A leap year, so that each date is valid."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS: Mapping[str, int] = {
    name: number
    for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), start=1)  # noqa: SIM905
}


class Clock(Enum):
    """What a stamp counts from. Stamps of different clocks cannot be compared."""

    DATE = "date"
    DATE_WITHOUT_YEAR = "date without year"
    BOOT = "boot"


@frozen_dataclass()
class LineTime:
    """The time of a line. seconds: since the beginning of the clock."""

    clock: Clock
    seconds: float


_TIME = r"(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})"
_FORMS: tuple[tuple[Clock, re.Pattern[str]], ...] = (
    (Clock.DATE, re.compile(rf"(?<!\d)(?P<year>\d{{4}})[-/](?P<month>\d{{2}})[-/](?P<day>\d{{2}})[T -]{_TIME}")),
    (
        Clock.DATE,
        re.compile(rf"\b\w{{3}} (?P<name>[A-Z][a-z]{{2}}) {{1,2}}(?P<day>\d{{1,2}}) {_TIME} (?P<year>\d{{4}})"),
    ),
    (Clock.DATE, re.compile(rf"\[(?P<name>[A-Z][a-z]{{2}}) (?P<day>\d{{2}}) (?P<year>\d{{4}}) {_TIME}")),
    (Clock.DATE_WITHOUT_YEAR, re.compile(rf"\b(?P<name>[A-Z][a-z]{{2}}) {{1,2}}(?P<day>\d{{1,2}}) {_TIME}")),
    (Clock.DATE_WITHOUT_YEAR, re.compile(rf"\b[EWIF](?P<month>\d{{2}})(?P<day>\d{{2}}) {_TIME}")),
    (Clock.DATE_WITHOUT_YEAR, re.compile(rf"(?<![\d-])(?P<month>\d{{2}})-(?P<day>\d{{2}}) {_TIME}")),
)
_SINCE_BOOT = re.compile(r"(?:^|[\s>])\[ {0,12}(\d{1,10}\.\d{3,9})\]")


def line_time(text: str) -> LineTime | None:
    """Return the time that a line or its stamp states; None if the text has no time stamp that is known."""
    head = text[:STAMP_WITHIN]
    for clock, form in _FORMS:
        match = form.search(head)
        if match is not None and (seconds := _seconds(match.groupdict())) is not None:
            return LineTime(clock, seconds)
    boot = _SINCE_BOOT.search(head)
    return LineTime(Clock.BOOT, float(boot[1])) if boot is not None else None


def _seconds(groups: Mapping[str, str]) -> float | None:
    """Return the seconds since 1970; None if there is no such date. Groups are named as fields of a date are."""
    numbers: dict[str, Any] = {field: int(text) for field, text in groups.items() if text.isdecimal()}
    names = [text.lower() for text in groups.values() if not text.isdecimal()]
    try:
        at = _EPOCH.replace(year=_YEAR).replace(**numbers)
        at = at.replace(month=_MONTHS[names[0]]) if names else at
    except (ValueError, KeyError):
        return None
    return (at - _EPOCH).total_seconds()
