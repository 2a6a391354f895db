"""The contenders do what the documents of their counterparts say, with the same spares and the same knowledge."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from simulator.goodput.accounting import ettr
from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.contenders import CONTENDERS, LEVERS, jobset, own_way, replace_only, swap, training_operator
from simulator.goodput.failure_trace import failure_trace
from simulator.goodput.gang_rules import Abilities, GangPolicy
from simulator.goodput.policy import Episode
from simulator.goodput.recovery_times import Launch
from tests.simulator.goodput.test_own_way import CONDITIONS, FACTS, LLAMA3, changed, failure, of

RESTART = failure(cure=Cure.RESTART, depth=1.0)
"""A failure of the program, which a restart cures."""


def first(policy: GangPolicy, *failures: object) -> Episode:
    """The first episode of the policy."""
    return policy.run(of(*failures)).episodes[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("make", CONTENDERS, ids=lambda make: make.__name__)
def test_no_contender_waits_for_a_repair_while_a_spare_is_ready(make: object) -> None:
    """Every contender gets the same spares."""
    alone, spared = (first(make(spares), failure()) for spares in (0, 1))  # type: ignore[operator]
    assert not spared.was_short and not spared.waited_for
    assert alone.placed_at >= spared.placed_at


@pytest.mark.parametrize("make", CONTENDERS, ids=lambda make: make.__name__)
def test_every_contender_knows_the_machine_that_a_log_names_or_its_monitor_sees(make: object) -> None:
    """The same knowledge: an instance that is known does not come back, one that nothing sees does."""
    policy = make(1)  # type: ignore[operator]
    named, seen, hidden = (
        policy.run(of(failure(named_draw=0.0, depth=1.0))),
        policy.run(of(failure(depth=0.0))),
        policy.run(of(failure(depth=1.0))),
    )
    assert (len(named.episodes), len(seen.episodes)) == (1, 1)
    assert len(hidden.episodes) > 1


def test_only_a_service_of_ecs_waits_for_the_time_out_after_a_first_exit() -> None:
    """JobSet and the training operator act at once, as documented."""
    waits = {make.__name__: first(make(1), RESTART).stopped_at - RESTART.at_s for make in CONTENDERS}
    assert waits.pop("replace_only") == CONDITIONS.hang_s + CONDITIONS.event_s
    assert max(waits.values()) < 60


def test_a_gang_of_jobset_starts_as_fast_as_kubernetes_creates_pods() -> None:
    """No call of ECS limits it; the pods are the same processes."""
    given = replace(of(RESTART), profile=LLAMA3)
    (one,) = jobset(0).run(given).episodes
    pods_s = 2_048 / CONDITIONS.pods_per_s
    assert one.started_at - one.placed_at == pytest.approx(pods_s + CONDITIONS.start_s)
    assert one.stopped_at - one.detected_at == pytest.approx(
        2_047 / CONDITIONS.pods_per_s + CONDITIONS.leave_s + CONDITIONS.event_s
    )


def test_node_auto_repair_waits_its_ten_minutes_before_it_replaces() -> None:
    """Without a spare the gang waits for both."""
    one = first(jobset(0), failure())
    assert one.placed_at - one.fault_at == CONDITIONS.eks_repair_s + CONDITIONS.replace_s


def test_the_training_operator_restarts_processes_and_notices_a_hang_by_its_log() -> None:
    """No container is started again unless the machine is new, and a hang is known before its collective gives up."""
    one = first(training_operator(0), RESTART)
    assert one.stopped_at == one.detected_at
    assert one.started_at - one.placed_at == CONDITIONS.respawn_s
    hung = first(training_operator(0), replace(RESTART, shows=Shows.HANG))
    assert hung.detected_at - hung.fault_at == CONDITIONS.operator_hang_s + CONDITIONS.event_s
    assert hung.detected_at < hung.shown_at


def test_swap_waits_for_its_node_agent_and_leaves_a_repeater_out() -> None:
    """The peer of 25 lines: nothing is checked."""
    one = first(swap(1), failure())
    assert one.placed_at - one.fault_at == max(CONDITIONS.watch_s, one.stopped_at - one.fault_at)
    assert one.checked_at == one.stopped_at
    run = swap(1).run(of(failure(depth=1.0)))
    assert (len(run.episodes), run.called) == (2, 0)


def test_the_levers_of_the_product_add_up() -> None:
    """Each ability that the product shall get raises its way on all seeds; with all of them the aim is reached."""
    way, ettrs = own_way(2, 4), list[list[float]]()
    for name in ("", *LEVERS):
        way = changed(way, **(LEVERS[name][1] if name else {}))
        traces = [failure_trace(LLAMA3, CONDITIONS, seed) for seed in (1, 2)]
        ettrs.append([ettr(way.run(trace), LLAMA3.seconds, CONDITIONS) for trace in traces])
    for before, after in pairwise(ettrs):
        assert all(b > a for a, b in zip(before, after, strict=True))
    assert min(ettrs[-1]) > 0.965


def test_a_hang_by_progress_is_stopped_and_one_by_its_time_out_has_ended() -> None:
    """Who notices it earlier must end the ranks himself."""
    hang = failure(shows=Shows.HANG)
    late, early = first(own_way(2, 1), hang), first(changed(own_way(2, 1), hang_after="progress_s"), hang)
    assert late.stopped_at == late.detected_at == hang.at_s + CONDITIONS.hang_s + CONDITIONS.event_s
    assert early.detected_at == hang.at_s + CONDITIONS.progress_s + CONDITIONS.event_s
    assert early.stopped_at - early.detected_at == pytest.approx(CONDITIONS.leave_s + CONDITIONS.event_s)


def test_warm_spares_need_no_container_and_half_of_the_set_up() -> None:
    """A cold spare starts its container while the others only start their processes."""
    in_place = Abilities(launch=Launch.PROCESSES, trusts_exits=True)
    cold, warm = (
        first(GangPolicy("x", "", replace(in_place, is_warm=is_warm), 1), failure()) for is_warm in (False, True)
    )
    assert cold.started_at - cold.placed_at == max(CONDITIONS.start_s, CONDITIONS.respawn_s)
    assert warm.started_at - warm.placed_at == CONDITIONS.respawn_s
    assert cold.training_at is not None and warm.training_at is not None
    halved = (cold.training_at - cold.started_at) * CONDITIONS.warm_share
    assert warm.training_at - warm.started_at == pytest.approx(halved)


def test_like_for_like_the_contenders_are_what_the_findings_say() -> None:
    """Without the knowledge of logs the peer of 25 lines beats the product's own way on most seeds of llama3."""
    silent = replace(FACTS.conditions, told_share=0.0)
    traces = [failure_trace(LLAMA3, silent, seed) for seed in (1, 2, 3)]
    peer, way = (
        [ettr(policy.run(trace), LLAMA3.seconds, silent) for trace in traces] for policy in (swap(4), own_way(2, 4))
    )
    assert sum(a > b for a, b in zip(peer, way, strict=True)) >= 2
    assert replace_only(0).run(traces[0]).episodes == replace_only(4).run(traces[0]).episodes
