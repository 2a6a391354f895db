"""XID table: the class of an XID where only its number is known (as ECS reports it: `XID_79`).

The health check also reads the message of an XID and knows more. Its table is `health_check/xid_table.csv`, after
NVIDIA's catalogue of XIDs; a test compares both tables. A container instance cannot reset a GPU, so an XID that needs
a reset has the class REBOOT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

RECOVERY_ACTION = 154
"""The XID by which the driver reports a recovery action."""
RECOVERY_ACTIONS: Mapping[int, str] = {
    1: "a reset of the GPU",
    2: "a reboot",
    3: "an end of the peer-to-peer traffic",
    4: "a drain and a reset",
    5: "a recovery of the IMEX domain",
    6: "a reset of the GPU's bus",
    7: "a reboot of the system",
}
"""Recovery actions of the driver in words, by NVML's number (`nvml.h` of driver 615)."""
NAMED_XID = re.compile(r"\bXID (?P<xid>\d{1,3})(?: on (?P<gpu>[\w:.-]+))?")
"""Pattern of an XID in the sentences of a node agent."""


class XidProfile(StrEnum):
    """Source of the XID classification: NVIDIA's catalogue, or the practice of AWS services."""

    NVIDIA = "nvidia"
    AWS = "aws"


class XidClass(StrEnum):
    """Class of an XID: the action that it needs. The escalation decides when a reboot becomes a replacement."""

    IGNORE = "IGNORE"
    FOLLOW_OTHER = "FOLLOW_OTHER"  # comes together with another XID, which names the fault
    APP = "APP"  # caused by the application
    WATCH = "WATCH"  # recorded only
    CONFIG = "CONFIG"
    DIAG = "DIAG"  # needs a health check
    REBOOT = "REBOOT"
    REPLACE = "REPLACE"


_CODES: Mapping[XidClass, str] = {
    XidClass.IGNORE: "14 37 38 43 44 66 67 92 93 106-108 121 137 141 152 153 157 160 161",
    XidClass.FOLLOW_OTHER: "45 171 172",
    XidClass.APP: "8 11 13 25 31 32 39-41 60 68-72 75-77 80 82-86 88 89 94 96-105 126-135 139",
    XidClass.WATCH: "63 142 162-165",
    XidClass.CONFIG: "78",
    XidClass.REBOOT: "46 48 62 64 79 95 109 110 119 120 136 140 143 151 155 156 158 167-169",
    XidClass.REPLACE: "54",
}
"""The XIDs of each class, as numbers and ranges that include both ends. Every other XID is DIAG."""
_AWS: dict[int, XidClass] = {
    63: XidClass.REPLACE,
    74: XidClass.REBOOT,
    142: XidClass.REPLACE,
    **dict.fromkeys((81, 125, 144, 145, 146, 147, 148, 149, 150, 157), XidClass.WATCH),
}
"""Classes in which AWS services differ from NVIDIA's catalogue (ECS Managed Instances, the EKS node agent)."""


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of a list such as "8 11 31-33"."""
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


_CLASSES = {code: xid_class for xid_class, codes in _CODES.items() for code in _numbers(codes)}


@frozen_dataclass()
class RepeatRules:
    """Rules by which repeated errors on one GPU need a health check, although a single error does not.

    version:        version of the rules.
    burst_gap_s:    seconds between two errors of one number on one GPU up to which both belong to ONE occurrence. A
        single cause writes a line for each of its channels.
    within_s:       seconds for which an occurrence counts. The agent applies `burst_gap_s` and `within_s`.
    repeats_by_xid: number of occurrences that need a check, for XIDs with a number of their own.
    repeats_min:    number of occurrences that need a check, for every other XID of `classes`.
    classes:        classes of XIDs to which `repeats_min` applies.
    """

    version: str
    burst_gap_s: int
    within_s: int
    repeats_by_xid: Mapping[int, int]
    repeats_min: int
    classes: frozenset[XidClass]


_REPEAT_RULES = RepeatRules(
    version="2026-11",
    burst_gap_s=180,
    within_s=86_400,
    repeats_by_xid={13: 2, 31: 2, 94: 2},
    repeats_min=5,
    classes=frozenset({XidClass.APP, XidClass.WATCH}),
)
"""The repeat rules of both profiles.

A single XID 13, 31 or 94 is caused by the application. NVIDIA's catalogue asks for a diagnosis after XID 13 or 31 came
twice on one GPU; XID 94 needs a check then. Five occurrences of any other XID within a day, three minutes apart, are
the rule of NVIDIA's NVSentinel.
"""
REPEATS: Mapping[XidProfile, RepeatRules] = {XidProfile.NVIDIA: _REPEAT_RULES, XidProfile.AWS: _REPEAT_RULES}
"""Repeat rules by profile. AWS publishes no rules of its own."""


SUSPICIOUS_ALONE = frozenset({171, 172})
"""XIDs of class FOLLOW_OTHER that need a check if no other XID stands beside them. XID 45 alone is harmless."""
HARMLESS = frozenset({XidClass.APP, XidClass.IGNORE, XidClass.WATCH, XidClass.FOLLOW_OTHER})
"""Classes of XIDs that are not evidence against an instance if only the number of the XID is known."""


def class_of(code: int, profile: XidProfile = XidProfile.NVIDIA) -> XidClass:
    """Return the class of an XID. An unknown XID is DIAG, so that no error is ignored."""
    if profile is XidProfile.AWS and code in _AWS:
        return _AWS[code]
    return _CLASSES.get(code, XidClass.DIAG)


def needs_check(
    code: int, count: int, action: int | None, profile: XidProfile = XidProfile.NVIDIA, *, alone: bool = False
) -> bool:
    """Return whether an XID is a reason to check the instance.

    Args:
        code: the XID.
        count: occurrences within a day on one GPU.
        action: recovery action of the driver (XID 154, or the GPU's recovery action), which overrides every table. 0
            needs no check. None if the driver reports none; XID 154 itself then needs no check.
        profile: source of the classification.
        alone: whether the GPU has no other XID that this XID could follow.
    """
    if action is not None:
        return action > 0
    if code == RECOVERY_ACTION:
        return False
    if alone and code in SUSPICIOUS_ALONE:
        return True
    xid_class, rules = class_of(code, profile), REPEATS[profile]
    if code in rules.repeats_by_xid and count >= rules.repeats_by_xid[code]:
        return True
    if xid_class in rules.classes and count >= rules.repeats_min:
        return True
    return xid_class in (XidClass.CONFIG, XidClass.DIAG, XidClass.REBOOT, XidClass.REPLACE)


def switch_needs_check(fatal: bool, count: int, profile: XidProfile = XidProfile.NVIDIA) -> bool:
    """Return whether an NVSwitch error (SXid) that occurred `count` times within a day is a reason to check.

    A fatal SXid needs a reset of the fabric. The other SXids have no public list, so only their repetition counts.
    """
    return fatal or count >= REPEATS[profile].repeats_min
