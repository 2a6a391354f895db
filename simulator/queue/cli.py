"""`python -m simulator queue`: a trace of a real cluster under four disciplines, ours also by history alone."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path

from simulator.queue import report
from simulator.queue.job_trace import Selection, TraceInvalid, read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument("--trace", type=Path, required=True, metavar="FILE", help="columns timestamp,duration,num_gpus")
    parser.add_argument("--gpus", type=_positive, default=600, help="of the cluster; default 600")
    parser.add_argument("--start", type=_moment, metavar="WHEN", help="ISO 8601; default the first job's arrival")
    parser.add_argument("--days", type=_positive, default=30, help="default 30")
    parser.add_argument("--least", type=float, default=30, metavar="SECONDS", help="leave out shorter jobs; default 30")
    parser.add_argument("--seed", type=int, default=0, help="of the users' estimates; default 0")
    parser.add_argument("--no-estimates", action="store_true", help="nobody says how long a job runs")
    parser.add_argument("--json", action="store_true", help="the same for machines")


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a time like 2017-10-13, not {text!r}") from None


def run(given: argparse.Namespace) -> int:
    """Always 0 but for usage: figures are neither right nor wrong."""
    chosen = Selection(
        start=given.start, days=given.days, least_s=given.least, estimates=not given.no_estimates, seed=given.seed
    )
    try:
        found = report.compared(read(given.trace, chosen), given.gpus)
    except (TraceInvalid, ValueError) as wrong:
        print(wrong, file=sys.stderr)
        return 2
    print(json.dumps(found, indent=2) if given.json else report.in_words(found))
    return 0
