"""`python -m simulator goodput`: the comparison, printed."""

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
from simulator.goodput.charts import draw
from simulator.goodput.failure_trace import failure_trace
from simulator.goodput.lower_bound import LowerBound
from simulator.goodput.policy import Policy
from simulator.goodput.production import adaptive, seed_001
from simulator.goodput.report import report
from simulator.goodput.report_text import text
from simulator.goodput.segments import SegmentsDoNotFit

OK, FAILED, USAGE = 0, 1, 2
SIZES = (64, 128, 256, 512, 2_048)
"""Of the chart by size."""
SPARES = 4
"""ByteRobust (arXiv 2509.16293), Table 5: the 99th percentile of machines that a job of 1,024 instances lacks."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("--profile", default="small", help="a profile of the table of facts: llama3, rsc1 or small")
    parser.add_argument("--seed", type=int, default=1, help="which failures strike (default 1)")
    parser.add_argument("--instances", type=int, help="another number of instances than the profile's")
    parser.add_argument("--days", type=float, help="the first days of the profile's run only")
    parser.add_argument("--spares", type=int, default=SPARES, help=f"spare instances where there are any ({SPARES})")
    parser.add_argument("--level", type=int, choices=(1, 2, 3), default=2, help="level of the health checks (2)")
    parser.add_argument("--tuned", action="store_true", help="with trainer and quotas tuned as the table says how to")
    parser.add_argument("--facts", type=Path, default=TABLE, help="another table of facts")
    parser.add_argument("--charts", type=Path, help="a folder for the charts, as PNG and SVG")
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--models", action="store_true", help="leave the product's own runs out: seconds, not minutes")
    some.add_argument("--product", action="store_true", help="only the product with its spares, beside the bound")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes to run them with")
    parser.add_argument("--legs", type=int, default=1, help="cut the product's own runs into so many, side by side (1)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def policies(level: int, spares: int, *, models: bool, product: bool) -> list[Policy]:
    """Those that are compared: the other ways, the product, and the bound.

    models: without the product; `product`: nothing but the product with its spares and the bound.
    """
    with_spares = LowerBound(level, spares)
    if models:
        return [HUMAN_ONLY, REPLACE_ONLY, REBOOT_ONLY, with_spares]
    if product:
        return [adaptive(level, spares), with_spares]
    ours = (adaptive(level, 0), adaptive(level, spares)) if spares else (adaptive(level, 0),)
    return [HUMAN_ONLY, seed_001(level), REPLACE_ONLY, REBOOT_ONLY, *ours, with_spares]


def run(args: argparse.Namespace) -> int:
    """Compare, and print; the exit status."""
    try:
        facts = read(args.facts)
        profile = facts.profile(args.profile)
    except (AssumptionsInvalid, OSError) as wrong:
        print(wrong, file=sys.stderr)
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
    given = failure_trace(profile, facts.tuned_conditions() if args.tuned else facts.conditions, args.seed)
    floor, sizes = LowerBound(args.level, args.spares), SIZES if args.charts is not None else ()
    compared = policies(args.level, args.spares, models=args.models, product=args.product)
    try:
        found = report(given, facts, compared, floor, sizes, args.workers, args.legs)
    except SpecInvalid as refused:
        print(f"the product takes no such job: {refused}", file=sys.stderr)
        return FAILED
    except SegmentsDoNotFit as unfit:
        print(f"--legs {args.legs}: {unfit}", file=sys.stderr)
        return FAILED
    print(json.dumps(found, indent=2) if args.json else text(found))
    if args.charts is not None:
        draw(found, args.charts)
    return OK
