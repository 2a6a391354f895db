"""What a diagnosis looks like to people and to programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_recovery.core.diagnosis.case import History, Topology
from gpu_recovery.core.diagnosis.diagnose import diagnose
from gpu_recovery.core.diagnosis.observations import RpcReport, RpcStage
from gpu_recovery.core.diagnosis.report_text import LISTED_MAX, Language, as_document, outcome_line, report_text
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy


def call(number: int) -> RpcReport:
    """A call whose answer never came."""
    return RpcReport(
        report_id=f"r{number}",
        at_s=float(number),
        instance_id=f"i-{number}",
        worker=f"w{number}",
        failed_at=RpcStage.HEADER,
        timed_out=True,
    )


def test_a_page_has_what_where_how_sure_evidence_and_what_is_next() -> None:
    """In both languages."""
    found = diagnose([call(1)], Topology(), History(), 10.0)
    english, chinese = report_text(found), report_text(found, Language.CHINESE)
    for words, text in (
        (("What", "Where", "How sure", "Evidence", "Next"), english),
        (("原因", "位置", "把握", "证据", "下一步"), chinese),
    ):
        assert all(f"\n{word}:" in f"\n{text}" for word in words), text
    assert "r1" in english


def test_a_page_of_nothing_says_so() -> None:
    """And which look is the cheapest."""
    found = report_text(diagnose([], Topology(), History(), 0.0))
    assert "there is no evidence for any cause" in found and "self-report" in found


@pytest.mark.parametrize(
    ("held", "english", "chinese"),
    [(True, "has held", "处置有效"), (False, "has not held", "处置无效"), (None, "it is not known yet", "尚不清楚")],
)
def test_a_page_can_say_how_a_verdict_turned_out(held: bool | None, english: str, chinese: str) -> None:
    """Which verdict that was, and what has become of its remedy, on one line in both languages."""
    for language, words in ((Language.ENGLISH, english), (Language.CHINESE, chinese)):
        told = outcome_line(Cause.GPU_FAULT, "gpu i-0b2/3", held, language)
        assert words in told and "GPU_FAULT" in told and "gpu i-0b2/3" in told
        assert told.count("\n") == 1 and told.endswith("\n")


def test_a_document_is_bounded_and_says_what_it_leaves_out() -> None:
    """A function's answer has an end."""
    document = as_document(diagnose([call(n) for n in range(600)], Topology(), History(), 700.0))
    lists = {name: document[name] for name in ("evidence", "findings", "said")}
    assert all(len(one) <= LISTED_MAX for one in lists.values())
    assert document["more"]["said"] > 0 and len(lists["said"]) == LISTED_MAX
    assert len(str(document)) < 1_000_000


@pytest.mark.parametrize("remedy", list(Remedy))
def test_each_remedy_says_what_is_done_in_both_languages(remedy: Remedy) -> None:
    """The name alone, such as CHECK, does not tell an operator what follows. The documentation says it, too."""
    page = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text()
    assert f"| `{remedy}` | {remedy.sentence} |" in page
    assert remedy.chinese.endswith("。") and remedy.sentence.endswith(".")
    assert remedy.value not in remedy.sentence.replace("FAILED", "")
