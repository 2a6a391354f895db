"""`python -m simulator run | play | explore | goodput | queue`: the product's own code under a virtual clock."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulator.explore import cli
from simulator.goodput import cli as goodput_cli
from simulator.queue import cli as queue_cli
from simulator.trials import campaign, scenario
from simulator.trials.trial import play


def seed_range(text: str) -> range:
    """`A..B`: the seeds from A up to, but not including, B. A single number is that seed alone."""
    first, dots, last = text.partition("..")
    try:
        seeds = range(int(first), int(last) if dots else int(first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"seeds are written A..B, not {text!r}") from None
    if not seeds or seeds.start < 0:
        raise argparse.ArgumentTypeError(f"{text!r} holds no seed")
    return seeds


def run(given: argparse.Namespace) -> int:
    """Seeds of faults; 1 if one of them broke something."""
    found = campaign.report(campaign.campaign(given.seeds, given.workers), given.seeds)
    print(json.dumps(found, indent=2) if given.json else _in_words(found))
    return 1 if found["violations"] else 0


def _in_words(found: dict[str, Any]) -> str:
    covered = found["coverage"]
    lines = [
        f"{found['seeds']} seeds ({found['from']}..{found['to']}), {found['effects']} effects of functions",
        f"jobs ended: {_counts(found['ended'])}",
        f"faults: {_counts(found['faults'])}",
        f"transitions taken: {covered['taken']} of {covered['rows']} ({covered['percent']} %)",
        f"violations: {len(found['violations'])}",
    ]
    lines += [f"  seed {one['seed']}: {one['sentence']}" for one in found["violations"][:20]]
    if (first := found["first_failure"]) is not None:
        lines.append(f"\nseed {first['seed']}, {first['faults']} faults cut down to {first['faults_left']}:\n")
        lines += [first["scenario"], first["transcript"]]
    return "\n".join(lines)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def play_file(given: argparse.Namespace) -> int:
    """One scenario, told line by line; 1 if it breaks something or ends otherwise than it must."""
    if given.what.isdigit():
        told, played = campaign.play_seed(int(given.what))
        print(scenario.written(played.as_scenario(told)))
    else:
        played = play(scenario.read(Path(given.what)))
    print(played.world.transcript.text(), end="")
    for sentence in played.violations:
        print(f"BROKEN  {sentence}")
    return 1 if played.violations else 0


def main(arguments: Sequence[str] | None = None, called: str = "python -m simulator") -> int:
    """The exit code: 0 as it should be, 1 something broke, 2 usage. `called`: by which command."""
    parser = argparse.ArgumentParser(called, description="The product's own code under a virtual clock.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    seeds = verbs.add_parser("run", help="run seeds of faults and check the invariants after every step")
    seeds.add_argument("--seeds", type=seed_range, default=range(300), metavar="A..B", help="default 0..300")
    seeds.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; default one for each core")
    seeds.add_argument("--json", action="store_true")
    seeds.set_defaults(verb=run)
    one = verbs.add_parser("play", help="tell one scenario line by line")
    one.add_argument("what", help="a scenario file, or a seed")
    one.set_defaults(verb=play_file)
    small = verbs.add_parser("explore", help="walk every interleaving of a small world")
    cli.add_arguments(small)
    small.set_defaults(verb=cli.run)
    weeks = verbs.add_parser("goodput", help="weeks of a large job, under this and other policies")
    goodput_cli.add_arguments(weeks)
    weeks.set_defaults(verb=goodput_cli.run)
    trace = verbs.add_parser("queue", help="a trace of a real cluster, under these and other rules of queueing")
    queue_cli.add_arguments(trace)
    trace.set_defaults(verb=queue_cli.run)
    given = parser.parse_args(arguments)
    try:
        return int(given.verb(given))
    except (scenario.ScenarioInvalid, OSError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
