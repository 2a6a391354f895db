"""Codec of diagnosis observations: JSON of docs/protocol.md and of the store, to and from the dataclasses.

An unreadable observation does not make a heartbeat invalid. It is left out and counted, and the others are read. The
codec takes all fields from the dataclasses, so a new field needs no change here.
"""

from __future__ import annotations

import json
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

from gpu_recovery.core.diagnosis import observations, rank_ranges
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.heartbeat import ReceivedObservation
from gpu_recovery.core.job.adoption import JOB_ID

KINDS: Mapping[str, type[Observation]] = {
    "stage": observations.StageReport,
    "weight_sync": observations.WeightSyncReport,
    "progress": observations.ProgressReport,
    "call": observations.CallTiming,
    "rpc": observations.RpcReport,
    "health": observations.WorkerHealth,
    "request": observations.RequestReport,
    "event": observations.EventReport,
    "lock": observations.LockReport,
    "nccl": observations.NcclReport,
    "flight": observations.FlightReport,
    "written": observations.Written,
    "timeouts": observations.TimeoutsReport,
    "preflight": observations.PreflightReport,
}
"""Kinds that a process of a job may send. Exits, XIDs and missing heartbeats come from other sources."""
EVERY_KIND: Mapping[str, type[Observation]] = {
    **KINDS,
    "log": observations.LogFinding,
    "exit": observations.ExitReport,
    "xid": observations.XidReport,
    "silent": observations.SilenceReport,
    "restart": observations.RestartReport,
    "idle_check": observations.IdleCheckReport,
    "pair": observations.PairReport,
    "probe": observations.ProbeReport,
}
"""Kinds that the store and a case file may hold."""
NAMES = {kind: name for name, kind in EVERY_KIND.items()}
"""Name of each kind, by its class."""
REPORTS_MAX, BYTES_MAX = 64, 16_384
"""Upper bounds of the observations in one heartbeat, the newest first, and of their bytes as JSON without spaces."""
ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
TEXT_MAX, LINE_MAX, LIST_MAX = 200, 1_000, 32
MEMBERS_MAX = 1_024
"""Upper bound of the ranks in a list `members`. Larger groups have `member_ranges`."""
RANGES = frozenset({"member_ranges", "sends_to", "receives_from"})
"""Fields that hold ranges of ranks. An invalid or too long text counts as unknown: a cut text would be wrong."""
LINES = frozenset({"line", "lines", "error"})
"""Fields that hold log lines or errors. They may be longer than other texts, and secrets in them are masked."""
NUMBER_MAX = 1e15
SAFE_MAX = 2**53 - 1
SECONDS_MAX = 100 * 365 * 86_400
ATTEMPT_MAX = RANK_MAX = 1_000_000
_SET_BY_RECEIVER = frozenset({"report_id", "at_s", "instance_id"})
"""Fields that the receiver sets. A process cannot set its own id, time or instance."""
_ABSENT = object()
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class _Unreadable(ValueError):
    """Error: the value is no valid observation."""


def observed(instance_id: str, value: Any) -> tuple[tuple[ReceivedObservation, ...], int]:
    """Parse the `diagnosis` field of a heartbeat of this instance. Never raises.

    Returns:
        The readable observations in their order, and the number of entries that were left out.
    """
    entries = value if isinstance(value, list) else [] if value is None else [value]
    readable: list[ReceivedObservation] = []
    bytes_left = BYTES_MAX
    for entry in reversed(entries[-REPORTS_MAX:]):
        try:
            observation = _observed(instance_id, entry)
        except _Unreadable:
            continue
        bytes_left -= _bytes(entry)
        if bytes_left < 0:
            break
        readable.append(observation)
    return tuple(reversed(readable)), len(entries) - len(readable)


def counted(value: Any) -> int:
    """Number of observations that a node agent has dropped. An invalid number counts as 0."""
    return value if type(value) is int and 0 <= value <= SAFE_MAX else 0


def to_json(report: Observation) -> dict[str, Any]:
    """JSON form of an observation in the store.

    It holds `type`, `id`, `at_s`, `instance`, and every field that differs from its default.
    """
    kind: Any = type(report)
    document: dict[str, Any] = {"type": NAMES[kind], "id": report.report_id, "at_s": round(report.at_s, 3)}
    if report.instance_id:
        document["instance"] = report.instance_id
    for name, default in _sent_fields(kind):
        value = getattr(report, name)
        if default is MISSING or value != default:
            document[name] = [_plain(entry) for entry in value] if isinstance(value, tuple) else value
    return document


def from_json(document: Any) -> Observation | None:
    """Observation from its JSON form in the store; None if this release does not know its kind or its form."""
    try:
        report = _report(
            document, str(document["id"])[:TEXT_MAX], str(document.get("instance", ""))[:TEXT_MAX], EVERY_KIND
        )
        return replace(report, at_s=_number(document["at_s"], float))
    except (_Unreadable, KeyError, TypeError, AttributeError):
        return None


def size(report: Observation) -> int:
    """Bytes of the observation in its stored form."""
    return _bytes(to_json(report))


def _bytes(values: Any) -> int:
    return len(_ENCODER.encode(values).encode(errors="replace"))


def _observed(instance_id: str, entry: Any) -> ReceivedObservation:
    if not isinstance(entry, Mapping):
        raise _Unreadable("it is not an object")
    name, job_id, attempt = entry.get("id"), entry.get("job"), entry.get("attempt")
    if not isinstance(name, str) or not ID.fullmatch(name):
        raise _Unreadable("id")
    if not isinstance(job_id, str) or not JOB_ID.fullmatch(job_id):
        raise _Unreadable("job")
    if type(attempt) is not int or not 0 <= attempt <= ATTEMPT_MAX:
        raise _Unreadable("attempt")
    age_s = _number(0 if entry.get("age_s") is None else entry["age_s"], float)
    if not 0 <= age_s <= SECONDS_MAX:
        raise _Unreadable("age_s")
    elsewhere = entry.get("elsewhere") is True  # about a worker of another instance; the topology knows which
    report = _report(entry, f"{instance_id}/{name}", "" if elsewhere else instance_id)
    return ReceivedObservation(job_id, attempt, float(age_s), report)


def _report(
    entry: Mapping[str, Any], report_id: str, instance_id: str, kinds: Mapping[str, type[Observation]] = KINDS
) -> Observation:
    kind: Any = kinds.get(entry["type"]) if isinstance(entry.get("type"), str) else None
    if kind is None:
        raise _Unreadable("type")
    values = {
        name: _value(hint, name, entry.get(name)) for name, hint in _hints(kind).items() if name not in _SET_BY_RECEIVER
    }
    present: dict[str, Any] = {name: value for name, value in values.items() if value is not _ABSENT}
    if present.get("rank") is not None and not 0 <= present["rank"] <= RANK_MAX:
        raise _Unreadable("rank")
    report: Observation = _made(kind, {**present, "report_id": report_id, "at_s": 0.0, "instance_id": instance_id})
    return report


def _made(kind: Any, values: Mapping[str, Any]) -> Any:
    if any(field.default is MISSING and values.get(field.name, "") == "" for field in fields(kind)):
        raise _Unreadable("a required field is missing")
    return kind(**values)


@cache
def _sent_fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Name and default of each field that a process sends."""
    return tuple((field.name, field.default) for field in fields(kind) if field.name not in _SET_BY_RECEIVER)


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _value(hint: Any, name: str, value: Any) -> Any:
    """Value of a field, checked against its type. Null means that the field is absent."""
    if value is None:
        return _ABSENT
    if isinstance(hint, types.UnionType):
        (hint,) = (alternative for alternative in typing.get_args(hint) if alternative is not type(None))
    if typing.get_origin(hint) is tuple:
        return _several(typing.get_args(hint)[0], name, value)
    if hint is bool:
        if not isinstance(value, bool):
            raise _Unreadable(name)
        return value
    if hint in (int, float):
        return _number(value, hint)
    if not isinstance(value, str):
        raise _Unreadable(name)
    if issubclass(hint, StrEnum):
        if value not in tuple(hint):
            raise _Unreadable(name)
        return hint(value)
    if name in RANGES:
        return _ABSENT if rank_ranges.parsed(value) is None else value
    if name not in LINES:
        return _line(value, TEXT_MAX)
    from gpu_recovery.core.redaction import masked  # noqa: PLC0415 - few events read observations

    return masked(_line(value, LINE_MAX))


def _plain(value: Any) -> Any:
    return {field.name: getattr(value, field.name) for field in fields(value)} if is_dataclass(value) else value


def _several(kind: Any, name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) > (MEMBERS_MAX if name == "members" else LIST_MAX):
        raise _Unreadable(name)
    if not is_dataclass(kind):
        return tuple(_value(kind, name, entry) for entry in value if entry is not None)
    if not all(isinstance(entry, Mapping) for entry in value):
        raise _Unreadable(name)
    record: Any = kind
    hints = _hints(record)
    read = [{field: _value(hint, field, entry.get(field)) for field, hint in hints.items()} for entry in value]
    return tuple(_made(kind, {key: item for key, item in values.items() if item is not _ABSENT}) for values in read)


def _number(value: Any, kind: type) -> Any:
    if type(value) is int:
        if abs(value) > SAFE_MAX:
            raise _Unreadable("a number is too large")
        return kind(value)
    if kind is int or type(value) is not float or not math.isfinite(value) or abs(value) > NUMBER_MAX:
        raise _Unreadable("it is not a number")
    return value


def _line(value: str, most: int) -> str:
    """The text on one line, cut to `most` characters. Such texts are quoted in e-mails."""
    return " ".join("".join(char if char.isprintable() else " " for char in value[: 2 * most]).split())[:most]
