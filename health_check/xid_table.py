"""The table of XIDs: the class of each code, by NVIDIA's catalogue or by AWS's lists.

`xid_table.csv` has a row per code. It holds NVIDIA's immediate action, the driver since which its recovery action
covers the code, and the class of this project. Further columns are the class if the error repeats (`repeated`) or
occurs without the error it follows (`alone`), and the class of AWS's public lists if it differs (`aws`). A container
cannot reset a GPU, so a code that asks for a reset is REBOOT. The control plane, which knows the history, decides
whether the second reboot is a replacement.

The catalogue has codes up to 172. The names of 173 to 176 are those of nverror.h of driver 595.45.04
(github.com/NVIDIA/open-gpu-kernel-modules). 179 is named in bus_events.c of a later driver there, and 185 in the
release notes of R620 (docs.nvidia.com/deploy/gpu-operational-events). No action of NVIDIA is known for them, so they
are DIAG.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

RECOVERY_ACTION_CHANGED = 154
"""The XID that reports a new recovery action."""
_TABLE = Path(__file__).with_name("xid_table.csv")
XID_TABLE_VERSION = f"2026-11-{hashlib.sha256(_TABLE.read_bytes()).hexdigest()[:8]}"
"""Version of the table: the month of the catalogue, and a digest, so that every change of a row is visible."""


class XidClass(StrEnum):
    """What an XID asks for, in the order of gravity."""

    IGNORE = "IGNORE"
    FOLLOW_OTHER = "FOLLOW_OTHER"  # it follows another XID, which is the cause
    APP = "APP"  # caused by the application
    WATCH = "WATCH"  # recorded, without a consequence
    CONFIG = "CONFIG"
    DIAG = "DIAG"  # needs a diagnostic
    REBOOT = "REBOOT"
    REPLACE = "REPLACE"


class XidPolicy(StrEnum):
    """The vendor of the list to apply where the vendors disagree."""

    NVIDIA = "nvidia"
    AWS = "aws"


@dataclass(frozen=True)
class KnownXid:
    """One row of the table.

    `action_since_driver` is the first number of the release since which the driver's recovery action covers the code,
    None if it never does. `fixed` says that the policy overrides the content of the message.
    """

    mnemonic: str
    xid_class: XidClass
    repeated: XidClass | None
    alone: XidClass | None
    action_since_driver: int | None
    fixed: bool = False


UNKNOWN = KnownXid("", XidClass.DIAG, None, None, None)


def _read(path: Path, policy: XidPolicy) -> dict[int, KnownXid]:
    def optional(text: str) -> XidClass | None:
        return XidClass(text) if text else None

    with path.open(newline="", encoding="utf-8") as file:
        table = {}
        for row in csv.DictReader(file):
            other = optional(row["aws"]) if policy is XidPolicy.AWS else None
            table[int(row["code"])] = KnownXid(
                row["mnemonic"],
                other or XidClass(row["class"]),
                None if other else optional(row["repeated"]),
                None if other else optional(row["alone"]),
                int(row["action_since_driver"]) if row["action_since_driver"] else None,
                fixed=other is not None,
            )
        return table


TABLES: Mapping[XidPolicy, Mapping[int, KnownXid]] = {policy: _read(_TABLE, policy) for policy in XidPolicy}


def known(code: int, policy: XidPolicy) -> KnownXid:
    """Return the row of a code. An unknown code asks for a diagnostic; it is never ignored."""
    return TABLES[policy].get(code, UNKNOWN)
