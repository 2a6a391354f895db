"""Converter of the published fault trace of 400 nodes (InfiniteHBD-Trace) to an incident list.

The trace is a JSON list of events with `node_id`, `event_time` in days, `event_type` (fault_start or fault_end) and
`fault_type` (Level, Class, Desc). https://github.com/stepfun-ai/InfiniteHBD-Trace, Apache-2.0; arXiv 2502.03885.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from simulator.goodput.incidents import CAUSES, DAY_S, NEEDED, OTHER, IncidentsInvalid

HEADER = (*NEEDED, "until")
"""Columns of the converted list."""


def convert(path: Path) -> str:
    """Return the trace at `path` as an incident list in CSV, in order of time.

    Raises:
        IncidentsInvalid: an event has another form, or an end has no begin.
        OSError: there is no such file.
    """
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise IncidentsInvalid(f"{path.name}, line {error.lineno}: {error.msg}") from error
    if not isinstance(events, list):
        raise IncidentsInvalid(f"{path.name}: it must be a list of events")
    table = tomllib.loads(CAUSES.read_text(encoding="utf-8"))["infinitehbd"]
    written = StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(sorted(_rows(path, events, table)))
    return written.getvalue()


def _rows(path: Path, events: list[Any], table: Mapping[str, Any]) -> Iterator[tuple[float, str, str, str]]:
    """Yield begin, node, cause and end of each fault; the end is empty if the trace has none."""
    begun: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for number, event in enumerate(events, 1):
        where = f"{path.name}, event {number}"
        try:
            kind, node, at_s = event["event_type"], event["node_id"], round(float(event["event_time"]) * DAY_S, 1)
            level, group, text = (event["fault_type"][name] for name in ("Level", "Class", "Desc"))
        except (KeyError, TypeError, ValueError) as error:
            raise IncidentsInvalid(f"{where}: it has not the form of the trace ({error!r})") from error
        key = (node, f"{level}/{group}/{text}")
        if kind == "fault_start":
            begun.setdefault(key, []).append((at_s, cause_of(level, group, text, table)))
        elif kind == "fault_end" and begun.get(key):
            began_s, cause = begun[key].pop(0)
            yield began_s, node, cause, str(at_s)
        else:
            raise IncidentsInvalid(f"{where}: {kind!r} without a begin, or no event of the trace")
    for (node, _), open_faults in begun.items():
        for began_s, cause in open_faults:
            yield began_s, node, cause, ""


def cause_of(level: str, group: str, text: str, table: Mapping[str, Any]) -> str:
    """Return the cause of a fault by its description, else by its class, else by its level."""
    for name in (f"{group}/{text}", group, level):
        if name in table:
            return str(table[name]["cause"])
    return OTHER
