"""Reports of a dump for a diagnosis: one for each process group of the process (docs/protocol.md, type `flight`)."""

from __future__ import annotations

from typing import Any

from .dump import Dump, GroupState
from .rank_text import rank_text

GROUP_MAX = 120
"""Largest number of characters of a group's name."""
UNNAMED = ("", "undefined")


def reports(dump: Dump, rank: int, local_world: int = 0, dumped_ns: int | None = None) -> list[dict[str, Any]]:
    """Return the fields of the reports of one dump, groups that wait first.

    A group of one process waits for no other and is left out.

    Args:
        rank: the rank of the process in the whole job.
        local_world: processes on each instance; 0 if unknown.
        dumped_ns: time of the dump by the clock of its machine; None if unknown.
    """
    groups = [group for group in dump.groups if len(group.members) != 1]
    groups = [group for group in groups if not group.members or rank in group.members]
    return [
        _report(group, rank, local_world, dumped_ns) for group in sorted(groups, key=lambda group: not group.is_waiting)
    ]


def _report(group: GroupState, rank: int, local_world: int, dumped_ns: int | None) -> dict[str, Any]:
    name = group.name if group.description in UNNAMED else f"{group.name} ({group.description})"
    waits_s = None
    if dumped_ns is not None and group.waits_since_ns is not None:
        waits_s = round(max(dumped_ns - group.waits_since_ns, 0) / 1e9, 1)
    fields: dict[str, Any] = {
        "rank": rank,
        "group": name[:GROUP_MAX],
        "member_ranges": rank_text(group.members),
        "local_world": local_world or None,
        "last_enqueued": group.enqueued,
        "last_completed": group.completed,
        "from_status": group.from_status or None,
        "uses_p2p": group.uses_p2p or None,
        "sends_to": rank_text(group.sends_to),
        "receives_from": rank_text(group.receives_from),
        "waits_s": waits_s,
        "op": group.op,
    }
    return {key: value for key, value in fields.items() if value is not None and value != ""}
