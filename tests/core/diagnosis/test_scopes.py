"""Where reports are, and what a case makes once for all of its rules."""

import pytest
from gpu_recovery.core.diagnosis.case import Case, History, Topology, Worker
from gpu_recovery.core.diagnosis.diagnose import diagnose
from gpu_recovery.core.diagnosis.observations import ExitReport, XidReport
from gpu_recovery.core.diagnosis.taxonomy import JOB, Scope, ScopeKind
from gpu_recovery.core.diagnosis.thresholds import Thresholds

from tests.core.diagnosis.rule_results import AT_S, TWO, instance


def case_of(*reports: ExitReport, topology: Topology = TWO) -> Case:
    """The case of these reports."""
    return Case.of(reports, topology, History(), AT_S, Thresholds())


@pytest.mark.parametrize(
    ("who", "scope"),
    [
        ({"instance_id": "i-9", "worker": "train/0", "rank": 1}, instance("i-9")),
        ({"worker": "train/0", "rank": 1}, instance("i-1")),
        ({"rank": 1}, instance("i-2")),
        ({"worker": "nobody/0"}, Scope.of(ScopeKind.WORKER, "nobody/0")),
        ({"rank": 7}, Scope.of(ScopeKind.RANK, "7")),
        ({}, JOB),
    ],
)
def test_a_report_is_at_the_narrowest_place_that_is_known(who: dict[str, str | int], scope: Scope) -> None:
    """Its own instance, else its worker's or rank's; else what it says of itself; else the job."""
    assert case_of().scope_of(ExitReport(report_id="r", at_s=1.0, **who)) == scope  # type: ignore[arg-type]


def test_of_two_workers_with_one_rank_the_first_counts() -> None:
    """Whichever way the topology was made, a rank is at one place."""
    two = Topology.of([Worker("a", "i-1", rank=0), Worker("b", "i-2", rank=0)])
    assert two.instance_of(ExitReport(report_id="r", at_s=1.0, rank=0)) == "i-1"


def test_what_several_rules_ask_is_made_once() -> None:
    """Ten rules that read the same timelines build them once."""
    asked: list[Case] = []

    def count(case: Case) -> int:
        asked.append(case)
        return len(asked)

    one, other = case_of(), case_of()
    assert [one.computed_once(count), one.computed_once(count), other.computed_once(count)] == [1, 1, 2]


def test_a_lemon_score_that_is_no_number_says_nothing() -> None:
    """It neither raises a machine's confidence nor makes it none."""
    xid = XidReport(report_id="x", at_s=1.0, instance_id="i-1", xid=79, asks="REBOOT")
    known, broken = (diagnose([xid], TWO, History(lemons), AT_S) for lemons in ({}, {"i-1": float("nan")}))
    assert known == broken
