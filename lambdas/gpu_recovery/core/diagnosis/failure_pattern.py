"""Failure pattern: the workers that failed and the place that they share, by coverage and binomial odds.

The rules are rows 18-21 of the fault catalogue (docs/diagnosis.md), corrected. A place is an instance where all workers
failed, or a rack where most workers failed, on two instances or more. The binomial odds of a place compare two models:
the place has its own rate of failures, or all workers share one rate. More places lower the odds of each.

A call that the worker answered, even with an error, is no failure of the network.

The workers that were called are the workers that can fail. The controller and the ranks without calls are
registered as well, and they count neither as failed nor as healthy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case, Topology
from gpu_recovery.core.diagnosis.observations import CallTiming, Observation, RpcReport
from gpu_recovery.core.diagnosis.taxonomy import JOB, Scope, ScopeKind, Weight

OK = 200
"""HTTP status of an answer without an error."""


@dataclass(frozen=True)
class LastCalls:
    """Last calls of all registered workers, and the names of the workers with a failed last call.

    called: the topology of the workers that were called; of all registered workers if fewer than two were called.
    calls: last reported call of each worker, by the name of the worker.
    raised: workers whose last call raised an exception in its caller, for any reason.
    unanswered: workers whose last call got no answer.
    timed_out: workers whose last call was ended by the caller's time-out.
    """

    called: Topology
    calls: Mapping[str, RpcReport]
    raised: tuple[str, ...]
    unanswered: tuple[str, ...]
    timed_out: tuple[str, ...]

    def evidence(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Report ids of the last calls of these workers."""
        return tuple(self.calls[name].report_id for name in names)


def has_failed(call: RpcReport) -> bool:
    """Whether the call raised an exception in its caller (row 21)."""
    return has_no_answer(call) or call.status not in (None, OK) or bool(call.server_phase)


def has_no_answer(call: RpcReport) -> bool:
    """Whether no answer of the worker came back."""
    return call.timed_out or call.connection_error or (call.failed_at is not None and call.status is None)


def last_calls(case: Case) -> LastCalls:
    """Last calls of all registered workers, computed once for a case."""
    known = case.computed.get("failed")
    if not isinstance(known, LastCalls):
        known = case.computed["failed"] = _last_calls(case)
    return known


def _name(case: Case, report: Observation) -> str:
    if report.worker or report.rank is None:
        return report.worker
    known = case.topology.by_rank.get(report.rank)
    return known.name if known else ""


def _last_calls(case: Case) -> LastCalls:
    """Sort the last calls. Calls to unregistered workers are skipped: their place is unknown.

    The SDK reports a call that returned by its duration (`CallTiming`), and its stages only if the caller timed them.
    """
    known = case.topology.workers
    named = ((_name(case, call), call) for call in case.all(RpcReport))
    calls = {name: call for name, call in named if name in known}
    returned = {_name(case, timing): timing.at_s for timing in case.all(CallTiming)}
    failing = {name: call for name, call in calls.items() if returned.get(name, call.at_s) <= call.at_s}
    called = [known[name] for name in known if name in calls or name in returned]
    return LastCalls(
        Topology.of(called) if len(called) > 1 else case.topology,
        calls,
        tuple(sorted(name for name, call in failing.items() if has_failed(call))),
        tuple(sorted(name for name, call in failing.items() if has_no_answer(call) and not call.server_phase)),
        tuple(sorted(name for name, call in failing.items() if call.timed_out)),
    )


def odds(inside: int, of_inside: int, outside: int, of_outside: int, places: int) -> float:
    """Binomial log-odds that a place has a higher rate of failures of its own, against one rate for all workers.

    Args:
        inside: workers of the place that failed, out of `of_inside`.
        outside: other workers that failed, out of `of_outside`.
        places: number of places of this kind.

    Returns:
        The log-odds, at least 0.
    """
    everywhere = (inside + outside) / (of_inside + of_outside)
    if inside == 0 or inside / of_inside <= everywhere:
        return 0.0
    gained = _likelihood(inside, of_inside) + _likelihood(outside, of_outside)
    shared = _likelihood(inside + outside, of_inside + of_outside)
    return max(gained - shared - math.log(places), 0.0)


def _likelihood(count: int, of: int) -> float:
    """Log-likelihood of `count` failures among `of` workers, at the rate that fits best."""
    rate = count / of if of else 0.0
    return sum(n * math.log(share) for n, share in ((count, rate), (of - count, 1.0 - rate)) if n)


@dataclass(frozen=True)
class Place:
    """An instance or a rack with failed workers.

    names: its workers that failed.
    of: number of all its workers.
    odds: binomial log-odds of the place.
    """

    scope: Scope
    names: tuple[str, ...]
    of: int
    odds: float

    @property
    def covered(self) -> bool:
        """Whether all workers of the place failed."""
        return len(self.names) == self.of


@dataclass(frozen=True)
class Pattern:
    """Failed workers, grouped by the place that they share.

    all_failed: all workers, if every registered worker failed; the other fields are then empty.
    racks: racks where most workers failed, on two instances or more.
    nodes: instances where all workers failed, apart from the workers of these racks.
    partly: other instances with several failed workers, and with odds of at least `Weight.HINT`.
    rest: failed workers that share no place.
    """

    all_failed: tuple[str, ...] = ()
    racks: tuple[Place, ...] = ()
    nodes: tuple[Place, ...] = ()
    partly: tuple[Place, ...] = ()
    rest: tuple[str, ...] = ()


def pattern(names: tuple[str, ...], topology: Topology, most: float) -> Pattern:
    """Group the failed workers by the place that they share.

    Args:
        most: least ratio of failed workers of a rack.
    """
    if len(names) > 1 and len(names) == len(topology.workers):
        return Pattern(all_failed=names)
    racks = tuple(
        place
        for place in _places(names, topology.racks, ScopeKind.RACK, len(topology.workers))
        if len(place.names) >= most * place.of and instance_count(topology, place.names) > 1 and len(topology.racks) > 1
    )
    left = tuple(name for name in names if not any(name in rack.names for rack in racks))
    nodes = _places(left, topology.instances, ScopeKind.INSTANCE, len(topology.workers))
    whole = tuple(place for place in nodes if place.covered)
    partly = tuple(place for place in nodes if not place.covered and len(place.names) > 1 and place.odds >= Weight.HINT)
    explained = {name for place in (*whole, *partly) for name in place.names}
    return Pattern((), racks, whole, partly, tuple(name for name in left if name not in explained))


def _places(
    names: tuple[str, ...], groups: Mapping[str, tuple[str, ...]], kind: ScopeKind, total: int
) -> tuple[Place, ...]:
    failing = set(names)
    places = []
    for group, members in sorted(groups.items()):
        inside = tuple(name for name in members if name in failing)
        if inside and group:
            of = len(members)
            log_odds = odds(len(inside), of, len(failing) - len(inside), total - of, len(groups))
            places.append(Place(Scope.of(kind, group), inside, of, log_odds))
    return tuple(places)


def instance_count(topology: Topology, names: tuple[str, ...]) -> int:
    """Number of instances that these workers run on."""
    return len({topology.workers[name].instance_id for name in names})


def unanswered_pattern(case: Case) -> Pattern:
    """Pattern of the workers with an unanswered last call, computed once for a case."""
    known = case.computed.get("pattern")
    if not isinstance(known, Pattern):
        last = last_calls(case)
        known = pattern(last.unanswered, last.called, case.thresholds.rack_most_ratio)
        case.computed["pattern"] = known
    return known


def common_place(case: Case) -> Mapping[str, Scope]:
    """Place that failed as a whole, for each worker in it.

    The failure of such a worker supports a cause at the place, and none at the worker itself.
    """
    places = case.computed.get("places")
    if not isinstance(places, dict):
        groups = unanswered_pattern(case)
        places = dict.fromkeys(groups.all_failed, JOB)
        for place in (*groups.nodes, *groups.racks):
            places |= {name: place.scope for name in place.names if len(place.names) > 1}
        case.computed["places"] = places
    return places
