"""All sets of the scoreboard, in the order of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import log_kinds
from benchmarks.scoreboard.check_sets import document_results, kernel_results
from benchmarks.scoreboard.diagnosis_sets import (
    fault_results,
    flight_results,
    line_results,
    live_results,
    straggler_results,
)
from benchmarks.scoreboard.score import CaseResult, Seen, score


@dataclass(frozen=True)
class SourceSet:
    """A set of cases: whether the authors of the rules have seen it, and its results."""

    seen: Seen
    results: Callable[[], Iterable[CaseResult]]


FOREIGN = "foreign"
"""The set with logs of other programs."""
CASES: Mapping[str, SourceSet] = {
    "kernel lines": SourceSet(
        Seen.YES, lambda: kernel_results(row for rows in log_kinds.parts().values() for row in rows)
    ),
    "DCGM documents": SourceSet(Seen.YES, document_results),
    "injected faults": SourceSet(Seen.YES, fault_results),
    "seed 002, live": SourceSet(Seen.YES, live_results),
    "flight recorder dumps": SourceSet(Seen.YES, flight_results),
    "straggler traces": SourceSet(Seen.YES, straggler_results),
}
"""Sets of cases other than log lines. A set that is added needs one line here."""


def _lines(seen: Seen, rows: list[dict[str, str]]) -> SourceSet:
    return SourceSet(seen, lambda: line_results(rows))


def source_sets() -> dict[str, SourceSet]:
    """Return every set by its name: the parts of the log lines, the logs of other programs, and `CASES`.

    A part without a history counts as unseen: it is scored before a line is written about it.
    """
    lines = {
        part: _lines(log_kinds.HISTORY[part].seen if part in log_kinds.HISTORY else Seen.NO, rows)
        for part, rows in log_kinds.parts().items()
    }
    return lines | {FOREIGN: _lines(Seen.YES, log_kinds.foreign_rows())} | dict(CASES)


def scoreboard_figures() -> dict[str, Any]:
    """Return the score of every set by its name."""
    return {name: score(of.seen, of.results()) for name, of in source_sets().items()}
