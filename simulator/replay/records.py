"""Records of an account: the folder that `gpu-recovery fleet what-if --save` writes, and its reader.

`records.json` says what the folder holds, and `events.jsonl` has one stored event of the event history in each line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpu_recovery.core.event_history.recorded_event import RecordedEvent, RecordedEventUnreadable, event_of
from gpu_recovery.core.event_history.streams import position_of
from gpu_recovery.core.published_events import utc_text

FORMAT, VERSION = "gpu-recovery/records", 1
"""Name and version of the form of a folder of records."""
ABOUT, EVENTS = "records.json", "events.jsonl"
"""Files of the folder."""


class RecordsInvalid(ValueError):
    """The records cannot be read. The message names the file, the line and the reason."""


@dataclass(frozen=True)
class Records:
    """The records of an account.

    name:   name of the folder.
    since:  time from which the events were collected.
    until:  time of the collection.
    events: events in the order of time.
    """

    name: str
    since: datetime
    until: datetime
    events: tuple[RecordedEvent, ...]


def read_records(folder: Path) -> Records:
    """Read the records in `folder`.

    Raises:
        RecordsInvalid: the folder holds no records of a version that is known, or an event that cannot be read.
        OSError: a file cannot be read.
    """
    about = _about(folder / ABOUT)
    events: dict[str, RecordedEvent] = {}
    with (folder / EVENTS).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                event = event_of(line)
            except RecordedEventUnreadable as error:
                raise RecordsInvalid(f"{EVENTS}, line {number}: {error}") from error
            events[position_of(event)] = event
    if not events:
        raise RecordsInvalid(f"{EVENTS}: there is no event in it")
    since, until = _time(about, "since"), _time(about, "until")
    if until < since:
        raise RecordsInvalid(f"{ABOUT}: 'until' is before 'since'")
    return Records(folder.resolve().name, since, until, tuple(event for _, event in sorted(events.items())))


def write_records(folder: Path, texts: Iterable[str], since: datetime, until: datetime) -> int:
    """Write stored events, in the order of time, as a folder of records, and return their number.

    The folder is made and checked before the first text is taken. `records.json` is written last, so a folder without
    it is incomplete.

    Raises:
        RecordsInvalid: the folder holds records already.
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / ABOUT).exists():
        raise RecordsInvalid(f"{ABOUT}: there are records in this folder already")
    number = 0
    with (folder / EVENTS).open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(f"{text}\n")
            number += 1
    about = {"format": FORMAT, "version": VERSION, "since": utc_text(since), "until": utc_text(until)}
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return number


def _about(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordsInvalid(f"{path.name}: it is no JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise RecordsInvalid(f"{path.name}: it does not describe records of gpu-recovery")
    if document.get("version") != VERSION:
        raise RecordsInvalid(
            f"{path.name}: version {document.get('version')!r} of the records is unknown; this release reads {VERSION}"
        )
    return document


def _time(document: dict[str, Any], name: str) -> datetime:
    try:
        time = datetime.fromisoformat(document[name])
    except (KeyError, TypeError, ValueError) as error:
        raise RecordsInvalid(f"{ABOUT}: {name} must be a time") from error
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
