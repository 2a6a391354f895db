"""The names by which ECS hands our own identities back to us, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Iterable

ATTEMPT = re.compile(r"(?P<job>.+)--a(?P<attempt>\d{2,})")
CHECK = re.compile(r"check/(?P<instance>i-[0-9a-f]+)/(?P<number>\d+)")
_GPU = re.compile(r"[0-9]{1,3}|(GPU|MIG)-[0-9a-zA-Z-]{1,60}")
_PCI = re.compile(r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?")

LISTED_MAX = 8
TICK = "#tick"
"""What the clock's messages to the scheduler are called; the others name who has changed."""


def listed(names: Iterable[str], most: int = LISTED_MAX) -> str:
    """Names in a sentence, the first `most` of them: a gang of thousands must not fill its record with its reasons."""
    every = [name for name in names if name]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return (", ".join(every[:most]) or "none") + more


def attempt_id(job_id: str, attempt: int) -> str:
    """The attempt's name and its ECS tasks' `startedBy`: `<job_id>--a<NN>`."""
    return f"{job_id}--a{attempt:02d}"


def attempt_of(started_by: str) -> tuple[str, int] | None:
    """(job id, attempt) of a `startedBy` that we gave to a rank, else None."""
    match = ATTEMPT.fullmatch(started_by)
    return (match["job"], int(match["attempt"])) if match else None


def check_id(instance_id: str, number: int) -> str:
    """The check's identity, used as its ECS task's `startedBy`: `check/<instance_id>/<n>`."""
    return f"check/{instance_id}/{number}"


def instance_of_check(started_by: str) -> str | None:
    """The EC2 instance id in a `startedBy` that we gave to a health check, else None."""
    match = CHECK.fullmatch(started_by)
    return match["instance"] if match else None


def gpu_name(text: str) -> str:
    """The index, the UUID or the PCI address (as `dddd:bb:dd`) of a GPU that `text` is, "" for any other text.

    The health check reads the same names (`health_check/settings.py`), and a test holds the two together.
    """
    if _GPU.fullmatch(text):
        return text
    found = _PCI.fullmatch(text.strip())
    return f"{int(found[1] or '0', 16):04x}:{found[2]}:{found[3]}".lower() if found else ""
