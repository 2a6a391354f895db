"""Files of a rank: one names its process, the other says how it ended.

`<running log id>.json` names the process, `<running log id>.exit` holds the exit. The first has the form of seed
000, where numbers may be strings, with additional fields. An agent of GPUTasker takes every `*.json` for a running
task, so the name of the exit has another ending. Any process that can write to the folder may have written a file. So
a file is only a claim, and the agent compares it with /proc.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_JOB = re.compile(r"[A-Za-z0-9_/-]{1,120}")
EXIT_SUFFIX, OLD_EXIT_SUFFIX = ".exit", ".exit.json"
"""End of the name of an exit file, now and as earlier wrappers wrote it."""
EXIT_SUFFIXES = (OLD_EXIT_SUFFIX, EXIT_SUFFIX)
RUNNING_SUFFIX = ".json"
REFUSED_SUFFIX = ".exit.refused"
NAME_MAX = 128
NUMBER_MAX = 2**63 - 1
SAFE_MAX = 2**53 - 1
ATTEMPT_MAX, RANK_MAX, PID_MAX = 1_000_000, 1_000_000, 2**31 - 1
"""Bounds of docs/protocol.md, which the API checks: one rank beyond them would make the whole report invalid."""


@dataclass(frozen=True)
class RankIdentity:
    """One rank of one attempt; `epoch` and `log` (the number of the running log) where they are known."""

    job: str
    attempt: int
    rank: int
    epoch: int | None = None
    log: int | None = None

    @property
    def key(self) -> tuple[str, int, int, int | None]:
        """Return what identifies the rank: job, attempt, rank, epoch."""
        return self.job, self.attempt, self.rank, self.epoch


@dataclass(frozen=True)
class RunningFile:
    """What a file claims about a process. `rank` is None in a file of GPUTasker, which has only `log`.

    `pid` belongs to the PID namespace `pid_namespace`, an inode of nsfs; None if the file does not say. `ticks` is the
    start time in clock ticks since the boot `boot_id`. `holds` says that the rank can be held, and `held` that its
    command has ended and its container waits for the next attempt (`hold`).
    """

    pid: int
    rank: RankIdentity | None
    log: int | None
    ticks: int | None
    boot_id: str | None
    pid_namespace: int | None
    holds: bool = False
    held: bool = False


@dataclass(frozen=True)
class Exit:
    """How a rank ended: `code` or `signal`. `uptime_s` is the time of the end in seconds since the boot `boot_id`.

    `held` says that its container waits for the next attempt, and `asked` that the server had the rank ended.
    """

    rank: RankIdentity
    code: int | None
    signal: int | None
    uptime_s: float | None
    boot_id: str | None
    held: bool = False
    asked: bool = False


def exit_stem(file_name: str) -> str | None:
    """Return the base name of an exit file; None if the name is of another file."""
    for suffix in EXIT_SUFFIXES:
        if file_name.endswith(suffix):
            return file_name[: -len(suffix)]
    return None


def whole(value: Any, *, least: int = 0, most: int = NUMBER_MAX) -> int | None:
    """Return an integer within the bounds, also from a string of digits; None for any other value."""
    if isinstance(value, str):
        digits = value.strip()
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most else None


def name(value: Any) -> str | None:
    """Return the value if it is a string of 1 to NAME_MAX printable characters; None otherwise."""
    return value if isinstance(value, str) and 0 < len(value) <= NAME_MAX and value.isprintable() else None


def job_name(value: Any) -> str | None:
    """Return the value if it is a job id that the API accepts; None otherwise."""
    return value if isinstance(value, str) and _JOB.fullmatch(value) else None


def rank_in(fields: dict[str, Any]) -> RankIdentity | None:
    """Return the rank that the fields of a file name; None if one of job, attempt and rank is missing or invalid."""
    job, attempt = job_name(fields.get("job_id")), whole(fields.get("attempt"), most=ATTEMPT_MAX)
    rank = whole(fields.get("rank"), most=RANK_MAX)
    if job is None or attempt is None or rank is None:
        return None
    epoch, log = whole(fields.get("epoch"), most=SAFE_MAX), whole(fields.get("running_log_id"), most=SAFE_MAX)
    return RankIdentity(job, attempt, rank, epoch, log)


def rank_of(environment: Mapping[str, str], rank: str | None) -> RankIdentity | None:
    """Return the rank that an environment names; None if it names no rank.

    A task that an operator started by hand has no attempt in its environment. Its attempt is 0, and the server knows
    the real attempt.

    Args:
        environment: the environment of a process.
        rank: the number of the rank. It is an argument because launchers overwrite RANK in their children.
    """
    return rank_in(
        {
            "job_id": environment.get("JOB_ID"),
            "attempt": environment.get("ATTEMPT") or 0,
            "rank": rank,
            "epoch": environment.get("EPOCH"),
            "running_log_id": environment.get("RUNNING_LOG_ID"),
        }
    )


def running_in(fields: dict[str, Any]) -> RunningFile:
    """Return what a running file claims. Raises ValueError if it names no process, or neither a rank nor a log."""
    pid = whole(fields.get("remote_pid"), least=1, most=PID_MAX)
    rank, log = rank_in(fields), whole(fields.get("running_log_id"), most=SAFE_MAX)
    if pid is None:
        raise ValueError("it has no remote_pid")
    if rank is None and log is None:
        raise ValueError("it has neither a running_log_id nor a job_id with attempt and rank")
    ticks, namespace = whole(fields.get("start_ticks")), whole(fields.get("pid_namespace"), least=1)
    holds, held = fields.get("holds") is True, fields.get("held") is True
    return RunningFile(pid, rank, log, ticks, name(fields.get("boot_id")), namespace, holds, held)


def exit_in(fields: dict[str, Any]) -> Exit:
    """Return what an exit file says.

    Raises ValueError if it does not name the rank, or not exactly one of code and signal.
    """
    rank = rank_in(fields)
    code, signal = whole(fields.get("code"), most=255), whole(fields.get("signal"), least=1, most=64)
    if rank is None:
        raise ValueError("it has no job_id with attempt and rank")
    if (code is None) == (signal is None):
        raise ValueError("it must have exactly one of code and signal")
    uptime = fields.get("uptime_s")
    is_time = isinstance(uptime, (int, float)) and not isinstance(uptime, bool) and 0 <= uptime < 1e10
    held, asked = fields.get("held") is True, fields.get("asked") is True
    return Exit(rank, code, signal, uptime if is_time else None, name(fields.get("boot_id")), held, asked)


def stem_of(rank: RankIdentity) -> str:
    """Return the base name of the files of a rank: the number of its running log, or a unique hash of the rank."""
    return str(rank.log) if rank.log is not None else hashlib.sha256(repr(rank.key).encode()).hexdigest()[:16]


def rank_fields(rank: RankIdentity) -> dict[str, Any]:
    """Return the fields of a rank as both files hold them."""
    fields: dict[str, Any] = {"job_id": rank.job, "attempt": rank.attempt, "rank": rank.rank}
    if rank.epoch is not None:
        fields["epoch"] = rank.epoch
    if rank.log is not None:
        fields["running_log_id"] = rank.log
    return fields
