"""Identifiers that we give to ECS tasks (attempts, checks), how to parse them, and names of families, GPUs, files."""

from __future__ import annotations

import re
from collections.abc import Iterable

ATTEMPT = re.compile(r"(?P<job>.+)--a(?P<attempt>\d{2,})")
"""Pattern of an attempt id."""
CHECK = re.compile(r"check/(?P<instance>i-[0-9a-f]+)/(?P<number>\d+)")
"""Pattern of a check id."""
FILE_PATH = re.compile(r"(?<![\w./:-])/[\w.@+=-]+(?:/[\w.@+=-]*)*")
"""Pattern of an absolute path in a log line."""
_GPU_NAME = re.compile(r"[0-9]{1,3}|(GPU|MIG)-[0-9a-zA-Z-]{1,60}")
_PCI_ADDRESS = re.compile(r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?")

LISTED_MAX = 8
"""Largest number of names that a sentence lists."""
TICK = "#tick"
"""Name of the scheduled messages to the scheduler. All other messages name the record that changed."""


def listed(names: Iterable[str], most: int = LISTED_MAX) -> str:
    """Return the first `most` names as text, with the number of the other names.

    The list is bounded so that the reasons of a gang of thousands do not fill its record.
    """
    present = [name for name in names if name]
    more = f" and {len(present) - most} more" if len(present) > most else ""
    return (", ".join(present[:most]) or "none") + more


def attempt_id(job_id: str, attempt: int) -> str:
    """Return the name of an attempt, also the `startedBy` of its ECS tasks: `<job_id>--a<NN>`."""
    return f"{job_id}--a{attempt:02d}"


def attempt_of(started_by: str) -> tuple[str, int] | None:
    """Return (job id, attempt) of a `startedBy` that we gave to a rank, or None for any other text."""
    match = ATTEMPT.fullmatch(started_by)
    return (match["job"], int(match["attempt"])) if match else None


def check_id(instance_id: str, number: int) -> str:
    """Return the id of a check, also the `startedBy` of its ECS task: `check/<instance_id>/<n>`."""
    return f"check/{instance_id}/{number}"


def instance_of_check(started_by: str) -> str | None:
    """Return the EC2 instance id in a `startedBy` that we gave to a health check, or None for any other text."""
    match = CHECK.fullmatch(started_by)
    return match["instance"] if match else None


def family_of(task_definition: str) -> str:
    """Return the family of a task definition: of its ARN, of `family:revision`, or `family` itself."""
    return task_definition.rpartition("/")[2].partition(":")[0]


def gpu_name(text: str) -> str:
    """Return the GPU that `text` names: an index, a UUID or a PCI address (as `dddd:bb:dd`). "" for any other text.

    The health check parses the same names (`health_check/settings.py`). A test compares both parsers.
    """
    if _GPU_NAME.fullmatch(text):
        return text
    address = _PCI_ADDRESS.fullmatch(text.strip())
    return f"{int(address[1] or '0', 16):04x}:{address[2]}:{address[3]}".lower() if address else ""
