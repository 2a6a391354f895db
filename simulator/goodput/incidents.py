"""Reader of a user's own incident list, as CSV or JSON, for `goodput --failures`.

An incident has `at`, `node` and `cause`, and may have `cure`, `shows` and `until`. What it lacks is taken from the
entry of its cause in `incident_causes.toml`.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.failure_trace import Incident

CAUSES = Path(__file__).with_name("incident_causes.toml")
"""Path of the table of causes."""
OTHER = "other"
"""Entry of the table for a cause that it does not name."""
NEEDED, OPTIONAL = ("at", "node", "cause"), ("cure", "shows", "until")
"""Columns of an incident list."""
DAY_S = 86_400.0
"""Seconds of a day."""


class IncidentsInvalid(ValueError):
    """The incident list is wrong. The message names the file, the line or the incident, and the reason."""


@dataclass(frozen=True, slots=True)
class IncidentList:
    """The incidents of a file.

    incidents:  in order of time; the place of a node is its rank by the first incident that names it
    nodes:      names of the nodes, by place
    days:       whole days until the last begin or end
    assumed:    incidents whose cure or way of showing was taken from the table of causes
    """

    incidents: tuple[Incident, ...]
    nodes: tuple[str, ...]
    days: float
    assumed: int


@dataclass(frozen=True, slots=True)
class KnownCause:
    """Entry of the table of causes."""

    cure: Cure
    shows: Shows
    seen: bool


def read_causes(path: Path = CAUSES) -> dict[str, KnownCause]:
    """Read the table of causes."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["causes"]
    return {name: KnownCause(Cure(one["cure"]), Shows(one["shows"]), one["seen"]) for name, one in entries.items()}


def read_incidents(path: Path) -> IncidentList:
    """Read the incident list at `path`: JSON if the name ends in `.json`, else CSV with a header.

    Raises:
        IncidentsInvalid: the list cannot be read; the message has the line of a CSV file or the number of an incident.
        OSError: there is no such file.
    """
    text = path.read_text(encoding="utf-8-sig")
    rows = list(_json_rows(path, text) if path.suffix.lower() == ".json" else _csv_rows(path, text))
    if not rows:
        raise IncidentsInvalid(f"{path.name}: there is no incident in it")
    causes = read_causes()
    first = _first_day(rows)
    found = sorted((_incident(where, row, causes, first) for where, row in rows), key=lambda one: one[0].at_s)
    nodes = tuple(dict.fromkeys(node for _, node in found))
    places = {node: place for place, node in enumerate(nodes)}
    incidents = tuple(
        Incident(one.at_s, places[node], one.cause, one.cure, one.shows, one.seen, one.until_s) for one, node in found
    )
    last = max(max(one.at_s, one.until_s or 0.0) for one in incidents)
    assumed = sum(not (row.get("cure") and row.get("shows")) for _, row in rows)
    return IncidentList(incidents, nodes, float(max(1, ceil(last / DAY_S))), assumed)


def _csv_rows(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True, strict=True)
    try:
        _check_columns(f"{path.name}, line 1", reader.fieldnames or ())
        for row in reader:
            where = f"{path.name}, line {reader.line_num}"
            if None in row or None in row.values():
                raise IncidentsInvalid(f"{where}: it has not as many fields as the header")
            yield where, {name: value.strip() for name, value in row.items()}
    except csv.Error as error:
        raise IncidentsInvalid(f"{path.name}, line {reader.reader.line_num}: {error}") from error


def _json_rows(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise IncidentsInvalid(f"{path.name}, line {error.lineno}: {error.msg}") from error
    rows = document.get("incidents") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise IncidentsInvalid(f"{path.name}: it must be a list of incidents, or an object with the list `incidents`")
    for number, row in enumerate(rows, 1):
        where = f"{path.name}, incident {number}"
        if not isinstance(row, dict):
            raise IncidentsInvalid(f"{where}: it must be an object")
        _check_columns(where, tuple(row))
        yield where, row


def _check_columns(where: str, names: Any) -> None:
    for name in NEEDED:
        if name not in names:
            raise IncidentsInvalid(f"{where}: {name!r} is missing; an incident has {', '.join((*NEEDED, *OPTIONAL))}")
    for name in names:
        if name not in (*NEEDED, *OPTIONAL):
            raise IncidentsInvalid(f"{where}: {name!r} is not known; an incident has {', '.join((*NEEDED, *OPTIONAL))}")


def _first_day(rows: list[tuple[str, Mapping[str, Any]]]) -> datetime | None:
    """Midnight UTC of the day of the first incident, if the times are dates; None if they are seconds."""
    times = [(where, _time(where, "at", row["at"])) for where, row in rows]
    dates = [time for _, time in times if isinstance(time, datetime)]
    has_dates = isinstance(times[0][1], datetime)
    for where, time in times:
        if isinstance(time, datetime) is not has_dates:
            raise IncidentsInvalid(f"{where}: all times must be seconds, or all must be dates")
    return min(dates).replace(hour=0, minute=0, second=0, microsecond=0) if dates else None


def _time(where: str, name: str, value: Any) -> float | datetime:
    if not isinstance(value, bool) and isinstance(value, str | int | float):
        try:
            seconds = float(value)
            if isfinite(seconds) and seconds >= 0:
                return seconds
        except ValueError:
            pass
        try:
            date = datetime.fromisoformat(str(value))
            return date.astimezone(UTC) if date.tzinfo is not None else date.replace(tzinfo=UTC)
        except ValueError:
            pass
    raise IncidentsInvalid(f"{where}: {name!r} must be seconds since the run began or a date as 2026-11-27T09:00:00Z")


def _seconds(where: str, name: str, value: Any, first: datetime | None) -> float:
    time = _time(where, name, value)
    if isinstance(time, datetime) != (first is not None):
        raise IncidentsInvalid(f"{where}: {name!r} must be a time as `at` is: seconds, or a date")
    return (time - first).total_seconds() if isinstance(time, datetime) and first is not None else float(str(time))


def _incident(
    where: str, row: Mapping[str, Any], causes: Mapping[str, KnownCause], first: datetime | None
) -> tuple[Incident, str]:
    """Return the incident, without its place, and the name of its node."""
    at_s = _seconds(where, "at", row["at"], first)
    until_s = _seconds(where, "until", row["until"], first) if row.get("until") not in (None, "") else None
    if until_s is not None and until_s < at_s:
        raise IncidentsInvalid(f"{where}: 'until' is before 'at'")
    node, cause = str(row["node"]).strip(), str(row["cause"]).strip()
    if not node or not cause:
        raise IncidentsInvalid(f"{where}: 'node' and 'cause' must not be empty")
    known = causes.get(cause, causes[OTHER])
    cure = _choice(where, "cure", row.get("cure"), Cure, known.cure)
    shows = _choice(where, "shows", row.get("shows"), Shows, known.shows)
    if shows is Shows.GONE and cure is not Cure.REPLACE:
        raise IncidentsInvalid(f"{where}: a host that is gone has the cure 'replace', not {str(cure)!r}")
    return Incident(at_s, 0, cause, cure, shows, known.seen, until_s), node


def _choice(where: str, name: str, value: Any, kinds: Any, default: Any) -> Any:
    if value in (None, ""):
        return default
    if value not in tuple(kinds):
        raise IncidentsInvalid(f"{where}: {name!r} must be one of {', '.join(kinds)}, not {value!r}")
    return kinds(value)
