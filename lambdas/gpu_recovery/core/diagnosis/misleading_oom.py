"""Misleading GPU out-of-memory errors: a missing hand-over, or memory that another role holds.

Row 46 of the fault catalogue, docs/diagnosis.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.cuda_errors import LINE_MAX, CudaError, cuda_error
from gpu_recovery.core.diagnosis.event_delivery import (
    EVENTS,
    ORDER,
    EventProgress,
    event_progress,
    is_confirmed,
    target,
)
from gpu_recovery.core.diagnosis.gpu_memory_holders import HeldMemory, memory_held_by_others, occupancies, role_of
from gpu_recovery.core.diagnosis.observations import EventReport, LogFinding, Observation, RpcReport, StageReport
from gpu_recovery.core.diagnosis.taxonomy import Scope
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

Oom = StageReport | LogFinding | RpcReport
"""Observations that may hold an out-of-memory error of a GPU."""
OOM = "cuda_oom"
"""Kind of a log line (`core.logs`) that reports a GPU out of memory."""
OK, OUT_OF_MEMORY = 200, 520
"""HTTP status of success, and the status for a GPU out of memory that row 32 proposes."""
ACK_SLACK_S = 1.0
"""Tolerance, in seconds, between the times of two reporters.

An OOM that is at most this much older than the next observation of an event counts as later than that observation. Both
times are computed from ages, so they are not exact to the second.
"""
FOR_EVER_S = float("inf")
"""End of the period of an event that is still open, in Unix seconds."""
NO_EVIDENCE = frozenset({"advice", "conditional"})
"""Roles of log lines that describe a possibility and no fact."""
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]{1,12}) ([GM])iB")
_CAPACITY = re.compile(r"total capacity of ([\d.]{1,12}) ([GM])iB")


def is_answered(call: RpcReport) -> bool:
    """Whether a worker answered the call with an error."""
    return call.status not in (None, OK)


def is_out_of_memory(call: RpcReport) -> bool:
    """Whether the call failed for lack of GPU memory, by the status of row 32 or by the text of its error."""
    text = call.error.lower()
    return call.status == OUT_OF_MEMORY or ("out of memory" in text and "cuda" in text) or "outofmemoryerror" in text


def ooms(case: Case) -> Iterator[Oom]:
    """Every out-of-memory error of a GPU in the case."""
    for stage in case.all(StageReport):
        if stage.error and cuda_error(stage.error) is CudaError.MEMORY:
            yield stage
    for line in case.all(LogFinding):
        if line.kind == OOM and line.role not in NO_EVIDENCE:
            yield line
    for call in case.all(RpcReport):
        if is_answered(call) and is_out_of_memory(call):
            yield call


@frozen_dataclass()
class Explained:
    """An OOM with its real cause.

    course: an event that was not acknowledged.
    held: memory that another role holds.
    """

    oom: Oom
    course: EventProgress | None = None
    held: HeldMemory | None = None

    @property
    def evidence(self) -> tuple[str, ...]:
        """Report ids of the observations that explain the OOM, without the OOM itself."""
        held = (self.held.report.report_id,) if self.held else ()
        return (*(self.course.evidence if self.course else ()), *held)


@frozen_dataclass()
class _Open:
    """An event that was sent and not acknowledged, from `from_s` until before `to_s`, Unix seconds.

    rank: order of the open events. The event with the least delivery progress explains an OOM best.
    """

    from_s: float
    to_s: float
    event: str
    rank: tuple[int, str]
    course: EventProgress


def _open_times(case: Case) -> Iterator[_Open]:
    """Times in which each event was open. A newer event of the same name to the same target replaces it."""
    replaced_s: dict[tuple[str, str], float] = {}
    for course in sorted(
        case.computed_once(event_progress).values(),
        key=lambda progress: (-progress.reports[0].at_s, progress.last.request_id),
    ):
        key, sent_s = (course.last.event, course.last.worker), course.reports[0].at_s
        end_s, reports = replaced_s.get(key, FOR_EVER_S), course.reports
        replaced_s[key] = sent_s
        for index, report in enumerate(reports):
            so_far = EventProgress(reports[: index + 1])
            if is_confirmed(so_far):
                break
            next_s = reports[index + 1].at_s - ACK_SLACK_S if index + 1 < len(reports) else FOR_EVER_S
            from_s = sent_s if index == 0 else max(sent_s, report.at_s - ACK_SLACK_S)
            if from_s < min(next_s, end_s):
                rank = (ORDER[so_far.reached], report.request_id)
                yield _Open(from_s, min(next_s, end_s), report.event, rank, so_far)


class Explanations:
    """Index of the case that finds the explanation of an OOM. It is built once for a case.

    An event explains an OOM on the instance of its target. An event with an unknown target explains an OOM on any
    instance that has no event of that name.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._at: dict[Scope, list[_Open]] = {}
        self._own: set[tuple[Scope, str]] = set()
        self._anywhere: list[_Open] = []
        for event in case.all(EventReport):
            self._own.add((target(case, event), event.event))
        for open_event in _open_times(case):
            self._at.setdefault(target(case, open_event.course.last), []).append(open_event)
            if open_event.course.last.worker not in case.topology.workers:
                self._anywhere.append(open_event)
        self._occupied: dict[Scope, list[StageReport]] = {}
        for (place, _), reports in case.computed_once(occupancies).items():
            self._occupied.setdefault(place, []).extend(reports)

    def of(self, oom: Oom) -> Explained | None:
        """Explanation of the OOM; None without an explanation, or if it asked for more memory than the GPU has."""
        if _wants_too_much(oom.line if isinstance(oom, LogFinding) else oom.error):
            return None
        place = self._case.scope_of(oom)
        held_on = self._latest_occupancy(oom, place)
        turn = role_of(self._case, oom) or (role_of(self._case, held_on) if held_on else "")
        course = self._unacknowledged(oom, place, turn)
        held = memory_held_by_others(self._case, held_on, turn) if held_on else None
        return Explained(oom, course, held) if course or held else None

    def _latest_occupancy(self, oom: Observation, place: Scope) -> StageReport | None:
        gpu = oom.gpu if isinstance(oom, StageReport) else ""
        seen = [
            report
            for report in self._occupied.get(place, [])
            if report.at_s <= oom.at_s and (not gpu or not report.gpu or report.gpu == gpu)
        ]
        return max(seen, key=lambda report: (report.at_s, report.report_id), default=None)

    def _unacknowledged(self, oom: Observation, place: Scope, turn: str) -> EventProgress | None:
        """Open event, of those that hand the GPU to the role `turn`, with the least delivery progress."""
        wanted = [event for event in EVENTS if not turn or event == f"{turn}_start" or _ends_another(event, turn)]
        has_own = any((place, event) in self._own for event in wanted)
        open_events = self._at.get(place, ()) if has_own else self._anywhere
        candidates = [
            open_event
            for open_event in open_events
            if open_event.from_s <= oom.at_s < open_event.to_s and open_event.event in wanted
        ]
        first = min(candidates, key=lambda open_event: open_event.rank, default=None)
        return first.course if first else None


def _ends_another(event: str, turn: str) -> bool:
    return event.endswith("_end") and not event.startswith(turn)


def _wants_too_much(line: str) -> bool:
    """Whether the OOM asked for more than the capacity of the GPU. Then no other process is the cause."""
    asked, capacity = _ASKED.search(line[:LINE_MAX]), _CAPACITY.search(line[:LINE_MAX])
    return bool(asked and capacity) and _mib(asked) > _mib(capacity)


def _mib(amount: re.Match[str] | None) -> float:
    if amount is None or amount.group(1).count(".") > 1 or amount.group(1) == ".":
        return 0.0
    return float(amount.group(1)) * (1_024.0 if amount.group(2) == "G" else 1.0)


def explained_ooms(case: Case) -> Mapping[str, Explained]:
    """Explained OOMs, by report id.

    After an OOM without an explanation, later OOMs at the same place and turn count as unexplained. Each place and
    turn is examined apart.
    """
    explanations = Explanations(case)
    unexplained: set[tuple[Scope, str]] = set()
    by_report: dict[str, Explained] = {}
    for oom in sorted(ooms(case), key=lambda oom: (oom.at_s, oom.report_id)):
        explained, key = explanations.of(oom), (case.scope_of(oom), role_of(case, oom))
        if explained is None:
            unexplained.add(key)
        elif key not in unexplained:
            by_report[oom.report_id] = explained
    return by_report
