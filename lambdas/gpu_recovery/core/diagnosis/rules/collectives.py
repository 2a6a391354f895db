"""Collective rules: ranks missing in a hang (`flight_recorder`) and bad instances in pairwise tests (`pairwise_test`).

Seed 002 has no such rows. The rules are those of comparable systems (reference, part 3).
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
    """All missing ranks at the head, together. A rank without any entry may also have died."""
    reports = case.all(FlightReport)
    result = culprits(reports)
    if not result.ranks:
        return
    at = _scope(case, result.ranks)
    names = set(result.groups)
    evidence = tuple(report.report_id for report in reports if report.group in names)
    values = {"ranks": ", ".join(map(str, result.ranks)), "groups": ", ".join(result.groups)}
    yield Match(Cause.WORKER_HANG, at, Weight.PROOF, evidence, values)
    if result.unreported:
        yield Match(Cause.WORKER_CRASH, at, Weight.STRONG, evidence, values)


def _circular(case: Case) -> Iterator[Match]:
    reports = case.all(FlightReport)
    result = culprits(reports)
    if result.circular:
        evidence = tuple(report.report_id for report in reports if report.group in result.groups)
        yield Match(Cause.APPLICATION, JOB, Weight.FAIR, evidence, {"groups": ", ".join(result.groups)})


def _scope(case: Case, ranks: tuple[int, ...]) -> Scope:
    """Workers with these ranks; the ranks themselves if any worker is unknown."""
    known = [case.topology.by_rank.get(rank) for rank in ranks]
    if all(known):
        return Scope.of(ScopeKind.WORKER, *(worker.name for worker in known if worker))
    return Scope.of(ScopeKind.RANK, *map(str, ranks))


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
