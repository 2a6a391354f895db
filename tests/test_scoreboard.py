"""The scoreboard: how a case counts, and that the recorded scores and the pages are those of the present rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.diagnose import Diagnosis
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Remedy, Scope, ScopeKind
from gpu_recovery.core.logs.kinds import CLASSES

from benchmarks import log_kinds, results
from benchmarks.intervals import wilson
from benchmarks.scoreboard import check_sets, diagnosis_sets
from benchmarks.scoreboard.pages import PAGES, quoted, summary, unseen_scores
from benchmarks.scoreboard.score import CaseResult, Seen, Share, Verdict, score
from benchmarks.scoreboard.sets import CASES, source_sets
from health_check.remedies import HealthOutcome
from tests.health_check.diagnostics import OUTPUTS
from tests.markdown import ROOT

SETS = source_sets()
LIVE = "seed 002, live"
RECORDED = results.read()["scoreboard"]
ECC = {"line": "CUDA error: uncorrectable ECC error encountered", "kind": "hardware_gpu_ecc"}
BENIGN = {"line": "step 3 loss 2.27", "kind": "benign"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name == LIVE)) for name in SETS])
def test_the_recorded_score_is_that_of_the_present_rules(name: str) -> None:
    """`python -m benchmarks.scoreboard --write` records it."""
    assert RECORDED[name] == json.loads(json.dumps(score(SETS[name].seen, SETS[name].results())))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_quotes_the_recorded_scores(page: str) -> None:
    """The same command writes the pages."""
    assert list(RECORDED) == list(SETS)
    text = (ROOT / page).read_text(encoding="utf-8")
    assert quoted(page, text, RECORDED) == text


def test_a_page_without_the_comments_is_refused() -> None:
    """Otherwise its quote would never change again."""
    with pytest.raises(ValueError, match="has no comments around its quote: summary of the scoreboard"):
        quoted("docs/diagnosis.md", "nothing", RECORDED)


# -- how a case counts -------------------------------------------------------------------------------------------------


def test_a_share_has_the_interval_of_wilson() -> None:
    """Values of Wilson's formula, also where all or none are right."""
    values = {(0, 187): (0.0, 0.0201), (50, 100): (0.4038, 0.5962), (28, 28): (0.8794, 1.0)}
    assert {share: tuple(round(bound, 4) for bound in wilson(*share)) for share in values} == values
    with pytest.raises(ValueError, match="nothing"):
        wilson(0, 0)


def test_a_share_has_only_the_cases_that_could_count() -> None:
    """A healthy GPU cannot be missed, and a set without log lines has no kinds."""
    cases = [
        CaseResult(verdict=Verdict.RIGHT, wrongful_repair=False),
        CaseResult(verdict=Verdict.WRONG, wrongful_repair=True),
        CaseResult(verdict=Verdict.UNDECIDED, missed=True),
    ]
    figures = score(Seen.NO, cases)
    counts = {name: (of["count"], of["of"]) for name, of in figures.items() if isinstance(of, dict)}
    assert (figures["seen"], figures["cases"]) == ("no", 3)
    assert counts == {
        "right": (1, 3),
        "wrong": (1, 3),
        "undecided": (1, 3),
        "wrongful_repairs": (1, 2),
        "missed_gpu_faults": (1, 1),
    }
    assert figures["right"]["interval"] == [0.061, 0.792]


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What every log is diagnosed as: a GPU fault of the rank that wrote the line, but for these changes."""
    changes: dict[str, Any] = {}
    place = Scope.of(ScopeKind.INSTANCE, "i-1")
    found = Diagnosis(Cause.GPU_FAULT, place, Remedy.CHECK, 0.9, True, (), (), (), None, (), "")
    monkeypatch.setattr(diagnosis_sets, "found_in", lambda logs: replace(found, **changes))
    yield changes


@pytest.mark.parametrize(
    ("changes", "expected", "missed"),
    [
        ({}, Verdict.RIGHT, False),
        ({"scope": Scope.of(ScopeKind.INSTANCE, "i-2")}, Verdict.RIGHT, True),
        ({"scope": JOB}, Verdict.RIGHT, True),
        ({"remedy": Remedy.LEAVE_OUT}, Verdict.RIGHT, True),
        ({"cause": Cause.APPLICATION, "remedy": Remedy.FAIL}, Verdict.WRONG, True),
        ({"cause": Cause.APPLICATION, "decided": False}, Verdict.UNDECIDED, False),
    ],
)
def test_a_gpu_fault_is_missed_unless_its_instance_is_checked(
    verdict: dict[str, Any], changes: dict[str, Any], expected: Verdict, missed: bool
) -> None:
    """After an undecided diagnosis all instances are checked."""
    verdict |= changes
    (result,) = diagnosis_sets.line_results([ECC])
    assert (result.kind_is_right, result.false_alarm, result.verdict, result.missed) == (True, None, expected, missed)


def test_any_decided_verdict_on_a_benign_line_is_wrong(verdict: dict[str, Any]) -> None:
    """An undecided one is right: nothing has failed."""
    (decided,) = diagnosis_sets.line_results([BENIGN])
    verdict |= {"decided": False}
    (undecided,) = diagnosis_sets.line_results([BENIGN])
    assert (decided.verdict, undecided.verdict) == (Verdict.WRONG, Verdict.RIGHT)
    assert (decided.false_alarm, decided.missed) == (False, None)


def test_each_class_of_lines_has_its_right_causes() -> None:
    """Otherwise a new class would stop the scoreboard."""
    assert set(diagnosis_sets.RIGHT_CAUSES) == set(CLASSES.values())


@pytest.mark.parametrize("outcome", HealthOutcome)
def test_a_check_repairs_wrongly_or_misses_a_fault(outcome: HealthOutcome, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same outcome for every document: it is wrong for the healthy GPUs or for the faulty ones."""
    monkeypatch.setattr(check_sets, "judged", lambda *_, **__: type("V", (), {"outcome": outcome}))
    figures = score(Seen.YES, check_sets.document_results())
    repairs = outcome in (HealthOutcome.REBOOT, HealthOutcome.REPLACE)
    healthy, faulty, unknown = (
        sum(truth["faulty"] is state for truth in check_sets.document_truths().values())
        for state in (False, True, None)
    )
    assert figures["wrongful_repairs"]["count"] == (healthy if repairs else 0)
    assert figures["missed_gpu_faults"]["count"] == (0 if repairs else faulty)
    wrong = {HealthOutcome.HEALTHY: faulty + unknown, HealthOutcome.CONFIGURATION: faulty}
    assert figures["wrong"]["count"] == (healthy + unknown if repairs else wrong.get(outcome, 0))


def test_an_xid_of_a_program_that_reboots_is_a_wrongful_repair() -> None:
    """The label says whether a GPU is faulty, and the health check does not know the label."""
    lost = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
    rows = [{"line": lost, "kind": kind} for kind in ("hardware_gpu_lost", "xid_application", "xid_cascade")]
    assert list(check_sets.kernel_results([*rows, BENIGN])) == [
        CaseResult(verdict=Verdict.RIGHT),
        CaseResult(verdict=Verdict.WRONG, wrongful_repair=True),
    ]


def test_every_document_has_its_truth() -> None:
    """But for the schema, which is no document."""
    assert {*check_sets.document_truths(), "dcgm_diag_schema_v4.json"} == {path.name for path in OUTPUTS.iterdir()}


# -- a set that is added -----------------------------------------------------------------------------------------------


def test_a_part_that_is_added_is_a_set_that_nobody_has_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader reads any half of a file; a line of the history says later what its authors have seen."""
    more = tmp_path / "benign.jsonl"
    rows = [f'{{"line": "step {number}", "kind": "benign", "half": "new"}}\n' for number in range(3)]
    more.write_text("".join(rows), encoding="utf-8")
    monkeypatch.setitem(log_kinds.FILES, "benign_", more)
    added = source_sets()["benign_new"]
    figures = {"benign_new": score(added.seen, added.results())}
    assert (added.seen, figures["benign_new"]["cases"]) == (Seen.NO, 3)
    others = {name: of for name, of in RECORDED.items() if of["seen"] != str(Seen.NO)}
    assert unseen_scores(others | figures) == (Share(0, 0), Share(0, 3))
    assert "raised a false alarm | 0 of 3 (0.0-56.1 %) |" in summary(others | figures)
    monkeypatch.setitem(log_kinds.HISTORY, "benign_new", log_kinds.PartHistory(Seen.LATER, (3, 3, 0)))
    assert source_sets()["benign_new"].seen is Seen.LATER


def test_every_set_says_whether_its_authors_have_seen_it() -> None:
    """The sets that were made for the rules cannot be unseen."""
    assert {name: of["seen"] for name, of in RECORDED.items()} == {name: str(of.seen) for name, of in SETS.items()}
    assert set(CASES) <= set(SETS)
