"""A case that somebody brings along: reports as lines of JSON, the workers they speak of, and when it is judged.

A report is written as the store keeps it (`observation_codec.to_json`), so what is kept of an attempt can be taken out,
changed and judged again, also by another release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_recovery.core.diagnosis.case import Topology, Worker
from gpu_recovery.core.diagnosis.observation_codec import EVERY_KIND, from_json
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.errors import RecoveryError

REPORTS_MAX, WORKERS_MAX, NAME_MAX = 50_000, 10_000, 200
_WORKER = {"name": str, "instance_id": str, "rack": str, "rank": int, "role": str}


class CaseInvalid(RecoveryError):
    """`field` of the case cannot be read; the message says why."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field, self.detail = field, detail


@dataclass(frozen=True, slots=True)
class CaseFile:
    """The reports and who is where; `at_s`: when it is judged, Unix seconds."""

    observations: tuple[Observation, ...]
    topology: Topology
    at_s: float


def read_case(document: Mapping[str, Any]) -> CaseFile:
    """The case in `{"reports": [...], "workers": [...], "at_s": seconds}`. Raises CaseInvalid.

    Without `at_s` it is judged at the time of its last report.
    """
    listed = _list(document, "reports", REPORTS_MAX)
    reports = tuple(_report(number, one) for number, one in enumerate(listed))
    workers = [_worker(number, one) for number, one in enumerate(_list(document, "workers", WORKERS_MAX))]
    at_s = document.get("at_s")
    if at_s is None:
        at_s = max((one.at_s for one in reports), default=0.0)
    if isinstance(at_s, bool) or not isinstance(at_s, int | float) or not 0 <= at_s < 1e12:
        raise CaseInvalid("at_s", "must be Unix seconds")
    return CaseFile(reports, Topology.of(workers), float(at_s))


def _list(document: Mapping[str, Any], name: str, most: int) -> list[Any]:
    found = document.get(name, [])
    if not isinstance(found, list):
        raise CaseInvalid(name, "must be a list")
    if len(found) > most:
        raise CaseInvalid(name, f"must have at most {most} entries")
    return found


def _report(number: int, told: Any) -> Observation:
    report = from_json(told) if isinstance(told, dict) else None
    if report is None:
        kinds = ", ".join(sorted(EVERY_KIND))
        raise CaseInvalid(f"reports[{number}]", f"is no report: it has a type ({kinds}), an id, at_s and its fields")
    return report


def _worker(number: int, told: Any) -> Worker:
    where = f"workers[{number}]"
    if not isinstance(told, dict):
        raise CaseInvalid(where, "must be an object")
    for name, value in told.items():
        kind = _WORKER.get(name)
        if kind is None:
            raise CaseInvalid(f"{where}.{name}", f"is not known; a worker has {', '.join(_WORKER)}")
        if type(value) is not kind or len(str(value)) > NAME_MAX:
            raise CaseInvalid(f"{where}.{name}", "must be a short text" if kind is str else "must be a whole number")
    if not told.get("name") or not told.get("instance_id"):
        raise CaseInvalid(where, "must have a name and an instance_id")
    return Worker(**told)
