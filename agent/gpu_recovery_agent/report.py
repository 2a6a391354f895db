"""Builds the JSON body of a report from its content, as docs/protocol.md specifies. Pure.

Fields that equal their default and empty fields are left out. A report of an instance without changes stays below 1
KiB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_recovery_agent.rank.files import Exit
from gpu_recovery_agent.repair_record import WrittenLine
from gpu_recovery_agent.sensors.activity_history import Values
from gpu_recovery_agent.sensors.gpu_health import GpuHealthStatus
from gpu_recovery_agent.sensors.kernel_log import Xid
from gpu_recovery_agent.sensors.ranks import ExitFile, LiveRank
from gpu_recovery_agent.sensors.training_socket import QueuedObservation

RUNNING_MAX, EXITS_MAX, XIDS_MAX = 8, 32, 32
"""Largest number of ranks, exits and XIDs in one report."""
DEFAULT_INTERVAL_S = 15.0
"""Interval between reports that the protocol assumes, in seconds."""
TIGHT = (",", ":")


@dataclass(frozen=True)
class ReportContent:
    """The content of one report.

    `inventory` is None where it is not wanted; `uuids` are the UUIDs of the GPUs by address. `diagnosis` holds
    observations of training processes; `diagnosis_lost` is the number of observations that were lost before they
    reached the agent's report. `utilization` is that of each GPU in percent, empty where NVML is not read.
    `reset` is how the last reset of the GPUs ended; None if the agent resets none. `recorded` is the line about a
    repair of this machine that the server does not know to be there. `gpu_events` are GPU Operational Events, in the
    form of the protocol; None if none can be read. `activity` holds the values of each rank whose activity is known
    (`sensors/activity_history.py`).
    """

    boot_id: str
    running: Sequence[LiveRank] = ()
    exits: Sequence[ExitFile] = ()
    xids: Sequence[Xid] = ()
    health: GpuHealthStatus | None = None
    digest: str = ""
    inventory: dict[str, Any] | None = None
    uuids: Mapping[str, str] = field(default_factory=dict)
    diagnosis: Sequence[QueuedObservation] = ()
    diagnosis_lost: int = 0
    utilization: Sequence[int | None] = ()
    reset: dict[str, Any] | None = None
    recorded: WrittenLine | None = None
    gpu_events: tuple[dict[str, Any], ...] | None = None
    activity: Mapping[LiveRank, Values] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """Return a text that is equal for two reports with the same content, regardless of when they were made."""
        return repr(
            (
                [(live.pid, live.ticks, live.rank, live.held) for live in self.running],
                [ended.signature for ended in self.exits],
                [(xid.key, xid.at_s) for xid in self.xids],
                self.health and self.health.status,
                self.digest,
                self.inventory is not None,
                self.reset,
                [observation.number for observation in self.diagnosis],
                self.recorded,
                self.gpu_events,
            )
        )


def body(
    facts: ReportContent, *, sequence: int, uptime_s: float, kernel_log_s: float, interval_s: float, run: str = ""
) -> dict[str, Any]:
    """Return the report as JSON values.

    It is built again for every attempt to send it, so it has no age of its own. Each entry about an earlier event has
    an age.

    Args:
        facts: the content.
        sequence: the sequence number.
        uptime_s: seconds since the boot.
        kernel_log_s: the current time of the kernel log in seconds.
        interval_s: seconds between reports.
        run: the random name of this run of the agent.
    """
    report: dict[str, Any] = {"boot_id": facts.boot_id, "uptime_s": round(uptime_s, 1), "sequence": sequence}
    if run:
        report["run"] = run
    if interval_s != DEFAULT_INTERVAL_S:
        report["interval_s"] = max(round(interval_s, 1), 1.0)  # the smallest value of the protocol
    report["running"] = [_running(live, facts.activity.get(live)) for live in facts.running[:RUNNING_MAX]]
    if facts.exits:
        report["exits"] = [_exit(ended.exit, facts.boot_id, uptime_s) for ended in facts.exits[:EXITS_MAX]]
    if facts.health is not None:
        sentence = {"sentence": facts.health.sentence} if facts.health.sentence else {}
        digest = {"digest": facts.digest} if facts.digest else {}
        utilization = {"utilization": list(facts.utilization)} if facts.utilization else {}
        report["health"] = {"status": facts.health.status, **sentence, **digest, **utilization}
    logged = [(error, _age_s(error, uptime_s, kernel_log_s)) for error in facts.xids[:XIDS_MAX]]
    if xids := [_xid(error, facts.uuids, age_s) for error, age_s in logged if error.fatal is None]:
        report["xids"] = xids
    if sxids := [_sxid(error, age_s) for error, age_s in logged if error.fatal is not None]:
        report["sxids"] = sxids
    if facts.inventory is not None:
        report["inventory"] = facts.inventory
    if facts.reset is not None:
        report["reset"] = facts.reset
    if facts.diagnosis:
        report["diagnosis"] = [observation.to_json(uptime_s) for observation in facts.diagnosis]
    if facts.recorded is not None:
        line = facts.recorded
        report["recorded"] = {"epoch": line.epoch, "text": line.text, "boot": line.boot_id}
    if facts.gpu_events is not None:
        report["gpu_events"] = list(facts.gpu_events)
    if facts.diagnosis_lost:
        report["diagnosis_lost"] = facts.diagnosis_lost
    return report


def encoded(report: dict[str, Any]) -> bytes:
    """Return the bytes of a report in UTF-8, where names in other scripts are shorter than as escapes."""
    return json.dumps(report, separators=TIGHT, ensure_ascii=False).encode("utf-8", errors="replace")


def _running(live: LiveRank, activity: Values | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if live.rank is not None:
        fields |= {"job": live.rank.job, "attempt": live.rank.attempt, "rank": live.rank.rank}
        if live.rank.epoch is not None:
            fields["epoch"] = live.rank.epoch
    fields |= {"pid": live.pid, "ticks": live.ticks}
    fields |= ({"holds": True} if live.holds else {}) | ({"held": True} if live.held else {})
    fields |= {"activity": activity} if activity is not None else {}
    # The number of the running log derives from job, attempt and rank: beside them it is redundant.
    return fields | ({"log": live.log} if live.rank is None and live.log is not None else {})


def _exit(ended: Exit, boot_id: str, uptime_s: float) -> dict[str, Any]:
    rank = ended.rank
    fields: dict[str, Any] = {"job": rank.job, "attempt": rank.attempt, "rank": rank.rank}
    if rank.epoch is not None:
        fields["epoch"] = rank.epoch
    fields |= {"code": ended.code} if ended.code is not None else {"signal": ended.signal}
    fields |= ({"held": True} if ended.held else {}) | ({"asked": True} if ended.asked else {})
    # A rank that ended under an earlier boot ended at least as long ago as the current boot began.
    same_boot = ended.boot_id == boot_id and ended.uptime_s is not None
    ended_at = (ended.uptime_s or 0.0) if same_boot else 0.0
    return {**fields, "age_s": round(max(uptime_s - ended_at, 0.0), 1)}


def _age_s(error: Xid, uptime_s: float, kernel_log_s: float) -> float:
    """Return the age of an error. An error of an earlier boot is at least as old as the current boot."""
    return round(uptime_s if error.boot_id else max(kernel_log_s - error.at_s, 0.0), 1)


def _xid(error: Xid, uuids: Mapping[str, str], age_s: float) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "xid": error.xid,
        "gpu": uuids.get(error.gpu, error.gpu),
        "count": error.count,
        "age_s": age_s,
    }
    return fields | ({"action": error.action} if error.action is not None else {}) | _rest(error)


def _sxid(error: Xid, age_s: float) -> dict[str, Any]:
    return {"sxid": error.xid, "fatal": bool(error.fatal), "count": error.count, "age_s": age_s} | _rest(error)


def _rest(error: Xid) -> dict[str, Any]:
    bursts = {"bursts": error.bursts} if error.bursts not in (0, error.count) else {}
    marks = ({"early": True} if error.early else {}) | ({"by": error.source} if error.source else {})
    return bursts | ({"boot": error.boot_id} if error.boot_id else {}) | marks
