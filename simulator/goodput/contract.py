"""The recovery contract of a job in the simulator: the model of a submission beside the production loop.

A submission computes what to expect with a small model (`core/recovery_expectation`). Here the production loop goes
through drawn failures of the same job, and the same quantiles are taken from what it did. The failures are those of the
profile `llama3`, at a higher rate, so that few days have enough incidents. The records of a fleet give the rate of its
own failures, from which the expected number of incidents follows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.job.downtime import has_contract
from gpu_recovery.core.job.spec import Backend, JobSpec
from gpu_recovery.core.recovery_expectation.expectation import (
    DEFAULT_DAYS,
    MET_AT,
    Contract,
    Expectation,
    Lengths,
    expectation,
    lengths_of,
)
from gpu_recovery.core.recovery_expectation.published_times import CHECKPOINT_S, Setup
from gpu_recovery.core.recovery_expectation.sentences import contract_of, sentences
from gpu_recovery.job_api.job_spec import parse_spec
from gpu_recovery.job_api.yaml_reader import read_yaml

from simulator.goodput import assumptions_file
from simulator.goodput.accounting import percentile, stretches, trained
from simulator.goodput.failure_trace import failure_trace
from simulator.goodput.production import adaptive, with_agents
from simulator.replay.fleet_rate import NO_RECORDS, FleetFigures, fleet_figures
from simulator.replay.records import read_records

PROFILE = "llama3"
"""Profile of the failures, whose mix the model has too."""
RATE = 40.0
"""Failures of 1,000 instances a day: ten times the profile's. One recovery still ends before the next failure. A fleet
with more failures is simulated at its own rate."""
DAYS = 5.0
"""Days of each seed."""
LEVEL = 2
"""Level of the health checks."""
RETURNS_MAX = 1
"""Returns of one fault that are compared with the model."""
INSTANCES_MAX = 256
"""Instances of a job at most. A larger gang takes hours."""


class ContractInvalid(ValueError):
    """A document or an option that the verb cannot use."""


@dataclass(frozen=True)
class Comparison:
    """Quantiles by the model and by the production loop.

    incidents: simulated incidents whose quantiles are taken.
    returned:  further incidents of faults that no check finds. Such a fault returns until a person acts. The model has
        only its first return.
    kept:      share of all simulated incidents, with those that returned, that keep the contract.
    """

    model: Lengths
    simulated: Lengths
    incidents: int
    returned: int
    kept: float


def compare(
    setup: Setup,
    contract: Contract,
    seeds: Sequence[int],
    workers: int = 1,
    days: float = DAYS,
    own_rate: float = 0.0,
) -> Comparison:
    """Return the lengths of an incident by the model, and of the incidents of these seeds.

    Incidents in which a person must fix the program are left out on both sides: no contract bounds a person.

    Args:
        setup: the job and its surroundings.
        contract: its limits.
        seeds: the seeds of the failures.
        workers: processes to use.
        days: days of each seed.
        own_rate: failures of 1,000 instances a day of the fleet. It is simulated if it is more than RATE.

    Raises:
        ContractInvalid: no incident occurred.
    """
    run = partial(incidents_of, setup, days, own_rate=own_rate)
    if workers > 1:
        with ProcessPoolExecutor(workers) as pool:
            found = [each for incidents in pool.map(run, seeds) for each in incidents]
    else:
        found = [each for seed in seeds for each in run(seed)]
    compared = [each for each in found if not each.returned]
    if not compared:
        raise ContractInvalid("no incident occurred: give more seeds")
    returned = len(found) - len(compared)
    every, simulated = _lengths(found, contract), _lengths(compared, contract)
    kept = min(every.down_kept, every.lost_kept)
    return Comparison(lengths_of(setup, contract), simulated, len(compared), returned, kept)


@dataclass(frozen=True)
class Incident:
    """A simulated incident: seconds of its downtime, with the work that is done again, and whether it had returned."""

    down_s: float
    lost_s: float
    returned: bool


def incidents_of(setup: Setup, days: float, seed: int, own_rate: float = 0.0) -> list[Incident]:
    """Return each incident of a seed in the production loop, without those that a person ends."""
    return list(_incidents(setup, days, seed, max(RATE, own_rate)))


def _incidents(setup: Setup, days: float, seed: int, rate: float) -> Iterator[Incident]:
    facts = assumptions_file.read()
    profile = replace(facts.profile(PROFILE).resized(setup.nnodes), gpus=setup.gpus_per_node, days=days, rate=rate)
    conditions = replace(facts.conditions, checkpoint_s=setup.checkpoint_s)
    policy = (with_agents if setup.in_place else adaptive)(LEVEL, setup.spares)
    trace = failure_trace(profile, conditions, seed)
    times = Counter[int | None]()
    for length, episode in stretches(policy.run(trace), profile.seconds):
        if episode is None or episode.training_at is None or episode.cause == "bug_to_mend":
            continue
        times[episode.failure] += 1
        down_s = episode.training_at - episode.fault_at
        lost_s = down_s + trained(length, conditions, broken=True).lost
        yield Incident(down_s, lost_s, episode.is_relapse and times[episode.failure] > RETURNS_MAX + 1)


def _lengths(found: Sequence[Incident], contract: Contract) -> Lengths:
    down, lost = [each.down_s for each in found], [each.lost_s for each in found]

    def within(values: Sequence[float], limit: float | None) -> float:
        return 1.0 if limit is None else sum(value <= limit for value in values) / len(values)

    return Lengths(
        percentile(down, 0.5) or 0.0,
        percentile(down, 0.95) or 0.0,
        percentile(lost, 0.5) or 0.0,
        percentile(lost, 0.95) or 0.0,
        within(down, contract.down_s),
        within(lost, contract.lost_s),
    )


# -- the command line --------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser, seed_range: Callable[[str], range]) -> None:
    """Add the arguments of the verb `contract`."""
    parser.add_argument("job", type=Path, help="a job document in YAML or JSON, with a recovery contract")
    parser.add_argument("--seeds", type=seed_range, default=range(20), metavar="A..B", help="default 0..20")
    parser.add_argument("--spares", type=int, default=1, metavar="N", help="idle spare instances; default 1")
    parser.add_argument(
        "--records",
        type=Path,
        metavar="DIR",
        help="a folder that fleet what-if --save wrote: this fleet's failure rate in place of the published one",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes to run them with")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace, error_sentence: Callable[[Exception], str] = str) -> int:
    """Print what the job may expect by the model and by the production loop. Return the exit code.

    The exit code is 0 if the contract is met in the simulation, 1 if it is not, and 2 for a wrong document, option or
    record.
    """
    try:
        spec = _spec(options.job)
        if options.spares < 0:
            raise ContractInvalid(f"--spares must be at least 0, not {options.spares}")
        fleet = NO_RECORDS if options.records is None else fleet_figures(read_records(options.records))
        setup, contract = setup_of(spec, options.spares), contract_of(spec)
        own_rate = fleet.rate.per_1000_instance_days(spec.gpus_per_node)
        workers = max(1, options.workers)
        compared = compare(setup, contract, list(options.seeds), workers, own_rate=own_rate)
    except (SpecInvalid, ContractInvalid, ValueError, RecursionError) as error:  # or no YAML, or no records
        print(error_sentence(error), file=sys.stderr)
        return 2
    days = spec.max_runtime_s / 86_400 if spec.max_runtime_s else DEFAULT_DAYS
    found = expectation(setup, contract, fleet.rate, fleet.recoveries, days)
    report = _report(compared, found, fleet, spec)
    print(json.dumps(report, indent=2) if options.json else _text(compared, found, setup, spec, fleet))
    return 0 if compared.kept >= MET_AT else 1


def setup_of(spec: JobSpec, spares: int) -> Setup:
    """Return the setup of a job with so many spare instances. The policy of a deployment is not known here."""
    return Setup(
        spec.nnodes,
        spec.gpus_per_node,
        spares=spares,
        in_place=bool(spec.restart_in_place),
        reports_progress=bool(spec.restart_in_place) or spec.is_reporting_progress,
        checkpoint_s=CHECKPOINT_S if spec.checkpoint_every_s is None else float(spec.checkpoint_every_s),
    )


def _spec(path: Path) -> JobSpec:
    spec = parse_spec(read_yaml(path.read_text(encoding="utf-8")))
    if not has_contract(spec):
        raise ContractInvalid("the job has no recovery contract: give max_down_minutes or max_lost_minutes")
    if spec.backend is not Backend.ECS or spec.nnodes > INSTANCES_MAX:
        raise ContractInvalid(f"the simulator takes jobs on ECS with at most {INSTANCES_MAX} instances")
    if spec.nnodes_min is not None:
        raise ContractInvalid("the simulator takes jobs of a fixed number of instances here: give one number as nnodes")
    return spec


def _report(compared: Comparison, found: Expectation, fleet: FleetFigures, spec: JobSpec) -> dict[str, Any]:
    low, high = found.incidents_range
    return {
        "incidents": compared.incidents,
        "model": asdict(compared.model),
        "simulated": asdict(compared.simulated),
        "returned": compared.returned,
        "kept": compared.kept,
        "is_met": compared.kept >= MET_AT,
        "failure_rate": fleet.view(spec.gpus_per_node),
        "expected_incidents": {
            "days": round(found.days, 3),
            "mean": round(found.incidents, 3),
            "low": round(low, 3),
            "high": round(high, 3),
        },
    }


def _text(compared: Comparison, found: Expectation, setup: Setup, spec: JobSpec, fleet: FleetFigures) -> str:
    rows = [f"{'':11} {'down p50':>10} {'down p95':>10} {'lost p50':>10} {'lost p95':>10} {'kept':>7}"]
    for name, lengths in (("model", compared.model), ("simulated", compared.simulated)):
        times = (lengths.down_p50_s, lengths.down_p95_s, lengths.lost_p50_s, lengths.lost_p95_s)
        minutes = " ".join(f"{seconds / 60:>6.1f} min" for seconds in times)
        rows.append(f"{name:11} {minutes} {100 * min(lengths.down_kept, lengths.lost_kept):>6.1f}%")
    told = sentences(found, setup, spec, fleet.rate.sentence(spec.gpus_per_node))
    counted = f"{compared.incidents} simulated incidents"
    again = f"{compared.returned} further incidents of faults that no check finds; of all, {compared.kept:.1%} are kept"
    return "\n".join([counted, *rows, again, "", *told, *_rate_lines(fleet, spec.gpus_per_node)])


def _rate_lines(fleet: FleetFigures, gpus_per_node: int) -> Iterator[str]:
    """Yield the failure rate with its range, and the recorded incidents of each cause."""
    view = fleet.view(gpus_per_node)
    each = f"instance-days with {gpus_per_node} GPUs"
    middle, low, high = view["per_1000_instance_days"], view["low"], view["high"]
    yield f"failures per 1,000 {each}: {middle:.1f} (90 % range {low:.1f} to {high:.1f})"
    if not view["own_instance_days"]:
        return
    number, days = view["own_incidents"], view["own_instance_days"]
    yield f"the records alone: {number} incident(s) in {days:.1f} {each}, {number / days * 1_000:.1f} per 1,000"
    for cause, counted in view["by_cause"].items():
        yield f"cause {cause}: {counted['incidents']} incident(s), {counted['per_1000_instance_days']:.1f} per 1,000"
