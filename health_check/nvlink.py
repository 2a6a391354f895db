"""Decodes XIDs of NVLink: 74 up to Hopper, 144 to 150 since Blackwell. Pure.

Their messages contain registers, and the rules are data. `xid_74_registers.csv` has bits of the first, third, fourth
and fifth of the seven registers. `xid_nvlink5.csv` has for each unit a pattern of the word intrInfo (32 bits, highest
first, `-` for any) in two forms, and the word errorStatus (empty for any). NVIDIA's catalogue of XIDs
(docs.nvidia.com/deploy/xid-errors) has one form for drivers before 575 and one since. Newer drivers write words of the
old form as well, so a word is matched against both forms, whatever the driver's release.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from health_check.xid import XidEvent
from health_check.xid_table import XidClass

NVLINK_ERROR = 74
NVLINK5 = range(144, 151)
SEEN_OFTEN = 3  # "more than twice"
WORST_FIRST = tuple(reversed(XidClass))
"""The classes of XIDs, the worst first."""
_REGISTERS = re.compile(r"\(\s{0,4}(0x[0-9a-fA-F]{1,8}(?:,\s{0,4}0x[0-9a-fA-F]{1,8}){6})\s{0,4}\)")
_LINK = re.compile(r"\blink\s{0,4}(\d{1,3})", re.I)
_WORDS = re.compile(r"(Non-?fatal|Fatal)\b[^(]{0,60}\(\s{0,4}0x([0-9a-fA-F]{1,8})\s{1,4}0x([0-9a-fA-F]{1,8})", re.I)
_ACTIONS = {"RESET_GPU": XidClass.REBOOT, "IGNORE": XidClass.IGNORE, "XID_154_EVAL": XidClass.APP}


@dataclass(frozen=True)
class RegisterRule:
    """One rule of XID 74: bits of a register, their class, and their class if they occur often on a link."""

    register: int
    bits: frozenset[int]
    xid_class: XidClass
    often: XidClass | None


@dataclass(frozen=True)
class WordRule:
    """One rule of XIDs 144 to 150.

    `before` and `since` are patterns of intrInfo; `statuses` is empty if any errorStatus matches.
    """

    xid: int
    before: str
    since: str
    statuses: frozenset[int]
    action: str


def _rows(name: str) -> list[dict[str, str]]:
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _word_rules() -> Iterator[WordRule]:
    for row in _rows("xid_nvlink5.csv"):
        statuses = frozenset(int(word, 16) for word in row["error_status"].split())
        yield WordRule(int(row["xid"]), row["before_575"], row["since_575"], statuses, row["action"])
        if row["other_action"]:
            patterns = row["other_before_575"], row["other_since_575"]
            yield WordRule(int(row["xid"]), *patterns, statuses, row["other_action"])


REGISTER_RULES = tuple(
    RegisterRule(
        int(row["register"]),
        frozenset(map(int, row["bits"].split())),
        XidClass(row["class"]),
        XidClass(row["more_than_twice"]) if row["more_than_twice"] else None,
    )
    for row in _rows("xid_74_registers.csv")
)
WORD_RULES = tuple(_word_rules())


def link_of(event: XidEvent) -> int | None:
    """Return the number of the link in the message; None if there is none."""
    match = _LINK.search(event.text)
    return int(match[1]) if match else None


def decode(event: XidEvent, times_on_link: int) -> XidClass | None:
    """Return the class that the message itself gives; None: the class of the table applies.

    XID 74 without registers or without a matching rule: REBOOT if the message says fatal, otherwise None. XIDs 144 to
    150: None without registers; without a matching rule REBOOT if the message says fatal, otherwise DIAG. Every other
    code: None.

    Args:
        event: the XID.
        times_on_link: how many XIDs of the same code name this link.
    """
    if event.code == NVLINK_ERROR:
        return _of_registers(event, times_on_link)
    return _of_words(event) if event.code in NVLINK5 else None


def _of_registers(event: XidEvent, times: int) -> XidClass | None:
    is_fatal = re.search(r"\bfatal", event.text, re.I) and not re.search(r"non-?fatal", event.text, re.I)
    otherwise = XidClass.REBOOT if is_fatal else None
    match = _REGISTERS.search(event.text)
    if not match:
        return otherwise
    registers = [int(word, 16) for word in match[1].replace(" ", "").split(",")]
    classes = {
        (rule.often if times >= SEEN_OFTEN and rule.often else rule.xid_class)
        for rule in REGISTER_RULES
        for bit in rule.bits
        if registers[rule.register - 1] >> bit & 1
    }
    return worst(classes) or otherwise


def _of_words(event: XidEvent) -> XidClass | None:
    match = _WORDS.search(event.text)
    if not match:
        return None
    intr_info, status = int(match[2], 16), int(match[3], 16)
    classes = {
        _ACTIONS[rule.action]
        for rule in WORD_RULES
        if rule.xid == event.code and (not rule.statuses or status in rule.statuses) and _fits(rule, intr_info)
    }
    if classes:
        return worst(classes)
    return XidClass.REBOOT if match[1].casefold() == "fatal" else XidClass.DIAG


def _fits(rule: WordRule, intr_info: int) -> bool:
    bits = f"{intr_info:032b}"
    patterns = (rule.before, rule.since)
    return any(all(want in ("-", bit) for want, bit in zip(pattern, bits, strict=True)) for pattern in patterns)


def worst(classes: set[XidClass]) -> XidClass | None:
    """Return the worst of the classes; None for an empty set."""
    return next((xid_class for xid_class in WORST_FIRST if xid_class in classes), None)
