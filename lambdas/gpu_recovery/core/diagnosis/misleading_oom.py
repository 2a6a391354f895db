"""When an OOM does not mean what it says (row 46): it was not that one's turn, or the other still held the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .case import Case
from .cuda_errors import LINE_MAX, CudaError, cuda_error
from .deliveries import EVENTS, ORDER, Course, is_confirmed, target
from .occupancy import Held, held_by_others, occupancies, role_of
from .reports import EventReport, LogFinding, Report, StageReport
from .words import Scope

OOM = "cuda_oom"
"""The kind of a log's line (`core.logs`) that says it."""
ACK_SLACK_S = 1.0
"""An acknowledgement that comes with the OOM came before it: two reporters, two ages."""
NO_EVIDENCE = frozenset({"advice", "conditional"})
"""Roles of lines that say what might be, not what was."""
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]{1,12}) ([GM])iB")
_CAPACITY = re.compile(r"total capacity of ([\d.]{1,12}) ([GM])iB")


def ooms(case: Case) -> Iterator[StageReport | LogFinding]:
    """Every report of a GPU's memory that did not suffice."""
    for stage in case.all(StageReport):
        if stage.error and cuda_error(stage.error) is CudaError.MEMORY:
            yield stage
    for line in case.all(LogFinding):
        if line.kind == OOM and line.role not in NO_EVIDENCE:
            yield line


@dataclass(frozen=True)
class Explained:
    """What an OOM comes from instead: a notice that was not acknowledged, or memory that the other still holds."""

    oom: StageReport | LogFinding
    course: Course | None = None
    held: Held | None = None

    @property
    def evidence(self) -> tuple[str, ...]:
        """The ids of the reports that explain it, without its own."""
        held = (self.held.report.report_id,) if self.held else ()
        return (*(self.course.evidence if self.course else ()), *held)


class _Notices:
    """The events of one name to one target, the oldest first."""

    def __init__(self) -> None:
        self._begun: list[tuple[float, str]] = []
        self._reports: dict[str, list[EventReport]] = {}

    def add(self, report: EventReport) -> None:
        """Takes the next report; they come in order."""
        if report.request_id not in self._reports:
            self._begun.append((report.at_s, report.request_id))
        self._reports.setdefault(report.request_id, []).append(report)

    def newest(self, at_s: float) -> Course | None:
        """The last one that was sent by then, as far as it had come."""
        begun = [request_id for sent_s, request_id in self._begun if sent_s <= at_s]
        if not begun:
            return None
        return Course(tuple(one for one in self._reports[begun[-1]] if one.at_s <= at_s + ACK_SLACK_S))


class Explanations:
    """Looks up what explains an OOM. Built once for a case, then asked for each OOM of it.

    A notice explains an OOM of its target's machine; one whose target nobody knows explains any machine's that has no
    notice of its own.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._at: dict[Scope, dict[tuple[str, str], _Notices]] = {}
        self._anywhere: dict[tuple[str, str], _Notices] = {}
        for one in case.all(EventReport):
            key = (one.event, one.worker)
            self._at.setdefault(target(case, one), {}).setdefault(key, _Notices()).add(one)
            if one.worker not in case.topology.workers:
                self._anywhere.setdefault(key, _Notices()).add(one)
        self._occupied: dict[Scope, list[StageReport]] = {}
        for (place, _), reports in occupancies(case).items():
            self._occupied.setdefault(place, []).extend(reports)

    def of(self, oom: StageReport | LogFinding) -> Explained | None:
        """What explains it; None if nothing does, or if it asked for more than the GPU has at all."""
        if _wants_too_much(oom.error if isinstance(oom, StageReport) else oom.line):
            return None
        place = self._case.place(oom)
        held_on = self._latest_occupancy(oom, place)
        turn = role_of(self._case, oom) or (role_of(self._case, held_on) if held_on else "")
        course = self._unacknowledged(oom, place, turn)
        held = held_by_others(self._case, held_on, turn) if held_on else None
        return Explained(oom, course, held) if course or held else None

    def _latest_occupancy(self, oom: Report, place: Scope) -> StageReport | None:
        gpu = oom.gpu if isinstance(oom, StageReport) else ""
        seen = [
            one
            for one in self._occupied.get(place, [])
            if one.at_s <= oom.at_s and (not gpu or not one.gpu or one.gpu == gpu)
        ]  # fmt: skip
        return max(seen, key=lambda one: (one.at_s, one.report_id), default=None)

    def _unacknowledged(self, oom: Report, place: Scope, turn: str) -> Course | None:
        """Of the newest notices of a hand-over to whose turn it is, the one that came the least far."""
        wanted = EVENTS
        if turn:
            wanted = frozenset(event for event in EVENTS if (event == f"{turn}_start") or _ends_another(event, turn))
        own = {key: notices for key, notices in self._at.get(place, {}).items() if key[0] in wanted}
        asked = own or {key: notices for key, notices in self._anywhere.items() if key[0] in wanted}
        newest = [notices.newest(oom.at_s) for notices in asked.values()]
        unfinished = [one for one in newest if one is not None and not is_confirmed(one)]
        return min(unfinished, key=lambda one: (ORDER[one.reached], one.last.request_id), default=None)


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


def explained_ooms(case: Case) -> tuple[Explained, ...]:
    """Every OOM that something explains away. After one that nothing did, nothing does at that place and turn."""
    look = Explanations(case)
    plain: set[tuple[Scope, str]] = set()
    found: list[Explained] = []
    for oom in sorted(ooms(case), key=lambda one: (one.at_s, one.report_id)):
        explained, key = look.of(oom), (case.place(oom), role_of(case, oom))
        if explained is None:
            plain.add(key)
        elif key not in plain:
            found.append(explained)
    return tuple(found)


def oom_is_misleading(case: Case) -> tuple[str, ...]:
    """The ids of the reports that explain the case's OOMs away; empty where they mean what they say.

    `explained_ooms` says it OOM by OOM: an OOM elsewhere that nothing explains is still one.
    """
    return tuple(sorted({one for explained in explained_ooms(case) for one in explained.evidence}))
