"""Heartbeats: what an instance says of itself, what is kept of that, and what its silence means.

The times in here are the server's. An agent sends ages and an uptime, so its clock is never compared with ours.
Silence is no end: whoever is not heard of keeps its GPUs until an end is confirmed (seed 000, part 3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from gpu_recovery.core.diagnosis import observations
from gpu_recovery.core.identifiers import attempt_id

RUNNING_LOG_BITS = 53
"""What a number may have to survive JSON in every language."""
HEARTBEAT_RANKS_MAX = 24
"""Ranks that one instance's heartbeat remembers: three times what may run there at once."""
REPORTS_MAX, REPORTS_WINDOW_S = 120, 300
"""So many reports with one token are heard within a window: six times what an instance sends when all is well."""
BY_ROLE = "role"
"""What the reports are counted under that came with no token, but signed with the role of their instance."""
RETRY_AFTER_MAX_S = 60
PAST_RUNS_MAX = 8
"""Agents of one instance that another took the place of: so many are known again."""
DUPLICATE_AGENT_REMINDER = timedelta(days=1)
"""Two agents that keep starting anew are told to operators once in this time."""
BOOT_JITTER = timedelta(seconds=60)
"""The time of one boot is reckoned anew from each report: its receipt less the uptime."""


class AgentCommandKind(StrEnum):
    """What an agent may be told to do to a rank."""

    SUSPEND = "suspend"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """An order to the agent of an instance, repeated with each answer until it is withdrawn."""

    order_id: str
    kind: AgentCommandKind
    job_id: str
    attempt: int
    grace_s: int


@dataclass(frozen=True, slots=True)
class RunningRank:
    """A rank whose process lives, as its instance reports it.

    attempt: 0 and epoch: None where the rank was not told, as one that a person started is not.
    """

    job_id: str
    attempt: int
    rank: int
    epoch: int | None = None
    pid: int = 0
    start_ticks: int = 0

    @property
    def log_id(self) -> int:
        """The number by which agents of seed 000 know this rank."""
        return running_log_id(self.job_id, self.attempt, self.rank)


@dataclass(frozen=True, slots=True)
class RankExit:
    """A rank that has ended, as its instance reports it: `code`, or the `signal` that ended it. `age_s` ago."""

    job_id: str
    attempt: int
    rank: int
    epoch: int | None = None
    code: int | None = None
    signal: int | None = None
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReportedXid:
    """An XID in the kernel's log. `count` is how often within a day on that GPU, `action` what the driver asks for
    with it (0 none, 1 GPU reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 reset of the bus), None if it says
    nothing. `bursts` is how many occurrences those are, None of an agent that does not tell them apart; `boot_id` the
    earlier boot that it belongs to, "" if it is of this one."""

    xid: int
    gpu: str = ""
    count: int = 1
    age_s: float = 0.0
    action: int | None = None
    bursts: int | None = None
    boot_id: str = ""

    @property
    def occurrences(self) -> int:
        """How often it has happened: a cause that writes hundreds of lines within seconds has happened once."""
        return self.count if self.bursts is None else min(self.bursts, self.count)


@dataclass(frozen=True, slots=True)
class ReportedSxid:
    """An error of an NVSwitch in the kernel's log; as ReportedXid."""

    sxid: int
    fatal: bool = False
    count: int = 1
    age_s: float = 0.0
    bursts: int | None = None
    boot_id: str = ""


class GpuHealth(StrEnum):
    """What an agent says of the GPUs of its instance."""

    OK = "ok"
    IMPAIRED = "impaired"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ReceivedObservation:
    """What a process of a training has observed, `age_s` ago: the report is of no time yet (`at_s` 0).

    attempt: 0 where the process was not told one.
    """

    job_id: str
    attempt: int
    age_s: float
    report: observations.Observation


@dataclass(frozen=True, slots=True)
class AgentReport:
    """One report of one instance, of any protocol. What a protocol does not say is None or empty.

    run:      which start of the agent it is of, "" of one that does not say.
    running:  None where the report does not speak of ranks.
    running_logs: ranks by their running log's number alone, as agents of seed 000 report them.
    observed: what trainings there tell for a diagnosis; unread: how many such reports cannot be read.
    lost:     how many of them did not get as far as this report.
    """

    instance_id: str
    boot_id: str | None = None
    uptime_s: float | None = None
    sequence: int | None = None
    age_s: float = 0.0
    interval_s: int = 0
    running: tuple[RunningRank, ...] | None = None
    running_logs: tuple[int, ...] | None = None
    exits: tuple[RankExit, ...] = ()
    health: GpuHealth | None = None
    sentence: str = ""
    digest: str = ""
    xids: tuple[ReportedXid, ...] = ()
    sxids: tuple[ReportedSxid, ...] = ()
    run: str = ""
    inventory: Mapping[str, object] | None = None
    observations: tuple[ReceivedObservation, ...] = ()
    unread: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class RankHeartbeat:
    """When a rank was last seen to live on its instance. `silent`: its job has been told that it is not any more."""

    job_id: str
    attempt: int
    rank: int
    seen_at: datetime
    epoch: int | None = None
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The heartbeat of one instance: the one item that a report writes.

    ranks:   by running log, as text. The latest HEARTBEAT_RANKS_MAX.
    orders:  by id.
    silent_since: when it was last heard of before it was told to be silent; None while it is heard.
    run:     the agent that is heard, by its start; past_runs those whose place it took, the latest last.
    doubled_at: when operators were last told that two agents speak for the instance.
    """

    instance_id: str
    seen_at: datetime
    boot_id: str = ""
    booted_at: datetime | None = None
    sequence: int = 0
    interval_s: int = 0
    ranks: Mapping[str, RankHeartbeat] = field(default_factory=dict)
    orders: Mapping[str, AgentCommand] = field(default_factory=dict)
    silent_since: datetime | None = None
    health: GpuHealth | None = None
    digest: str = ""
    window: int = 0
    heard: Mapping[str, int] = field(default_factory=dict)
    """How many reports were heard in that window, by the id of the token that they came with, or BY_ROLE."""
    run: str = ""
    past_runs: tuple[str, ...] = ()
    doubled_at: datetime | None = None


class ReportFreshness(StrEnum):
    """What a report is beside what was heard before."""

    NEWEST = "NEWEST"
    OVER = "OVER"  # kept back while its boot was on, and of no use any more
    STALE = "STALE"  # a newer one was heard, of this boot or of a later one
    ANOTHER = "ANOTHER"  # of an agent whose place another took


def report_freshness(beat: Heartbeat, known: Heartbeat, present: bool) -> ReportFreshness:
    """How a report stands to the heartbeat that is known. `present`: it is a sign of life, and not kept back.

    Within one boot the sequence decides, and between two the boots' times, both by the server's clock. An agent that
    tells no boot is as new as its report. Of two agents in step the one that was heard of later is the newer; who
    tells no run is nobody in particular.
    """
    if (
        present
        and beat.run
        and beat.run in known.past_runs
        and _freshness_by_boot(beat, known, present) is ReportFreshness.NEWEST
    ):
        return ReportFreshness.ANOTHER
    return _freshness_by_boot(beat, known, present)


def past_runs(beat: Heartbeat, known: Heartbeat) -> tuple[str, ...]:
    """The agents whose place was taken, once `beat` is kept."""
    if not beat.run or not known.run or known.run == beat.run:
        return known.past_runs
    return (*known.past_runs, known.run)[-PAST_RUNS_MAX:]


def _freshness_by_boot(beat: Heartbeat, known: Heartbeat, present: bool) -> ReportFreshness:
    if not beat.boot_id:
        return ReportFreshness.NEWEST
    if known.boot_id == beat.boot_id:
        return ReportFreshness.STALE if known.sequence > beat.sequence else ReportFreshness.NEWEST
    if not present:
        return ReportFreshness.OVER
    if known.booted_at is None or beat.booted_at is None or known.booted_at <= beat.booted_at + BOOT_JITTER:
        return ReportFreshness.NEWEST
    return ReportFreshness.STALE


def ranks_to_forget(beat: Heartbeat) -> dict[str, datetime]:
    """The ranks to be forgotten, by running log, with when they were last seen: the longest unseen first."""
    oldest = sorted(beat.ranks, key=lambda one: (beat.ranks[one].seen_at, one))
    return {log: beat.ranks[log].seen_at for log in oldest[: max(0, len(beat.ranks) - HEARTBEAT_RANKS_MAX)]}


def window_of(at: datetime) -> int:
    """The number of the window that reports at this time are counted in."""
    return int(at.timestamp()) // REPORTS_WINDOW_S


def retry_after_s(at: datetime) -> int:
    """How long whoever has reported too often must wait: for the next window, but not for ever."""
    return min(RETRY_AFTER_MAX_S, REPORTS_WINDOW_S - int(at.timestamp()) % REPORTS_WINDOW_S)


def running_log_id(job_id: str, attempt: int, rank: int) -> int:
    """The number of a rank's running log, different for each attempt: what seed 000 calls `running_log_id`."""
    name = f"{attempt_id(job_id, attempt)}/{rank}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") >> (64 - RUNNING_LOG_BITS)
