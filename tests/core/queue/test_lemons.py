"""Machines that fail again and again: the last of equals, and never refused."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta

import hypothesis
import pytest
from gpu_recovery.core.cluster_snapshot import snapshot_of
from gpu_recovery.core.instance.fault_history import EACH_MAX, signal_at
from gpu_recovery.core.instance.lemons import LemonSignal
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.quota import QuotaLimits
from gpu_recovery.core.queue.snapshot import Host
from hypothesis import strategies as st

from tests.core import build
from tests.core.queue.build import at, given, host, hosts, passed, recovering, running, waiting
from tests.tiers import examples, seeds


def test_of_equal_hosts_those_that_failed_least_are_taken_first() -> None:
    """By the score, then as ever."""
    fleet = [host("i-1", lemon=0.6), host("i-2", lemon=0.3), host("i-3"), host("i-4", lemon=0.3), host("i-5")]
    assert given(passed([waiting("a")], fleet)) == {"a": ("i-3",)}
    assert given(passed([waiting("a", 4)], fleet)) == {"a": ("i-3", "i-5", "i-2", "i-4")}


def test_no_host_is_refused_for_its_past() -> None:
    """A gang that needs them all has them all, and a job for which there is nothing else has what there is."""
    fleet = [host("i-1", lemon=0.9), host("i-2"), host("i-3", lemon=0.4)]
    assert given(passed([waiting("a", 3)], fleet)) == {"a": ("i-2", "i-3", "i-1")}
    assert given(passed([waiting("a")], fleet[:1])) == {"a": ("i-1",)}


def test_equals_keep_their_order() -> None:
    """Whatever the score is that they have in common."""
    line = [waiting(name, nodes, since=-nodes) for name, nodes in (("a", 3), ("b", 2), ("c", 1))]
    plain = given(passed(line, hosts("i-1", "i-2", "i-3", "i-4", "i-5", "i-6")))
    assert given(passed(line, hosts("i-1", "i-2", "i-3", "i-4", "i-5", "i-6", lemon=0.5))) == plain


def test_what_fits_exactly_and_what_is_in_use_come_before_the_past() -> None:
    """A whole host that is broken for a small job is one less for a gang, today."""
    fleet = [host("i-1", 8), host("i-2", 4, lemon=0.5)]
    assert given(passed([waiting("a", gpus=4)], fleet)) == {"a": ("i-2",)}
    fleet = [host("i-1", 8), host("i-2", 8, free=6, lemon=0.5)]
    assert given(passed([waiting("a", gpus=2)], fleet)) == {"a": ("i-2",)}


def test_of_the_hosts_in_use_a_lemon_is_the_last_even_if_it_fits_best() -> None:
    """No empty host is broken up in either case."""
    fleet = [host("i-1", 8), host("i-2", 8, free=2, lemon=0.5), host("i-3", 8, free=7)]
    assert given(passed([waiting("a", gpus=2)], fleet)) == {"a": ("i-3",)}


def test_a_gang_takes_the_rack_without_the_machine_that_was_just_repaired() -> None:
    """Although the rack with the repaired machine fits the gang exactly. A gang that needs that rack has it."""
    repaired = [host("a-1", rack="a", lemon=0.3), host("a-2", rack="a")]
    fleet = [*repaired, *hosts("b-1", "b-2", "b-3", "b-4", rack="b")]
    assert set(given(passed([waiting("g", 2)], fleet))["g"]) <= {"b-1", "b-2", "b-3", "b-4"}
    assert given(passed([waiting("g", 2)], [*repaired, host("b-1", rack="b")])) == {"g": ("a-2", "a-1")}
    assert given(passed([waiting("g", 2)], fleet[:2])) == {"g": ("a-2", "a-1")}


def test_a_gang_over_two_racks_takes_no_lemon_of_them_if_the_others_are_enough() -> None:
    """No third rack takes part for that."""
    fleet = [
        *hosts("a-1", "a-2", rack="a", lemon=0.3),
        *hosts("a-3", "a-4", "a-5", rack="a"),
        *hosts("b-1", "b-2", "b-3", "b-4", rack="b"),
        host("c-1", rack="c"),
    ]
    answer = given(passed([waiting("g", 7), waiting("h", 1)], fleet))
    assert set(answer["g"]) == {"a-3", "a-4", "a-5", "b-1", "b-2", "b-3", "b-4"}
    answer = given(passed([waiting("g", 8)], fleet))
    assert {host_id for host_id in answer["g"] if host_id in ("a-1", "a-2")} and "c-1" not in answer["g"]


@st.composite
def rack_fleets(draw: st.DrawFn) -> tuple[Host, ...]:
    """Empty hosts of 8 GPUs in racks of two zones, some of them lemons."""
    racks = [("x", "a"), ("x", "b"), ("y", "c"), ("y", "d")]
    places = draw(st.lists(st.sampled_from(racks), min_size=1, max_size=14))
    scores = st.sampled_from([0.0, 0.0, 0.3, 0.6])
    return tuple(
        host(f"i-{number:02}", rack=rack, zone=zone, lemon=draw(scores)) for number, (zone, rack) in enumerate(places)
    )


@hypothesis.given(rack_fleets(), st.integers(1, 8))
@examples(4)
def test_lemons_change_the_hosts_of_a_gang_and_not_its_racks_and_zones(fleet: tuple[Host, ...], nodes: int) -> None:
    """The gang starts if it would start without scores, in as few racks and zones, and with the lowest scores there."""
    by_id = {one.host_id: one for one in fleet}
    chosen = [by_id[name] for name in given(passed([waiting("g", nodes)], fleet)).get("g", ())]
    plain = given(passed([waiting("g", nodes)], [replace(one, lemon=0.0) for one in fleet])).get("g", ())
    assert len(chosen) == len(plain)
    assert len({one.rack for one in chosen}) == len({by_id[name].rack for name in plain})
    assert len({one.zone for one in chosen}) == len({by_id[name].zone for name in plain})
    racks: dict[str, list[float]] = {}
    for one in fleet:
        racks.setdefault(one.rack, []).append(one.lemon)
    possible = [sum(sorted(scores)[:nodes]) for scores in racks.values() if len(scores) >= nodes]
    if possible:
        assert sum(one.lemon for one in chosen) == pytest.approx(min(possible))
    elif chosen:
        inside = sorted(one.lemon for one in fleet if one.rack in {other.rack for other in chosen})
        assert sum(one.lemon for one in chosen) == pytest.approx(sum(inside[:nodes]))


def test_a_gang_stays_in_one_rack_with_a_lemon_in_it() -> None:
    """Within the rack it is the last one."""
    fleet = [*hosts("a-1", "a-2", rack="a", lemon=0.8), host("b-1", rack="b"), host("c-1", rack="c")]
    assert given(passed([waiting("g", 2)], fleet)) == {"g": ("a-1", "a-2")}
    fleet = [host("a-1", rack="a", lemon=0.8), *hosts("a-2", "a-3", rack="a"), host("b-1", rack="b")]
    assert given(passed([waiting("g", 2)], fleet)) == {"g": ("a-2", "a-3")}


def test_a_recovering_gang_keeps_its_survivors_and_takes_a_lemon_last() -> None:
    """What is kept for it, it takes by the same order."""
    fleet = [host("i-1", lemon=0.7), host("i-2", lemon=0.2), host("i-3"), host("i-4")]
    assert given(passed([recovering("g", "i-1", "i-9")], fleet)) == {"g": ("i-1", "i-3")}
    kept = [host("i-1", lemon=0.7, reserved_for="g"), *hosts("i-2", "i-3", reserved_for="g")]
    assert given(passed([waiting("g", 2)], kept)) == {"g": ("i-2", "i-3")}


def test_among_hosts_that_leave_a_lemon_is_the_last() -> None:
    """They are taken where nothing else is left, or by who ends before."""
    fleet = [host("i-1", lemon=0.5, leaves_at=at(60)), host("i-2", leaves_at=at(60))]
    assert given(passed([waiting("a")], fleet)) == {"a": ("i-2",)}
    assert given(passed([waiting("a", runs_for_s=30)], fleet)) == {"a": ("i-2",)}


def test_a_lemon_that_was_set_aside_for_one_job_is_the_last_for_the_next() -> None:
    """A gang takes its suspects last, and puts back what it did not need."""
    fleet = [host("i-1", lemon=0.5), *hosts("i-2", "i-3", "i-4")]
    line = [recovering("g", "i-1", "i-2", suspects={"i-1": 0}), waiting("a")]
    answer = given(passed(line, fleet))
    assert "i-1" not in (*answer["g"], *answer["a"])


def test_a_lemon_in_use_is_the_last_of_those_that_are_as_free() -> None:
    """A share of it is given only after what is left of the others."""
    fleet = [host("i-1", free=6, lemon=0.5), host("i-2", free=6)]
    line = [waiting(name, gpus=3, since=since) for name, since in (("a", -3), ("b", -2), ("c", -1))]
    assert given(passed(line, fleet)) == {"a": ("i-2",), "b": ("i-2",), "c": ("i-1",)}


@pytest.mark.parametrize("seed", seeds(40, fast=5, default=20))
def test_the_same_hosts_in_any_order_give_the_same_answer(seed: int) -> None:
    """With lemons among them, in use and not, in racks and without."""
    drawn = random.Random(seed)
    fleet = [
        Host(f"i-{n}", "", 8, drawn.choice((2, 5, 8)), lemon=drawn.choice((0.0, 0.3, 0.6)), rack=drawn.choice("ab"))
        for n in range(12)
    ]
    line = [waiting(f"w-{n}", drawn.choice((1, 2, 3)), drawn.choice((1, 2, 8)), since=-n) for n in range(8)]
    answer = passed(line, fleet)
    busy = [running("r", "i-99")]
    drawn.shuffle(fleet)
    drawn.shuffle(line)
    assert passed(line, fleet) == answer
    assert given(passed(line, fleet, busy)) == given(answer)


# -- where the score comes from ----------------------------------------------------------------------------------------


def shown(policy: RecoveryPolicy, *instances: Instance, now: datetime = build.NOW) -> dict[str, float]:
    """The score that a pass sees of each."""
    snapshot = snapshot_of((), instances, policy, now, {}, QuotaLimits())
    return {one.host_id: one.lemon for one in snapshot.hosts}


REPAIRED = (signal_at(build.NOW, LemonSignal.OUT), signal_at(build.NOW, LemonSignal.GANG_FAILED))


def test_a_pass_sees_the_score_of_a_machines_past_in_steps() -> None:
    """So that two machines that are much alike are equal, and a day more makes neither worse."""
    earlier = tuple(replace(one, at_s=one.at_s - 3_600) for one in REPAIRED)
    fleet = (build.available("i-1", past=REPAIRED), build.available("i-2", past=earlier), build.available("i-3"))
    seen = shown(build.ADAPTIVE, *fleet)
    assert seen == {"i-1": pytest.approx(0.3), "i-2": pytest.approx(0.3), "i-3": 0.0}
    assert seen["i-1"] == seen["i-2"]
    assert shown(build.ADAPTIVE, *fleet, now=build.NOW + timedelta(days=28)) == dict.fromkeys(seen, 0.0)


def test_under_classic_or_switched_off_the_past_orders_nothing() -> None:
    """Seed 001 takes machines as they come."""
    worst = tuple(signal_at(build.NOW, kind) for kind in LemonSignal for _ in range(EACH_MAX))
    for policy in (build.CLASSIC, replace(build.ADAPTIVE, lemon_order=False)):
        assert shown(policy, build.available("i-1", past=worst)) == {"i-1": 0.0}
    assert shown(build.ADAPTIVE, build.available("i-1", past=worst))["i-1"] > 0.5
