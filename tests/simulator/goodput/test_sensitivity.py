"""What the figures depend on: each sweep changes one thing, and says what it changes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from statistics import mean
from typing import Any

import pytest

from simulator.goodput.accounting import ettr
from simulator.goodput.assumptions_file import read
from simulator.goodput.baselines import human_only
from simulator.goodput.contenders import own_way
from simulator.goodput.failure_trace import failure_trace
from simulator.goodput.sensitivity import by_effect, by_sizes, checkpoints, sensitivity

FACTS = read()
GIVEN = failure_trace(FACTS.profile("llama3"), FACTS.conditions, 1)
WAY = own_way(2, 4)
RUNS = {"own way": WAY.run(GIVEN), "human": human_only().run(GIVEN)}


@cache
def sweeps() -> dict[str, Any]:
    """Every sweep of the own way. Tests share them and do not change them."""
    return sensitivity(GIVEN, FACTS, WAY, RUNS)


def test_checkpoints_are_counted_afterwards_as_a_run_under_them_would_be() -> None:
    """The interval alters no episode, so nothing is run again."""
    for one in checkpoints(GIVEN, RUNS, FACTS):
        changed = {key: one[key] for key in ("checkpoint_s", "stall_s", "persist_s") if key in one}
        then = failure_trace(GIVEN.profile, replace(FACTS.conditions, **changed), 1)
        again = ettr(WAY.run(then), GIVEN.profile.seconds, then.conditions)
        assert one["ettr"]["own way"] == pytest.approx(again)


def test_the_best_interval_is_no_worse_than_the_others() -> None:
    """Young's interval is for restarts of no length; here it is still within a tenth of a point of the best."""
    found = {one["checkpoints"]: one["ettr"]["own way"] for one in checkpoints(GIVEN, RUNS, FACTS)}
    best = next(share for name, share in found.items() if "the best" in name)
    assert best > max(share for name, share in found.items() if name.endswith(" s")) - 0.001


@pytest.mark.slow
def test_more_of_what_hurts_is_not_better() -> None:
    """Longer checks, time-outs and people cost; more spares do not."""
    found = {one["condition"]: one for one in sweeps()["conditions"]}
    for name in ("check_2_s", "hang_s", "human_s", "rejoin_s", "exit_s", "leave_s", "persist_s"):
        assert found[name]["ettr_at_high"] < found[name]["ettr_at_low"], name
    for name in ("calls_per_s", "seen_2"):
        assert found[name]["ettr_at_high"] > found[name]["ettr_at_low"], name
    spares = [one["ettr"] for one in sweeps()["spares"]]
    assert spares == sorted(spares)


@pytest.mark.slow
def test_those_that_matter_most_come_first() -> None:
    """A reader looks at the first lines."""
    effects = [abs(one["ettr_at_high"] - one["ettr_at_low"]) for one in by_effect(sweeps()["conditions"])]
    assert effects == sorted(effects, reverse=True)
    assert effects[0] > 0.02


def test_a_small_cluster_is_run_several_times() -> None:
    """It fails too seldom for one run to say much; at the profile's own size the run that there is counts as one."""
    given = failure_trace(FACTS.profile("small"), FACTS.conditions, 1)
    found = by_sizes(given, [WAY], {WAY.name: WAY.run(given)}, (64,))
    seeds = [failure_trace(given.profile, FACTS.conditions, seed) for seed in range(1, 6)]
    each = [ettr(WAY.run(one), given.profile.seconds, FACTS.conditions) for one in seeds]
    assert found["ettr"][WAY.name] == [pytest.approx(mean(each))]
    assert len(set(each)) > 1


def test_larger_clusters_lose_more_of_their_time() -> None:
    """Every machine's failure stops them all."""
    ettrs = by_sizes(GIVEN, [WAY], {WAY.name: RUNS["own way"]}, (128, 512, 1_536))["ettr"][WAY.name]
    assert ettrs == sorted(ettrs, reverse=True)


@pytest.mark.slow
def test_each_rung_of_the_ladder_adds_to_those_below_it() -> None:
    """What would raise the figure, and who could do it: the product, the trainer, AWS."""
    rungs = sweeps()["ladder"]
    assert rungs[0]["ettr"] == ettr(RUNS["own way"], GIVEN.profile.seconds, FACTS.conditions)
    ettrs = [one["ettr"] for one in rungs]
    assert ettrs == sorted(ettrs)
    assert {one["by"] for one in rungs[1:]} == {"the product", "the trainer", "AWS Support"}
