"""CLI of the explorer, `python -m simulator explore`: all interleavings of a small world, with faults everywhere."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

from simulator.explore import report
from simulator.explore.model import Bounds, DeliveryPace, ExploredFault
from simulator.explore.search import Search
from simulator.explore.small_world import Incident

COMBINED = frozenset({ExploredFault.DROP, ExploredFault.DUPLICATE, ExploredFault.REORDER, ExploredFault.CRASH})
"""Kinds of faults of which a default walk combines up to `--faults`."""


def walks(faults: int) -> Iterator[Bounds]:
    """Yield the default walks.

    The walk of the GPU incident combines up to `faults` faults. The walks of the other incidents and kinds combine
    fewer faults.
    """
    yield Bounds(Incident.GPU, faults, COMBINED, DeliveryPace.ALL, crashes=faults)
    yield Bounds(Incident.GPU, 0, frozenset(), DeliveryPace.FREE)
    yield Bounds(Incident.GPU, min(faults, 1), frozenset(ExploredFault), DeliveryPace.MACHINES)
    for incident in Incident:
        if incident is Incident.DEAF:
            yield Bounds(incident, 0, frozenset(), DeliveryPace.ALL)
        elif incident is not Incident.GPU:
            yield Bounds(incident, min(faults, 1), COMBINED | {ExploredFault.OVERLAP}, DeliveryPace.ALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--faults", type=_count, default=3, metavar="N", help="faults in one run at most; default 3")
    parser.add_argument(
        "--incident",
        type=Incident,
        choices=list(Incident),
        metavar="INCIDENT",
        help=f"one walk, of this incident alone: {', '.join(Incident)}",
    )
    parser.add_argument("--kinds", type=_kinds, metavar="KIND,...", help=f"of that walk: {', '.join(ExploredFault)}")
    parser.add_argument(
        "--pace", type=DeliveryPace, choices=list(DeliveryPace), help="of that walk: who waits for events"
    )
    parser.add_argument("--crashes", type=_count, metavar="N", help="of that walk: how many faults may be crashes")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}")
    return int(text)


def _kinds(text: str) -> frozenset[ExploredFault]:
    try:
        return frozenset(ExploredFault(kind) for kind in text.split(",") if kind)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be some of {', '.join(ExploredFault)}, not {text!r}") from None


def asked_for(arguments: argparse.Namespace) -> list[Bounds]:
    """Return the walks that the command line selects: all default walks if only `--faults` is given."""
    if arguments.incident is None and arguments.kinds is None and arguments.pace is None and arguments.crashes is None:
        return list(walks(arguments.faults))
    crashes = arguments.faults if arguments.crashes is None else arguments.crashes
    incident, pace = arguments.incident or Incident.GPU, arguments.pace or DeliveryPace.ALL
    return [Bounds(incident, arguments.faults, COMBINED if arguments.kinds is None else arguments.kinds, pace, crashes)]


def run(arguments: argparse.Namespace) -> int:
    """Explore and print the results. Return the exit status: 1 if a property was violated, else 0."""
    reports: list[dict[str, Any]] = []
    for bounds in asked_for(arguments):
        began = time.process_time()
        walk_report = report.report(Search(bounds).run())
        walk_report["seconds"] = round(time.process_time() - began, 1)
        reports.append(walk_report)
        if not arguments.json:
            print(report.in_words(walk_report), end="\n\n")
            sys.stdout.flush()
    total = summary(reports)
    print(json.dumps(total, indent=2) if arguments.json else report.summary_in_words(total))
    return 1 if total["violations"] else 0


def summary(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the totals of all walks: `seconds` of processor time, and `memory_mib`, the peak memory in MiB."""
    transitions = {row for walk in reports for row in walk["rows"]}
    return {
        "walks": reports,
        "bounds": list(report.ALWAYS),
        "states": sum(walk["states"] for walk in reports),
        "transitions": sum(walk["transitions"] for walk in reports),
        "depth": max(walk["depth"] for walk in reports),
        "rows": sorted(transitions),
        "every_state_can_end": all(walk["every_state_can_end"] for walk in reports),
        "violations": [sentence for walk in reports if walk["violation"] for sentence in walk["violation"]["told"]],
        "seconds": round(sum(walk["seconds"] for walk in reports), 1),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
