"""Case file: a diagnosis case as a JSON document with observations, workers and the time of diagnosis.

An observation has the form of the store (`observation_codec.to_json`). So an operator can export the stored
observations of an attempt, edit them and diagnose them again, also with another release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery.core.diagnosis.case import Topology, Worker
from gpu_recovery.core.diagnosis.observation_codec import EVERY_KIND, from_json
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

REPORTS_MAX, WORKERS_MAX, NAME_MAX = 50_000, 10_000, 200
"""Upper bounds: observations and workers of a case, and characters of a worker's field."""
_WORKER = {"name": str, "instance_id": str, "rack": str, "rank": int, "role": str}


class CaseInvalid(RecoveryError):
    """Error: a field of the case cannot be read. `field` is its path, `detail` the reason."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field, self.detail = field, detail


@frozen_dataclass()
class CaseFile:
    """Observations and topology of a case. `at_s` is the time of diagnosis, Unix seconds."""

    observations: tuple[Observation, ...]
    topology: Topology
    at_s: float


def read_case(document: Mapping[str, Any]) -> CaseFile:
    """Parse the case in `{"reports": [...], "workers": [...], "at_s": seconds}`.

    Without `at_s` the time of diagnosis is that of the newest observation.

    Raises:
        CaseInvalid: a field is missing, has the wrong type, or is over its bound.
    """
    listed = _list(document, "reports", REPORTS_MAX)
    reports = tuple(_report(number, entry) for number, entry in enumerate(listed))
    workers = [_worker(number, entry) for number, entry in enumerate(_list(document, "workers", WORKERS_MAX))]
    at_s = document.get("at_s")
    if at_s is None:
        at_s = max((report.at_s for report in reports), default=0.0)
    if isinstance(at_s, bool) or not isinstance(at_s, int | float) or not 0 <= at_s < 1e12:
        raise CaseInvalid("at_s", "must be Unix seconds")
    return CaseFile(reports, Topology.of(workers), float(at_s))


def _list(document: Mapping[str, Any], name: str, most: int) -> list[Any]:
    entries = document.get(name, [])
    if not isinstance(entries, list):
        raise CaseInvalid(name, "must be a list")
    if len(entries) > most:
        raise CaseInvalid(name, f"must have at most {most} entries")
    return entries


def _report(number: int, entry: Any) -> Observation:
    report = from_json(entry) if isinstance(entry, dict) else None
    if report is None:
        kinds = ", ".join(sorted(EVERY_KIND))
        raise CaseInvalid(f"reports[{number}]", f"is no report: it has a type ({kinds}), an id, at_s and its fields")
    return report


def _worker(number: int, entry: Any) -> Worker:
    where = f"workers[{number}]"
    if not isinstance(entry, dict):
        raise CaseInvalid(where, "must be an object")
    for name, value in entry.items():
        kind = _WORKER.get(name)
        if kind is None:
            raise CaseInvalid(f"{where}.{name}", f"is not known; a worker has {', '.join(_WORKER)}")
        if type(value) is not kind or len(str(value)) > NAME_MAX:
            raise CaseInvalid(f"{where}.{name}", "must be a short text" if kind is str else "must be a whole number")
    if not entry.get("name") or not entry.get("instance_id"):
        raise CaseInvalid(where, "must have a name and an instance_id")
    return Worker(**entry)
