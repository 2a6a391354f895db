"""Parser of agent reports: request bodies (docs/protocol.md) to `AgentReport`s. Checks untrusted fields.

A body does not name its instance. The instance is the holder of the token.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from gpu_recovery.core.diagnosis import observation_codec
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.gpu_events import EVENTS_MAX, MODULE_CHARACTERS_MAX, GpuEvent
from gpu_recovery.core.gpu_utilisation import utilisation_text
from gpu_recovery.core.heartbeat import (
    AgentReport,
    GpuHealth,
    RankExit,
    ReportedRecord,
    ReportedReset,
    ReportedSxid,
    ReportedXid,
    RunningRank,
)
from gpu_recovery.core.job.adoption import JOB_ID
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.rank_activity import activity_text

RUNNING_MAX, EXITS_MAX, XIDS_MAX = 8, 32, 32
"""Entries of the lists in a report at most."""
GPUS_MAX = 32
"""GPUs that are read of the list in the older call. The protocol does not limit its length."""
SENTENCE_MAX, DIGEST_MAX, NAME_MAX = 500, 128, 100
"""Lengths of texts in characters at most."""
SECONDS_MAX = 100 * 365 * 86_400
"""A hundred years: a larger age would exceed the range of dates."""
INTERVAL_S, INTERVAL_S_MAX = 15, 86_400
"""Seconds between reports: the default and the largest value."""
SAFE_MAX = 2**53 - 1
"""The largest whole number that every JSON parser reads exactly."""
TICKS_MAX, PID_MAX = 2**63 - 1, 2**31 - 1
ATTEMPT_MAX, RANK_MAX = 1_000_000, 1_000_000
XID_MAX, SXID_MAX, ACTION_MAX = 100_000, 1_000_000, 2**32 - 1
CODE_MAX, SIGNAL_MAX = 255, 64
GPU_EVENT_MAX = 2**32 - 1
INVENTORY_BYTES_MAX = 262_144
"""Size limit of an inventory as JSON: a DynamoDB item holds 400 KB."""
BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RUN = re.compile(r"[0-9a-f]{8,32}")
"""The form of the id of an agent's start."""
NUMBER = re.compile(r"[+-]?[0-9]{1,16}(\.[0-9]{1,16})?")
GPU_NUMBERS = ("index", "utilization", "memory_total", "memory_used")


class ReportInvalid(RecoveryError):
    """A malformed report.

    error_code: as in docs/protocol.md.
    field:      the malformed field; "" for the whole body.
    """

    def __init__(self, error_code: str, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}" if field else detail)
        self.error_code = error_code
        self.field = field
        self.detail = detail


def parse_report(instance_id: str, body: Any) -> AgentReport:
    """Parse the body of POST /api/v1/reports.

    Raises:
        ReportInvalid: a field is malformed.
    """
    read = _Object(body)
    running = [_running(entry) for entry in read.objects("running", RUNNING_MAX)]
    known = tuple(rank for rank in running if isinstance(rank, RunningRank))
    by_log = tuple(log for log in running if isinstance(log, int))
    health, sentence, digest, utilisation = _health(read)
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
        exits=tuple(_exit(entry) for entry in read.objects("exits", EXITS_MAX)),
        health=health,
        sentence=sentence,
        digest=digest,
        xids=tuple(_xid(entry) for entry in read.objects("xids", XIDS_MAX)),
        sxids=tuple(_sxid(entry) for entry in read.objects("sxids", XIDS_MAX)),
        run=read.match("run", RUN, "8 to 32 hexadecimal digits") if read.has("run") else "",
        inventory=_inventory(read),
        observations=observed,
        unread=unread,
        lost=observation_codec.counted(read.values.get("diagnosis_lost")),
        utilisation=utilisation,
        resets=read.has("reset"),
        reset=_reset(read),
        recorded=_recorded(read),
        gpu_events=_gpu_events(read),
        reads_events=read.has("gpu_events"),
    )


def parse_task_report(instance_id: str, body: Mapping[str, Any]) -> AgentReport:
    """Parse the body of POST /api/v1/report_tasks/: the ranks by their running logs.

    Every log is returned. The lookup knows which of them are ranks of the instance, so the limit is applied there.

    Raises:
        ReportInvalid: `tasks` is missing or is not a list.
    """
    tasks = _legacy_list(body, "tasks")
    logs = (_number(task.get("running_log_id")) for task in tasks if isinstance(task, Mapping))
    known = dict.fromkeys(int(log) for log in logs if log is not None and 0 <= log <= SAFE_MAX and log == int(log))
    return AgentReport(instance_id=instance_id, running_logs=tuple(known))


def parse_gpu_report(instance_id: str, body: Mapping[str, Any]) -> AgentReport:
    """Parse the body of POST /api/v1/report_gpu/: the GPU inventory.

    Processes on the GPUs are left out: command lines and user names must not be stored.

    Raises:
        ReportInvalid: `gpus` is missing or is not a list.
    """
    gpus = [_gpu(gpu) for gpu in _legacy_list(body, "gpus") if isinstance(gpu, Mapping)]
    return AgentReport(instance_id=instance_id, inventory={"gpus": [gpu for gpu in gpus if "uuid" in gpu][:GPUS_MAX]})


class _Object:
    """A JSON object that is read field by field. null counts as a missing field."""

    def __init__(self, value: Any, place: str = "") -> None:
        if not isinstance(value, Mapping):
            raise ReportInvalid("invalid_report", place, "must be an object")
        self.values, self._path = value, place

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def invalid(self, name: str, detail: str) -> ReportInvalid:
        return ReportInvalid("invalid_report", self._place(name), detail)

    def _place(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _required(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None and default is None:
            raise self.invalid(name, "is missing")
        return default if value is None else value

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self._required(name, default)
        if type(value) is not int or not low <= value <= high:
            raise self.invalid(name, f"must be a whole number from {low} to {high}")
        return value

    def optional_whole(self, name: str, low: int, high: int) -> int | None:
        """Return an optional whole number; None if the field is missing."""
        return self.whole(name, low, high) if self.has(name) else None

    def flag(self, name: str) -> bool:
        value = self._required(name, False)
        if not isinstance(value, bool):
            raise self.invalid(name, "must be true or false")
        return value

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        value = self._required(name, default)
        if type(value) not in (int, float) or not low <= value <= high:  # a comparison with NaN is false
            raise self.invalid(name, f"must be a number from {low:g} to {high:g}")
        return float(value)

    def seconds(self, name: str, default: float | None = None) -> float:
        return self.number(name, 0, SECONDS_MAX, default)

    def text(self, name: str, most: int, default: str | None = None) -> str:
        """Return a text as a single line, because it is shown in e-mails and logs."""
        value = self._required(name, default)
        if not isinstance(value, str) or len(value) > most:
            raise self.invalid(name, f"must be a text of at most {most} characters")
        return " ".join("".join(character if character.isprintable() else " " for character in value).split())

    def match(self, name: str, pattern: re.Pattern[str], what: str, *, lower: bool = False) -> str:
        value = self._required(name, None)
        value = value.lower() if lower and isinstance(value, str) else value
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self.invalid(name, f"must be {what}")
        return value

    def child(self, name: str) -> _Object | None:
        if not self.has(name):
            return None
        return _Object(self.values[name], self._place(name))

    def objects(self, name: str, most: int) -> list[_Object]:
        value = self._required(name, [])
        if not isinstance(value, list) or len(value) > most:
            raise self.invalid(name, f"must be a list of at most {most}")
        return [_Object(entry, f"{self._place(name)}[{number}]") for number, entry in enumerate(value)]


@frozen_dataclass()
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
        epoch=read.optional_whole("epoch", 0, SAFE_MAX),
    )


def _running(read: _Object) -> RunningRank | int:
    """Return a running rank, or the number of its running log if the rank's file says no more."""
    log = read.optional_whole("log", 0, SAFE_MAX)
    if log is not None and not read.has("job"):
        return log
    rank = _rank(read)
    return RunningRank(
        rank.job_id,
        rank.attempt,
        rank.rank,
        rank.epoch,
        pid=read.whole("pid", 1, PID_MAX),
        start_ticks=read.whole("ticks", 0, TICKS_MAX),
        holds=read.flag("holds"),
        held=read.flag("held"),
        activity=activity_text(read.values.get("activity")),
    )


def _exit(read: _Object) -> RankExit:
    rank = _rank(read)
    code, signal = read.optional_whole("code", 0, CODE_MAX), read.optional_whole("signal", 1, SIGNAL_MAX)
    if (code is None) == (signal is None):
        raise read.invalid("code", "exactly one of code and signal must be given")
    return RankExit(
        rank.job_id,
        rank.attempt,
        rank.rank,
        rank.epoch,
        code=code,
        signal=signal,
        age_s=read.seconds("age_s", 0.0),
        held=read.flag("held"),
        asked=read.flag("asked"),
    )


def _reset(read: _Object) -> ReportedReset | None:
    """Return the reset that has ended; None if the agent is only set up for resets, or is not."""
    reset = read.child("reset")
    if reset is None or not reset.has("order"):
        return None
    return ReportedReset(reset.text("order", NAME_MAX), reset.flag("done"), reset.text("sentence", SENTENCE_MAX, ""))


def _xid(read: _Object) -> ReportedXid:
    return ReportedXid(
        xid=read.whole("xid", 1, XID_MAX),
        gpu=read.text("gpu", NAME_MAX, ""),
        count=read.whole("count", 1, SAFE_MAX, 1),
        age_s=read.seconds("age_s", 0.0),
        action=read.optional_whole("action", 0, ACTION_MAX),
        bursts=read.optional_whole("bursts", 1, SAFE_MAX),
        boot_id=_boot(read),
        early=read.flag("early"),
        source=read.text("by", NAME_MAX, ""),
    )


def _sxid(read: _Object) -> ReportedSxid:
    return ReportedSxid(
        sxid=read.whole("sxid", 1, SXID_MAX),
        fatal=read.flag("fatal"),
        count=read.whole("count", 1, SAFE_MAX, 1),
        age_s=read.seconds("age_s", 0.0),
        bursts=read.optional_whole("bursts", 1, SAFE_MAX),
        boot_id=_boot(read),
        early=read.flag("early"),
    )


def _gpu_events(read: _Object) -> tuple[GpuEvent, ...]:
    """Return the GPU Operational Events. A malformed list counts as empty: the events decide nothing."""
    try:
        return tuple(_gpu_event(entry) for entry in read.objects("gpu_events", EVENTS_MAX))
    except ReportInvalid:
        return ()


def _gpu_event(read: _Object) -> GpuEvent:
    return GpuEvent(
        gpu=read.text("gpu", NAME_MAX, ""),
        module=read.text("module", MODULE_CHARACTERS_MAX),
        code=read.whole("code", 0, GPU_EVENT_MAX),
        category=read.whole("category", 0, GPU_EVENT_MAX),
        severity=read.whole("severity", 0, GPU_EVENT_MAX),
        attributes=read.whole("attributes", 0, GPU_EVENT_MAX, 0),
        group_attributes=read.whole("group_attributes", 0, GPU_EVENT_MAX, 0),
        xid=read.optional_whole("xid", 1, XID_MAX),
    )


def _recorded(read: _Object) -> ReportedRecord | None:
    """Return the line about a repair that the machine has; None if the report names none."""
    recorded = read.child("recorded")
    if recorded is None:
        return None
    boot_id = recorded.match("boot", BOOT_ID, "a UUID", lower=True)
    return ReportedRecord(recorded.whole("epoch", 0, SAFE_MAX), recorded.text("text", SENTENCE_MAX), boot_id)


def _boot(read: _Object) -> str:
    """Return the earlier boot that an error belongs to; "" if none is named."""
    return read.match("boot", BOOT_ID, "a UUID", lower=True) if read.has("boot") else ""


def _health(read: _Object) -> tuple[GpuHealth | None, str, str, str]:
    """Return status, sentence, digest and utilisation. A malformed utilisation counts as unknown: it is only shown."""
    health = read.child("health")
    if health is None:
        return None, "", "", ""
    status = health.text("status", NAME_MAX)
    if status not in tuple(GpuHealth):
        raise health.invalid("status", f"must be one of {', '.join(GpuHealth)}")
    sentence, digest = health.text("sentence", SENTENCE_MAX, ""), health.text("digest", DIGEST_MAX, "")
    return GpuHealth(status), sentence, digest, utilisation_text(health.values.get("utilization"))


def _inventory(read: _Object) -> Mapping[str, object] | None:
    inventory = read.child("inventory")
    if inventory is None:
        return None
    gpus = [gpu.values for gpu in inventory.objects("gpus", GPUS_MAX)]
    fields = {
        "agent": inventory.text("agent", NAME_MAX, ""),
        "driver": inventory.text("driver", NAME_MAX, ""),
        "gpus": gpus,
    }
    try:
        size = len(json.dumps(fields, allow_nan=False))
    except ValueError as error:  # a number as large as 1e999 is read as infinity
        raise inventory.invalid("gpus", "holds a value that is not a finite number") from error
    if size > INVENTORY_BYTES_MAX:
        raise inventory.invalid("gpus", f"must be at most {INVENTORY_BYTES_MAX} bytes of JSON, with agent and driver")
    return fields


def _legacy_list(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if value is None:
        raise ReportInvalid(f"missing_{name}", name, "is missing")
    if not isinstance(value, list):
        raise ReportInvalid(f"invalid_{name}", name, "must be a list")
    return value


def _gpu(gpu: Mapping[str, Any]) -> dict[str, object]:
    """Return the readable fields of a GPU in the older call."""
    texts = {name: gpu[name] for name in ("uuid", "name") if isinstance(gpu.get(name), str)}
    numbers = {name: _number(gpu.get(name)) for name in GPU_NUMBERS}
    return {name: text for name, text in texts.items() if 0 < len(text) <= NAME_MAX} | {
        name: number for name, number in numbers.items() if number is not None
    }


def _number(value: Any) -> int | float | None:
    """Return a number, or the number that a text spells; None for other values."""
    if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
        value = float(value) if "." in value else int(value)
    if type(value) not in (int, float) or not abs(value) <= SAFE_MAX:  # a comparison with NaN is false
        return None
    return int(value) if value == int(value) else float(value)
