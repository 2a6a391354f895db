"""The table of XIDs: what each code asks of the instance it was seen on, by NVIDIA's catalogue or by AWS's lists.

`xid_table.csv` has a row per code: NVIDIA's immediate action, the driver from which on its recovery action covers the
code, our class, the class if it is seen again (`repeated`) or without the error it follows (`alone`), and the class
that AWS's public lists give it where they differ (`aws`). No GPU can be reset from a container instance, so what asks
for a reset is REBOOT. Whether the second reboot is a replacement is decided by the control plane, which knows the
history.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

RECOVERY_ACTION_CHANGED = 154
_TABLE = Path(__file__).with_name("xid_table.csv")
XID_TABLE_VERSION = f"2026-11-{hashlib.sha256(_TABLE.read_bytes()).hexdigest()[:8]}"
"""By which rows a verdict was reached: the month of the catalogue, and a digest, for no row changes unnoticed."""


class XidClass(StrEnum):
    """What an XID asks for. The order is the order of gravity."""

    IGNORE = "IGNORE"
    FOLLOW_OTHER = "FOLLOW_OTHER"  # it comes with another XID, which says what is wrong
    APP = "APP"  # the application's doing
    WATCH = "WATCH"  # worth a note
    CONFIG = "CONFIG"
    DIAG = "DIAG"  # it takes a diagnosis to tell
    REBOOT = "REBOOT"
    REPLACE = "REPLACE"


class XidPolicy(StrEnum):
    """Whose list is followed where vendors disagree."""

    NVIDIA = "nvidia"
    AWS = "aws"


@dataclass(frozen=True)
class KnownXid:
    """One row. `action_since_driver` is the release (its first number) since which the driver's recovery action covers
    the code, None where it never does; `fixed` says that a policy overrides whatever the message itself tells."""

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
    """The row of a code; an unknown code asks for a diagnosis, never for silence."""
    return TABLES[policy].get(code, UNKNOWN)
