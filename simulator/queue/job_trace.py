"""Job traces: arrival, run time and GPUs of each job, with a drawn estimate of its user."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpu_recovery.core.queue.backfill import RunTimeBound

DAY_S = 86_400
COLUMNS = ("timestamp", "duration", "num_gpus")
"""Columns that a trace must have."""
OWNER_COLUMN = "cluster"
"""Optional column with the owner of a job. In the Philly traces the owner is a virtual cluster, that of a team."""
OVERESTIMATE_MAX = 5.0
"""Upper bound of an estimate, as a multiple of the run time.

Users ask for one to five times what their jobs need (Mu'alem and Feitelson 2001).
"""


class TraceInvalid(Exception):
    """The file is not a trace of jobs. The message says why."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace.

    number:     place in the order of arrival, from 0
    at:         arrival, in seconds since the beginning of the replay
    runs_s:     run time in seconds
    estimate_s: user's upper bound of the run time in seconds; None without an estimate
    size:       number of GPUs
    whose:      owner of the job; "" if unknown
    median_s:   run time in seconds that half of the jobs of its kind did not exceed, at most the estimate; or None
    p90_s:      the same for nine of ten jobs of its kind
    """

    number: int
    at: float
    runs_s: float
    estimate_s: float | None
    size: int
    whose: str = ""
    median_s: float | None = None
    p90_s: float | None = None

    def bounded(self, bound: RunTimeBound) -> float | None:
        """Return the bound of the run time by which the job may pass the head of the queue, in seconds."""
        known = {RunTimeBound.MEDIAN: self.median_s, RunTimeBound.P90: self.p90_s, RunTimeBound.LIMIT: None}[bound]
        return self.estimate_s if known is None else known


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of the jobs of a trace that are replayed.

    start:     begin of the replay; None for the arrival of the first job
    days:      length of the replay
    least_s:   shortest run time of a job, in seconds
    estimates: whether users estimate the run times of their jobs
    seed:      seed of the estimates
    """

    start: datetime | None = None
    days: float = 30
    least_s: float = 30
    estimates: bool = True
    seed: int = 0


def read(path: Path, selection: Selection) -> list[TraceJob]:
    """Read the jobs of a file with the columns timestamp, duration (s) and num_gpus, in order of arrival.

    Raises:
        TraceInvalid: a column or every job is missing, or a line cannot be read; the message names the line.
        OSError: the file cannot be read.
    """
    rows = sorted(_rows(path))
    if not rows:
        raise TraceInvalid(f"{path} holds no job")
    first = selection.start or rows[0][0]
    selected = [
        ((at - first).total_seconds(), runs_s, size, owner)
        for at, runs_s, size, owner in rows
        if runs_s >= selection.least_s and 0 <= (at - first).total_seconds() < selection.days * DAY_S
    ]
    if not selected:
        raise TraceInvalid(
            f"{path} has no job of {selection.least_s:g} s or more in the {selection.days:g} days from {first}"
        )
    return _jobs(selected, selection)


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
            except (TypeError, ValueError) as error:
                raise TraceInvalid(f"{path} line {table.line_num}: {error}") from None
            if size > 0:
                yield at, runs_s, size, row.get(OWNER_COLUMN) or ""


def _jobs(rows: Sequence[tuple[float, float, int, str]], selection: Selection) -> list[TraceJob]:
    draw = random.Random(selection.seed)
    jobs = []
    for number, (at, runs_s, size, owner) in enumerate(rows):
        factor = draw.uniform(1.0, OVERESTIMATE_MAX)
        jobs.append(TraceJob(number, at, runs_s, runs_s * factor if selection.estimates else None, size, owner))
    return jobs
