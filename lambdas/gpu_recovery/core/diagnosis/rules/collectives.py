"""Collective rules: ranks missing in a hang (`flight_recorder`) and bad instances in pairwise tests (`pairwise_test`).

Seed 002 has no such rows. The rules are those of comparable systems (reference, part 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.flight_recorder import (
    Culprits,
    FlightAnalysis,
    joined_groups,
    late_ranks,
    mismatches,
    missing_ranks,
)
from gpu_recovery.core.diagnosis.observations import FlightReport, PairReport
from gpu_recovery.core.diagnosis.pairwise_test import Found, found
from gpu_recovery.core.diagnosis.rank_places import RankPlaces, scope_of_ranks
from gpu_recovery.core.diagnosis.remedies import LATE_ROW, MISSING_ROW, UNPROVED_ROW
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.rules.instances import error_exits
from gpu_recovery.core.diagnosis.rules.log_lines import program_errors
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind, Weight

MISMATCHES_MAX = 8
"""Upper bound of the mismatches that are named."""
RANKS_SHOWN_MAX, GROUPS_SHOWN_MAX = 16, 3
"""Upper bounds of the ranks and of the groups that a sentence lists."""


def _listed(values: Iterable[object], most: int) -> str:
    """Return the values as a list in a sentence, with the number of those that are left out."""
    listed = [str(value) for value in values]
    more = f" (+{len(listed) - most})" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


@dataclass(frozen=True)
class _Flight:
    """Flight records of a case, their analysis, and the places of their ranks."""

    reports: tuple[FlightReport, ...]
    analysis: FlightAnalysis
    missing: Culprits
    places: RankPlaces

    @property
    def names_most(self) -> bool:
        """Whether more than half of the ranks with records are missing by these records.

        Half of them are not most: in a gang of two ranks one waits for the other.
        """
        return 2 * len(self.analysis.reporting.intersection(self.missing.ranks)) > len(self.analysis.reporting)

    def evidence(self, groups: Iterable[str]) -> tuple[str, ...]:
        names = set(groups)
        return tuple(report.report_id for report in self.reports if report.group in names)


def _flight(case: Case) -> _Flight:
    reports = case.all(FlightReport)
    analysis = FlightAnalysis.of(reports)
    return _Flight(reports, analysis, missing_ranks(analysis), RankPlaces(reports, case.topology))


def _values(ranks: Iterable[int], groups: Iterable[str]) -> dict[str, str]:
    return {"ranks": _listed(ranks, RANKS_SHOWN_MAX), "groups": _listed(groups, GROUPS_SHOWN_MAX)}


def _own_errors(case: Case, flight: _Flight, ranks: Iterable[int]) -> tuple[str, ...]:
    """Return the errors of the program at the instances of missing ranks, by report id. Such a rank has not hung.

    After the end of one rank the others raise exceptions, too. So an exception that no signature explains counts only
    if no other instance has any, and if the rank has ended by itself.
    """
    here = {flight.places.instance_of(rank) for rank in ranks} - {""}
    ended = {case.topology.instance_of(end) for end in error_exits(case)}
    errors = [(case.topology.instance_of(error), error.report_id, generic) for error, generic in program_errors(case)]
    raised = {instance for instance, _, generic in errors if generic}
    counts = here & ended if raised <= here else set()
    return tuple(report_id for instance, report_id, generic in errors if instance in (counts if generic else here))


def _unless_ended(case: Case, ranks: Iterable[int], matches: Iterable[Match]) -> Iterator[Match]:
    """Yield the matches, as a note only if the ranks have ended by an error of their own."""
    flight = case.computed_once(_flight)
    errors = _own_errors(case, flight, ranks)
    for match in matches:
        yield Match(None, JOB, 0.0, (*match.evidence, *errors), match.values) if errors else match


def _most(case: Case) -> Iterator[Match]:
    """Few ranks wait for most ranks, as if only they had called the collective. That locates no fault."""
    flight = case.computed_once(_flight)
    if flight.names_most:
        groups = flight.missing.groups
        yield Match(Cause.WORKER_HANG, JOB, Weight.HINT, flight.evidence(groups), _values((), groups))


def _missing(case: Case) -> Iterator[Match]:
    """All missing ranks at the head, together, if their own numbers prove it."""
    flight = case.computed_once(_flight)
    result = flight.missing
    if result.proved and not flight.names_most:
        at = scope_of_ranks(case, flight.places, result.ranks)
        evidence = flight.evidence(result.groups)
        match = Match(Cause.WORKER_HANG, at, Weight.PROOF, evidence, _values(result.ranks, result.groups))
        yield from _unless_ended(case, result.ranks, (match,))


def _unproved(case: Case) -> Iterator[Match]:
    """Missing ranks without a number in the group. A rank without any record may also have died.

    Records of a whole instance may only have been late, or they were not collected. So they decide nothing. Nor do
    records that are missing on several instances: any of these may be the cause, and the others are incomplete.
    """
    flight = case.computed_once(_flight)
    result = flight.missing
    if not result.ranks or result.proved or flight.names_most:
        return
    at = scope_of_ranks(case, flight.places, result.ranks)
    evidence, values = flight.evidence(result.groups), _values(result.ranks, result.groups)
    if not result.unreported:
        match = Match(Cause.WORKER_HANG, at, Weight.STRONG, evidence, values)
        yield from _unless_ended(case, result.ranks, (match,))
        return
    heard = {flight.places.instance_of(rank) for rank in flight.analysis.reporting}
    placed = {flight.places.instance_of(rank) for rank in result.ranks}
    together = len(placed) == 1 and placed <= heard if any(placed) else len(result.ranks) == 1
    few = 2 * len(result.ranks) <= len(flight.analysis.reporting) and together
    hang = Match(Cause.WORKER_HANG, at, Weight.STRONG if few else Weight.HINT, evidence, values)
    crash = Match(Cause.WORKER_CRASH, at, Weight.WEAK if few else Weight.HINT, evidence, values)
    yield from _unless_ended(case, result.ranks, (hang, crash))


def _late(case: Case) -> Iterator[Match]:
    flight = case.computed_once(_flight)
    result = late_ranks(flight.analysis)
    if result.ranks:
        at = scope_of_ranks(case, flight.places, result.ranks)
        evidence = flight.evidence(result.groups)
        yield Match(Cause.WORKER_HANG, at, Weight.FAIR, evidence, _values(result.ranks, result.groups))


def _circular(case: Case) -> Iterator[Match]:
    flight = case.computed_once(_flight)
    result = flight.missing
    if result.circular:
        evidence = flight.evidence(result.groups)
        yield Match(Cause.APPLICATION, JOB, Weight.FAIR, evidence, _values((), result.groups))


def _mismatch(case: Case) -> Iterator[Match]:
    """Another operation, type or size as the same collective. Weak: a restart may take another branch."""
    flight = case.computed_once(_flight)
    for mismatch in mismatches(flight.analysis)[:MISMATCHES_MAX]:
        values = _values(mismatch.ranks, (mismatch.group,)) | {"op": mismatch.op, "usual": mismatch.usual}
        yield Match(Cause.APPLICATION, JOB, Weight.WEAK, flight.evidence((mismatch.group,)), values)


def _joined(case: Case) -> Iterator[Match]:
    """A collective that all ranks have called and that does not end. Only if nothing else explains the hang."""
    flight = case.computed_once(_flight)
    if flight.missing != Culprits() or late_ranks(flight.analysis).ranks or mismatches(flight.analysis):
        return
    names = tuple(dict.fromkeys(group.name for group in joined_groups(flight.analysis)))
    if names:
        yield Match(Cause.NETWORK, JOB, Weight.HINT, flight.evidence(names), _values((), names))


def _tests(case: Case) -> tuple[Found, tuple[PairReport, ...]]:
    reports = case.all(PairReport)
    return found(reports, case.thresholds.pair_slow_ratio), reports


def _report_ids(reports: tuple[PairReport, ...], name: str) -> tuple[str, ...]:
    return tuple(report.report_id for report in reports if name in report.instances)


def _bad(case: Case) -> Iterator[Match]:
    """An instance that fails with every partner. A fault of its GPU, which takes part in the test, is the rival."""
    result, reports = _tests(case)
    for name in result.bad:
        at, evidence = Scope.of(ScopeKind.INSTANCE, name), _report_ids(reports, name)
        yield Match(Cause.NETWORK, at, Weight.PROOF, evidence, {"who": name})
        yield Match(Cause.GPU_FAULT, at, Weight.FAIR, evidence, {"who": name})


def _suspected(case: Case) -> Iterator[Match]:
    result, reports = _tests(case)
    for name in result.suspected:
        values = {"who": name, "others": ", ".join(other for other in result.suspected if other != name)}
        yield Match(Cause.NETWORK, Scope.of(ScopeKind.INSTANCE, name), Weight.WEAK, _report_ids(reports, name), values)


def _slow(case: Case) -> Iterator[Match]:
    result, reports = _tests(case)
    for name in result.slow:
        at, evidence = Scope.of(ScopeKind.INSTANCE, name), _report_ids(reports, name)
        values = {"who": name, "ratio": case.thresholds.pair_slow_ratio}
        yield Match(Cause.NETWORK_SLOW, at, Weight.FAIR, evidence, values)
        yield Match(Cause.STRAGGLER, at, Weight.FAIR, evidence, values)


_FLIGHT, _PAIR = (FlightReport,), (PairReport,)
_RECORDER = "reference, part 3: flight recorder"
RULES: tuple[Rule, ...] = (
    Rule(
        MISSING_ROW,
        "ranks {ranks} are missing in process group {groups}: the others wait for them",
        "进程组{groups}缺少rank {ranks}，其余rank在等待",
        _FLIGHT,
        _missing,
        _RECORDER,
    ),
    Rule(
        UNPROVED_ROW,
        "process group {groups} waits, and no record shows that ranks {ranks} have joined",
        "进程组{groups}在等待，没有记录表明rank {ranks}已加入",
        _FLIGHT,
        _unproved,
        _RECORDER,
    ),
    Rule(
        "flighto",
        "process group {groups} waits for most ranks: perhaps only the others have called the collective",
        "进程组{groups}在等待大多数rank：可能只有其余rank调用了该集合通信",
        _FLIGHT,
        _most,
        _RECORDER,
    ),
    Rule(
        LATE_ROW,
        "ranks {ranks} have not seen the end of collectives that the others in process group {groups} have completed",
        "进程组{groups}中其余rank已完成的集合通信，rank {ranks}未完成",
        _FLIGHT,
        _late,
        _RECORDER,
    ),
    Rule(
        "flightm",
        "ranks {ranks} call {op} in process group {groups}, and the others call {usual} at the same place",
        "进程组{groups}中rank {ranks}调用{op}，其余rank在同一序号调用{usual}",
        _FLIGHT,
        _mismatch,
        _RECORDER,
    ),
    Rule(
        "flightj",
        "every rank has joined the collective in which process group {groups} waits: the network or a GPU",
        "进程组{groups}的所有rank均已加入但未结束 → 网络或GPU",
        _FLIGHT,
        _joined,
        _RECORDER,
    ),
    Rule(
        "flightc",
        "process groups {groups} wait for one another: collectives are called in different orders",
        "进程组{groups}相互等待 → 集合通信调用顺序不一致",
        _FLIGHT,
        _circular,
        _RECORDER,
    ),
    Rule(
        "pair",
        "{who} failed its tests with every partner",
        "{who} 与所有伙伴的成对测试均失败",
        _PAIR,
        _bad,
        "reference, part 3: network check",
    ),
    Rule(
        "pairp",
        "{who} or {others}: their tests fail, and cannot tell which of them it is",
        "{who} 或 {others}：成对测试失败，无法区分",
        _PAIR,
        _suspected,
        "reference, part 3: network check",
    ),
    Rule(
        "pairs",
        "{who} took more than {ratio:g} times the median in its best test",
        "{who} 最快的成对测试也超过中位数的{ratio:g}倍 → 慢节点",
        _PAIR,
        _slow,
        "reference, part 3: network check",
    ),
)
