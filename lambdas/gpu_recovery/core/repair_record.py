"""Repair record: who ordered a reboot or a replacement of a machine, and why, in one line that the machine keeps.

The agent writes the line to the journal and to a file below /var/log, and the functions write it as a tag of the
instance (docs/decisions/0073-the-machine-says-who-rebooted-it.md). The line never delays a repair: it is sent after the
call that orders the repair, and the agent writes it before the reboot or after it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

ORDER_ID = "repair-record"
"""Id of the order to the agent. A later repair replaces the order of an earlier repair."""
LINE_MAX = 480
"""Characters of a line."""
TAG_KEY, TAG_VALUE_MAX = "gpu-recovery:repair", 256
"""Key of the instance tag, and the characters that EC2 allows in a value."""
_NOT_IN_A_TAG = re.compile(r"[^A-Za-z0-9 +\-=._:/@]")


@frozen_dataclass()
class RepairRecord:
    """The line about the last repair of an instance, and where it is.

    epoch:    the repair: the epoch of the instance since the order.
    line:     the line.
    boot_id:  the boot that the repair ends; "" if it is unknown.
    asked:    the agent was asked to write the line.
    tag:      "" if no tag was wanted, "written", or why the tag could not be written.
    written:  the boot under which the agent wrote the line; "" until it says so.
    is_found: the agent of a later boot has found the line again.
    """

    epoch: int
    line: str
    boot_id: str = ""
    asked: bool = False
    tag: str = ""
    written: str = ""
    is_found: bool = False


def repair_line(
    instance_id: str, action: str, epoch: int, incident_id: str, evidence: str, decision: str, at: datetime
) -> str:
    """Return the line about a repair.

    Args:
        instance_id: the instance.
        action: what was ordered, such as "reboot".
        epoch: the epoch of the instance since the decision, which tells repairs apart.
        incident_id: the incident that operators were notified of; "" for none.
        evidence: what was found. Text that looks like a secret is masked.
        decision: the reason of the decision.
        at: time of the order.
    """
    from gpu_recovery.core.redaction import masked  # noqa: PLC0415 - few events order a repair

    when = f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    incident = incident_id or "none"
    parts = (
        f"gpu-recovery ordered the {action} of {instance_id} at {when}, repair {epoch}, incident {incident}",
        f"decision: {decision}",
        *((f"evidence: {evidence}",) if evidence and evidence not in decision else ()),
    )
    text = masked("; ".join(parts))
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())[:LINE_MAX]


def tag_value(line: str) -> str:
    """Return the line as the value of an EC2 tag, without the characters that a tag may not have."""
    return " ".join(_NOT_IN_A_TAG.sub(" ", line).split())[:TAG_VALUE_MAX]
