"""The bodies of docs/protocol.md as `AgentReport`s. What is in a body is a stranger's word until it has passed here.

Nothing of a body names the instance: that is whose token it came with.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_recovery.core.diagnosis import observation_codec
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.heartbeat import AgentReport, GpuHealth, RankExit, ReportedSxid, ReportedXid, RunningRank
from gpu_recovery.core.job.adoption import JOB_ID

RUNNING_MAX, EXITS_MAX, XIDS_MAX = 8, 32, 32
LOGS_MAX, GPUS_MAX = 64, 32
"""Of the older calls' lists, whose length nobody has fixed, so many entries are read."""
SENTENCE_MAX, DIGEST_MAX, NAME_MAX = 500, 128, 100
SECONDS_MAX = 100 * 365 * 86_400
"""A hundred years: with more, no date could be made of an age."""
INTERVAL_S, INTERVAL_S_MAX = 15, 86_400
SAFE_MAX = 2**53 - 1
"""The largest whole number that every JSON reader reads as it was written."""
TICKS_MAX, PID_MAX = 2**63 - 1, 2**31 - 1
ATTEMPT_MAX, RANK_MAX = 1_000_000, 1_000_000
XID_MAX, SXID_MAX, ACTION_MAX = 100_000, 1_000_000, 5
CODE_MAX, SIGNAL_MAX = 255, 64
INVENTORY_BYTES_MAX = 262_144
"""As JSON: an item of DynamoDB holds 400 KB."""
BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RUN = re.compile(r"[0-9a-f]{8,32}")
NUMBER = re.compile(r"[+-]?[0-9]{1,16}(\.[0-9]{1,16})?")
GPU_NUMBERS = ("index", "utilization", "memory_total", "memory_used")


class ReportInvalid(RecoveryError):
    """A body that is no report. `error_code` as docs/protocol.md has it, `field` names the culprit, "" the whole."""

    def __init__(self, error_code: str, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}" if field else detail)
        self.error_code = error_code
        self.field = field
        self.detail = detail


def report(instance_id: str, body: Any) -> AgentReport:
    """The report of POST /api/v1/reports. Raises ReportInvalid."""
    read = _Object(body)
    running = [_running(one) for one in read.objects("running", RUNNING_MAX)]
    known = tuple(one for one in running if isinstance(one, RunningRank))
    by_log = tuple(one for one in running if isinstance(one, int))
    health, sentence, digest = _health(read)
    observed, unread = observation_codec.observed(instance_id, read.values.get("diagnosis"))
    return AgentReport(
        instance_id=instance_id,
        boot_id=read.match("boot_id", BOOT_ID, "a UUID", lower=True),
        uptime_s=read.seconds("uptime_s"),
        sequence=read.whole("sequence", 1, SAFE_MAX),
        age_s=read.seconds("age_s", 0.0),
        interval_s=math.ceil(read.number("interval_s", 1, INTERVAL_S_MAX, INTERVAL_S)),
        running=known if read.has("running") else None,
        running_logs=by_log or None,
        exits=tuple(_exit(one) for one in read.objects("exits", EXITS_MAX)),
        health=health,
        sentence=sentence,
        digest=digest,
        xids=tuple(_xid(one) for one in read.objects("xids", XIDS_MAX)),
        sxids=tuple(_sxid(one) for one in read.objects("sxids", XIDS_MAX)),
        run=read.match("run", RUN, "8 to 32 hexadecimal digits") if read.has("run") else "",
        inventory=_inventory(read),
        observations=observed,
        unread=unread,
        lost=observation_codec.counted(read.values.get("diagnosis_lost")),
    )


def report_of_tasks(instance_id: str, body: Mapping[str, Any]) -> AgentReport:
    """The report of POST /api/v1/report_tasks/: ranks by their running logs. Raises ReportInvalid."""
    tasks = _legacy_list(body, "tasks")
    logs = (_number(one.get("running_log_id")) for one in tasks if isinstance(one, Mapping))
    known = dict.fromkeys(int(log) for log in logs if log is not None and 0 <= log <= SAFE_MAX and log == int(log))
    return AgentReport(instance_id=instance_id, running_logs=tuple(known)[:LOGS_MAX])


def report_of_gpus(instance_id: str, body: Mapping[str, Any]) -> AgentReport:
    """The report of POST /api/v1/report_gpu/: what GPUs there are. Raises ReportInvalid.

    What runs on them is left out: command lines and names of users are not ours to keep.
    """
    gpus = [_gpu(one) for one in _legacy_list(body, "gpus") if isinstance(one, Mapping)]
    return AgentReport(instance_id=instance_id, inventory={"gpus": [one for one in gpus if "uuid" in one][:GPUS_MAX]})


class _Object:
    """A JSON object, read field by field. null is a field that is not there."""

    def __init__(self, value: Any, where: str = "") -> None:
        if not isinstance(value, Mapping):
            raise ReportInvalid("invalid_report", where, "must be an object")
        self.values, self._where = value, where

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def wrong(self, name: str, detail: str) -> ReportInvalid:
        return ReportInvalid("invalid_report", self._place(name), detail)

    def _place(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def _of(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None and default is None:
            raise self.wrong(name, "is missing")
        return default if value is None else value

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self._of(name, default)
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(name, f"must be a whole number from {low} to {high}")
        return value

    def known(self, name: str, low: int, high: int) -> int | None:
        """A whole number that need not be there."""
        return self.whole(name, low, high) if self.has(name) else None

    def flag(self, name: str) -> bool:
        value = self._of(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, "must be true or false")
        return value

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        value = self._of(name, default)
        if type(value) not in (int, float) or not low <= value <= high:  # NaN is in no order
            raise self.wrong(name, f"must be a number from {low:g} to {high:g}")
        return float(value)

    def seconds(self, name: str, default: float | None = None) -> float:
        return self.number(name, 0, SECONDS_MAX, default)

    def text(self, name: str, most: int, default: str | None = None) -> str:
        """A text on one line: it ends up in mails and logs."""
        value = self._of(name, default)
        if not isinstance(value, str) or len(value) > most:
            raise self.wrong(name, f"must be a text of at most {most} characters")
        return " ".join("".join(one if one.isprintable() else " " for one in value).split())

    def match(self, name: str, pattern: re.Pattern[str], what: str, *, lower: bool = False) -> str:
        value = self._of(name, None)
        value = value.lower() if lower and isinstance(value, str) else value
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self.wrong(name, f"must be {what}")
        return value

    def one(self, name: str) -> _Object | None:
        if not self.has(name):
            return None
        return _Object(self.values[name], self._place(name))

    def objects(self, name: str, most: int) -> list[_Object]:
        value = self._of(name, [])
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(name, f"must be a list of at most {most}")
        return [_Object(one, f"{self._place(name)}[{number}]") for number, one in enumerate(value)]


@dataclass(frozen=True, slots=True)
class _Rank:
    job_id: str
    attempt: int
    rank: int
    epoch: int | None


def _rank(read: _Object) -> _Rank:
    return _Rank(
        job_id=read.match("job", JOB_ID, "the id of a job"),
        attempt=read.whole("attempt", 0, ATTEMPT_MAX),
        rank=read.whole("rank", 0, RANK_MAX),
        epoch=read.known("epoch", 0, SAFE_MAX),
    )


def _running(read: _Object) -> RunningRank | int:
    """A rank that lives, or the number of its running log, where its file says no more."""
    log = read.known("log", 0, SAFE_MAX)
    if log is not None and not read.has("job"):
        return log
    of = _rank(read)
    return RunningRank(
        of.job_id,
        of.attempt,
        of.rank,
        of.epoch,
        pid=read.whole("pid", 1, PID_MAX),
        start_ticks=read.whole("ticks", 0, TICKS_MAX),
    )


def _exit(read: _Object) -> RankExit:
    of = _rank(read)
    code, signal = read.known("code", 0, CODE_MAX), read.known("signal", 1, SIGNAL_MAX)
    if (code is None) == (signal is None):
        raise read.wrong("code", "one of code and signal must say how the rank ended")
    return RankExit(
        of.job_id, of.attempt, of.rank, of.epoch, code=code, signal=signal, age_s=read.seconds("age_s", 0.0)
    )


def _xid(read: _Object) -> ReportedXid:
    return ReportedXid(
        xid=read.whole("xid", 1, XID_MAX),
        gpu=read.text("gpu", NAME_MAX, ""),
        count=read.whole("count", 1, SAFE_MAX, 1),
        age_s=read.seconds("age_s", 0.0),
        action=read.known("action", 0, ACTION_MAX),
        bursts=read.known("bursts", 1, SAFE_MAX),
        boot_id=_boot(read),
    )


def _sxid(read: _Object) -> ReportedSxid:
    return ReportedSxid(
        sxid=read.whole("sxid", 1, SXID_MAX),
        fatal=read.flag("fatal"),
        count=read.whole("count", 1, SAFE_MAX, 1),
        age_s=read.seconds("age_s", 0.0),
        bursts=read.known("bursts", 1, SAFE_MAX),
        boot_id=_boot(read),
    )


def _boot(read: _Object) -> str:
    """The earlier boot that an error belongs to, "" where none is named."""
    return read.match("boot", BOOT_ID, "a UUID", lower=True) if read.has("boot") else ""


def _health(read: _Object) -> tuple[GpuHealth | None, str, str]:
    said = read.one("health")
    if said is None:
        return None, "", ""
    status = said.text("status", NAME_MAX)
    if status not in tuple(GpuHealth):
        raise said.wrong("status", f"must be one of {', '.join(GpuHealth)}")
    return GpuHealth(status), said.text("sentence", SENTENCE_MAX, ""), said.text("digest", DIGEST_MAX, "")


def _inventory(read: _Object) -> Mapping[str, object] | None:
    said = read.one("inventory")
    if said is None:
        return None
    gpus = [one.values for one in said.objects("gpus", GPUS_MAX)]
    found = {"agent": said.text("agent", NAME_MAX, ""), "driver": said.text("driver", NAME_MAX, ""), "gpus": gpus}
    try:
        size = len(json.dumps(found, allow_nan=False))
    except ValueError as error:  # a number as large as 1e999 is read as an infinite one
        raise said.wrong("gpus", "holds a number that is none") from error
    if size > INVENTORY_BYTES_MAX:
        raise said.wrong("gpus", f"must be at most {INVENTORY_BYTES_MAX} bytes of JSON, with agent and driver")
    return found


def _legacy_list(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if value is None:
        raise ReportInvalid(f"missing_{name}", name, "is missing")
    if not isinstance(value, list):
        raise ReportInvalid(f"invalid_{name}", name, "must be a list")
    return value


def _gpu(said: Mapping[str, Any]) -> dict[str, object]:
    """What can be read of a GPU in the older call."""
    texts = {name: said[name] for name in ("uuid", "name") if isinstance(said.get(name), str)}
    numbers = {name: _number(said.get(name)) for name in GPU_NUMBERS}
    return {name: text for name, text in texts.items() if 0 < len(text) <= NAME_MAX} | {
        name: number for name, number in numbers.items() if number is not None
    }


def _number(value: Any) -> int | float | None:
    """A number, or a text that spells one; None for anything else."""
    if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
        value = float(value) if "." in value else int(value)
    if type(value) not in (int, float) or not abs(value) <= SAFE_MAX:  # NaN is in no order
        return None
    return int(value) if value == int(value) else float(value)
