"""Heartbeat of an instance: the agent's report, the saved item, and which report is newer.

All times are the server's. An agent sends ages and an uptime, so its clock is never compared with the server's clock.
A missing heartbeat is not an end: a rank keeps its GPUs until its end is confirmed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from enum import StrEnum

from gpu_recovery.core.diagnosis import observations
from gpu_recovery.core.gpu_events import GpuEvent
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

RUNNING_LOG_BITS = 53
"""Bits of a running log id. JSON numbers keep 53 bits exactly in every language."""
HEARTBEAT_RANKS_MAX = 24
"""Ranks that the heartbeat of an instance holds: three times the number that may run there at a time."""
RANK_FORGET_AFTER = timedelta(hours=1)
"""Time after which a rank that has ended and is not reported any more is removed from the heartbeat."""
SENTENCE_MAX = 300
"""Characters of the sentence about GPU health that a heartbeat keeps."""
REPORTS_MAX, REPORTS_WINDOW_S = 300, 300
"""Reports accepted with one token within a window, and the window's seconds.

An agent reports every 15 s. With ranks that can be restarted in place it reports every 3 s, and each second while
they wait for their next attempt.
"""
BY_ROLE = "role"
"""Key of the count of reports that came without a token, signed with the role of their instance."""
BY_DAEMON = "daemon"
"""Key of the count of reports that the agent signed as a task of the daemon service, with the role of the task."""
AGENT_TASK_TTL = timedelta(days=30)
"""Time for which the instance of such a task is remembered after its start, or after it was last written again."""
RETRY_AFTER_MAX_S = 60
"""Upper bound in seconds of the pause that a refused agent is asked for."""
PAST_RUNS_MAX = 8
"""Largest number of replaced agents that a heartbeat saves."""
DUPLICATE_AGENT_REMINDER = timedelta(days=1)
"""Time between two notifications about two agents that keep restarting on one instance."""
BOOT_JITTER = timedelta(seconds=60)
"""Tolerance between two boot times of one boot.

Each report gives the boot time again: the time of receipt minus the report's age and the uptime.
"""


class AgentCommandKind(StrEnum):
    """Kind of a command to a node agent: about a rank, or about the GPUs of the instance."""

    SUSPEND = "suspend"
    STOP = "stop"
    HOLD = "hold"  # end the process of the rank and keep its container
    START = "start"  # start the next attempt in the container of a held rank
    RESET = "reset"  # reset the GPUs of the instance once no process uses them
    RECORD = "record"  # write who ordered the repair of the instance; about no rank


@frozen_dataclass()
class AgentCommand:
    """A command to the node agent of an instance, repeated in each response until it is withdrawn.

    job_id:      the job; "" for RESET and RECORD, which are about the instance.
    attempt:     the attempt of the job; for RESET and RECORD, the epoch of the instance.
    environment: for START, the variables of the next attempt, as pairs of name and value.
    next_attempt: for START, the attempt to start; 0 for every other kind.
    text: for RECORD, the line to write.
    """

    order_id: str
    kind: AgentCommandKind
    job_id: str
    attempt: int
    grace_s: int
    environment: tuple[tuple[str, str], ...] = ()
    next_attempt: int = 0
    text: str = ""


@frozen_dataclass()
class ReportedRecord:
    """A line about a repair that the agent has on its machine (`core/repair_record.py`).

    epoch:   the repair.
    line:    the line.
    boot_id: boot under which the agent wrote the line.
    """

    epoch: int
    line: str
    boot_id: str


@frozen_dataclass()
class RunningRank:
    """A rank with a living process, as the node agent reports it.

    attempt and epoch are 0 and None for a rank that did not get them, such as a rank that a user started.
    holds: whether the process of the rank can end without its container.
    held:  whether the process has ended so, and the container waits for the next attempt.
    activity: what the rank does (`core/rank_activity.py`), "" if it is not known.
    """

    job_id: str
    attempt: int
    rank: int
    epoch: int | None = None
    pid: int = 0
    start_ticks: int = 0
    holds: bool = False
    held: bool = False
    activity: str = ""

    @property
    def log_id(self) -> int:
        """The running log id, by which agents of GPUTasker identify this rank."""
        return running_log_id(self.job_id, self.attempt, self.rank)


@frozen_dataclass()
class RankExit:
    """A rank that ended `age_s` seconds ago, as the node agent reports it: its exit `code`, or the `signal`.

    held:  whether the container of the rank lives and waits for the next attempt.
    asked: whether the process was ended by a command of the server.
    """

    job_id: str
    attempt: int
    rank: int
    epoch: int | None = None
    code: int | None = None
    signal: int | None = None
    age_s: float = 0.0
    held: bool = False
    asked: bool = False


@frozen_dataclass()
class ReportedReset:
    """The end of a reset of the GPUs, as the node agent reports it until the next reset.

    order_id: the command that asked for the reset.
    done:     whether the GPUs were reset.
    sentence: what happened.
    """

    order_id: str
    done: bool
    sentence: str


BY_DCGM = "dcgm"
"""`ReportedXid.source` of an XID that only the DCGM watch of the ECS agent reports (`gpu-metrics.json`)."""


@frozen_dataclass()
class ReportedXid:
    """An XID in the kernel log.

    count:   log lines with this XID on this GPU within a day.
    action:  recovery action of the driver by NVML's number: 0 none, others as in `RECOVERY_ACTIONS` of `xid.py`. None
        if the driver reports none.
    bursts:  separate occurrences among those lines. None from an agent that does not count them.
    boot_id: earlier boot of the XID, "" for the present boot.
    early:   whether it was logged before the agent started.
    source:  source of an XID that the kernel log does not have, such as BY_DCGM; "" for the kernel log.
    """

    xid: int
    gpu: str = ""
    count: int = 1
    age_s: float = 0.0
    action: int | None = None
    bursts: int | None = None
    boot_id: str = ""
    early: bool = False
    source: str = ""

    @property
    def occurrences(self) -> int:
        """Number of occurrences. A cause that writes hundreds of lines within seconds occurred once."""
        return self.count if self.bursts is None else min(self.bursts, self.count)


@frozen_dataclass()
class ReportedSxid:
    """An NVSwitch error (SXid) in the kernel log. The fields are as in ReportedXid."""

    sxid: int
    fatal: bool = False
    count: int = 1
    age_s: float = 0.0
    bursts: int | None = None
    boot_id: str = ""
    early: bool = False


class GpuHealth(StrEnum):
    """GPU health that an agent reports for its instance."""

    OK = "ok"
    IMPAIRED = "impaired"
    UNKNOWN = "unknown"


@frozen_dataclass()
class ReceivedObservation:
    """An observation that a training process made `age_s` seconds ago. Its own time is not set yet (`at_s` 0).

    attempt: 0 if the process does not know its attempt.
    """

    job_id: str
    attempt: int
    age_s: float
    report: observations.Observation


@frozen_dataclass()
class AgentReport:
    """One agent report of one instance, of any protocol. A value that the protocol lacks is None or empty.

    boot_id:      boot id of the kernel, None from an agent that gives none.
    uptime_s:     seconds since the boot, when the report was made.
    sequence:     number of the report within its boot. It rises with every report.
    age_s:        seconds between the report and its delivery.
    interval_s:   seconds between two reports of this agent.
    running:      running ranks, None if the report has no ranks.
    running_logs: running log ids of ranks, as agents of GPUTasker report them.
    run:          id of this start of the agent, "" if the agent gives none.
    exits:        ranks that ended, each with its exit code or signal.
    health:       GPU health, None if the report has none; `sentence` is its reason.
    digest:       digest of the GPU inventory, "" if the agent gives none.
    utilisation:  utilisation of the GPUs (`core/gpu_utilisation.py`), "" if it is unknown.
    xids, sxids:  errors in the kernel log since the last answered report.
    inventory:    GPU inventory, None if the report has none: it is sent on a change and at intervals.
    observations: observations of training processes, for a diagnosis.
    unread:       number of observations that could not be parsed.
    lost:         number of observations that were dropped before this report.
    resets:       whether the agent is set up to reset the GPUs.
    reset:        the last reset of this boot that has ended; None if there is none.
    recorded:     the last line about a repair that the agent has written or found; None if it has no news of one.
    gpu_events:   GPU Operational Events since the last answered report (`core/gpu_events.py`).
    reads_events: whether the agent reads GPU Operational Events.
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
    utilisation: str = ""
    resets: bool = False
    reset: ReportedReset | None = None
    recorded: ReportedRecord | None = None
    gpu_events: tuple[GpuEvent, ...] = ()
    reads_events: bool = False


@frozen_dataclass()
class RankHeartbeat:
    """Time at which a rank was last seen alive. `silent`: its job received the event of the missing heartbeat."""

    job_id: str
    attempt: int
    rank: int
    seen_at: datetime
    epoch: int | None = None
    silent: bool = False


@frozen_dataclass()
class Heartbeat:
    """Heartbeat of one instance: the only item that an agent report writes.

    seen_at:      time at which the agent was last seen.
    boot_id:      boot id of the last report, "" if it gave none; `booted_at` is the time of that boot.
    sequence:     number of the newest report within that boot.
    interval_s:   seconds between two reports of the agent.
    ranks:        the latest ranks by running log id as text, at most HEARTBEAT_RANKS_MAX.
    orders:       commands to the agent by id.
    silent_since: last report before the heartbeat timed out. None while reports arrive.
    health:       GPU health that the agent last reported, None if it reported none; `sentence` is its reason.
    digest:       digest of the GPU inventory that the agent last reported.
    utilisation:  utilisation of the GPUs in the report with that health, for the console; "" if it is unknown.
    window:       number of the window of the report limit (`window_of`).
    run:          id of the start of the present agent.
    past_runs:    runs of the agents that were replaced, the latest last.
    doubled_at:   time of the last notification about two agents on the instance.
    idle_since:   first report since which every report has shown all GPUs idle. None if a GPU works, or if the agent
        does not report the utilisation.
    holds:        running log ids, as text, of running ranks whose process can end without its container.
    resets:       whether the agent is set up to reset the GPUs.
    reads_events: whether the agent reads GPU Operational Events.
    activity:     what each rank of the last report does (`core/rank_activity.py`), by running log id as text. Empty
        if the policy reads no evidence (`diagnose`).
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
    """Reports received in that window, by the id of their token, BY_ROLE or BY_DAEMON."""
    sentence: str = ""
    run: str = ""
    past_runs: tuple[str, ...] = ()
    doubled_at: datetime | None = None
    utilisation: str = ""
    idle_since: datetime | None = None
    holds: tuple[str, ...] = ()
    resets: bool = False
    reads_events: bool = False
    activity: Mapping[str, str] = field(default_factory=dict)


class ReportFreshness(StrEnum):
    """Freshness of a report against the saved heartbeat."""

    NEWEST = "NEWEST"
    OVER = "OVER"  # delayed report of an earlier boot, of no use any more
    STALE = "STALE"  # a newer report was received, of this boot or of a later boot
    ANOTHER = "ANOTHER"  # report of an agent that was replaced


def report_freshness(beat: Heartbeat, known: Heartbeat, present: bool) -> ReportFreshness:
    """Return the freshness of a report against the saved heartbeat.

    Within one boot the sequence number decides. Between two boots the boot times decide, both by the server's clock.
    A report without a boot id is the newest, unless another agent has replaced its run. A run that another agent
    replaced is ANOTHER; a report without a run is never ANOTHER.

    Args:
        beat: the heartbeat made of the report.
        known: the saved heartbeat.
        present: whether the report is recent (younger than `suspect_s` of the policy) and so proves that the agent
            is alive now.
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
    """Return the runs of the replaced agents after `beat` is saved, the latest last, at most PAST_RUNS_MAX."""
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


def ranks_to_forget(beat: Heartbeat, live: Mapping[str, int]) -> dict[str, datetime]:
    """Return the ranks to remove from a heartbeat: last seen time by running log id, the oldest first.

    These are the ranks above HEARTBEAT_RANKS_MAX, and the ranks that ended and were not reported for
    RANK_FORGET_AFTER. The age counts up to the newest report, so a silent agent makes no rank older.

    Args:
        live: the attempt of each job with a claim on the instance.
    """
    oldest = sorted(beat.ranks, key=lambda log: (beat.ranks[log].seen_at, log))
    surplus = oldest[: max(0, len(beat.ranks) - HEARTBEAT_RANKS_MAX)]
    old = [log for log in oldest if beat.seen_at - beat.ranks[log].seen_at >= RANK_FORGET_AFTER]
    ended = [log for log in old if live.get(beat.ranks[log].job_id) != beat.ranks[log].attempt]
    return {log: beat.ranks[log].seen_at for log in dict.fromkeys((*surplus, *ended))}


def window_of(at: datetime) -> int:
    """Return the number of the window in which a report at this time counts."""
    return int(at.timestamp()) // REPORTS_WINDOW_S


def retry_after_s(at: datetime) -> int:
    """Return the seconds that a refused agent must wait: until the next window, at most RETRY_AFTER_MAX_S."""
    return min(RETRY_AFTER_MAX_S, REPORTS_WINDOW_S - int(at.timestamp()) % REPORTS_WINDOW_S)


def running_log_id(job_id: str, attempt: int, rank: int) -> int:
    """Return the id of a rank's running log, different for each attempt (`running_log_id` in docs/protocol.md)."""
    name = f"{attempt_id(job_id, attempt)}/{rank}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") >> (64 - RUNNING_LOG_BITS)
