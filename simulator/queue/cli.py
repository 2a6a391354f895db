"""Command `python -m simulator queue`: replays a job trace of a real cluster under queue disciplines.

The disciplines are strict FIFO, best effort, textbook EASY, conservative backfill, a multifactor priority and the
production rules. The production rules also run with the history of run times as the only estimate.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from simulator.queue import report
from simulator.queue.job_trace import Selection, TraceInvalid, read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to `parser`."""
    parser.add_argument("--trace", type=Path, required=True, metavar="FILE", help="columns timestamp,duration,num_gpus")
    parser.add_argument("--gpus", type=_positive, default=600, help="of the cluster; default 600")
    parser.add_argument("--start", type=_time, metavar="WHEN", help="ISO 8601; default the first job's arrival")
    parser.add_argument("--days", type=_positive, default=30, help="default 30")
    parser.add_argument("--least", type=float, default=30, metavar="SECONDS", help="leave out shorter jobs; default 30")
    parser.add_argument("--seed", type=int, default=0, help="of the users' estimates; default 0")
    parser.add_argument("--no-estimates", action="store_true", help="without estimates of run times")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a time like 2017-10-13, not {text!r}") from None


def run(args: argparse.Namespace, error_sentence: Callable[[Exception], str] = str) -> int:
    """Replay the trace and print the waiting times.

    Args:
        args: the options of the command.
        error_sentence: returns the sentence to print about an error of the trace.

    Returns:
        The exit code: 0, or 2 for a wrong trace or a job that is too large.
    """
    selection = Selection(
        start=args.start, days=args.days, least_s=args.least, estimates=not args.no_estimates, seed=args.seed
    )
    try:
        comparison = report.compared(read(args.trace, selection), args.gpus)
    except (TraceInvalid, ValueError) as error:
        print(error_sentence(error), file=sys.stderr)
        return 2
    print(json.dumps(comparison, indent=2) if args.json else report.in_words(comparison))
    return 0
