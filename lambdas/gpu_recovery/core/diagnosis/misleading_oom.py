"""When an OOM does not mean what it says (row 46): it was not that one's turn, or the other still held the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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

Oom = StageReport | LogFinding | RpcReport
OOM = "cuda_oom"
"""The kind of a log's line (`core.logs`) that says it."""
OK, OUT_OF_MEMORY = 200, 520
"""Of HTTP, and what row 32 proposes."""
ACK_SLACK_S = 1.0
"""An acknowledgement that comes with the OOM came before it: two reporters, two ages."""
FOR_EVER_S = float("inf")
NO_EVIDENCE = frozenset({"advice", "conditional"})
"""Roles of lines that say what might be, not what was."""
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]{1,12}) ([GM])iB")
_CAPACITY = re.compile(r"total capacity of ([\d.]{1,12}) ([GM])iB")


def is_answered(call: RpcReport) -> bool:
    """Whether a worker answered it with an error."""
    return call.status not in (None, OK)


def is_out_of_memory(call: RpcReport) -> bool:
    """Whether a call failed for the memory of a GPU: by row 32's proposed code, or by its error's words."""
    text = call.error.lower()
    return call.status == OUT_OF_MEMORY or ("out of memory" in text and "cuda" in text) or "outofmemoryerror" in text


def ooms(case: Case) -> Iterator[Oom]:
    """Every report of a GPU's memory that did not suffice."""
    for stage in case.all(StageReport):
        if stage.error and cuda_error(stage.error) is CudaError.MEMORY:
            yield stage
    for line in case.all(LogFinding):
        if line.kind == OOM and line.role not in NO_EVIDENCE:
            yield line
    for call in case.all(RpcReport):
        if is_answered(call) and is_out_of_memory(call):
            yield call


@dataclass(frozen=True)
class Explained:
    """What an OOM comes from instead: a notice that was not acknowledged, or memory that the other still holds."""

    oom: Oom
    course: EventProgress | None = None
    held: HeldMemory | None = None

    @property
    def evidence(self) -> tuple[str, ...]:
        """The ids of the reports that explain it, without its own."""
        held = (self.held.report.report_id,) if self.held else ()
        return (*(self.course.evidence if self.course else ()), *held)


@dataclass(frozen=True)
class _Open:
    """A notice that was sent and not acknowledged from `from_s` on, until before `to_s`: as far as it had come.

    rank: the one that came the least far explains the most.
    """

    from_s: float
    to_s: float
    event: str
    rank: tuple[int, str]
    course: EventProgress


def _open_times(case: Case) -> Iterator[_Open]:
    """When each notice stood open: a newer one of the same name to the same target replaces it."""
    replaced_s: dict[tuple[str, str], float] = {}
    for course in sorted(
        case.computed_once(event_progress).values(), key=lambda one: (-one.reports[0].at_s, one.last.request_id)
    ):
        key, sent_s = (course.last.event, course.last.worker), course.reports[0].at_s
        end_s, reports = replaced_s.get(key, FOR_EVER_S), course.reports
        replaced_s[key] = sent_s
        for n, one in enumerate(reports):
            so_far = EventProgress(reports[: n + 1])
            if is_confirmed(so_far):
                break
            next_s = reports[n + 1].at_s - ACK_SLACK_S if n + 1 < len(reports) else FOR_EVER_S
            from_s = sent_s if n == 0 else max(sent_s, one.at_s - ACK_SLACK_S)
            if from_s < min(next_s, end_s):
                rank = (ORDER[so_far.reached], one.request_id)
                yield _Open(from_s, min(next_s, end_s), one.event, rank, so_far)


class Explanations:
    """Looks up what explains an OOM. Built once for a case, then asked for each OOM of it.

    A notice explains an OOM of its target's machine; one whose target nobody knows explains any machine's that has no
    notice of its own.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._at: dict[Scope, list[_Open]] = {}
        self._own: set[tuple[Scope, str]] = set()
        self._anywhere: list[_Open] = []
        for event in case.all(EventReport):
            self._own.add((target(case, event), event.event))
        for one in _open_times(case):
            self._at.setdefault(target(case, one.course.last), []).append(one)
            if one.course.last.worker not in case.topology.workers:
                self._anywhere.append(one)
        self._occupied: dict[Scope, list[StageReport]] = {}
        for (place, _), reports in case.computed_once(occupancies).items():
            self._occupied.setdefault(place, []).extend(reports)

    def of(self, oom: Oom) -> Explained | None:
        """What explains it; None if nothing does, or if it asked for more than the GPU has at all."""
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
            one
            for one in self._occupied.get(place, [])
            if one.at_s <= oom.at_s and (not gpu or not one.gpu or one.gpu == gpu)
        ]
        return max(seen, key=lambda one: (one.at_s, one.report_id), default=None)

    def _unacknowledged(self, oom: Observation, place: Scope, turn: str) -> EventProgress | None:
        """Of the open notices of a hand-over to whose turn it is, the one that came the least far."""
        wanted = [event for event in EVENTS if not turn or event == f"{turn}_start" or _ends_another(event, turn)]
        has_own = any((place, event) in self._own for event in wanted)
        notices = self._at.get(place, ()) if has_own else self._anywhere
        standing = [one for one in notices if one.from_s <= oom.at_s < one.to_s and one.event in wanted]
        found = min(standing, key=lambda one: one.rank, default=None)
        return found.course if found else None


def _ends_another(event: str, turn: str) -> bool:
    return event.endswith("_end") and not event.startswith(turn)


def _wants_too_much(line: str) -> bool:
    """Whether it asked for more than the whole GPU has: then nobody else is to blame."""
    asked, capacity = _ASKED.search(line[:LINE_MAX]), _CAPACITY.search(line[:LINE_MAX])
    return bool(asked and capacity) and _mib(asked) > _mib(capacity)


def _mib(found: re.Match[str] | None) -> float:
    if found is None or found.group(1).count(".") > 1 or found.group(1) == ".":
        return 0.0
    return float(found.group(1)) * (1_024.0 if found.group(2) == "G" else 1.0)


def explained_ooms(case: Case) -> Mapping[str, Explained]:
    """Every OOM that something explains away, by its report. After one that nothing did, nothing does at that place
    and turn; one elsewhere that nothing explains is still one."""
    look = Explanations(case)
    plain: set[tuple[Scope, str]] = set()
    found: dict[str, Explained] = {}
    for oom in sorted(ooms(case), key=lambda one: (one.at_s, one.report_id)):
        explained, key = look.of(oom), (case.scope_of(oom), role_of(case, oom))
        if explained is None:
            plain.add(key)
        elif key not in plain:
            found[oom.report_id] = explained
    return found
