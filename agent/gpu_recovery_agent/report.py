"""From facts to the body of a report, as docs/protocol.md has it. Pure.

What equals its default is left out, and so is everything that has nothing to say: a report of an instance where nothing
changes stays below 1 KiB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_recovery_agent.rank.files import Exit
from gpu_recovery_agent.sensors.gpu_health import GpuHealthStatus
from gpu_recovery_agent.sensors.kernel_log import Xid
from gpu_recovery_agent.sensors.ranks import ExitFile, LiveRank
from gpu_recovery_agent.sensors.training_socket import QueuedObservation

RUNNING_MAX, EXITS_MAX, XIDS_MAX = 8, 32, 32
DEFAULT_INTERVAL_S = 15.0
TIGHT = (",", ":")


@dataclass(frozen=True)
class ReportContent:
    """What one report tells. `inventory` is None where it is not wanted; `uuids` are GPUs by their address.

    `diagnosis` is what trainings tell, of which about `diagnosis_lost` did not come this far.
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

    @property
    def mark(self) -> str:
        """Equal for two reports that tell the same, whenever they are made."""
        return repr(
            (
                [(live.pid, live.ticks, live.rank) for live in self.running],
                [one.signature for one in self.exits],
                [(one.key, one.at_s) for one in self.xids],
                self.health and self.health.status,
                self.digest,
                self.inventory is not None,
                [one.number for one in self.diagnosis],
            )
        )


def body(
    facts: ReportContent, *, sequence: int, uptime_s: float, kernel_log_s: float, interval_s: float, run: str = ""
) -> dict[str, Any]:
    """The report as JSON values. `kernel_log_s` is now, by the clock of the kernel's log; `run` names the agent.

    It is made anew for every attempt to send it, so it has no age of its own: what it tells of earlier has one each.
    """
    found: dict[str, Any] = {"boot_id": facts.boot_id, "uptime_s": round(uptime_s, 1), "sequence": sequence}
    if run:
        found["run"] = run
    if interval_s != DEFAULT_INTERVAL_S:
        found["interval_s"] = max(round(interval_s, 1), 1.0)  # the least that the protocol knows
    found["running"] = [_running(live) for live in facts.running[:RUNNING_MAX]]
    if facts.exits:
        found["exits"] = [_exit(one.exit, facts.boot_id, uptime_s) for one in facts.exits[:EXITS_MAX]]
    if facts.health is not None:
        sentence = {"sentence": facts.health.sentence} if facts.health.sentence else {}
        digest = {"digest": facts.digest} if facts.digest else {}
        found["health"] = {"status": facts.health.status, **sentence, **digest}
    logged = [(one, _age_s(one, uptime_s, kernel_log_s)) for one in facts.xids[:XIDS_MAX]]
    if xids := [_xid(one, facts.uuids, age_s) for one, age_s in logged if one.fatal is None]:
        found["xids"] = xids
    if sxids := [_sxid(one, age_s) for one, age_s in logged if one.fatal is not None]:
        found["sxids"] = sxids
    if facts.inventory is not None:
        found["inventory"] = facts.inventory
    if facts.diagnosis:
        found["diagnosis"] = [one.to_json(uptime_s) for one in facts.diagnosis]
    if facts.diagnosis_lost:
        found["diagnosis_lost"] = facts.diagnosis_lost
    return found


def encoded(report: dict[str, Any]) -> bytes:
    """The bytes that travel: a name in another script is shorter in UTF-8 than in escapes."""
    return json.dumps(report, separators=TIGHT, ensure_ascii=False).encode("utf-8", errors="replace")


def _running(live: LiveRank) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if live.rank is not None:
        found |= {"job": live.rank.job, "attempt": live.rank.attempt, "rank": live.rank.rank}
        if live.rank.epoch is not None:
            found["epoch"] = live.rank.epoch
    found |= {"pid": live.pid, "ticks": live.ticks}
    # The running log's number is made of job, attempt and rank: beside them it would only cost bytes.
    return found | ({"log": live.log} if live.rank is None and live.log is not None else {})


def _exit(one: Exit, boot_id: str, uptime_s: float) -> dict[str, Any]:
    rank = one.rank
    found: dict[str, Any] = {"job": rank.job, "attempt": rank.attempt, "rank": rank.rank}
    if rank.epoch is not None:
        found["epoch"] = rank.epoch
    found |= {"code": one.code} if one.code is not None else {"signal": one.signal}
    # What ended under an earlier boot ended at least as long ago as this one began.
    same_boot = one.boot_id == boot_id and one.uptime_s is not None
    ended_at = (one.uptime_s or 0.0) if same_boot else 0.0
    return {**found, "age_s": round(max(uptime_s - ended_at, 0.0), 1)}


def _age_s(one: Xid, uptime_s: float, kernel_log_s: float) -> float:
    """What was logged under an earlier boot was logged at least as long ago as this one began."""
    return round(uptime_s if one.boot_id else max(kernel_log_s - one.at_s, 0.0), 1)


def _xid(one: Xid, uuids: Mapping[str, str], age_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {"xid": one.xid, "gpu": uuids.get(one.gpu, one.gpu), "count": one.count, "age_s": age_s}
    return found | ({"action": one.action} if one.action is not None else {}) | _rest(one)


def _sxid(one: Xid, age_s: float) -> dict[str, Any]:
    return {"sxid": one.xid, "fatal": bool(one.fatal), "count": one.count, "age_s": age_s} | _rest(one)


def _rest(one: Xid) -> dict[str, Any]:
    bursts = {"bursts": one.bursts} if one.bursts not in (0, one.count) else {}
    return bursts | ({"boot": one.boot_id} if one.boot_id else {})
