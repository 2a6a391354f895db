"""The bound is one: no policy, no seed, no profile and no single recovery goes below it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from simulator.goodput.accounting import ettr
from simulator.goodput.assumptions import Conditions, Cure, Shows
from simulator.goodput.baselines import BASELINES
from simulator.goodput.contenders import CONTENDERS, LEVERS, own_way, way_with_agents
from simulator.goodput.failure_trace import FailureTrace, failure_trace
from simulator.goodput.lower_bound import LowerBound, shortest_episode_s, shortest_s, unavoidable
from simulator.goodput.policy import Policy
from simulator.goodput.production import adaptive
from simulator.goodput.report import overhead
from simulator.goodput.sensitivity import in_memory
from tests.simulator.goodput.test_own_way import CONDITIONS, FACTS, LLAMA3, SMALL, changed, failure, of

RSC1 = FACTS.profile("rsc1")


def everybody() -> list[Policy]:
    """All models with and without spares, and the product's way with each lever and with all of them."""
    found: list[Policy] = [make(spares) for make in (*BASELINES, *CONTENDERS) for spares in (0, 4)]
    way = own_way(2, 4)
    for _, abilities in LEVERS.values():
        found.append(changed(own_way(1, 0), **abilities))
        way = changed(way, **abilities)
        found.append(way)
    return [*found, own_way(2, 0), own_way(2, 4), own_way(3, 1), way_with_agents(2, 4)]


def _below(trace: FailureTrace) -> list[str]:
    """The policies that keep more than the bound on this trace, or recover faster once."""
    seconds, conditions, found = trace.profile.seconds, trace.conditions, list[str]()
    bound = ettr(LowerBound().run(trace), seconds, conditions)
    for policy in everybody():
        run = policy.run(trace)
        if ettr(run, seconds, conditions) > bound + 1e-9:
            found.append(f"{policy.name}: ETTR {ettr(run, seconds, conditions)} > {bound}")
        found += [
            f"{policy.name}: {one}"
            for one in run.episodes
            if one.training_at is not None and one.training_at - one.fault_at < shortest_episode_s(one, trace) - 1e-6
        ]
    return found


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("profile", [SMALL, RSC1.shortened(9), LLAMA3.shortened(14)], ids=lambda one: one.name)
def test_nobody_goes_below_the_bound(profile: object, seed: int) -> None:
    """Each run, and each of its recoveries."""
    assert _below(failure_trace(profile, CONDITIONS, seed)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_nobody_goes_below_the_bound_under_other_conditions(seed: int) -> None:
    """Each condition anywhere in its range, where failures follow so closely that some strike nothing."""
    draw, changes = random.Random(seed), dict[str, float]()
    for name in Conditions.__slots__:
        fact = FACTS.facts[f"conditions.{name}"]
        if fact.low is not None and fact.high is not None:
            changes[name] = draw.uniform(fact.low, fact.high)
    profile = replace(FACTS.profile("small"), days=4.0, rate=300.0)
    assert _below(failure_trace(profile, replace(CONDITIONS, **changes), seed)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("days", "seed"), [(3.0, 1), *(pytest.param(10.0, seed, marks=pytest.mark.full) for seed in (1, 2))]
)
def test_the_product_does_not_go_below_the_bound(days: float, seed: int) -> None:
    """Small, as the findings had it: without spares the product undercut what was called its floor."""
    given = failure_trace(replace(SMALL.resized(16), days=days, rate=150.0), CONDITIONS, seed)
    bound = ettr(LowerBound().run(given), given.profile.seconds, CONDITIONS)
    for spares in (0, 4):
        run = adaptive(2, spares).run(given)
        assert len(run.episodes) >= 2 * days
        assert ettr(run, given.profile.seconds, CONDITIONS) <= bound
        for one in run.episodes:
            if one.training_at is not None:
                assert one.training_at - one.fault_at >= shortest_episode_s(one, given), one


def test_the_shortest_recovery_is_its_visible_end_a_start_in_place_and_the_set_up() -> None:
    """Computed here once more by hand, for 2,048 instances."""
    set_up = (60 + 0.00854 * 16_384) * 0.5
    assert shortest_s(Shows.EXIT, LLAMA3, CONDITIONS) == pytest.approx(10 + 10 + set_up)
    assert shortest_s(Shows.HANG, LLAMA3, CONDITIONS) == pytest.approx(10 + 10 + set_up)
    assert shortest_s(Shows.GONE, LLAMA3, CONDITIONS) == pytest.approx(10 + set_up)
    assert shortest_s(None, LLAMA3, CONDITIONS) == shortest_s(Shows.GONE, LLAMA3, CONDITIONS)


def test_the_bound_waits_where_a_failure_would_undo_its_start() -> None:
    """A slower policy is lucky: the second failure strikes a gang that does not train. The bound is as lucky."""
    least = shortest_s(Shows.EXIT, SMALL, CONDITIONS)
    second = 10_000.0 + least + 20.0
    given = of(failure(10_000.0, cure=Cure.RESTART), failure(second, cure=Cure.RESTART, place=9))
    (one,) = LowerBound().run(given).episodes
    assert one.training_at == second
    late = of(failure(10_000.0, cure=Cure.RESTART), failure(10_000.0 + least + 700.0, cure=Cure.RESTART, place=9))
    assert len(LowerBound().run(late).episodes) == 2


def test_a_machine_that_fails_often_fails_once() -> None:
    """A policy may have left it out."""
    given = of(failure(10_000.0, of_lemon=True), failure(90_000.0, of_lemon=True), failure(180_000.0))
    assert [one.number for one in unavoidable(given)] == [0, 2]


def test_its_own_overhead_is_one_unless_it_waits() -> None:
    """The ratio of a run to the bound of its episodes."""
    given = of(failure(10_000.0), failure(90_000.0, place=7, shows=Shows.HANG))
    assert overhead(given, LowerBound(), LowerBound().run(given)) == pytest.approx(1.0)


def test_with_checkpoints_in_memory_the_bound_is_higher() -> None:
    """A policy that has them is compared with the bound that has them."""
    conditions = replace(CONDITIONS, **in_memory(FACTS))
    given = failure_trace(LLAMA3.shortened(14), conditions, 1)
    plain = replace(given, conditions=CONDITIONS)
    assert LowerBound(memory_checkpoints=True).name == "bound, memory checkpoints"
    found = [ettr(LowerBound().run(one), one.profile.seconds, one.conditions) for one in (plain, given)]
    assert found[1] > found[0]
