"""Traces of jobs: when each came, how long it ran and how many GPUs it had; and what its user might have estimated."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

DAY_S = 86_400
COLUMNS = ("timestamp", "duration", "num_gpus")
WHOSE = "cluster"
"""The column that tells whose job it was, where there is one: in the Philly traces a virtual cluster, a team's."""
OVERESTIMATE_MAX = 5.0
"""Users ask for one to five times what their jobs need (Mu'alem and Feitelson 2001)."""


class TraceInvalid(Exception):
    """A file that is no trace of jobs."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of `size` GPUs, `number` in order of arrival. `at` and `runs_s` are seconds, `at` since the beginning;
    `estimate_s` is what its user said it runs at most, None for nothing; `whose` it is, "" where that is not
    known."""

    number: int
    at: float
    runs_s: float
    estimate_s: float | None
    size: int
    whose: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which jobs of a trace are played. `start`: None for the first job's arrival."""

    start: datetime | None = None
    days: float = 30
    least_s: float = 30
    estimates: bool = True
    seed: int = 0


def read(path: Path, chosen: Selection) -> list[TraceJob]:
    """The jobs of a file with the columns timestamp, duration (s) and num_gpus, in order of arrival. TraceInvalid names
    the line that cannot be read; OSError where there is no such file."""
    rows = sorted(_rows(path))
    if not rows:
        raise TraceInvalid(f"{path} holds no job")
    first = chosen.start or rows[0][0]
    kept = [
        ((at - first).total_seconds(), runs_s, size, whose)
        for at, runs_s, size, whose in rows
        if runs_s >= chosen.least_s and 0 <= (at - first).total_seconds() < chosen.days * DAY_S
    ]
    if not kept:
        raise TraceInvalid(
            f"{path} has no job of {chosen.least_s:g} s or more in the {chosen.days:g} days from {first}"
        )
    return _jobs(kept, chosen)


def _rows(path: Path) -> Iterator[tuple[datetime, float, int, str]]:
    with path.open(newline="") as file:
        table = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (table.fieldnames or ())]
        if missing:
            raise TraceInvalid(f"{path} has no column {', '.join(missing)}")
        for row in table:
            try:
                at, runs_s, size = (
                    datetime.fromisoformat(row["timestamp"]),
                    float(row["duration"]),
                    int(row["num_gpus"]),
                )
            except (TypeError, ValueError) as wrong:
                raise TraceInvalid(f"{path} line {table.line_num}: {wrong}") from None
            if size > 0:
                yield at, runs_s, size, row.get(WHOSE) or ""


def _jobs(rows: Sequence[tuple[float, float, int, str]], chosen: Selection) -> list[TraceJob]:
    drawn = random.Random(chosen.seed)
    jobs = []
    for number, (at, runs_s, size, whose) in enumerate(rows):
        factor = drawn.uniform(1.0, OVERESTIMATE_MAX)
        jobs.append(TraceJob(number, at, runs_s, runs_s * factor if chosen.estimates else None, size, whose))
    return jobs
