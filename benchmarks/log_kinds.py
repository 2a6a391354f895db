"""How well lines of logs are told apart: precision and recall of each kind, and alarms on lines that tell of nothing.

The lines are `tests/core/logs/lines.jsonl`, worded as programs word them in public threads, with hosts, addresses, ids
and paths of our own; each has its kind, the thread, and its part. Rules were written first, then developed on the
sources of "develop" and graded on those of "held"; "fresh" was collected afterwards. FIRST says what each part gave the
first time it was graded: later figures are of rules that had seen it. Further files of the same form can be named:
`python -m benchmarks.log_kinds FILE...`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.kinds import LineKind

ROOT = Path(__file__).parent.parent
LINES = ROOT / "tests/core/logs/lines.jsonl"
FOREIGN = ROOT / "tests/core/logs/foreign.log"
FIRST = {"develop": (99, 114, 3), "held": (148, 153, 1), "fresh": (27, 28, 0)}
"""Lines that got their kind, of so many, and alarms on benign ones: develop by rules that had seen no line, held by
those that were developed, fresh by those that had seen both."""
SAMPLE = Path("shared/data/log_lines/sample.jsonl")
"""Graded too where a checkout has it, in itself or beside it."""


def read(path: Path) -> list[dict[str, str]]:
    """The lines of a file, each with `line`, `kind` and what else it says."""
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines() if text.strip()]


def score(rows: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """How many lines get their kind when each is classified alone; alarms: lines that are benign and are not let be."""
    told = [(row["kind"], str(classify([row["line"]]).kind)) for row in rows]
    right, wanted, said = (
        Counter(kind for kind, got in told if kind == got),
        Counter(kind for kind, _ in told),
        Counter(got for _, got in told),
    )
    benign = str(LineKind.BENIGN)
    kinds = {
        kind: {
            "lines": wanted[kind],
            "precision": _ratio(right[kind], said[kind]),
            "recall": _ratio(right[kind], wanted[kind]),
        }
        for kind in sorted({*wanted, *said})
    }
    return {
        "lines": len(told),
        "right": _ratio(sum(right.values()), len(told)),
        "benign": wanted[benign],
        "alarms": wanted[benign] - right[benign],
        "kinds": kinds,
    }


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def log_kind_figures(more: Iterable[Path] = ()) -> dict[str, Any]:
    """The scores of both halves, of logs of other programs, and of the files that are named or found."""
    rows = read(LINES)
    figures = {half: score(row for row in rows if row["half"] == half) for half in FIRST}
    foreign = FOREIGN.read_text(encoding="utf-8").splitlines()
    figures["foreign"] = score({"line": line, "kind": str(LineKind.BENIGN)} for line in foreign)
    found = [place / SAMPLE for place in (ROOT, ROOT.parent) if (place / SAMPLE).exists()][:1]
    return figures | {path.stem: score(read(path)) for path in (*found, *more)}


def _print(name: str, figures: Mapping[str, Any]) -> None:
    head = f"{name}: {figures['lines']} lines, right {figures['right']:.1%}"
    print(f"{head}, alarms {figures['alarms']} of {figures['benign']} benign")
    if name in FIRST:
        print("  the first time: right {} of {}, alarms {}".format(*FIRST[name]))
    for kind, one in figures["kinds"].items():
        precision, recall = ("-" if one[key] is None else f"{one[key]:.2f}" for key in ("precision", "recall"))
        print(f"  {kind:26}{one['lines']:5}{precision:>7}{recall:>7}")


if __name__ == "__main__":
    for title, its in log_kind_figures(map(Path, sys.argv[1:])).items():
        _print(title, its)
