"""Consequences in the ranking: they rank below their causes and take nothing from them."""

from gpu_recovery.core.diagnosis.observations import XidReport
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.taxonomy import Cause, Weight

from tests.core.diagnosis.rule_results import asked, instance

XID = XidReport(report_id="x", at_s=1.0, xid=79, asks="REBOOT")


def rule(row: str, *matches: Match) -> Rule:
    """A rule that finds these."""
    return Rule(row, "x", "x", (XidReport,), lambda case: matches)


ROOT = Match(Cause.GPU_FAULT, instance("i-1"), Weight.FAIR)
FOLLOWERS = tuple(Match(Cause.NETWORK, instance(f"i-{n}"), Weight.PROOF, follows=True) for n in range(2, 130))


def test_consequences_take_no_confidence_from_their_cause() -> None:
    """The end of one rank is the end of a hundred others: that is no reason to doubt the first."""
    alone, among = asked((rule("a", ROOT),), XID), asked((rule("a", ROOT), rule("b", *FOLLOWERS)), XID)
    assert (among.cause, among.confidence, among.decided) == (alone.cause, alone.confidence, True)
    assert all(0.0 < one.confidence < 0.05 for one in among.rivals)


def test_with_nothing_but_consequences_they_are_each_others_rivals() -> None:
    """Nobody knows what they follow from: nothing is decided."""
    verdict = asked((rule("b", *FOLLOWERS),), XID)
    assert not verdict.decided and verdict.confidence < 0.05


def test_one_consequence_however_clear_leaves_its_cause_decided() -> None:
    """It is no rival: what follows from the first cannot be right instead of it."""
    verdict = asked((rule("a", ROOT), rule("b", FOLLOWERS[0])), XID)
    assert (verdict.cause, verdict.decided, verdict.next_probe) == (Cause.GPU_FAULT, True, None)
