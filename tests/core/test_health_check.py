"""What a health check's exit code and document mean together."""

from __future__ import annotations

import pytest
from gpu_recovery.core.health_check import EXIT_CODES, CheckOutcome, Verdict, verdict_of

from tests.core.build import NOW

DOCUMENTS = {outcome: Verdict(outcome, f"the document says {outcome}", "boot-1", NOW) for outcome in CheckOutcome}


@pytest.mark.parametrize(("code", "outcome"), sorted(EXIT_CODES.items()))
def test_code_and_document_that_agree_are_the_documents_words(code: int, outcome: CheckOutcome) -> None:
    """The document says more than the code: a summary, the boot id, the boot time."""
    assert verdict_of(code, DOCUMENTS[outcome], document_required=True) == DOCUMENTS[outcome]


@pytest.mark.parametrize("code", [1, 42])
def test_blame_without_its_document_counts_only_where_none_is_required(code: int) -> None:
    """A broken image exits with 1 too; seed 001 believes the code, the adaptive policy does not."""
    assert verdict_of(code, None, document_required=True).outcome is CheckOutcome.INCONCLUSIVE
    assert verdict_of(code, None, document_required=False).outcome is EXIT_CODES[code]


@pytest.mark.parametrize("code", [0, 43, 44])
def test_what_blames_nothing_needs_no_document(code: int) -> None:
    """A missing document is no reason to distrust an instance."""
    verdict = verdict_of(code, None, document_required=True)
    assert verdict.outcome is EXIT_CODES[code]
    assert (verdict.boot_id, verdict.booted_at) == (None, None)


@pytest.mark.parametrize("code", [2, 42 + 128, 137, 226, 255, -1])
def test_a_code_that_is_not_ours_could_not_tell(code: int) -> None:
    """dcgmi's own codes and a killed check are neither a pass nor a fault."""
    assert verdict_of(code, None, document_required=False).outcome is CheckOutcome.INCONCLUSIVE


@pytest.mark.parametrize("document", [None, DOCUMENTS[CheckOutcome.HEALTHY], DOCUMENTS[CheckOutcome.REBOOT]])
def test_a_check_without_an_exit_code_could_not_tell(document: Verdict | None) -> None:
    """Skip is not pass, even if a document was written before the check was cut short."""
    verdict = verdict_of(None, document, document_required=False)
    assert verdict.outcome is CheckOutcome.INCONCLUSIVE
    assert verdict.boot_id == (document.boot_id if document else None)


@pytest.mark.parametrize("code", [0, 1, 42])
def test_code_and_document_that_disagree_could_not_tell(code: int) -> None:
    """Neither is believed, but what the machine said of its boot is kept."""
    document = DOCUMENTS[CheckOutcome.CONFIGURATION]
    verdict = verdict_of(code, document, document_required=False)
    assert verdict.outcome is CheckOutcome.INCONCLUSIVE
    assert (verdict.boot_id, verdict.booted_at) == (document.boot_id, document.booted_at)
    assert str(code) in verdict.summary
    assert "CONFIGURATION" in verdict.summary


def test_only_what_is_broken_or_gone_is_evidence_against_an_instance() -> None:
    """What could not tell and what is set up wrongly blame nothing."""
    blamed = {one for one in CheckOutcome if one.blames_hardware}
    assert blamed == {CheckOutcome.REBOOT, CheckOutcome.REPLACE, CheckOutcome.GONE}


def test_no_exit_code_says_that_an_instance_is_gone() -> None:
    """Only its leaving does."""
    assert CheckOutcome.GONE not in EXIT_CODES.values()
