"""Command `python -m simulator goodput`: compares recovery policies and prints the report."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpu_recovery.core.errors import SpecInvalid

from simulator.goodput.assumptions import Assumptions, AssumptionsInvalid, Conditions, Profile
from simulator.goodput.assumptions_file import TABLE, read
from simulator.goodput.baselines import BASELINES
from simulator.goodput.contenders import CONTENDERS, own_way, way_with_agents
from simulator.goodput.failure_trace import FailureTrace, Incident, failure_trace, replayed_trace
from simulator.goodput.incidents import IncidentsInvalid, read_incidents
from simulator.goodput.infinitehbd import convert
from simulator.goodput.lower_bound import LowerBound
from simulator.goodput.policy import Policy
from simulator.goodput.production import adaptive, seed_001, with_agents
from simulator.goodput.report import report
from simulator.goodput.report_text import text
from simulator.goodput.seeds_report import over_seeds
from simulator.goodput.segments import SegmentsDoNotFit
from simulator.goodput.sensitivity import in_memory

OK, FAILED, USAGE = 0, 1, 2
"""Exit statuses."""
SIZES = (64, 128, 256, 512, 2_048)
"""Instances of the clusters in the chart of ETTR by size."""
SPARES = 4
"""Default number of spare instances.

ByteRobust (arXiv 2509.16293), Table 5: the 99th percentile of the instances that a job of 1,024 instances lacks.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to `parser`."""
    parser.add_argument("--profile", default="small", help="a profile of the table of facts: llama3, rsc1 or small")
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, default=1, help="which failures strike (default 1)")
    seeds.add_argument("--seeds", type=_seeds, help="several seeds, as 1..5: mean and range of each figure")
    parser.add_argument(
        "--failures", type=Path, help="an incident list to replay, CSV or JSON, instead of drawn failures"
    )
    parser.add_argument(
        "--recorded-repairs", action="store_true", help="a replacement takes as long as the list says (models only)"
    )
    parser.add_argument(
        "--convert", type=Path, help="print the InfiniteHBD trace at this path as an incident list, and end"
    )
    parser.add_argument("--instances", type=int, help="another number of instances than the profile's")
    parser.add_argument("--days", type=float, help="the first days of the profile's run only")
    parser.add_argument("--spares", type=int, default=SPARES, help="spare instances where there are any (%(default)s)")
    parser.add_argument("--level", type=int, choices=(1, 2, 3), default=2, help="level of the health checks (2)")
    parser.add_argument("--tuned", action="store_true", help="with trainer and quotas tuned as the table says how to")
    parser.add_argument(
        "--memory-checkpoints",
        action="store_true",
        help="every policy saves its state in the memory of the instances each minute",
    )
    parser.add_argument("--facts", type=Path, default=TABLE, help="another table of facts")
    parser.add_argument("--charts", type=Path, help="a folder for the charts, as PNG and SVG")
    exclusive = parser.add_mutually_exclusive_group()
    exclusive.add_argument(
        "--models", action="store_true", help="leave the product's own runs out: seconds, not minutes"
    )
    exclusive.add_argument("--product", action="store_true", help="only the product with its spares, beside the bound")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes to run them with")
    parser.add_argument("--legs", type=int, default=1, help="cut the product's own runs into so many, side by side (1)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _seeds(text: str) -> range:
    """Return the seeds of `1..5`, both ends included."""
    first, separator, last = text.partition("..")
    try:
        seeds = range(int(first), int(last if separator else first) + 1)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds as 1..5") from error
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} is an empty range")
    return seeds


def policies(level: int, spares: int, *, models: bool, product: bool) -> list[Policy]:
    """Return the policies to compare: baselines, contenders and the product, all with the same spares, and the bound.

    Args:
        level: level of the health checks.
        spares: spare instances. Every policy also runs without spares, but for seed 001, which uses none.
        models: leave out the product.
        product: only the product with its spares, its own way at its best, and the bound.
    """
    bound = LowerBound()
    if product:
        return [adaptive(level, spares), with_agents(level, spares), own_way(level, spares), bound]
    compared: list[Policy] = [] if models else [seed_001(level)]
    for number in dict.fromkeys((0, spares)):
        compared += [make(number) for make in BASELINES]
        compared += [contender(number) for contender in CONTENDERS]
        compared += [] if models else [adaptive(level, number), with_agents(level, number)]
        compared += [own_way(level, number), way_with_agents(level, number)]
    return [*compared, bound]


class UsageInvalid(ValueError):
    """The options do not fit together. The message says why."""


def _profile(args: argparse.Namespace, facts: Assumptions) -> tuple[Profile, tuple[Incident, ...]]:
    """Return the run that the options ask for, and the recorded incidents, if there are any."""
    profile = facts.profile(args.profile)
    incidents: tuple[Incident, ...] = ()
    if args.instances is not None:
        if args.instances < 1:
            raise UsageInvalid("--instances must be at least 1")
        profile = profile.resized(args.instances)
    if args.legs < 1 or (args.legs > 1 and args.models):
        raise UsageInvalid("--legs must be at least 1, and 1 with --models: only the product's own runs are cut")
    if args.recorded_repairs and not (args.failures and args.models):
        raise UsageInvalid("--recorded-repairs needs --failures and --models: the product's own runs replace machines")
    if args.failures is not None:
        profile, incidents = _replay(args.failures, profile)
    if args.days is not None:
        if not 0 < args.days <= profile.days:
            raise UsageInvalid(f"--days must be more than 0 and at most {profile.days:g}, the profile's")
        profile = profile.shortened(args.days)
    return profile, incidents


def _replay(path: Path, profile: Profile) -> tuple[Profile, tuple[Incident, ...]]:
    """Return the profile with the length of the incident list, and its incidents."""
    listed = read_incidents(path)
    if len(listed.nodes) > profile.instances:
        raise UsageInvalid(
            f"{path.name} names {len(listed.nodes)} nodes, and the job has {profile.instances}: see --instances"
        )
    node_days = profile.instances * listed.days / 1_000
    about = f"recorded incidents of {path.name}, {len(listed.nodes)} nodes named"
    if listed.assumed:
        about += f", cure or form of {listed.assumed} taken from their causes"
    replayed = replace(profile, name=path.stem, about=about, days=listed.days, rate=len(listed.incidents) / node_days)
    return replayed, listed.incidents


def _trace(
    profile: Profile, conditions: Conditions, seed: int, incidents: tuple[Incident, ...], *, as_recorded: bool
) -> FailureTrace:
    if not incidents:
        return failure_trace(profile, conditions, seed)
    return replayed_trace(profile, conditions, seed, incidents, as_recorded=as_recorded)


def run(args: argparse.Namespace, error_sentence: Callable[[Exception], str] = str) -> int:
    """Compare the policies, print the report and return the exit status.

    Args:
        args: the options of the command.
        error_sentence: returns the sentence to print about an error of the options or of a file.
    """
    try:
        if args.convert is not None:
            print(convert(args.convert), end="")
            return OK
        facts = read(args.facts)
        profile, incidents = _profile(args, facts)
    except (AssumptionsInvalid, IncidentsInvalid, UsageInvalid, OSError, UnicodeDecodeError) as error:
        print(error_sentence(error), file=sys.stderr)
        return USAGE
    conditions = facts.tuned_conditions() if args.tuned else facts.conditions
    if args.memory_checkpoints:
        conditions = replace(conditions, **in_memory(facts))
    sizes = SIZES if args.charts is not None and not incidents else ()
    compared = policies(args.level, args.spares, models=args.models, product=args.product)
    reports = []
    try:
        for seed in args.seeds or (args.seed,):
            trace = _trace(profile, conditions, seed, incidents, as_recorded=args.recorded_repairs)
            way = own_way(args.level, args.spares)
            reports.append(report(trace, facts, compared, way, sizes, args.workers, args.legs))
    except SpecInvalid as error:
        print(error_sentence(ValueError(f"the product takes no such job: {error}")), file=sys.stderr)
        return FAILED
    except SegmentsDoNotFit as error:
        print(error_sentence(SegmentsDoNotFit(f"--legs {args.legs}: {error}")), file=sys.stderr)
        return FAILED
    comparison = over_seeds(reports) if args.seeds else reports[0]
    print(json.dumps(comparison, indent=2) if args.json else text(comparison))
    if args.charts is not None:
        # Imported here and not at the top: every other command would load matplotlib in vain.
        from simulator.goodput.charts import draw  # noqa: PLC0415

        draw(comparison, args.charts)
    return OK
