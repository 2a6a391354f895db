"""Formats of times, durations, counts and statuses in views of the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpu_recovery_client.texts import tr

View = Mapping[str, Any]


def moment(value: str) -> datetime:
    """Return the time of an ISO-8601 text of the API."""
    return datetime.fromisoformat(value)


def clock(value: str | None) -> str:
    """Return an ISO-8601 time of the API to the second, in UTC as the API gives it; "-" for none."""
    return f"{moment(value):%Y-%m-%d %H:%M:%S}Z" if value else "-"


def short_clock(value: str | None) -> str:
    """Return an ISO-8601 time of the API as month, day and time in UTC, for narrow columns; "-" for none."""
    return f"{moment(value):%m-%d %H:%M:%S}" if value else "-"


def since(value: str | None, now: datetime) -> str:
    """Return how long ago the API's time `value` was; "-" for none."""
    return duration((now - moment(value)).total_seconds()) if value else "-"


def age(value: str | None, now: datetime) -> str:
    """Return how long ago the API's time `value` was, in one unit, for narrow columns; "" for none."""
    if not value:
        return ""
    seconds = max(0, int((now - moment(value)).total_seconds()))
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= unit + unit // 2:
            return f"{seconds // unit}{name}"
    return f"{seconds}s"


def until(deadline: str | None, now: datetime) -> str:
    """Return a deadline and its distance, before or after now; "" for none."""
    if not deadline:
        return ""
    left = (moment(deadline) - now).total_seconds()
    if left >= 0:
        return tr("{at} (in {time})", at=clock(deadline), time=duration(left))
    return tr("{at} (due {time} ago)", at=clock(deadline), time=duration(-left))


def duration(seconds: float) -> str:
    """Return seconds in their two largest units: 42s, 3m05s, 2h05m, 3d04h. Negative values count as 0."""
    whole = max(0, int(seconds))
    for unit, name, smaller, below in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit:
            return f"{whole // unit}{name}{whole % unit // smaller:02d}{below}"
    return f"{whole}s"


def count(value: Any) -> str:
    """Return a number as text; "-" if it is missing."""
    return "-" if value is None else str(value)


def standing(view: View, now: datetime) -> str:
    """Return the status of a job or an instance, and since when it has it."""
    values = {"at": clock(view.get("status_at")), "age": since(view.get("status_at"), now)}
    return tr("{status} since {at} ({age})", status=view["status"], **values)


def moved(entry: View) -> str:
    """Return `RUNNING -> STOPPING`, or one status if the entry begins a record or leaves its status unchanged."""
    before, after = entry.get("from") or "", entry["to"]
    return after if before in ("", after) else f"{before} -> {after}"
