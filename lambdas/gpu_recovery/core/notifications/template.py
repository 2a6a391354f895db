"""The form of every message to operators: what is in it, in what order, how long it may be.

A subject is ASCII, one line, under 100 characters: what SNS accepts for e-mail. A body has seven parts and fits on two
screens. An incident is one thread: all that is said of it carries its id, from `opened` over `escalated` to `resolved`.
What is `noted` is no incident: it is said once, and nothing is under way that could end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum

from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.state_machine import HistoryEntry

SUBJECT_CHARACTERS_MAX = 99
TEXT_CHARACTERS_MAX = 500
"""What one sentence of a message may have: reasons quote programs, and those may quote anything."""
EVIDENCE_MAX = 10
"""Lines of evidence in a message; who wants all of it asks `gpu-recovery explain`."""
STORY_MAX = 8


class Severity(StrEnum):
    """How much an operator must hurry: SEV2 needs a person, SEV3 is being dealt with, SEV4 is good news."""

    SEV2 = "SEV2"
    SEV3 = "SEV3"
    SEV4 = "SEV4"


class Phase(StrEnum):
    """Where a message stands in the thread of its incident."""

    OPENED = "opened"
    ESCALATED = "escalated"  # the same incident, grown worse or waiting still
    RESOLVED = "resolved"
    NOTED = "noted"  # no incident: nothing follows


class Part(StrEnum):
    """The parts of a body, in their order."""

    WHAT = "WHAT HAPPENED"
    EVIDENCE = "EVIDENCE"
    DONE = "DONE"
    NEXT = "NEXT"
    YOU = "YOU"
    IDS = "IDS"


def next_of(incident_open: bool) -> Phase:
    """The phase of bad news: it opens an incident, or makes the open one worse."""
    return Phase.ESCALATED if incident_open else Phase.OPENED


def message(
    incident_id: str,
    severity: Severity,
    phase: Phase,
    subject: str,
    parts: Mapping[Part, Iterable[str]],
    *,
    job_id: str = "",
    instance_id: str = "",
) -> NotifyOperator:
    """The message with `parts`, each a few lines. A line that begins with two blanks is a command to type."""
    line = " ".join(f"[GPU-RECOVERY][{severity}] {subject}".split())
    printable = "".join(one if " " <= one <= "~" else "?" for one in line)
    return NotifyOperator(
        incident_id=incident_id,
        severity=severity,
        subject=printable[:SUBJECT_CHARACTERS_MAX].rstrip(),
        body="\n".join(_part(part, parts.get(part, ())) for part in Part),
        phase=phase,
        job_id=job_id,
        instance_id=instance_id,
    )


def parts_of(body: str) -> dict[Part, list[str]]:
    """The lines of each part of a body that `message` made."""
    found: dict[Part, list[str]] = {}
    lines: list[str] = []
    for line in body.splitlines():
        if line in tuple(Part):
            lines = found.setdefault(Part(line), [])
        elif line:
            lines.append(line)
    return found


def _part(part: Part, lines: Iterable[str]) -> str:
    kept = [line for line in map(clipped, lines) if line.strip()] or ["nothing"]
    return "\n".join([part, *kept]) + "\n"


def clipped(text: str) -> str:
    """`text` on one line that no heading can be mistaken for, cut to what a message may quote."""
    indent = "  " if text.startswith("  ") else ""
    plain = text if text.isprintable() else "".join(one if one.isprintable() else " " for one in text)
    line = " ".join(plain.split())
    if len(line) > TEXT_CHARACTERS_MAX:
        line = line[: TEXT_CHARACTERS_MAX - 3] + "..."
    return f"{indent}. {line}" if line in tuple(Part) else indent + line


def typed(command: str, what_for: str = "") -> str:
    """A command line to copy, and what it is for."""
    return f"  gpu-recovery {command}" + (f" # {what_for}" if what_for else "")


def clock(at: datetime | None) -> str:
    """A time as people read it, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if at is not None else "an unknown time"


def story(history: Iterable[HistoryEntry], since: datetime | None) -> list[str]:
    """The last decisions of a record, those from `since` on: what led to where it is."""
    entries = [one for one in history if since is None or one.at >= since][-STORY_MAX:]
    return [f"{one.at.astimezone(UTC):%H:%M:%S} {one.after}: {one.reason}" for one in entries]
