"""The report of a comparison: every policy on the same failures, what the figures depend on, what is assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.goodput.accounting import account
from simulator.goodput.assumptions import Assumptions, Mark
from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.formula import expected_ettr, simulated_ettr
from simulator.goodput.lower_bound import LowerBound, least_s
from simulator.goodput.policy import Policy, PolicyRun
from simulator.goodput.runner import play
from simulator.goodput.sensitivity import by_sizes, sensitivity

BOUNDS = (
    "simulated: no GPU, no AWS account and no trainer took part; the failures are drawn from published rates and mixes",
    "one job on the whole cluster, restarted as a whole; nothing runs on the spares, and idle machines do not fail",
    "a program's fault meets nothing while nothing trains; a machine's stays, and shows when the gang trains on it",
    "machines of one kind take equally long for a check, a reboot or a start; what varies is failures and people",
    "logs are read by adaptive and the floor alone; none names a machine that is well, and no program's own error one",
    "no failure of AWS itself, of storage or of whole racks; nothing slows down without stopping",
    "sweeps other than that of checkpoints are of the floor, which goes the way of the product in no time of its own",
)
IN_SEGMENTS = (
    "the product's own runs, and no others, are of legs side by side: each leg begins with a new fleet, in which the "
    "machines that fail often are back and nothing is sick, out or remembered"
)
FORMULA_RECOVERY_S = 300.0


def report(
    given: FailureTrace,
    facts: Assumptions,
    contenders: Sequence[Policy],
    floor: LowerBound,
    sizes: Sequence[int] = (),
    workers: int = 1,
    legs: int = 1,
) -> dict[str, Any]:
    """The report as JSON has it: seconds, GPU-hours, shares of 1.

    sizes: clusters of other sizes to go through as well; workers: processes to do so with; legs: in how many the
    product goes through the course itself, side by side (`legs`).
    """
    profile, conditions = given.profile, given.conditions
    made = play([(one, given) for one in contenders], workers, legs)
    runs = {one.name: run for one, run in zip(contenders, made, strict=True)}
    policies = [policy(given, one, runs[one.name]) for one in contenders]
    return {
        "profile": {
            "name": profile.name,
            "about": profile.about,
            "instances": profile.instances,
            "gpus": profile.instances * profile.gpus,
            "days": profile.days,
            "failures": len(given.failures),
            "failures_per_1000_node_days": profile.rate,
        },
        "seed": given.seed,
        "legs": legs,
        "facts": facts.digest,
        "tuned": {
            name: one.value
            for name, one in facts.tuned.items()
            if getattr(conditions, name) == one.value != getattr(facts.conditions, name)
        },
        "policies": policies,
        "points_lost": {
            one["name"]: points_lost(one, profile.instances * profile.gpus * profile.days * 24) for one in policies
        },
        "formula": {
            "recovery_s": FORMULA_RECOVERY_S,
            "published": expected_ettr(
                profile.failures_per_s, FORMULA_RECOVERY_S, conditions.checkpoint_s, conditions.stall_s
            ),
            "simulated": simulated_ettr(profile, conditions, FORMULA_RECOVERY_S),
        },
        "by_size": by_sizes(given, contenders, runs, sizes, workers),
        "sensitivity": sensitivity(given, facts, floor, runs),
        "assumptions": [
            {
                "name": fact.name,
                "value": fact.value,
                "unit": fact.unit,
                "low": fact.low,
                "high": fact.high,
                "why": fact.source,
            }
            for fact in facts.facts.values()
            if fact.mark is Mark.ASSUMPTION
        ],
        "bounds": [*BOUNDS, *((IN_SEGMENTS,) if legs > 1 else ())],
    }


def policy(given: FailureTrace, contender: Policy, run: PolicyRun) -> dict[str, Any]:
    """The figures of one policy."""
    profile = given.profile
    figures = account(run, profile.seconds, profile.instances * profile.gpus, profile.gpus, given.conditions)
    return {
        "name": contender.name,
        "about": contender.about,
        "ettr": figures.ettr,
        "ettr_of_all_paid": figures.ettr * profile.instances / (profile.instances + run.spares),
        "overhead": overhead(given, contender, run),
        "overhead_but_for_relapses": overhead(given, contender, run, relapses=False),
        "mttd_s": figures.mttd_s,
        "mttr_s": figures.mttr_s,
        "interruptions": figures.episodes,
        "of_them_relapses": figures.relapses,
        "failures_that_met_nothing": figures.unfelt,
        "unrecovered": figures.unrecovered,
        "reboots": figures.reboots,
        "false_reboots": figures.false_reboots,
        "replacements": figures.replacements,
        "notifications": figures.messages,
        "people_called": figures.called,
        "spares": run.spares,
        "gpu_hours_lost": figures.hours_by_cause,
        "gpu_hours_lost_by_phase": figures.hours_by_phase,
        "spare_gpu_hours": figures.spare_hours,
    }


def overhead(given: FailureTrace, contender: Policy, run: PolicyRun, *, relapses: bool = True) -> float | None:
    """All recoveries together / their floors together; None if nothing recovered.

    relapses: with those of a failure that came back, which a policy may answer with a pause on purpose.
    """
    took = least = 0.0
    for one in run.episodes:
        if one.training_at is not None and (relapses or not one.is_relapse):
            took += one.training_at - one.fault_at
            least += least_s(one, given, contender.level)
    return took / least if least else None


def points_lost(figures: dict[str, Any], gpu_hours: float) -> dict[str, float]:
    """What stands between a policy and an ETTR of 100 %, in percentage points by phase."""
    return {phase: 100 * hours / gpu_hours for phase, hours in figures["gpu_hours_lost_by_phase"].items()}
