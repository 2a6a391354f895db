"""Rows 14 and 18-21: what the failed workers have in common."""

from __future__ import annotations

import pytest
from gpu_recovery.core.diagnosis.case import Topology, Worker
from gpu_recovery.core.diagnosis.failure_pattern import last_calls, odds, pattern
from gpu_recovery.core.diagnosis.observations import RpcReport, RpcStage
from gpu_recovery.core.diagnosis.rules.failure_patterns import RULES, specified, specified_before
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind, Weight
from hypothesis import given
from hypothesis import strategies as st

from tests.core.diagnosis.small_cases import (
    BY,
    case_of,
    cluster,
    found_by,
    judged,
    late,
    of_row,
    raised,
    returned,
    rows,
)

FLEET = cluster(nodes=8, workers=8, racks=4)
SMALL = cluster(nodes=4, workers=8, racks=2)


def calls(failing: set[int], topology: Topology, stage: RpcStage = RpcStage.CONNECT) -> list[RpcReport]:
    """A call of every worker, of which those fail."""
    return [late(name, stage) if int(name[1:]) in failing else returned(name) for name in topology.workers]


def node(number: int) -> set[int]:
    return set(range(8 * number, 8 * number + 8))


@pytest.mark.parametrize(
    ("failing", "row", "english", "chinese"),
    [
        (
            set(range(64)),
            "19a",
            "Global failure: controller network failure or all workers hung",
            "全局故障：controller网络故障或所有worker hang",
        ),
        (node(3), "19b", "Node failure: all workers of node n3 timed out", "节点故障：节点 n3 的所有worker超时"),
        ({24}, "19b", "Node failure: all workers of node n3 timed out", "节点故障：节点 n3 的所有worker超时"),
        (node(2) | node(3), "19c", "Rack failure: TOR switch of rack r1", "机架故障：机架 r1 的TOR交换机故障"),
        ({0, 63}, "19d", "Sporadic failure: 2 workers failed", "零星故障：2个worker故障"),
        (set(range(0, 64, 4)), "19e", "Complex failure: 16 workers across 8 nodes", "复杂故障：16个worker，跨8个节点"),
    ],
)
def test_row_19_is_published_as_specified(failing: set[int], row: str, english: str, chinese: str) -> None:
    """The first match of five, in both languages, speaking for nobody; row 21 says the same of the failed call."""
    found = found_by(RULES, calls(failing, FLEET), FLEET)
    said = of_row(found, row)
    assert [(one.english, one.chinese, one.cause) for one in said] == [(english, chinese, None)]
    assert {one for one in rows(found) if one in ("19a", "19b", "19c", "19d", "19e")} == {row}
    assert [one.english for one in of_row(found, "21")] == [f"RPC failed: {english}"]
    assert [one.chinese for one in of_row(found, "21")] == [f"RPC failed: {chinese}"]


def test_row_19_without_a_failure_says_nothing() -> None:
    """As specified no worker at all is a node failure of no node."""
    assert specified((), FLEET, BY.sporadic_ratio) is None
    assert not found_by(RULES, calls(set(), FLEET), FLEET)


def test_row_19_one_worker_of_eight_is_no_node_failure() -> None:
    """The specified rule says so all the same; nothing is blamed but the worker."""
    found = found_by(RULES, calls({24}, FLEET), FLEET)
    assert "19b" in rows(found)
    assert not [one for one in found if one.cause]
    verdict = judged(calls({24}, FLEET), FLEET)
    assert (verdict.cause, verdict.scope) == (Cause.NETWORK, Scope.of(ScopeKind.WORKER, "w24"))


def test_row_19_all_workers_of_a_node_are_a_node_failure() -> None:
    """Whoever failed with its node speaks for the node."""
    verdict = judged(calls(node(3), FLEET), FLEET)
    assert (verdict.cause, verdict.scope) == (Cause.NETWORK, Scope.of(ScopeKind.INSTANCE, "n3"))
    assert verdict.decided
    assert len(verdict.evidence) == 8


def test_row_19_a_partial_node_is_called_one() -> None:
    """Three of eight are more than chance, and less than the node."""
    found = found_by(RULES, calls({24, 25, 26}, FLEET), FLEET)
    partial = of_row(found, "19p+")
    assert "partial node: 3 of 8 workers of node n3 failed" in {one.english for one in partial}
    assert "19b+" not in rows(found)
    assert max(one.weight for one in partial) <= Weight.WEAK


def test_row_19_two_nodes_of_different_racks_are_two_nodes() -> None:
    """Neither rack is covered."""
    of = pattern(tuple(f"w{n}" for n in node(0) | node(4)), FLEET, BY.rack_most_ratio)
    assert [place.scope.names for place in of.nodes] == [("n0",), ("n4",)]
    assert not of.racks


def test_row_19_a_rack_needs_two_nodes_and_most_of_its_workers() -> None:
    """One failed node of a rack is a node; a rack with one node is that node."""
    whole = pattern(tuple(f"w{n}" for n in node(2) | node(3)), FLEET, BY.rack_most_ratio)
    assert [place.scope for place in whole.racks] == [Scope.of(ScopeKind.RACK, "r1")]
    assert not whole.nodes
    half = pattern(tuple(f"w{n}" for n in node(2)), FLEET, BY.rack_most_ratio)
    assert not half.racks
    assert [place.scope for place in half.nodes] == [Scope.of(ScopeKind.INSTANCE, "n2")]
    lone = cluster(nodes=4, workers=8, racks=4)
    assert not pattern(tuple(f"w{n}" for n in node(2)), lone, BY.rack_most_ratio).racks


def test_row_19_a_rack_failure_leaves_the_rack_out() -> None:
    """Its switch is suspected, no instance and no GPU."""
    verdict = judged(calls(node(2) | node(3), FLEET), FLEET)
    assert (verdict.cause, verdict.scope) == (Cause.NETWORK, Scope.of(ScopeKind.RACK, "r1"))
    assert verdict.remedy == "LEAVE_OUT"
    assert verdict.decided


def test_row_19_a_cluster_of_one_node_is_not_decided_between_node_and_caller() -> None:
    """As specified it is always global."""
    lone = cluster(nodes=1, workers=8)
    reports = calls(set(range(8)), lone)
    assert "19a" in rows(found_by(RULES, reports, lone))
    verdict = judged(reports, lone)
    assert not verdict.decided
    likeliest = {(verdict.cause, verdict.scope), *((one.cause, one.scope) for one in verdict.rivals)}
    assert likeliest >= {(Cause.CALLER, JOB), (Cause.NETWORK, Scope.of(ScopeKind.INSTANCE, "n0"))}


def test_row_19_everybody_on_several_nodes_points_at_the_caller() -> None:
    """Sixty-four unreachable workers have their caller in common."""
    verdict = judged(calls(set(range(64)), FLEET), FLEET)
    assert (verdict.cause, verdict.scope, verdict.decided) == (Cause.CALLER, JOB, True)


@pytest.mark.parametrize(("caller", "decided"), [("n0", True), ("n1", True), ("elsewhere", False)])
def test_row_19_a_few_workers_decide_if_one_of_them_runs_beside_their_caller(caller: str, decided: bool) -> None:
    """No network between instances explains that a caller does not reach a worker on its own instance."""
    few = cluster(nodes=2, workers=2)
    reports = [late(name, report_id=f"{caller}/{name}") for name in few.workers]
    verdict = judged(reports, few)
    assert (verdict.cause, verdict.scope, verdict.decided) == (Cause.CALLER, JOB, decided)
    assert verdict.remedy == "RESTART"


def test_row_19_everybody_connected_without_an_answer_hangs() -> None:
    """Time-outs of the header say that the way there is good; no single worker is blamed, nobody is left out."""
    verdict = judged(calls(set(range(64)), FLEET, RpcStage.HEADER), FLEET)
    assert (verdict.cause, verdict.scope, verdict.remedy) == (Cause.WORKER_HANG, JOB, "RESTART")
    said = of_row(verdict.informational, "26")
    assert len(said) == 64
    assert {one.row for one in verdict.findings} == {"19a+"}


def test_row_19_a_call_that_was_answered_with_an_error_is_no_failure_of_a_place() -> None:
    """The specified rule counts whoever raised; a node whose workers answer is connected."""
    reports = [raised(name) if int(name[1:]) in node(3) else returned(name) for name in FLEET.workers]
    found = found_by(RULES, reports, FLEET)
    assert "19b" in rows(found)
    assert "19b+" not in rows(found)


def test_row_19_sporadic_and_complex_blame_nobody() -> None:
    """Both say how many are left, and speak for no cause."""
    few = of_row(found_by(RULES, calls({0, 63}, FLEET), FLEET), "19d+")
    many = of_row(found_by(RULES, calls(set(range(0, 64, 4)), FLEET), FLEET), "19e+")
    assert [(one.english, one.cause) for one in few] == [("2 workers failed here and there", None)]
    assert [one.english for one in many] == ["16 workers failed across 8 nodes, with nothing in common"]


def test_row_19_a_worker_that_answered_since_has_not_failed() -> None:
    """The last call counts."""
    reports = [late("w0", at_s=1.0), returned("w0", at_s=2.0)]
    assert not last_calls(case_of(reports, SMALL)).raised
    assert last_calls(case_of([*reports, late("w0", at_s=3.0)], SMALL)).unanswered == ("w0",)


def test_row_18_a_worker_that_never_registered_is_in_no_pattern() -> None:
    """As specified its name would be looked up in vain."""
    assert not last_calls(case_of([late("stranger")], SMALL)).raised
    assert not found_by(RULES, [late("stranger")], SMALL)


@pytest.mark.parametrize(
    ("failing", "row", "english", "chinese"),
    [
        (
            set(range(32)),
            "20a",
            "controller network failure or all workers hung",
            "Controller网络故障或所有Worker hang",
        ),
        ({0, 9}, "20b", "some workers failed or local network failure", "部分Worker故障或局部网络故障"),
        (node(1), "20b", "some workers failed or local network failure", "部分Worker故障或局部网络故障"),
    ],
)
def test_row_20_the_older_rule_is_published(failing: set[int], row: str, english: str, chinese: str) -> None:
    """The order shadows a node that fails alone."""
    found = found_by(RULES, calls(failing, SMALL), SMALL)
    assert [(one.english, one.chinese, one.cause) for one in of_row(found, row)] == [(english, chinese, None)]
    assert {one for one in rows(found) if one.startswith("20")} == {row}


def test_row_18_a_report_is_placed_by_its_instance_its_worker_or_its_rank() -> None:
    """In that order; nowhere if none is known."""
    for who, instance in (
        ({"instance_id": "n9", "rank": 31}, "n9"),
        ({"worker": "w8", "rank": 31}, "n1"),
        ({"rank": 31}, "n3"),
        ({"rank": 99}, ""),
        ({}, ""),
    ):
        report = RpcReport(report_id="x", at_s=0.0, **who)  # type: ignore[arg-type]
        assert SMALL.instance_of(report) == instance


def test_row_20_names_the_node_only_where_it_has_half_of_the_workers() -> None:
    """Which is what its order leaves of it."""
    two = cluster(nodes=2, workers=4)
    assert specified_before(("w0", "w1", "w2", "w3"), two, BY.some_ratio) == ("c", {"node": "n0"})
    found = of_row(found_by(RULES, calls({0, 1, 2, 3}, two), two), "20c")
    assert [(one.english, one.chinese) for one in found] == [("node n0 network failure", "节点 n0 网络故障")]
    assert specified_before(("w0", "w1", "w2", "w5"), two, BY.some_ratio) is None


def tree() -> Topology:
    """Two nodes, each with an aggregator and two workers."""
    return Topology.of(
        Worker(f"{role}{node}", f"n{node}", role="aggregator" if role == "agg" else "train")
        for node in (0, 1)
        for role in ("agg", "a", "b")
    )


def test_row_14_an_aggregator_that_does_not_answer_is_the_way_to_its_node() -> None:
    """Or it is down itself: it is a single point of failure."""
    found = of_row(found_by(RULES, [late("agg0"), returned("agg1")], tree()), "14")
    assert {(one.cause, one.scope) for one in found} == {
        (Cause.NETWORK, Scope.of(ScopeKind.INSTANCE, "n0")),
        (Cause.WORKER_CRASH, Scope.of(ScopeKind.WORKER, "agg0")),
    }
    assert found[0].english == "agg0: the fault is controller ↔ node (n0)"


def test_row_14_behind_an_aggregator_that_answers_it_is_the_worker() -> None:
    """The way to the node is good; without an aggregator nothing is said."""
    found = of_row(found_by(RULES, [late("a0"), returned("agg0")], tree()), "14")
    assert [(one.cause, one.scope.names) for one in found] == [(Cause.WORKER_HANG, ("a0",))]
    assert found[0].english == "a0: the fault is node ↔ worker (n0)"
    assert not of_row(found_by(RULES, [late("a0")], tree()), "14")
    assert not of_row(found_by(RULES, [late("w0"), returned("w1")], SMALL), "14")


@given(st.integers(1, 40), st.integers(0, 40), st.integers(1, 400), st.integers(1, 64), st.data())
def test_odds_grow_with_the_failures_inside_and_fall_with_those_outside(
    of_inside: int, outside: int, of_outside: int, places: int, data: st.DataObject
) -> None:
    """One failure more in the place never speaks against it; one more elsewhere never for it."""
    outside = min(outside, of_outside)
    inside = data.draw(st.integers(0, of_inside - 1))
    now = odds(inside, of_inside, outside, of_outside, places)
    assert now >= 0.0
    assert odds(inside + 1, of_inside, outside, of_outside, places) >= now - 1e-9
    if outside < of_outside:
        assert odds(inside, of_inside, outside + 1, of_outside, places) <= now + 1e-9


def test_odds_of_one_failure_among_many_say_nothing() -> None:
    """One of eight on one of four nodes is what one failure looks like."""
    assert odds(1, 8, 0, 24, 4) < 0.1
    assert odds(8, 8, 0, 24, 4) > 10
