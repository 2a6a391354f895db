"""Small cases for the tests of the rules: who is where, what was reported, and what the rules make of it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from gpu_recovery.core.diagnosis.case import Case, History, Topology, Worker
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose
from gpu_recovery.core.diagnosis.observations import Observation, RpcReport, RpcStage
from gpu_recovery.core.diagnosis.rule import Rule, RuleFinding, findings
from gpu_recovery.core.diagnosis.thresholds import Thresholds

AT_S = 10_000.0
BY = Thresholds()


def cluster(nodes: int, workers: int, racks: int = 1) -> Topology:
    """`nodes` instances n0, n1, …, with `workers` each: w0, w1, …; the first racks are filled first."""
    per_rack = -(-nodes // racks)
    return Topology.of(
        Worker(f"w{node * workers + k}", f"n{node}", f"r{node // per_rack}", node * workers + k)
        for node in range(nodes)
        for k in range(workers)
    )


def case_of(reports: Iterable[Observation], topology: Topology | None = None, at_s: float = AT_S) -> Case:
    """The case of these reports."""
    return Case.of(reports, topology or Topology(), History(), at_s, BY)


def found_by(
    rules: Iterable[Rule], reports: Iterable[Observation], topology: Topology | None = None
) -> list[RuleFinding]:
    """What these rules find."""
    return list(findings(rules, case_of(reports, topology)))


def rows(found: Iterable[RuleFinding]) -> set[str]:
    """Which rows found something."""
    return {one.row for one in found}


def of_row(found: Iterable[RuleFinding], row: str) -> list[RuleFinding]:
    """What one row found."""
    return [one for one in found if one.row == row]


def judged(reports: Iterable[Observation], topology: Topology | None = None) -> Diagnosis:
    """The verdict of all rules."""
    return diagnose(reports, topology or Topology(), History(), AT_S)


_NUMBERS = count()


def late(worker: str, stage: RpcStage = RpcStage.CONNECT, **more: object) -> RpcReport:
    """A call that ran out of time at a stage."""
    given: dict[str, object] = {"report_id": f"late-{next(_NUMBERS)}", "at_s": AT_S - 10, **more}
    return RpcReport(
        worker=worker,
        failed_at=stage,
        timed_out=True,
        **given,  # type: ignore[arg-type]
    )


def returned(worker: str, **more: object) -> RpcReport:
    """A call that came back."""
    given: dict[str, object] = {"at_s": AT_S - 10, **more}
    return RpcReport(
        report_id=f"ok-{next(_NUMBERS)}",
        worker=worker,
        connect_s=0.1,
        send_s=0.1,
        header_s=1.0,
        body_s=0.5,
        status=200,
        **given,  # type: ignore[arg-type]
    )


def raised(worker: str, **more: object) -> RpcReport:
    """A call that was answered with an error."""
    given: dict[str, object] = {"at_s": AT_S - 10, "status": 500, **more}
    return RpcReport(report_id=f"error-{next(_NUMBERS)}", worker=worker, **given)  # type: ignore[arg-type]
