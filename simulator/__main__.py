"""`python -m simulator run | play | explore | goodput | contract | queue`: the command line of the simulator.

Each command runs the product's own code under a virtual clock.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from simulator.explore import cli
from simulator.goodput import cli as goodput_cli
from simulator.goodput import contract
from simulator.queue import cli as queue_cli
from simulator.trials import campaign, scenario
from simulator.trials.trial import play


def seed_range(text: str) -> range:
    """Parse `A..B`: the seeds from A up to, but not including, B. A single number is that seed alone.

    Raises:
        ArgumentTypeError: The text is no such range, or the range is empty or negative.
    """
    first, dots, last = text.partition("..")
    try:
        seeds = range(int(first), int(last) if dots else int(first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"seeds are written A..B, not {text!r}") from None
    if not seeds or seeds.start < 0:
        raise argparse.ArgumentTypeError(f"{text!r} holds no seed")
    return seeds


def run(options: argparse.Namespace) -> int:
    """Run the seeds of faults and print the result. Return the exit code: 1 if a seed broke an invariant, else 0."""
    result = campaign.report(campaign.campaign(options.seeds, options.workers), options.seeds)
    print(json.dumps(result, indent=2) if options.json else _summary(result))
    return 1 if result["violations"] else 0


def _summary(result: dict[str, Any]) -> str:
    coverage = result["coverage"]
    lines = [
        f"{result['seeds']} seeds ({result['from']}..{result['to']}), {result['effects']} effects of functions",
        f"jobs ended: {_counts(result['ended'])}",
        f"faults: {_counts(result['faults'])}",
        f"transitions taken: {coverage['taken']} of {coverage['rows']} ({coverage['percent']} %)",
        f"violations: {len(result['violations'])}",
    ]
    lines += [f"  seed {violation['seed']}: {violation['sentence']}" for violation in result["violations"][:20]]
    if (first := result["first_failure"]) is not None:
        lines.append(f"\nseed {first['seed']}, {first['faults']} faults cut down to {first['faults_left']}:\n")
        lines += [first["scenario"], first["transcript"]]
    return "\n".join(lines)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def play_file(options: argparse.Namespace) -> int:
    """Play a scenario or a seed and print its transcript. Return 1 for a violation or an unexpected end, else 0."""
    if options.what.isdigit():
        drawn, played = campaign.play_seed(int(options.what))
        print(scenario.written(played.as_scenario(drawn)))
    else:
        played = play(scenario.read(Path(options.what)))
    print(played.world.transcript.text(), end="")
    for sentence in played.violations:
        print(f"BROKEN  {sentence}")
    return 1 if played.violations else 0


def build_parser(
    called: str = "python -m simulator",
    parser_class: type[argparse.ArgumentParser] = argparse.ArgumentParser,
    error_sentence: Callable[[Exception], str] = str,
) -> argparse.ArgumentParser:
    """Build the parser of all commands. The arguments are those of `main`."""
    parser = parser_class(called, description="The product's own code under a virtual clock.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    run_parser = verbs.add_parser("run", help="run seeds of faults and check the invariants after every step")
    run_parser.add_argument("--seeds", type=seed_range, default=range(300), metavar="A..B", help="default 0..300")
    run_parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes; default one for each core"
    )
    run_parser.add_argument("--json", action="store_true", help="print JSON")
    run_parser.set_defaults(verb=run)
    play_parser = verbs.add_parser("play", help="tell one scenario line by line")
    play_parser.add_argument("what", help="a scenario file, or a seed")
    play_parser.set_defaults(verb=play_file)
    explore_parser = verbs.add_parser("explore", help="walk every interleaving of a small world")
    cli.add_arguments(explore_parser)
    explore_parser.set_defaults(verb=cli.run)
    goodput_parser = verbs.add_parser("goodput", help="weeks of a large job, under this and other policies")
    goodput_cli.add_arguments(goodput_parser)
    goodput_parser.set_defaults(verb=partial(goodput_cli.run, error_sentence=error_sentence))
    contract_parser = verbs.add_parser("contract", help="the recovery contract of a job, against simulated incidents")
    contract.add_arguments(contract_parser, seed_range)
    contract_parser.set_defaults(verb=partial(contract.run, error_sentence=error_sentence))
    queue_parser = verbs.add_parser("queue", help="a trace of a real cluster, under these and other rules of queueing")
    queue_cli.add_arguments(queue_parser)
    queue_parser.set_defaults(verb=partial(queue_cli.run, error_sentence=error_sentence))
    return parser


def main(
    arguments: Sequence[str] | None = None,
    called: str = "python -m simulator",
    parser_class: type[argparse.ArgumentParser] = argparse.ArgumentParser,
    error_sentence: Callable[[Exception], str] = str,
) -> int:
    """Run the command that `arguments` name.

    Args:
        arguments: The command line without the program's name; None: that of the process.
        called: The name of the command, for the usage text.
        parser_class: The class of the parsers, which print errors of the command line.
        error_sentence: Returns the sentence to print about an error of the options or of a file.

    Returns:
        The exit code: 0 as expected, 1 something broke, 2 usage.
    """
    options = build_parser(called, parser_class, error_sentence).parse_args(arguments)
    try:
        return int(options.verb(options))
    except (scenario.ScenarioInvalid, OSError) as error:
        print(error_sentence(error), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
