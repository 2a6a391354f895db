"""Report of a comparison as JSON: every policy on the same failures, the sensitivity, the assumptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from simulator.goodput.accounting import account
from simulator.goodput.assumptions import Assumptions, Mark
from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.formula import expected_ettr, simulated_ettr
from simulator.goodput.gang_rules import GangPolicy
from simulator.goodput.lower_bound import shortest_episode_s
from simulator.goodput.policy import Episode, Policy, PolicyRun
from simulator.goodput.recovery_times import own_way_s
from simulator.goodput.runner import play
from simulator.goodput.sensitivity import by_effect, by_sizes, in_memory, sensitivity

BOUNDS = (
    "simulated: no GPU, no AWS account and no trainer took part; the failures are drawn from published rates and mixes",
    "one job on the whole cluster, restarted as a whole; nothing runs on the spares, and idle machines do not fail",
    "a program's fault meets nothing while nothing trains; a machine's stays, and shows when the gang trains on it",
    "machines of one kind take equally long for a check, a reboot or a start; what varies is failures and people",
    "every contender that restarts a gang hears what logs and its node monitor say, whether or not its real "
    "counterpart does; no log names a machine that is well, and no program's own error one",
    "rule models make no error of their own and decide in no time; the bound also knows all failures in advance",
    "no failure of AWS itself, of storage or of whole racks; nothing slows down without stopping",
    "sweeps other than that of checkpoints are of the product's own way at its best, which a contender on another way "
    "can undercut",
)
"""Limits of the simulation, as the report lists them."""
OF_A_REPLAY = (
    "recorded incidents: a fault strikes the machine that is in the place of its node by then, and what the record "
    "does not hold (what a log says, how long a person takes) is drawn"
)
"""Further limit of the simulation if the failures are recorded ones."""
IN_SEGMENTS = (
    "the product's own runs, and no others, are of legs side by side: each leg begins with a new fleet, in which the "
    "machines that fail often are back and nothing is sick, out or remembered"
)
"""Further limit of the simulation if the product runs in segments."""
FORMULA_RECOVERY_S = 300.0
"""Seconds of each recovery for which the report compares the simulation with the published formula."""


def report(
    trace: FailureTrace,
    facts: Assumptions,
    policies: Sequence[Policy],
    way: GangPolicy,
    sizes: Sequence[int] = (),
    workers: int = 1,
    segments: int = 1,
) -> dict[str, Any]:
    """Run the policies and return the report: times in seconds, losses in GPU-hours, shares of 1.

    Args:
        trace: the failures that every policy goes through.
        facts: the table of assumptions.
        policies: the policies to compare.
        way: the product's own way at its best, with which the sensitivity is computed.
        sizes: numbers of instances of further clusters to simulate.
        workers: processes to use.
        segments: number of segments, run in parallel, for the product's own runs (`segments`).

    Raises:
        SegmentsDoNotFit: the trace cannot be cut into this number of segments.
        SpecInvalid: the product accepts no job of this size.
    """
    profile, conditions = trace.profile, trace.conditions
    own = {policy.name: trace_of(policy, trace, facts) for policy in policies}
    results = play([(policy, own[policy.name]) for policy in policies], workers, segments)
    runs = {policy.name: run for policy, run in zip(policies, results, strict=True)}
    figures = [policy_figures(own[policy.name], policy, runs[policy.name]) for policy in policies]
    found = sensitivity(trace, facts, way, runs)
    return {
        "profile": {
            "name": profile.name,
            "about": profile.about,
            "instances": profile.instances,
            "gpus": profile.instances * profile.gpus,
            "days": profile.days,
            "failures": len(trace.failures),
            "failures_per_1000_node_days": profile.rate,
        },
        "seed": trace.seed,
        "legs": segments,
        "facts": facts.digest,
        "tuned": {
            name: tuned.value
            for name, tuned in facts.tuned.items()
            if getattr(conditions, name) == tuned.value != getattr(facts.conditions, name)
        },
        "policies": figures,
        "points_lost": {
            row["name"]: points_lost(row, profile.instances * profile.gpus * profile.days * 24) for row in figures
        },
        "formula": {
            "recovery_s": FORMULA_RECOVERY_S,
            "published": expected_ettr(
                len(trace.failures) / profile.seconds, FORMULA_RECOVERY_S, conditions.checkpoint_s, conditions.stall_s
            ),
            "simulated": simulated_ettr(profile, conditions, FORMULA_RECOVERY_S),
        },
        "by_size": by_sizes(trace, policies, runs, sizes, workers),
        "sensitivity": found | {"conditions": by_effect(found["conditions"])},
        "replay": bool(trace.incidents),
        "assumptions": _unpublished(facts),
        "bounds": [
            *BOUNDS,
            *((OF_A_REPLAY,) if trace.incidents else ()),
            *((IN_SEGMENTS,) if segments > 1 else ()),
        ],
    }


def trace_of(policy: Policy, trace: FailureTrace, facts: Assumptions) -> FailureTrace:
    """Return the trace that a policy goes through: with its own checkpoints, if it has them in memory."""
    if not policy.memory_checkpoints:
        return trace
    return replace(trace, conditions=replace(trace.conditions, **in_memory(facts)))


def _unpublished(facts: Assumptions) -> list[dict[str, Any]]:
    """Return the assumptions for which no source exists, as they stand in the report."""
    return [
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
    ]


def policy_figures(trace: FailureTrace, policy: Policy, run: PolicyRun) -> dict[str, Any]:
    """Return the figures of one policy, as they stand in the report."""
    profile = trace.profile
    figures = account(run, profile.seconds, profile.instances * profile.gpus, profile.gpus, trace.conditions)
    return {
        "name": policy.name,
        "about": policy.about,
        "ettr": figures.ettr,
        "ettr_of_all_paid": figures.ettr * profile.instances / (profile.instances + run.spares),
        "overhead": overhead(trace, policy, run),
        "overhead_but_for_relapses": overhead(trace, policy, run, relapses=False),
        "over_own_way": over_own_way(trace, policy, run),
        "over_own_way_but_for_relapses": over_own_way(trace, policy, run, relapses=False),
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


def overhead(trace: FailureTrace, policy: Policy, run: PolicyRun, *, relapses: bool = True) -> float | None:
    """Total time of all recoveries divided by the total of their bounds, so at least 1; None if nothing recovered.

    Args:
        trace: the failures.
        policy: the policy of the run.
        run: the run.
        relapses: include recoveries of a failure that returned, which a policy may delay on purpose.
    """
    return _ratio(run, lambda episode: shortest_episode_s(episode, trace), relapses=relapses)


def over_own_way(trace: FailureTrace, policy: Policy, run: PolicyRun, *, relapses: bool = True) -> float | None:
    """The same, divided by the times of the product's own way: the cost of a control plane on that way.

    It is no bound. A policy that goes another way, such as one without checks, can be below 1.
    """
    return _ratio(run, lambda episode: own_way_s(episode, trace, policy.level), relapses=relapses)


def _ratio(run: PolicyRun, least_s: Callable[[Episode], float], *, relapses: bool) -> float | None:
    recovered_s = least_total_s = 0.0
    for episode in run.episodes:
        if episode.training_at is not None and (relapses or not episode.is_relapse):
            recovered_s += episode.training_at - episode.fault_at
            least_total_s += least_s(episode)
    return recovered_s / least_total_s if least_total_s else None


def points_lost(figures: dict[str, Any], gpu_hours: float) -> dict[str, float]:
    """Loss of a policy against an ETTR of 100 %, in percentage points by phase.

    Args:
        figures: the figures of the policy (`policy_figures`).
        gpu_hours: GPU-hours of the whole run.
    """
    return {phase: 100 * hours / gpu_hours for phase, hours in figures["gpu_hours_lost_by_phase"].items()}
