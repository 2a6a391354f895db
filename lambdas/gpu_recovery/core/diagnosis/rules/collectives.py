"""What collectives tell: who is missing in a hang (`flight`), and whom pairwise tests convict (`pairing`).

Not of the seed: the rules are those of peers (reference, part 3).
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.flight_recorder import culprits
from gpu_recovery.core.diagnosis.observations import FlightReport, PairReport
from gpu_recovery.core.diagnosis.pairwise_test import Found, found
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind, Weight


def _missing(case: Case) -> Iterator[Match]:
    """All that are missing at the head, together. Whoever has said nothing at all may as well have died."""
    reports = case.all(FlightReport)
    of = culprits(reports)
    if not of.ranks:
        return
    at = _scope(case, of.ranks)
    names = set(of.groups)
    evidence = tuple(one.report_id for one in reports if one.group in names)
    values = {"ranks": ", ".join(map(str, of.ranks)), "groups": ", ".join(of.groups)}
    yield Match(Cause.WORKER_HANG, at, Weight.PROOF, evidence, values)
    if of.silent:
        yield Match(Cause.WORKER_CRASH, at, Weight.STRONG, evidence, values)


def _circular(case: Case) -> Iterator[Match]:
    reports = case.all(FlightReport)
    of = culprits(reports)
    if of.circular:
        evidence = tuple(one.report_id for one in reports if one.group in of.groups)
        yield Match(Cause.APPLICATION, JOB, Weight.FAIR, evidence, {"groups": ", ".join(of.groups)})


def _scope(case: Case, ranks: tuple[int, ...]) -> Scope:
    """The workers that have these ranks; the ranks where any of them is unknown."""
    known = [case.topology.by_rank.get(rank) for rank in ranks]
    if all(known):
        return Scope.of(ScopeKind.WORKER, *(one.name for one in known if one))
    return Scope.of(ScopeKind.RANK, *map(str, ranks))


def _tests(case: Case) -> tuple[Found, tuple[PairReport, ...]]:
    reports = case.all(PairReport)
    return found(reports, case.thresholds.pair_slow_ratio), reports


def _of(reports: tuple[PairReport, ...], name: str) -> tuple[str, ...]:
    return tuple(one.report_id for one in reports if name in one.instances)


def _bad(case: Case) -> Iterator[Match]:
    """A machine that no partner can reach. Its GPU, which takes part in the test, is the rival."""
    of, reports = _tests(case)
    for name in of.bad:
        at, evidence = Scope.of(ScopeKind.INSTANCE, name), _of(reports, name)
        yield Match(Cause.NETWORK, at, Weight.PROOF, evidence, {"who": name})
        yield Match(Cause.GPU_FAULT, at, Weight.FAIR, evidence, {"who": name})


def _suspected(case: Case) -> Iterator[Match]:
    of, reports = _tests(case)
    for name in of.suspected:
        values = {"who": name, "others": ", ".join(one for one in of.suspected if one != name)}
        yield Match(Cause.NETWORK, Scope.of(ScopeKind.INSTANCE, name), Weight.WEAK, _of(reports, name), values)


def _slow(case: Case) -> Iterator[Match]:
    of, reports = _tests(case)
    for name in of.slow:
        at, evidence = Scope.of(ScopeKind.INSTANCE, name), _of(reports, name)
        values = {"who": name, "ratio": case.thresholds.pair_slow_ratio}
        yield Match(Cause.NETWORK_SLOW, at, Weight.FAIR, evidence, values)
        yield Match(Cause.STRAGGLER, at, Weight.FAIR, evidence, values)


_FLIGHT, _PAIR = (FlightReport,), (PairReport,)
RULES: tuple[Rule, ...] = (
    Rule(
        "flight",
        "ranks {ranks} are missing in process group {groups}: the others wait for them",
        "进程组{groups}缺少rank {ranks}，其余rank在等待",
        _FLIGHT,
        _missing,
        "reference, part 3: flight recorder",
    ),
    Rule(
        "flightc",
        "process groups {groups} wait for one another: collectives are called in different orders",
        "进程组{groups}相互等待 → 集合通信调用顺序不一致",
        _FLIGHT,
        _circular,
        "reference, part 3: flight recorder",
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
