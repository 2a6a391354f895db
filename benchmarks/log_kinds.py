"""Benchmark of the log classification: precision, recall and false alarms.

The lines are in `tests/core/logs/lines.jsonl`. Their wording is that of programs in public threads; hosts, addresses,
ids and paths are invented. Each line has its kind, its source (the thread) and its part (`half`).

The rules were written first, then developed on the sources of the part "develop" and scored on the part "held". The
part "fresh" was collected afterwards. `FIRST` holds the first score of each part. Later scores are of rules that were
changed after the part had been scored.

Further files of the same format may be given: `python -m benchmarks.log_kinds FILE...`.
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
"""The first score of each part: lines with the right kind, all lines, and false alarms on benign lines.

"develop" was scored before any rule was developed on lines, "held" after the development on "develop", and "fresh"
after the development on both.
"""
SAMPLE = Path("shared/data/log_lines/sample.jsonl")
"""A further file. It is also scored if it exists below the repository or below the folder that holds the repository."""


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a JSON Lines file. Each has at least `line` and `kind`."""
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines() if text.strip()]


def score(rows: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """Classify each line alone and compare the result with the kind of its row.

    Returns:
        Number of lines, share of lines with the right kind, number of benign lines, number of false alarms (benign
        lines with another kind), and lines, precision and recall of each kind.
    """
    results = [(row["kind"], str(classify([row["line"]]).kind)) for row in rows]
    right, expected, predicted = (
        Counter(kind for kind, result in results if kind == result),
        Counter(kind for kind, _ in results),
        Counter(result for _, result in results),
    )
    benign = str(LineKind.BENIGN)
    kinds = {
        kind: {
            "lines": expected[kind],
            "precision": _ratio(right[kind], predicted[kind]),
            "recall": _ratio(right[kind], expected[kind]),
        }
        for kind in sorted({*expected, *predicted})
    }
    return {
        "lines": len(results),
        "right": _ratio(sum(right.values()), len(results)),
        "benign": expected[benign],
        "alarms": expected[benign] - right[benign],
        "kinds": kinds,
    }


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def log_kind_figures(more: Iterable[Path] = ()) -> dict[str, Any]:
    """Return the score of each part, of logs of other programs, of `SAMPLE` if it exists, and of the files `more`."""
    rows = read(LINES)
    figures = {half: score(row for row in rows if row["half"] == half) for half in FIRST}
    foreign = FOREIGN.read_text(encoding="utf-8").splitlines()
    figures["foreign"] = score({"line": line, "kind": str(LineKind.BENIGN)} for line in foreign)
    samples = [folder / SAMPLE for folder in (ROOT, ROOT.parent) if (folder / SAMPLE).exists()][:1]
    return figures | {path.stem: score(read(path)) for path in (*samples, *more)}


def _print(name: str, figures: Mapping[str, Any]) -> None:
    head = f"{name}: {figures['lines']} lines, right {figures['right']:.1%}"
    print(f"{head}, alarms {figures['alarms']} of {figures['benign']} benign")
    if name in FIRST:
        print("  the first time: right {} of {}, alarms {}".format(*FIRST[name]))
    for kind, scores in figures["kinds"].items():
        precision, recall = ("-" if scores[key] is None else f"{scores[key]:.2f}" for key in ("precision", "recall"))
        print(f"  {kind:26}{scores['lines']:5}{precision:>7}{recall:>7}")


if __name__ == "__main__":
    for title, scored in log_kind_figures(map(Path, sys.argv[1:])).items():
        _print(title, scored)
