"""What processes of a training tell for a diagnosis: JSON of docs/protocol.md, and the reports of `core.diagnosis`.

No such report makes a heartbeat invalid: one that cannot be read is left out and counted, the others count. What is
known of every field comes from the dataclasses themselves, so that a new field travels as soon as it is there.
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

from gpu_recovery.core.diagnosis import observations
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.heartbeat import ReceivedObservation
from gpu_recovery.core.job.adoption import JOB_ID
from gpu_recovery.core.redaction import masked

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
}
"""What a process may tell. How a rank ended, what the kernel logged, who is silent: that is known without it."""
EVERY_KIND: Mapping[str, type[Observation]] = {
    **KINDS,
    "log": observations.LogFinding,
    "exit": observations.ExitReport,
    "xid": observations.XidReport,
    "silent": observations.SilenceReport,
    "pair": observations.PairReport,
    "probe": observations.ProbeReport,
}
"""What a case may hold that somebody brings along."""
NAMES = {kind: name for name, kind in EVERY_KIND.items()}
REPORTS_MAX, BYTES_MAX = 64, 16_384
"""Of one heartbeat, the newest; as the JSON that travels, without its spaces."""
ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
TEXT_MAX, LINE_MAX, LIST_MAX = 200, 1_000, 32
LINES = frozenset({"line", "lines", "error"})
NUMBER_MAX = 1e15
SAFE_MAX = 2**53 - 1
SECONDS_MAX = 100 * 365 * 86_400
ATTEMPT_MAX = RANK_MAX = 1_000_000
_OURS = frozenset({"report_id", "at_s", "instance_id"})
"""What a process does not say of itself: it is said by whom it comes through, and when."""
_NOT_THERE = object()


class _Unreadable(ValueError):
    """A report that is none."""


def observed(instance_id: str, told: Any) -> tuple[tuple[ReceivedObservation, ...], int]:
    """The reports in the `diagnosis` of a heartbeat of that instance, and how many were left out. Never raises."""
    entries = told if isinstance(told, list) else [] if told is None else [told]
    found: list[ReceivedObservation] = []
    room = BYTES_MAX
    for one in reversed(entries[-REPORTS_MAX:]):
        try:
            read = _observed(instance_id, one)
        except _Unreadable:
            continue
        room -= _bytes(one)
        if room < 0:
            break
        found.append(read)
    return tuple(reversed(found)), len(entries) - len(found)


def counted(value: Any) -> int:
    """How many reports a node says that it has lost; 0 for what is no such number."""
    return value if type(value) is int and 0 <= value <= SAFE_MAX else 0


def to_json(report: Observation) -> dict[str, Any]:
    """A report as it is kept: `type`, `id`, `at_s`, `instance`, and every field that is not what it is by default."""
    known: Any = report
    found: dict[str, Any] = {"type": NAMES[type(report)], "id": report.report_id, "at_s": round(report.at_s, 3)}
    if report.instance_id:
        found["instance"] = report.instance_id
    for one in fields(known):
        value = getattr(report, one.name)
        if one.name not in _OURS and (one.default is MISSING or value != one.default):
            found[one.name] = [_plain(each) for each in value] if isinstance(value, tuple) else value
    return found


def from_json(kept: Any) -> Observation | None:
    """The report that was kept; None for one of a kind, or in a form, that this release does not know."""
    try:
        report = _report(kept, str(kept["id"])[:TEXT_MAX], str(kept.get("instance", ""))[:TEXT_MAX], EVERY_KIND)
        return replace(report, at_s=_number(kept["at_s"], float))
    except (_Unreadable, KeyError, TypeError, AttributeError):
        return None


def size(report: Observation) -> int:
    """Its bytes as they are kept."""
    return _bytes(to_json(report))


def _bytes(values: Any) -> int:
    return len(json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))


def _observed(instance_id: str, told: Any) -> ReceivedObservation:
    if not isinstance(told, Mapping):
        raise _Unreadable("it is no object")
    name, job_id, attempt = told.get("id"), told.get("job"), told.get("attempt")
    if not isinstance(name, str) or not ID.fullmatch(name):
        raise _Unreadable("id")
    if not isinstance(job_id, str) or not JOB_ID.fullmatch(job_id):
        raise _Unreadable("job")
    if type(attempt) is not int or not 0 <= attempt <= ATTEMPT_MAX:
        raise _Unreadable("attempt")
    age_s = _number(0 if told.get("age_s") is None else told["age_s"], float)
    if not 0 <= age_s <= SECONDS_MAX:
        raise _Unreadable("age_s")
    elsewhere = told.get("elsewhere") is True  # it speaks of a worker of another instance, which the topology knows
    report = _report(told, f"{instance_id}/{name}", "" if elsewhere else instance_id)
    return ReceivedObservation(job_id, attempt, float(age_s), report)


def _report(
    told: Mapping[str, Any], report_id: str, instance_id: str, kinds: Mapping[str, type[Observation]] = KINDS
) -> Observation:
    kind: Any = kinds.get(told["type"]) if isinstance(told.get("type"), str) else None
    if kind is None:
        raise _Unreadable("type")
    values = {name: _value(hint, name, told.get(name)) for name, hint in _hints(kind).items() if name not in _OURS}
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not _NOT_THERE}
    if given.get("rank") is not None and not 0 <= given["rank"] <= RANK_MAX:
        raise _Unreadable("rank")
    made: Observation = _made(kind, {**given, "report_id": report_id, "at_s": 0.0, "instance_id": instance_id})
    return made


def _made(kind: Any, given: Mapping[str, Any]) -> Any:
    if any(one.default is MISSING and given.get(one.name, "") == "" for one in fields(kind)):
        raise _Unreadable("what it cannot be without is missing")
    return kind(**given)


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _value(hint: Any, name: str, value: Any) -> Any:
    """The value of a field; null is a field that is not there."""
    if value is None:
        return _NOT_THERE
    if isinstance(hint, types.UnionType):
        (hint,) = (one for one in typing.get_args(hint) if one is not type(None))
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
    return masked(_line(value, LINE_MAX)) if name in LINES else _line(value, TEXT_MAX)


def _plain(value: Any) -> Any:
    return {one.name: getattr(value, one.name) for one in fields(value)} if is_dataclass(value) else value


def _several(kind: Any, name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) > LIST_MAX:
        raise _Unreadable(name)
    if not is_dataclass(kind):
        return tuple(_value(kind, name, one) for one in value if one is not None)
    if not all(isinstance(one, Mapping) for one in value):
        raise _Unreadable(name)
    record: Any = kind
    hints = _hints(record)
    read = [{field: _value(hint, field, one.get(field)) for field, hint in hints.items()} for one in value]
    return tuple(_made(kind, {key: each for key, each in one.items() if each is not _NOT_THERE}) for one in read)


def _number(value: Any, kind: type) -> Any:
    if type(value) is int:
        if abs(value) > SAFE_MAX:
            raise _Unreadable("a number is too large")
        return kind(value)
    if kind is int or type(value) is not float or not math.isfinite(value) or abs(value) > NUMBER_MAX:
        raise _Unreadable("it is no number")
    return value


def _line(value: str, most: int) -> str:
    """A text on one line, cut to what may be kept: it ends up in mails."""
    return " ".join("".join(one if one.isprintable() else " " for one in value[: 2 * most]).split())[:most]
