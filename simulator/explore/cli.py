"""`python -m simulator explore`: every interleaving of a small world, with every fault at every place."""

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
"""The kinds of which as many as `--faults` are combined."""


def walks(faults: int) -> Iterator[Bounds]:
    """What is explored where nothing else is asked for: the incident of a GPU with up to `faults` faults, and
    everything else that is known to go wrong with fewer."""
    yield Bounds(Incident.GPU, faults, COMBINED, DeliveryPace.ALL, crashes=faults)
    yield Bounds(Incident.GPU, 0, frozenset(), DeliveryPace.FREE)
    yield Bounds(Incident.GPU, min(faults, 1), frozenset(ExploredFault), DeliveryPace.MACHINES)
    for incident in Incident:
        if incident is Incident.DEAF:
            yield Bounds(incident, 0, frozenset(), DeliveryPace.ALL)
        elif incident is not Incident.GPU:
            yield Bounds(incident, min(faults, 1), COMBINED | {ExploredFault.OVERLAP}, DeliveryPace.ALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument("--faults", type=_count, default=3, metavar="N", help="faults in one run at most; default 3")
    parser.add_argument("--incident", type=Incident, choices=list(Incident), help="one walk, of this incident alone")
    parser.add_argument("--kinds", type=_kinds, metavar="KIND,...", help=f"of that walk: {', '.join(ExploredFault)}")
    parser.add_argument(
        "--pace", type=DeliveryPace, choices=list(DeliveryPace), help="of that walk: who waits for events"
    )
    parser.add_argument("--crashes", type=_count, metavar="N", help="of that walk: how many faults may be crashes")
    parser.add_argument("--json", action="store_true", help="the same for machines")


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}")
    return int(text)


def _kinds(text: str) -> frozenset[ExploredFault]:
    try:
        return frozenset(ExploredFault(one) for one in text.split(",") if one)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be some of {', '.join(ExploredFault)}, not {text!r}") from None


def asked_for(given: argparse.Namespace) -> list[Bounds]:
    """The walks that the command line asks for."""
    if given.incident is None and given.kinds is None and given.pace is None and given.crashes is None:
        return list(walks(given.faults))
    crashes = given.faults if given.crashes is None else given.crashes
    incident, pace = given.incident or Incident.GPU, given.pace or DeliveryPace.ALL
    return [Bounds(incident, given.faults, COMBINED if given.kinds is None else given.kinds, pace, crashes)]


def run(given: argparse.Namespace) -> int:
    """Explore, and say what was found; 1 if something broke."""
    told: list[dict[str, Any]] = []
    for bounds in asked_for(given):
        began = time.process_time()
        one = report.report(Search(bounds).run())
        one["seconds"] = round(time.process_time() - began, 1)
        told.append(one)
        if not given.json:
            print(report.in_words(one), end="\n\n")
            sys.stdout.flush()
    found = summary(told)
    print(json.dumps(found, indent=2) if given.json else report.summary_in_words(found))
    return 1 if found["violations"] else 0


def summary(told: list[dict[str, Any]]) -> dict[str, Any]:
    """All walks together; seconds are those of the processor, memory is the most that there was."""
    rows = {row for one in told for row in one["rows"]}
    return {
        "walks": told,
        "bounds": list(report.ALWAYS),
        "states": sum(one["states"] for one in told),
        "transitions": sum(one["transitions"] for one in told),
        "depth": max(one["depth"] for one in told),
        "rows": sorted(rows),
        "every_state_can_end": all(one["every_state_can_end"] for one in told),
        "violations": [sentence for one in told if one["violation"] for sentence in one["violation"]["told"]],
        "seconds": round(sum(one["seconds"] for one in told), 1),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
