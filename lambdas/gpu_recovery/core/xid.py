"""What an XID asks of the instance it was seen on, where only its number is known (as ECS reports it: `XID_79`).

The health check reads the XID's message as well and knows more; its table is `health_check/xid_table.csv`, after
NVIDIA's catalogue of XIDs, and a test holds the two together. No GPU can be reset from a container instance, so what
asks for a reset is REBOOT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

RECOVERY_ACTION = 154
NAMED_XID = re.compile(r"\bXID (?P<xid>\d{1,3})(?: on (?P<gpu>[\w:.-]+))?")
"""An XID as the words of a node's agent name it."""


class XidProfile(StrEnum):
    """Whose judgement of XIDs is followed."""

    NVIDIA = "nvidia"
    AWS = "aws"


class XidClass(StrEnum):
    """What is to be done. Whether a second reboot is a replacement is the ladder's business."""

    IGNORE = "IGNORE"
    FOLLOW_OTHER = "FOLLOW_OTHER"  # it comes with another XID, which says what is wrong
    APP = "APP"  # the application's doing
    WATCH = "WATCH"  # worth a note
    CONFIG = "CONFIG"
    DIAG = "DIAG"  # it takes a diagnosis to tell
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
"""The codes of each class, as numbers and ranges that include both ends. Every other code is DIAG."""
_AWS: dict[int, XidClass] = {
    63: XidClass.REPLACE,
    74: XidClass.REBOOT,
    142: XidClass.REPLACE,
    **dict.fromkeys((81, 125, 144, 145, 146, 147, 148, 149, 150, 157), XidClass.WATCH),
}
"""Where AWS's own services judge otherwise than NVIDIA's catalogue (ECS Managed Instances, the EKS node agent)."""


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of a list such as "8 11 31-33"."""
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


_CLASSES = {code: xid_class for xid_class, codes in _CODES.items() for code in _numbers(codes)}


@dataclass(frozen=True, slots=True)
class RepeatRules:
    """When errors that ask for nothing alone ask for a look because they come again on one GPU.

    Errors of one number on one GPU of which none is further than `burst_gap_s` from the next are ONE occurrence: a
    single cause writes a line for each of its channels. `within_s`: occurrences so long ago still count; the agent
    counts both. `sooner` are numbers that ask from their given occurrence on, `most` is that of any other of `classes`.
    """

    version: str
    burst_gap_s: int
    within_s: int
    sooner: Mapping[int, int]
    most: int
    classes: frozenset[XidClass]


_SEEN = RepeatRules(
    version="2026-11",
    burst_gap_s=180,
    within_s=86_400,
    sooner={13: 2, 31: 2, 94: 2},
    most=5,
    classes=frozenset({XidClass.APP, XidClass.WATCH}),
)
"""13, 31 and 94 are the application's doing when they come alone; 13 and 31 twice on one GPU ask for a diagnosis by
NVIDIA's catalogue, 94 for a look. Five occurrences of any other number within a day, with three minutes between two of
them, are the rule of NVIDIA's NVSentinel."""
REPEATS: Mapping[XidProfile, RepeatRules] = {XidProfile.NVIDIA: _SEEN, XidProfile.AWS: _SEEN}
"""AWS publishes none of its own."""


HARMLESS = frozenset({XidClass.APP, XidClass.IGNORE, XidClass.WATCH, XidClass.FOLLOW_OTHER})
"""The classes of XIDs that say nothing against a machine where nothing but their number is known."""


def class_of(code: int, profile: XidProfile = XidProfile.NVIDIA) -> XidClass:
    """The class of an XID. One that is not in the list asks for a diagnosis: an error is never met with silence."""
    if profile is XidProfile.AWS and code in _AWS:
        return _AWS[code]
    return _CLASSES.get(code, XidClass.DIAG)


def needs_check(code: int, count: int, action: int | None, profile: XidProfile = XidProfile.NVIDIA) -> bool:
    """Whether an XID that has happened `count` times within a day on one GPU is a reason to check the instance.

    action: what the driver asks for with it (XID 154, or the GPU's recovery action), which overrides every table: 0
    asks for nothing. None where the driver says nothing, and for XID 154 itself, which is nothing without it.
    """
    if action is not None:
        return action > 0
    if code == RECOVERY_ACTION:
        return False
    xid_class, rules = class_of(code, profile), REPEATS[profile]
    if code in rules.sooner and count >= rules.sooner[code]:
        return True
    if xid_class in rules.classes and count >= rules.most:
        return True
    return xid_class in (XidClass.CONFIG, XidClass.DIAG, XidClass.REBOOT, XidClass.REPLACE)


def switch_needs_check(fatal: bool, count: int, profile: XidProfile = XidProfile.NVIDIA) -> bool:
    """Whether an error of an NVSwitch (SXid) that has happened `count` times within a day is a reason to check.

    A fatal one needs the reset of the fabric; the numbers of the others have no public list, so only repetition asks.
    """
    return fatal or count >= REPEATS[profile].most
