"""Rows 14 and 18-21: what the workers that failed have in common.

Row 18: `case.Topology` is where everybody registers. Rows 19 and 20 are published as they are specified, the first
match of each: they call a node failed for one worker of eight, and a cluster of one node always global. What decides,
with a "+", asks for coverage and goes by binomial odds (`pattern`); who is left is told apart, and blamed on nobody.
Row 20's last sentence can never be the first match where few workers fail on one node: its order shadows it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from gpu_recovery.core.diagnosis.case import Case, Topology
from gpu_recovery.core.diagnosis.failure_pattern import Failed, Place, failed, instance_count, unheard_pattern
from gpu_recovery.core.diagnosis.observations import RpcReport, RpcStage
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.scopes import worker_scope
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind, Weight

AGGREGATOR = "aggregator"
"""The role of row 14's one worker of a node that passes calls on to the others."""
# -- as it is specified ------------------------------------------------------------------------------------------------


def specified(names: tuple[str, ...], topology: Topology, sporadic: float) -> tuple[str, dict[str, object]] | None:
    """Row 19's first match for the workers that failed: its letter and what its sentence names; None for nobody."""
    if not names:
        return None
    nodes = {topology.workers[name].instance_id for name in names}
    racks = {topology.workers[name].rack for name in names}
    values = {"count": len(names), "nodes": len(nodes), "node": min(nodes), "rack": min(racks)}
    if len(names) == len(topology.workers):
        return "a", values
    if len(nodes) == 1:
        return "b", values
    if len(racks) == 1:
        return "c", values
    return ("d" if len(names) / len(topology.workers) < sporadic else "e"), values


def _row_19(letter: str) -> Callable[[Case], Iterator[Match]]:
    def find(case: Case) -> Iterator[Match]:
        of = failed(case)
        found = specified(of.raised, case.topology, case.thresholds.sporadic_ratio)
        if found is not None and found[0] == letter:
            yield Match(None, evidence=of.evidence(of.raised), values=found[1])

    return find


def specified_before(names: tuple[str, ...], topology: Topology, some: float) -> tuple[str, dict[str, object]] | None:
    """Row 20's first match for the workers that timed out."""
    if not names:
        return None
    nodes = {topology.workers[name].instance_id for name in names}
    values: dict[str, object] = {"node": min(nodes)}
    if len(names) == len(topology.workers):
        return "a", values
    if len(names) < some * len(topology.workers):
        return "b", values
    return ("c", values) if len(nodes) == 1 else None


def _row_20(letter: str) -> Callable[[Case], Iterator[Match]]:
    def find(case: Case) -> Iterator[Match]:
        of = failed(case)
        found = specified_before(of.timed_out, case.topology, case.thresholds.some_ratio)
        if found is not None and found[0] == letter:
            yield Match(None, evidence=of.evidence(of.timed_out), values=found[1])

    return find


def _row_21(case: Case) -> Iterator[Match]:
    of = failed(case)
    found = specified(of.raised, case.topology, case.thresholds.sporadic_ratio)
    if found is not None:
        letter, values = found
        english, chinese = SENTENCES[letter]
        said = {"english": english.format(**values), "chinese": chinese.format(**values)}
        yield Match(None, evidence=of.evidence(of.raised), values=said)


# -- what decides ------------------------------------------------------------------------------------------------------


def _cause(of: Failed, names: tuple[str, ...], network: Cause) -> Cause:
    """Whoever is connected and does not answer hangs; else the way there is bad. By most of the calls."""
    hangs = sum(of.calls[name].failed_at is RpcStage.HEADER and of.calls[name].timed_out for name in names)
    return Cause.WORKER_HANG if 2 * hangs > len(names) else network


def _everywhere(case: Case) -> Iterator[Match]:
    """All workers: their caller, or all of them. Where all are on one node or in one rack, that may be it as well."""
    of, names = failed(case), unheard_pattern(case).everybody
    if not names:
        return
    instances, racks = case.topology.instances, case.topology.racks
    values = {"count": len(names), "instances": len(instances)}
    evidence = of.evidence(names)
    if _cause(of, names, Cause.CALLER) is Cause.WORKER_HANG:
        yield Match(Cause.WORKER_HANG, JOB, Weight.FAIR, evidence, values)
        yield Match(Cause.CALLER, JOB, Weight.HINT, evidence, values)
        return
    weight = min(Weight.FAIR + math.log(len(names)), Weight.PROOF)
    yield Match(Cause.CALLER, JOB, weight, evidence, values)
    yield Match(Cause.WORKER_HANG, JOB, Weight.HINT, evidence, values)
    if len(instances) == 1:
        yield Match(Cause.NETWORK, Scope.of(ScopeKind.INSTANCE, *instances), weight, evidence, values)
    elif len(racks) == 1 and len(next(iter(racks.values()))) == len(names):
        yield Match(Cause.NETWORK, Scope.of(ScopeKind.RACK, *racks), weight, evidence, values)


def _rack(case: Case) -> Iterator[Match]:
    of = failed(case)
    for place in unheard_pattern(case).racks:
        values = {"rack": place.scope.names[0], "count": len(place.names), "of": place.of}
        yield from _at(of, place, Weight.STRONG, values)


def _node(case: Case) -> Iterator[Match]:
    of = failed(case)
    for place in unheard_pattern(case).nodes:
        yield from _at(of, place, Weight.STRONG, {"node": place.scope.names[0], "count": len(place.names)})


def _part_of_a_node(case: Case) -> Iterator[Match]:
    of = failed(case)
    for place in unheard_pattern(case).partly:
        values = {"node": place.scope.names[0], "count": len(place.names), "of": place.of}
        yield from _at(of, place, Weight.WEAK, values)


def _at(of: Failed, place: Place, most: float, values: Mapping[str, object]) -> Iterator[Match]:
    """Where it is goes by the odds. That somebody hangs there says little of why: what names a reason outweighs it."""
    if place.odds < Weight.HINT:
        return
    evidence = of.evidence(place.names)
    cause = _cause(of, place.names, Cause.NETWORK)
    weight = min(place.odds, Weight.WEAK if cause is Cause.WORKER_HANG else most)
    yield Match(cause, place.scope, weight, evidence, values)
    yield Match(Cause.NODE_FAULT, place.scope, min(weight, Weight.HINT), evidence, values)


def _left(case: Case, sporadic: bool) -> Iterator[Match]:
    rest = unheard_pattern(case).rest
    few = len(rest) < case.thresholds.sporadic_ratio * len(case.topology.workers)
    if rest and few is sporadic:
        values = {"count": len(rest), "nodes": instance_count(case.topology, rest)}
        yield Match(None, evidence=failed(case).evidence(rest), values=values)


def _sporadic(case: Case) -> Iterator[Match]:
    yield from _left(case, True)


def _complex(case: Case) -> Iterator[Match]:
    yield from _left(case, False)


def _tree(case: Case) -> Iterator[Match]:
    """Row 14: an aggregator that does not answer is between us and its node; one that does is not."""
    of = failed(case)
    roles = Counter(one.instance_id for one in case.topology.workers.values() if one.role == AGGREGATOR)
    for name in of.unanswered:
        worker = case.topology.workers[name]
        if not roles[worker.instance_id]:
            continue
        values = {"who": name, "node": worker.instance_id, "between": "controller ↔ node", "chinese": "controller↔节点"}
        if worker.role == AGGREGATOR:
            at = Scope.of(ScopeKind.INSTANCE, worker.instance_id)
            yield Match(Cause.NETWORK, at, Weight.FAIR, of.evidence((name,)), values)
            yield Match(Cause.WORKER_CRASH, worker_scope(name), Weight.WEAK, of.evidence((name,)), values)
        elif _aggregator_answers(case, of, worker.instance_id):
            values |= {"between": "node ↔ worker", "chinese": "节点↔worker"}
            yield Match(Cause.WORKER_HANG, worker_scope(name), Weight.WEAK, of.evidence((name,)), values)


def _aggregator_answers(case: Case, of: Failed, instance_id: str) -> bool:
    return any(
        one.role == AGGREGATOR and one.instance_id == instance_id and name in of.calls and name not in of.unanswered
        for name, one in case.topology.workers.items()
    )


SENTENCES: Mapping[str, tuple[str, str]] = {
    "a": (
        "Global failure: controller network failure or all workers hung",
        "全局故障：controller网络故障或所有worker hang",
    ),
    "b": ("Node failure: all workers of node {node} timed out", "节点故障：节点 {node} 的所有worker超时"),
    "c": ("Rack failure: TOR switch of rack {rack}", "机架故障：机架 {rack} 的TOR交换机故障"),
    "d": ("Sporadic failure: {count} workers failed", "零星故障：{count}个worker故障"),
    "e": (
        "Complex failure: {count} workers across {nodes} nodes",
        "复杂故障：{count}个worker，跨{nodes}个节点",
    ),
}
"""Row 19's."""
_BEFORE: Mapping[str, tuple[str, str]] = {
    "a": ("controller network failure or all workers hung", "Controller网络故障或所有Worker hang"),
    "b": ("some workers failed or local network failure", "部分Worker故障或局部网络故障"),
    "c": ("node {node} network failure", "节点 {node} 网络故障"),
}
"""Row 20's, the older ones."""

_CALLED = (RpcReport,)
RULES: tuple[Rule, ...] = (
    Rule("14", "{who}: the fault is {between} ({node})", "{who}: 故障位于{chinese}（{node}）", _CALLED, _tree),
    *(Rule(f"19{letter}", *said, _CALLED, _row_19(letter)) for letter, said in SENTENCES.items()),
    Rule(
        "19a+",
        "all {count} workers failed, on {instances} instances: their caller, or all of them",
        "全部{count}个worker故障，涉及{instances}个实例 → 调用方故障或全部hang",
        _CALLED,
        _everywhere,
    ),
    Rule(
        "19b+",
        "all {count} workers of node {node} failed, and others did not",
        "节点 {node} 的全部{count}个worker故障，其他节点正常",
        _CALLED,
        _node,
    ),
    Rule(
        "19c+",
        "{count} of {of} workers of rack {rack} failed, on several nodes: its switch",
        "机架 {rack} 的{of}个worker中{count}个故障，涉及多个节点 → TOR交换机故障",
        _CALLED,
        _rack,
    ),
    Rule("19d+", "{count} workers failed here and there", "零星{count}个worker故障，无共同位置", _CALLED, _sporadic),
    Rule(
        "19e+",
        "{count} workers failed across {nodes} nodes, with nothing in common",
        "{count}个worker故障，跨{nodes}个节点，无共同位置",
        _CALLED,
        _complex,
    ),
    Rule(
        "19p+",
        "partial node: {count} of {of} workers of node {node} failed",
        "部分节点故障：节点 {node} 的{of}个worker中{count}个故障",
        _CALLED,
        _part_of_a_node,
    ),
    *(Rule(f"20{letter}", *said, _CALLED, _row_20(letter)) for letter, said in _BEFORE.items()),
    Rule("21", "RPC failed: {english}", "RPC failed: {chinese}", _CALLED, _row_21),
)
