"""XIDs of NVLink say in their registers what happened."""

from __future__ import annotations

import pytest

from health_check.nvlink import WORD_RULES, decode, link_of
from health_check.xid import XidEvent
from health_check.xid_table import XidClass
from tests.health_check.examinations import answer, evidence_of, log, xid

C = XidClass


def error_74(first: int = 0, third: int = 0, fourth: int = 0, fifth: int = 0, *, word: str = "fatal ") -> XidEvent:
    words = ", ".join(hex(one) for one in (first, 0, third, fourth, fifth, 0, 0))
    return XidEvent(74, "0000:10:00", None, f"pid='<unknown>', NVLink: {word}error detected on link 10({words})")


def error_nvlink5(code: int, intr_info: int, status: int, word: str = "Nonfatal") -> XidEvent:
    text = (
        f"NETIR_LINK_EVT  {word:9} XC0 i0 Link 08 (0x{intr_info:08x} 0x{status:08x} 0x00000000 0x00000001 0x0 0x0 0x0)"
    )
    return XidEvent(code, "0000:10:00", None, text)


def word_of(pattern: str) -> int:
    """A word that fits a pattern."""
    return int(pattern.replace("-", "0"), 2)


@pytest.mark.parametrize(
    ("event", "once", "often"),
    [
        (error_74(1 << 0), C.IGNORE, C.IGNORE),
        (error_74(1 << 23 | 1 << 30), C.IGNORE, C.IGNORE),
        (error_74(1 << 1), C.FOLLOW_OTHER, C.FOLLOW_OTHER),
        (error_74(1 << 4), C.DIAG, C.REBOOT),
        (error_74(1 << 17), C.DIAG, C.DIAG),
        (error_74(1 << 21), C.DIAG, C.DIAG),
        (error_74(1 << 29), C.WATCH, C.DIAG),
        (error_74(third=1 << 6), C.DIAG, C.REBOOT),
        (error_74(third=1 << 16), C.WATCH, C.DIAG),
        (error_74(third=1 << 17), C.WATCH, C.WATCH),
        (error_74(fourth=1 << 16), C.FOLLOW_OTHER, C.FOLLOW_OTHER),
        (error_74(fourth=1 << 18), C.REBOOT, C.REBOOT),
        (error_74(fifth=1 << 28), C.DIAG, C.REBOOT),
        (error_74(fifth=1 << 20), C.WATCH, C.WATCH),
        (error_74(1 << 0 | 1 << 17), C.DIAG, C.DIAG),
    ],
)
def test_a_bit_of_xid_74_has_its_class(event: XidEvent, once: XidClass, often: XidClass) -> None:
    """The worst bit decides; some are taken seriously only when seen more than twice on a link."""
    assert (decode(event, 2), decode(event, 3)) == (once, often)
    assert link_of(event) == 10


def test_an_xid_74_without_a_known_bit_is_as_grave_as_its_words() -> None:
    """Fatal asks for a reboot; without a word and a register the table decides."""
    assert decode(error_74(), 1) is C.REBOOT
    assert decode(error_74(1 << 31), 1) is C.REBOOT
    assert decode(error_74(word="non-fatal "), 1) is None
    assert decode(XidEvent(74, None, None, "NVLink: fatal error detected on link 3"), 1) is C.REBOOT
    assert decode(XidEvent(74, None, None, ""), 1) is None


@pytest.mark.parametrize("rule", range(len(WORD_RULES)))
def test_every_rule_of_nvlink_5_is_reached_by_a_message_that_fits_it(rule: int) -> None:
    """The word in either form, the status one of the rule's. No word fits two rules of different actions."""
    asked = WORD_RULES[rule]
    status = min(asked.statuses, default=0)
    fitting = {"RESET_GPU": C.REBOOT, "IGNORE": C.IGNORE, "XID_154_EVAL": C.APP}[asked.action]
    for pattern in (asked.before, asked.since):
        assert decode(error_nvlink5(asked.xid, word_of(pattern), status), 1) is fitting, (asked, pattern)


def test_words_of_both_forms_are_known() -> None:
    """A fatal and a harmless status of unit RLW_REMAP, whose number moved with release 575."""
    old, new = (word_of(f"------000000----------{bits}") for bits in ("0010000010", "---0000100".replace("-", "0")))
    for word in (old, new):
        assert decode(error_nvlink5(145, word, 0x40), 1) is C.REBOOT
        assert decode(error_nvlink5(145, word, 0x100), 1) is C.IGNORE


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            149,
            "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
        ),
        (
            145,
            "pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 "
            "(0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
        ),
    ],
)
def test_a_published_message_in_the_old_form_is_harmless_under_a_new_driver(code: int, text: str) -> None:
    """Messages of the tests of leptonai/gpud. The catalogue ignores both; 580 printed the second."""
    evidence = evidence_of(log(xid(code, rest=f", {text}")), answer(version="580.82.09"))
    assert [one.xid_class for one in evidence.xids] == [C.IGNORE]
    assert not evidence.decides


def test_words_without_a_rule_are_as_grave_as_they_call_themselves() -> None:
    """A unit of tomorrow: fatal asks for a reboot, anything else for a diagnosis."""
    assert decode(error_nvlink5(147, 0x3FF, 0x7777, "Fatal"), 1) is C.REBOOT
    assert decode(error_nvlink5(147, 0x3FF, 0x7777, "Nonfatal"), 1) is C.DIAG
    assert decode(XidEvent(149, None, None, "NETIR without words"), 1) is None
    assert decode(XidEvent(79, None, None, "Fatal (0x1 0x2)"), 1) is None
