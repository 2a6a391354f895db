"""The files of a rank: `<running log id>.json` says who runs, `<running log id>.exit.json` how it ended.

The first has the form of seed 000, whose numbers may be texts, and our own fields beside it. Whatever is in a file may
have been written by anybody who may write to the folder: it is read as a claim, and compared with /proc.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_JOB = re.compile(r"[A-Za-z0-9_/-]{1,120}")
EXIT_SUFFIX = ".exit.json"
REFUSED_SUFFIX = ".exit.refused"
NAME_MAX = 128
NUMBER_MAX = 2**63 - 1
SAFE_MAX = 2**53 - 1
ATTEMPT_MAX, RANK_MAX, PID_MAX = 1_000_000, 1_000_000, 2**31 - 1
"""The bounds of docs/protocol.md and of the API behind it: one rank beyond them would spoil the whole report."""


@dataclass(frozen=True)
class RankIdentity:
    """One rank of one attempt; `epoch` and `log` (the running log's number) where they are known."""

    job: str
    attempt: int
    rank: int
    epoch: int | None = None
    log: int | None = None

    @property
    def key(self) -> tuple[str, int, int, int | None]:
        return self.job, self.attempt, self.rank, self.epoch


@dataclass(frozen=True)
class RunningFile:
    """What a file says of a process. `rank` is None in a file of GPUTasker, which has only `log`.

    `pid` counts in the namespace `pid_namespace` (an inode of nsfs, None if it is not told), `ticks` are clock ticks
    since the boot `boot_id`.
    """

    pid: int
    rank: RankIdentity | None
    log: int | None
    ticks: int | None
    boot_id: str | None
    pid_namespace: int | None


@dataclass(frozen=True)
class Exit:
    """How a rank ended: `code` or `signal`. `uptime_s` is when, by the clock of the boot `boot_id`."""

    rank: RankIdentity
    code: int | None
    signal: int | None
    uptime_s: float | None
    boot_id: str | None


def whole(value: Any, *, least: int = 0, most: int = NUMBER_MAX) -> int | None:
    """A whole number, also when it is written as text; None for anything else."""
    if isinstance(value, str):
        digits = value.strip()
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most else None


def name(value: Any) -> str | None:
    """A name of at most NAME_MAX printable characters."""
    return value if isinstance(value, str) and 0 < len(value) <= NAME_MAX and value.isprintable() else None


def job_name(value: Any) -> str | None:
    """The id of a job, as the API admits it."""
    return value if isinstance(value, str) and _JOB.fullmatch(value) else None


def rank_in(found: dict[str, Any]) -> RankIdentity | None:
    """The rank that a file, or an environment in its words, names."""
    job, attempt = job_name(found.get("job_id")), whole(found.get("attempt"), most=ATTEMPT_MAX)
    rank = whole(found.get("rank"), most=RANK_MAX)
    if job is None or attempt is None or rank is None:
        return None
    epoch, log = whole(found.get("epoch"), most=SAFE_MAX), whole(found.get("running_log_id"), most=SAFE_MAX)
    return RankIdentity(job, attempt, rank, epoch, log)


def rank_of(environment: Mapping[str, str], rank: str | None) -> RankIdentity | None:
    """The rank that an environment names; its number is given, since launchers overwrite RANK in what they start.

    A task that a person started was told no attempt: it is 0, and the server knows which that is.
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


def running_in(found: dict[str, Any]) -> RunningFile:
    """What a running file claims. Raises ValueError where it names no process, or nothing to report it by."""
    pid = whole(found.get("remote_pid"), least=1, most=PID_MAX)
    rank, log = rank_in(found), whole(found.get("running_log_id"), most=SAFE_MAX)
    if pid is None:
        raise ValueError("it has no remote_pid")
    if rank is None and log is None:
        raise ValueError("it has neither a running_log_id nor a job_id with attempt and rank")
    ticks, namespace = whole(found.get("start_ticks")), whole(found.get("pid_namespace"), least=1)
    return RunningFile(pid, rank, log, ticks, name(found.get("boot_id")), namespace)


def exit_in(found: dict[str, Any]) -> Exit:
    """What an exit file tells. Raises ValueError where it does not say whose end it was, or which."""
    rank = rank_in(found)
    code, signal = whole(found.get("code"), most=255), whole(found.get("signal"), least=1, most=64)
    if rank is None:
        raise ValueError("it has no job_id with attempt and rank")
    if (code is None) == (signal is None):
        raise ValueError("it has not exactly one of code and signal")
    uptime = found.get("uptime_s")
    is_time = isinstance(uptime, int | float) and not isinstance(uptime, bool) and 0 <= uptime < 1e10
    return Exit(rank, code, signal, uptime if is_time else None, name(found.get("boot_id")))


def rank_fields(rank: RankIdentity) -> dict[str, Any]:
    """A rank as both files write it."""
    fields: dict[str, Any] = {"job_id": rank.job, "attempt": rank.attempt, "rank": rank.rank}
    if rank.epoch is not None:
        fields["epoch"] = rank.epoch
    if rank.log is not None:
        fields["running_log_id"] = rank.log
    return fields
