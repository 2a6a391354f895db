"""Benchmark of the log classification: lines with the right kind, false alarms, precision and recall.

The lines are in three files below `tests/core/logs/`. Their wording is that of programs in public threads; hosts,
addresses, ids and paths are invented. Each line has its kind, its source (the thread) and its part (`half`). Kinds were
given before any grading.

- `lines.jsonl`: the rules were written first, then developed on the sources of the part "develop" and scored on the
  part "held". The part "fresh" was collected afterwards.
- `benign.jsonl`: lines of healthy runs. `faults.jsonl`: lines of failures of 2023 to 2026. The rules were developed on
  the part "tuned". The part "tuned2" holds more lines of the kinds in which the rules were weakest, from further
  sources. It was scored before a rule was changed for it. The part "held" comes from other sources. It was scored once
  after the development on the parts "tuned" and "tuned2", and rules were changed for it only afterwards.

`FIRST` holds the first score of each part, and `UNSEEN` the score of the part "held" after the development on the other
parts. Later scores are of rules that were changed after the part had been scored.

Further files of the same format may be given: `python -m benchmarks.log_kinds FILE...`. With `--write`, the scores
replace those in `benchmarks/results.json`. docs/diagnosis.md quotes them.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.kinds import LineKind

from benchmarks import results

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests/core/logs"
FOREIGN = FOLDER / "foreign.log"
FILES = {"": FOLDER / "lines.jsonl", "benign_": FOLDER / "benign.jsonl", "faults_": FOLDER / "faults.jsonl"}
"""Files of lines, by the beginning of the names of their parts."""
FIRST = {
    "develop": (99, 114, 3),
    "held": (148, 153, 1),
    "fresh": (27, 28, 0),
    "benign_tuned": (182, 187, 5),
    "benign_held": (170, 177, 7),
    "faults_tuned": (197, 274, 0),
    "benign_tuned2": (38, 42, 4),
    "faults_tuned2": (90, 123, 0),
    "faults_held": (168, 251, 0),
}
"""The first score of each part: lines with the right kind, all lines, and false alarms on benign lines.

"develop" was scored before any rule was developed on lines, "held" after the development on "develop", and "fresh"
after the development on both. The parts of `benign.jsonl` and `faults.jsonl` were scored after that, with the same
rules; their parts "tuned2" were scored after the development on "tuned".
"""
UNSEEN = {"benign_held": (176, 177, 1), "faults_held": (194, 251, 0)}
"""The score of the parts "held" after the development on "tuned" and "tuned2", and before any development on them.

It estimates how right the rules are on lines that their authors have not seen. The goal was 92 % of the faults.
A line of `faults_held` that is also in "tuned2" is left out. The lines were labelled before the first score.
"""
Z_95 = 1.959964
"""Quantile of the normal distribution for intervals of 95 %."""
SAMPLE = Path("shared/data/log_lines/sample.jsonl")
"""A further file. It is also scored if it exists below the repository or below the folder that holds the repository."""


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a JSON Lines file. Each has at least `line` and `kind`."""
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines() if text.strip()]


def parts() -> dict[str, list[dict[str, str]]]:
    """Return the rows of each part that the repository holds, by the name of the part."""
    rows: dict[str, list[dict[str, str]]] = {}
    for prefix, path in FILES.items():
        for row in read(path):
            rows.setdefault(f"{prefix}{row['half']}", []).append(row)
    return rows


def wilson(part: int, whole: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share, by Wilson's score.

    Raises:
        ValueError: `whole` is not positive.
    """
    if whole <= 0:
        raise ValueError("the share of nothing has no interval")
    share, square = part / whole, Z_95**2 / whole
    middle = share + square / 2
    width = Z_95 * math.sqrt(share * (1 - share) / whole + square / (4 * whole))
    low, high = (middle - width) / (1 + square), (middle + width) / (1 + square)
    return round(max(low, 0.0), 3), round(min(high, 1.0), 3)


def score(rows: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """Classify each line alone and compare the result with the kind of its row.

    Returns:
        Number of lines, share of lines with the right kind, number of benign lines, number of false alarms (benign
        lines with another kind), and lines, precision and recall of each kind. `right_interval` and `alarm_interval`
        are the 95 % confidence intervals of the share of right lines and of the share of false alarms.
    """
    kinds_of_lines = [(row["kind"], str(classify([row["line"]]).kind)) for row in rows]
    right, expected, predicted = (
        Counter(kind for kind, result in kinds_of_lines if kind == result),
        Counter(kind for kind, _ in kinds_of_lines),
        Counter(result for _, result in kinds_of_lines),
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
    alarms = expected[benign] - right[benign]
    return {
        "lines": len(kinds_of_lines),
        "right": _ratio(sum(right.values()), len(kinds_of_lines)),
        "right_interval": wilson(sum(right.values()), len(kinds_of_lines)),
        "benign": expected[benign],
        "alarms": alarms,
        "alarm_interval": wilson(alarms, expected[benign]) if expected[benign] else None,
        "kinds": kinds,
    }


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def log_kind_figures(more: Iterable[Path] = ()) -> dict[str, Any]:
    """Return the score of each part, of logs of other programs, of `SAMPLE` if it exists, and of the files `more`."""
    figures = {part: score(rows) for part, rows in parts().items()}
    foreign = FOREIGN.read_text(encoding="utf-8").splitlines()
    figures["foreign"] = score({"line": line, "kind": str(LineKind.BENIGN)} for line in foreign)
    samples = [folder / SAMPLE for folder in (ROOT, ROOT.parent) if (folder / SAMPLE).exists()][:1]
    return figures | {path.stem: score(read(path)) for path in (*samples, *more)}


def table(figures: Mapping[str, Any]) -> str:
    """Return the scores of all parts as rows of a table in Markdown, as docs/diagnosis.md shows them."""
    interval = "(95 % interval)"
    of_intervals = f"Right unseen {interval} | Right now {interval} | False alarms {interval}"
    rows = [f"| Part | Lines | Right at first | {of_intervals} |", "|---|---|---|---|---|---|"]
    for part, (right, lines, _) in FIRST.items():
        if part not in figures:
            continue
        scores = figures[part]
        alarms = "-"
        if scores["benign"]:
            alarms = f"{scores['alarms']} of {scores['benign']} ({_interval(scores['alarm_interval'])})"
        unseen = "-"
        if part in UNSEEN:
            unseen_right, unseen_lines, _ = UNSEEN[part]
            unseen = f"{unseen_right / unseen_lines:.1%} ({_interval(wilson(unseen_right, unseen_lines))})"
        now = f"{scores['right']:.1%} ({_interval(scores['right_interval'])})"
        rows.append(f"| `{part}` | {scores['lines']} | {right / lines:.1%} | {unseen} | {now} | {alarms} |")
    return "\n".join(rows) + "\n"


def _interval(bounds: Sequence[float]) -> str:
    return f"{bounds[0]:.1%} to {bounds[1]:.1%}"


def _print(name: str, figures: Mapping[str, Any]) -> None:
    right = f"right {figures['right']:.1%} ({_interval(figures['right_interval'])})"
    print(f"{name}: {figures['lines']} lines, {right}", end="")
    if figures["benign"]:
        interval = _interval(figures["alarm_interval"])
        print(f", alarms {figures['alarms']} of {figures['benign']} benign ({interval})", end="")
    print()
    if name in FIRST:
        print("  the first time: right {} of {}, alarms {}".format(*FIRST[name]))
    if name in UNSEEN:
        print("  before any rule was changed for it: right {} of {}, alarms {}".format(*UNSEEN[name]))
    for kind, scores in figures["kinds"].items():
        precision, recall = ("-" if scores[key] is None else f"{scores[key]:.2f}" for key in ("precision", "recall"))
        print(f"  {kind:26}{scores['lines']:5}{precision:>7}{recall:>7}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    all_figures = log_kind_figures(Path(argument) for argument in arguments if argument != "--write")
    for title, scored in all_figures.items():
        _print(title, scored)
    if "--write" in arguments:
        results.update("log_kinds", all_figures)
