"""Failure pattern rules: the place that failed workers share.

Rows 14 and 18-21 of the fault catalogue, docs/diagnosis.md.

Row 18: every worker registers in `case.Topology`. Rows 19 and 20 are published as specified, the first match of each.
"All workers" are the workers that were called. A "node" in their sentences is an instance. Row 19 calls an instance
failed even if only one of its workers failed. In a cluster with a single instance, the failure of all its workers
counts as global. A rack is named only if the rack of every failed worker is known.

The rows with a "+" decide. They ask for coverage and use binomial odds (`failure_pattern`). The remaining failed
workers are reported apart, and no place is named as their cause.

The last sentence of row 20 is never the first match if few workers fail on one instance: an earlier sentence matches
first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from gpu_recovery.core.diagnosis.case import Case, Topology
from gpu_recovery.core.diagnosis.failure_pattern import LastCalls, Place, instance_count, last_calls, unanswered_pattern
from gpu_recovery.core.diagnosis.observations import RpcReport, RpcStage
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.scopes import worker_scope
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind, Weight

AGGREGATOR = "aggregator"
"""Role of the worker of an instance that passes calls on to the other workers of that instance (row 14)."""
# -- rows as specified -------------------------------------------------------------------------------------------------


def specified(names: tuple[str, ...], topology: Topology, sporadic: float) -> tuple[str, dict[str, object]] | None:
    """First match of row 19 for the failed workers: its letter, and the values of its sentence.

    None if no worker failed.

    Args:
        sporadic: ratio of failed workers below which failures are sporadic.
    """
    if not names:
        return None
    nodes = {topology.workers[name].instance_id for name in names}
    racks = {topology.workers[name].rack for name in names}
    values: dict[str, object] = {"count": len(names), "nodes": len(nodes), "node": min(nodes), "rack": min(racks)}
    if len(names) == len(topology.workers):
        return "a", values
    if len(nodes) == 1:
        return "b", values
    if len(racks) == 1 and "" not in racks:
        return "c", values
    return ("d" if len(names) / len(topology.workers) < sporadic else "e"), values


def _row_19(letter: str) -> Callable[[Case], Iterator[Match]]:
    def find(case: Case) -> Iterator[Match]:
        last = last_calls(case)
        match = specified(last.raised, last.called, case.thresholds.sporadic_ratio)
        if match is not None and match[0] == letter:
            yield Match(None, evidence=last.evidence(last.raised), values=match[1])

    return find


def specified_before(names: tuple[str, ...], topology: Topology, some: float) -> tuple[str, dict[str, object]] | None:
    """First match of row 20 for the workers that timed out: its letter, and the values of its sentence.

    None if no sentence matches.

    Args:
        some: ratio of workers below which only some workers failed.
    """
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
        last = last_calls(case)
        match = specified_before(last.timed_out, last.called, case.thresholds.some_ratio)
        if match is not None and match[0] == letter:
            yield Match(None, evidence=last.evidence(last.timed_out), values=match[1])

    return find


def _row_21(case: Case) -> Iterator[Match]:
    last = last_calls(case)
    match = specified(last.raised, last.called, case.thresholds.sporadic_ratio)
    if match is not None:
        letter, values = match
        english, chinese = SENTENCES[letter]
        sentences = {"english": english.format(**values), "chinese": chinese.format(**values)}
        yield Match(None, evidence=last.evidence(last.raised), values=sentences)


# -- rows that decide --------------------------------------------------------------------------------------------------


def _cause(last: LastCalls, names: tuple[str, ...], network: Cause) -> Cause:
    """WORKER_HANG if most of the calls were connected and got no answer; else the network cause."""
    hangs = sum(last.calls[name].failed_at is RpcStage.HEADER and last.calls[name].timed_out for name in names)
    return Cause.WORKER_HANG if 2 * hangs > len(names) else network


def _everywhere(case: Case) -> Iterator[Match]:
    """All workers failed: the cause is their caller, or all of them.

    If all workers are on one instance or in one rack, the network of that place is a possible cause as well. No network
    between instances explains a worker that its caller does not reach on their own instance. So a few such workers
    decide as surely as many workers elsewhere.
    """
    last, names = last_calls(case), unanswered_pattern(case).all_failed
    if not names:
        return
    instances, racks = last.called.instances, last.called.racks
    values = {"count": len(names), "instances": len(instances)}
    evidence = last.evidence(names)
    if _cause(last, names, Cause.CALLER) is Cause.WORKER_HANG:
        yield Match(Cause.WORKER_HANG, JOB, Weight.FAIR, evidence, values)
        yield Match(Cause.CALLER, JOB, Weight.HINT, evidence, values)
        return
    weight = min(Weight.FAIR + math.log(len(names)), Weight.PROOF)
    beside = len(instances) > 1 and any(_is_beside_its_caller(last, name) for name in names)
    yield Match(Cause.CALLER, JOB, Weight.PROOF if beside else weight, evidence, values)
    yield Match(Cause.WORKER_HANG, JOB, Weight.HINT, evidence, values)
    if len(instances) == 1:
        yield Match(Cause.NETWORK, Scope.of(ScopeKind.INSTANCE, *instances), weight, evidence, values)
    elif len(racks) == 1 and len(next(iter(racks.values()))) == len(names):
        yield Match(Cause.NETWORK, Scope.of(ScopeKind.RACK, *racks), weight, evidence, values)


def _is_beside_its_caller(last: LastCalls, name: str) -> bool:
    """Whether the worker runs on the instance from which it was called."""
    return last.calls[name].sender == last.called.workers[name].instance_id != ""


def _rack(case: Case) -> Iterator[Match]:
    last = last_calls(case)
    for place in unanswered_pattern(case).racks:
        values = {"rack": place.scope.names[0], "count": len(place.names), "of": place.of}
        yield from _at_place(last, place, Weight.STRONG, values)


def _node(case: Case) -> Iterator[Match]:
    last = last_calls(case)
    for place in unanswered_pattern(case).nodes:
        yield from _at_place(last, place, Weight.STRONG, {"node": place.scope.names[0], "count": len(place.names)})


def _part_of_a_node(case: Case) -> Iterator[Match]:
    last = last_calls(case)
    for place in unanswered_pattern(case).partly:
        values = {"node": place.scope.names[0], "count": len(place.names), "of": place.of}
        yield from _at_place(last, place, Weight.WEAK, values)


def _at_place(last: LastCalls, place: Place, most: float, values: Mapping[str, object]) -> Iterator[Match]:
    """Cause at a place, with the odds of the place as its weight.

    A hang at a place has little weight, so that a finding with a reason outweighs it.
    """
    if place.odds < Weight.HINT:
        return
    evidence = last.evidence(place.names)
    cause = _cause(last, place.names, Cause.NETWORK)
    weight = min(place.odds, Weight.WEAK if cause is Cause.WORKER_HANG else most)
    yield Match(cause, place.scope, weight, evidence, values)
    yield Match(Cause.NODE_FAULT, place.scope, min(weight, Weight.HINT), evidence, values)


def _unplaced(case: Case, sporadic: bool) -> Iterator[Match]:
    rest = unanswered_pattern(case).rest
    last = last_calls(case)
    few = len(rest) < case.thresholds.sporadic_ratio * len(last.called.workers)
    if rest and few is sporadic:
        values = {"count": len(rest), "nodes": instance_count(last.called, rest)}
        yield Match(None, evidence=last.evidence(rest), values=values)


def _sporadic(case: Case) -> Iterator[Match]:
    yield from _unplaced(case, True)


def _complex(case: Case) -> Iterator[Match]:
    yield from _unplaced(case, False)


def _tree(case: Case) -> Iterator[Match]:
    """Row 14. An aggregator that did not answer points to the path between the controller and its instance.

    If the aggregator answered, the fault is between the instance and the worker.
    """
    last = last_calls(case)
    roles = Counter(worker.instance_id for worker in case.topology.workers.values() if worker.role == AGGREGATOR)
    for name in last.unanswered:
        worker = case.topology.workers[name]
        if not roles[worker.instance_id]:
            continue
        values = {"who": name, "node": worker.instance_id, "between": "controller ↔ node", "chinese": "controller↔节点"}
        if worker.role == AGGREGATOR:
            at = Scope.of(ScopeKind.INSTANCE, worker.instance_id)
            yield Match(Cause.NETWORK, at, Weight.FAIR, last.evidence((name,)), values)
            yield Match(Cause.WORKER_CRASH, worker_scope(name), Weight.WEAK, last.evidence((name,)), values)
        elif _aggregator_answers(case, last, worker.instance_id):
            values |= {"between": "node ↔ worker", "chinese": "节点↔worker"}
            yield Match(Cause.WORKER_HANG, worker_scope(name), Weight.WEAK, last.evidence((name,)), values)


def _aggregator_answers(case: Case, last: LastCalls, instance_id: str) -> bool:
    return any(
        worker.role == AGGREGATOR
        and worker.instance_id == instance_id
        and name in last.calls
        and name not in last.unanswered
        for name, worker in case.topology.workers.items()
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
"""Sentences of row 19, by letter."""
_SENTENCES_20: Mapping[str, tuple[str, str]] = {
    "a": ("controller network failure or all workers hung", "Controller网络故障或所有Worker hang"),
    "b": ("some workers failed or local network failure", "部分Worker故障或局部网络故障"),
    "c": ("node {node} network failure", "节点 {node} 网络故障"),
}
"""Sentences of row 20, the older row, by letter."""

_CALLED = (RpcReport,)
RULES: tuple[Rule, ...] = (
    Rule("14", "{who}: the fault is {between} ({node})", "{who}: 故障位于{chinese}（{node}）", _CALLED, _tree),
    *(Rule(f"19{letter}", *sentences, _CALLED, _row_19(letter)) for letter, sentences in SENTENCES.items()),
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
    *(Rule(f"20{letter}", *sentences, _CALLED, _row_20(letter)) for letter, sentences in _SENTENCES_20.items()),
    Rule("21", "RPC failed: {english}", "RPC failed: {chinese}", _CALLED, _row_21),
)
