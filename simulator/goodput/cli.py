"""Command `python -m simulator goodput`: compares recovery policies and prints the report."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from gpu_recovery.core.errors import SpecInvalid

from simulator.goodput.assumptions import AssumptionsInvalid
from simulator.goodput.assumptions_file import TABLE, read
from simulator.goodput.baselines import HUMAN_ONLY, REBOOT_ONLY, REPLACE_ONLY
from simulator.goodput.failure_trace import failure_trace
from simulator.goodput.lower_bound import LowerBound
from simulator.goodput.policy import Policy
from simulator.goodput.production import adaptive, seed_001
from simulator.goodput.report import report
from simulator.goodput.report_text import text
from simulator.goodput.segments import SegmentsDoNotFit

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
    parser.add_argument("--seed", type=int, default=1, help="which failures strike (default 1)")
    parser.add_argument("--instances", type=int, help="another number of instances than the profile's")
    parser.add_argument("--days", type=float, help="the first days of the profile's run only")
    parser.add_argument("--spares", type=int, default=SPARES, help=f"spare instances where there are any ({SPARES})")
    parser.add_argument("--level", type=int, choices=(1, 2, 3), default=2, help="level of the health checks (2)")
    parser.add_argument("--tuned", action="store_true", help="with trainer and quotas tuned as the table says how to")
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


def policies(level: int, spares: int, *, models: bool, product: bool) -> list[Policy]:
    """Return the policies to compare: the baselines, the product, and the lower bound.

    Args:
        level: level of the health checks.
        spares: spare instances, for the policies that use spares.
        models: leave out the product.
        product: only the product with its spares, and the lower bound.
    """
    bound = LowerBound(level, spares)
    if models:
        return [HUMAN_ONLY, REPLACE_ONLY, REBOOT_ONLY, bound]
    if product:
        return [adaptive(level, spares), bound]
    product_runs = (adaptive(level, 0), adaptive(level, spares)) if spares else (adaptive(level, 0),)
    return [HUMAN_ONLY, seed_001(level), REPLACE_ONLY, REBOOT_ONLY, *product_runs, bound]


def run(args: argparse.Namespace) -> int:
    """Compare the policies, print the report and return the exit status."""
    try:
        facts = read(args.facts)
        profile = facts.profile(args.profile)
    except (AssumptionsInvalid, OSError) as error:
        print(error, file=sys.stderr)
        return USAGE
    if args.instances is not None:
        if args.instances < 1:
            print("--instances must be at least 1", file=sys.stderr)
            return USAGE
        profile = profile.resized(args.instances)
    if args.legs < 1 or (args.legs > 1 and args.models):
        print("--legs must be at least 1, and 1 with --models: only the product's own runs are cut", file=sys.stderr)
        return USAGE
    if args.days is not None:
        if not 0 < args.days <= profile.days:
            print(f"--days must be more than 0 and at most {profile.days:g}, the profile's", file=sys.stderr)
            return USAGE
        profile = profile.shortened(args.days)
    trace = failure_trace(profile, facts.tuned_conditions() if args.tuned else facts.conditions, args.seed)
    bound, sizes = LowerBound(args.level, args.spares), SIZES if args.charts is not None else ()
    compared = policies(args.level, args.spares, models=args.models, product=args.product)
    try:
        comparison = report(trace, facts, compared, bound, sizes, args.workers, args.legs)
    except SpecInvalid as error:
        print(f"the product takes no such job: {error}", file=sys.stderr)
        return FAILED
    except SegmentsDoNotFit as error:
        print(f"--legs {args.legs}: {error}", file=sys.stderr)
        return FAILED
    print(json.dumps(comparison, indent=2) if args.json else text(comparison))
    if args.charts is not None:
        # Imported here and not at the top: every other command would load matplotlib in vain.
        from simulator.goodput.charts import draw  # noqa: PLC0415

        draw(comparison, args.charts)
    return OK
