"""E-mail text of notifications: subject, parts of the body in their order, and length limits.

A subject is one line of ASCII under 100 characters, as SNS requires for e-mail. A body has six parts and fits on two
screens. An incident is one thread: all its messages carry its id, from `opened` over `escalated` to `resolved`. A
`noted` message belongs to no incident and is sent once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.state_machine import HistoryEntry
from gpu_recovery.core.xid_names import with_xid_names

if TYPE_CHECKING:
    from gpu_recovery.core.job.record import Job

SUBJECT_CHARACTERS_MAX = 99
"""Characters of a subject."""
TEXT_CHARACTERS_MAX = 500
"""Characters of one line of a body. The limit is needed because reasons quote the output of programs."""
EVIDENCE_MAX = 10
"""Lines of evidence in a message. `gpu-recovery explain` shows all evidence."""
NOTHING = "nothing"
"""Line of a part without lines."""
STORY_MAX = 8
"""Decisions of the history in a message."""


class Severity(StrEnum):
    """Urgency for operators: SEV2 needs an operator, SEV3 is handled automatically, SEV4 is good news."""

    SEV2 = "SEV2"
    SEV3 = "SEV3"
    SEV4 = "SEV4"


class Phase(StrEnum):
    """Place of a message in the thread of its incident."""

    OPENED = "opened"
    ESCALATED = "escalated"  # the same incident became worse or still waits
    RESOLVED = "resolved"
    NOTED = "noted"  # not an incident: no message follows


class Part(StrEnum):
    """Parts of a body, in their order."""

    WHAT = "WHAT HAPPENED"
    EVIDENCE = "EVIDENCE"
    DONE = "DONE"
    NEXT = "NEXT"
    YOU = "YOU"
    IDS = "IDS"


PARTS = tuple(Part)
"""All parts. Iterating the enum itself takes a third of the time of a message's text."""


def next_of(incident_open: bool) -> Phase:
    """Return the phase of a message about a problem: it opens an incident or escalates the open incident."""
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
    evidence_of: tuple[str, ...] = (),
    evidence_since: datetime | None = None,
) -> NotifyOperator:
    """Return the message with `parts`. A line that begins with two blanks is a command to type.

    Args:
        incident_id: id of the incident, or of the note.
        severity: urgency for operators.
        phase: place of the message in the incident's thread.
        subject: subject without the severity. Other characters than printable ASCII become "?".
        parts: lines of each part. A part without lines says "nothing".
        job_id: the job that the message is about, "" for none.
        instance_id: the instance that the message is about, "" for none.
        evidence_of: instances whose health and repairs are added to the evidence when the message is sent.
        evidence_since: time from which decisions about these instances belong to the incident.
    """
    line = " ".join(f"[GPU-RECOVERY][{severity}] {subject}".split())
    is_printable = line.isascii() and line.isprintable()
    printable = line if is_printable else "".join(letter if " " <= letter <= "~" else "?" for letter in line)
    return NotifyOperator(
        incident_id=incident_id,
        severity=severity,
        subject=printable[:SUBJECT_CHARACTERS_MAX].rstrip(),
        body="\n".join(_part(part, map(with_xid_names, parts.get(part, ()))) for part in PARTS),
        phase=phase,
        job_id=job_id,
        instance_id=instance_id,
        evidence_of=evidence_of,
        evidence_since=evidence_since,
    )


def parts_of(body: str) -> dict[Part, list[str]]:
    """Return the lines of each part of a body that `message` made."""
    parts: dict[Part, list[str]] = {}
    lines: list[str] = []
    for line in body.splitlines():
        if line in PARTS:
            lines = parts.setdefault(Part(line), [])
        elif line:
            lines.append(line)
    return parts


def with_evidence(notice: NotifyOperator, lines: Iterable[str]) -> NotifyOperator:
    """Return the message with further lines of evidence."""
    parts = parts_of(notice.body)
    known = [line for line in parts[Part.EVIDENCE] if line != NOTHING]
    parts[Part.EVIDENCE] = [*known, *(with_xid_names(line) for line in lines)]
    return replace(notice, body="\n".join(_part(part, parts.get(part, ())) for part in PARTS))


def _part(part: Part, lines: Iterable[str]) -> str:
    present = [line for line in map(clipped, lines) if line.strip()] or [NOTHING]
    return "\n".join([part, *present]) + "\n"


def clipped(text: str) -> str:
    """Return `text` as one line of at most TEXT_CHARACTERS_MAX characters that differs from every heading."""
    indent = "  " if text.startswith("  ") else ""
    plain = text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)
    line = " ".join(plain.split())
    if len(line) > TEXT_CHARACTERS_MAX:
        line = line[: TEXT_CHARACTERS_MAX - 3] + "..."
    return f"{indent}. {line}" if line in PARTS else indent + line


def of_user(job: Job) -> str:
    """Return the id of a job with its user. An adopted job may have no user."""
    return f"{job.job_id} of user {job.spec.user}" if job.spec.user else job.job_id


def typed(command: str, what_for: str = "") -> str:
    """Return a command line to copy, with its purpose."""
    return f"  gpu-recovery {command}" + (f" # {what_for}" if what_for else "")


def runbook(name: str) -> str:
    """Return the line that names a runbook of `docs/runbooks`."""
    return f"The runbook: docs/runbooks/{name}.md"


def clock(at: datetime | None) -> str:
    """Return a time as users read it, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if at is not None else "an unknown time"


def story(history: Iterable[HistoryEntry], since: datetime | None) -> list[str]:
    """Return the last decisions of a record as lines, from `since` on, at most STORY_MAX."""
    entries = [entry for entry in history if since is None or entry.at >= since][-STORY_MAX:]
    return [f"{entry.at.astimezone(UTC):%H:%M:%S} {entry.after}: {entry.reason}" for entry in entries]
