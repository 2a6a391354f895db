"""Which workers failed, and what place they have in common: coverage and binomial odds (rows 18-21, repaired).

A place is a node all of whose workers failed, or a rack most of whose workers did, on two nodes or more. How much that
says goes by binomial odds: how much likelier the failures are if the place has a rate of its own than if all workers
share one, each place being one of as many. A call that was answered, be it with an error, is no failure of a network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case, Topology
from gpu_recovery.core.diagnosis.observations import Observation, RpcReport
from gpu_recovery.core.diagnosis.taxonomy import JOB, Scope, ScopeKind, Weight

OK = 200


@dataclass(frozen=True)
class Failed:
    """Whose last call failed, by worker. raised: for whatever reason; unanswered: those to whom nobody spoke."""

    calls: Mapping[str, RpcReport]
    raised: tuple[str, ...]
    unanswered: tuple[str, ...]
    timed_out: tuple[str, ...]

    def evidence(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The reports of these workers' failures."""
        return tuple(self.calls[name].report_id for name in names)


def has_failed(call: RpcReport) -> bool:
    """Whether the call raised at whoever made it (row 21)."""
    return has_no_answer(call) or call.status not in (None, OK) or bool(call.server_phase)


def has_no_answer(call: RpcReport) -> bool:
    """Whether nothing that the worker said came back."""
    return call.timed_out or call.connection_error or (call.failed_at is not None and call.status is None)


def failed(case: Case) -> Failed:
    """The last call of each registered worker, worked out once for a case."""
    found = case.computed.get("failed")
    if not isinstance(found, Failed):
        found = case.computed["failed"] = _failed(case)
    return found


def _name(case: Case, report: Observation) -> str:
    if report.worker or report.rank is None:
        return report.worker
    known = case.topology.by_rank.get(report.rank)
    return known.name if known else ""


def _failed(case: Case) -> Failed:
    """A call to somebody who is nowhere registered says nothing of places."""
    known = case.topology.workers
    named = ((_name(case, one), one) for one in case.all(RpcReport))
    calls = {name: one for name, one in named if name in known}
    return Failed(
        calls,
        tuple(sorted(name for name, one in calls.items() if has_failed(one))),
        tuple(sorted(name for name, one in calls.items() if has_no_answer(one) and not one.server_phase)),
        tuple(sorted(name for name, one in calls.items() if one.timed_out)),
    )


def odds(inside: int, of_inside: int, outside: int, of_outside: int, places: int) -> float:
    """Binomial log-odds that a place has a rate of failures of its own, which is higher, against one rate for all.

    `inside` of `of_inside` workers of the place failed, `outside` of `of_outside` others; it is one of `places`.
    """
    everywhere = (inside + outside) / (of_inside + of_outside)
    if inside == 0 or inside / of_inside <= everywhere:
        return 0.0
    gained = _likelihood(inside, of_inside) + _likelihood(outside, of_outside)
    shared = _likelihood(inside + outside, of_inside + of_outside)
    return max(gained - shared - math.log(places), 0.0)


def _likelihood(count: int, of: int) -> float:
    """The logarithm of the likelihood of `count` failures `of` so many, at the rate that suits it best."""
    rate = count / of if of else 0.0
    return sum(n * math.log(share) for n, share in ((count, rate), (of - count, 1.0 - rate)) if n)


@dataclass(frozen=True)
class Place:
    """A node or a rack where workers failed."""

    scope: Scope
    names: tuple[str, ...]
    of: int
    odds: float

    @property
    def covered(self) -> bool:
        """Whether all of its workers failed."""
        return len(self.names) == self.of


@dataclass(frozen=True)
class Pattern:
    """The repaired reading: racks, then nodes outside of those, then nodes in part, then who is left."""

    everybody: tuple[str, ...] = ()
    racks: tuple[Place, ...] = ()
    nodes: tuple[Place, ...] = ()
    partly: tuple[Place, ...] = ()
    rest: tuple[str, ...] = ()


def pattern(names: tuple[str, ...], topology: Topology, most: float) -> Pattern:
    """What the workers that failed have in common."""
    if len(names) > 1 and len(names) == len(topology.workers):
        return Pattern(everybody=names)
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
    found = []
    for group, members in sorted(groups.items()):
        inside = tuple(name for name in members if name in failing)
        if inside and group:
            of = len(members)
            by = odds(len(inside), of, len(failing) - len(inside), total - of, len(groups))
            found.append(Place(Scope.of(kind, group), inside, of, by))
    return tuple(found)


def instance_count(topology: Topology, names: tuple[str, ...]) -> int:
    """On how many instances these workers are."""
    return len({topology.workers[name].instance_id for name in names})


def unheard_pattern(case: Case) -> Pattern:
    """The pattern of the workers that nobody heard of, worked out once for a case."""
    found = case.computed.get("pattern")
    if not isinstance(found, Pattern):
        found = pattern(failed(case).unanswered, case.topology, case.thresholds.rack_most_ratio)
        case.computed["pattern"] = found
    return found


def common_place(case: Case) -> Mapping[str, Scope]:
    """For each worker that failed together with its place: the place. Its failure speaks for that, not for itself."""
    found = case.computed.get("places")
    if not isinstance(found, dict):
        of = unheard_pattern(case)
        found = dict.fromkeys(of.everybody, JOB)
        for place in (*of.nodes, *of.racks):
            found |= {name: place.scope for name in place.names if len(place.names) > 1}
        case.computed["places"] = found
    return found
