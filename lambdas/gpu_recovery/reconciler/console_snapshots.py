"""Console snapshots of a reconcile cycle: the fleet map, its members and the fleet limits.

They are built from the listing and the heartbeats that the cycle has read, so they cost no read. A decision about a
due record comes after the listing and is in the next snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from gpu_recovery.core.console_snapshots import SnapshotName, map_document, members_document, totals
from gpu_recovery.ports.console_snapshots import SnapshotWriter
from gpu_recovery.reconciler.cycle import Cycle
from gpu_recovery.wire.fleet import fleet_view


def write_snapshots(cycle: Cycle, writer: SnapshotWriter) -> None:
    """Write the snapshots of the cycle. A part that no comparison of the cycle has read is left out. Never raise."""
    instances, fleet, policy = cycle.present, cycle.fleet, cycle.recovery.policy
    if instances is None:
        return
    members = cache(lambda: members_document(instances))
    documents: dict[SnapshotName, Callable[[], dict[str, Any]]] = {
        SnapshotName.MAP: lambda: map_document(instances, members()["members"], cycle.utilisation),
        SnapshotName.MEMBERS: members,
    }
    if fleet is not None:
        documents[SnapshotName.LIMITS] = lambda: {
            "totals": totals(instances),
            "limits": fleet_view(fleet, policy, instances, ()),
        }
    writer.write(documents)
