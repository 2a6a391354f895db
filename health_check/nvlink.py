"""XIDs of NVLink say in registers what happened: 74 up to Hopper, 144 to 150 since Blackwell. Pure and total.

The rules are data. `xid_74_registers.csv`: bits of the first, third, fourth and fifth of the seven registers.
`xid_nvlink5.csv`: for each unit a pattern of the word intrInfo (32 bits, highest first, `-` for any), which differs
before and since driver 575, and the word errorStatus (empty for any).
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
NEW_PATTERNS_SINCE_DRIVER = 575
SEEN_OFTEN = 3  # "more than twice"
WORST_FIRST = tuple(reversed(XidClass))
_REGISTERS = re.compile(r"\(\s{0,4}(0x[0-9a-fA-F]{1,8}(?:,\s{0,4}0x[0-9a-fA-F]{1,8}){6})\s{0,4}\)")
_LINK = re.compile(r"\blink\s{0,4}(\d{1,3})", re.I)
_WORDS = re.compile(r"(Non-?fatal|Fatal)\b[^(]{0,60}\(\s{0,4}0x([0-9a-fA-F]{1,8})\s{1,4}0x([0-9a-fA-F]{1,8})", re.I)
_ACTIONS = {"RESET_GPU": XidClass.REBOOT, "IGNORE": XidClass.IGNORE, "XID_154_EVAL": XidClass.APP}


@dataclass(frozen=True)
class RegisterRule:
    register: int
    bits: frozenset[int]
    xid_class: XidClass
    often: XidClass | None


@dataclass(frozen=True)
class WordRule:
    """`before` and `since` are patterns of intrInfo; `statuses` is empty where any errorStatus fits."""

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
    """The number of the link that the message names."""
    found = _LINK.search(event.text)
    return int(found[1]) if found else None


def decode(event: XidEvent, times_on_link: int, driver_version: str | None) -> XidClass | None:
    """What the message itself says, None where it has no words to decode.

    Without a rule for its words an error that calls itself fatal asks for a reboot, any other for a diagnosis.
    """
    if event.code == NVLINK_ERROR:
        return _of_registers(event, times_on_link)
    return _of_words(event, driver_version) if event.code in NVLINK5 else None


def _of_registers(event: XidEvent, times: int) -> XidClass | None:
    is_fatal = re.search(r"\bfatal", event.text, re.I) and not re.search(r"non-?fatal", event.text, re.I)
    otherwise = XidClass.REBOOT if is_fatal else None
    found = _REGISTERS.search(event.text)
    if not found:
        return otherwise
    registers = [int(word, 16) for word in found[1].replace(" ", "").split(",")]
    classes = {
        (rule.often if times >= SEEN_OFTEN and rule.often else rule.xid_class)
        for rule in REGISTER_RULES
        for bit in rule.bits
        if registers[rule.register - 1] >> bit & 1
    }
    return worst(classes) or otherwise


def _of_words(event: XidEvent, driver_version: str | None) -> XidClass | None:
    found = _WORDS.search(event.text)
    if not found:
        return None
    intr_info, status = int(found[2], 16), int(found[3], 16)
    release = int(driver_version.partition(".")[0]) if driver_version else None
    classes = {
        _ACTIONS[rule.action]
        for rule in WORD_RULES
        if rule.xid == event.code and (not rule.statuses or status in rule.statuses) and _fits(rule, intr_info, release)
    }
    if classes:
        return worst(classes)
    return XidClass.REBOOT if found[1].casefold() == "fatal" else XidClass.DIAG


def _fits(rule: WordRule, intr_info: int, release: int | None) -> bool:
    bits = f"{intr_info:032b}"
    old, new = ((rule.before, True), (rule.since, False))
    patterns = [
        pattern for pattern, is_old in (old, new) if release is None or is_old == (release < NEW_PATTERNS_SINCE_DRIVER)
    ]
    return any(all(want in ("-", bit) for want, bit in zip(pattern, bits, strict=True)) for pattern in patterns)


def worst(classes: set[XidClass]) -> XidClass | None:
    """The gravest of them, None of none."""
    return next((one for one in WORST_FIRST if one in classes), None)
