"""Routes of the fleet as the web console shows it: the map, its members and the fleet limits, each from a snapshot.

The reconciler writes the snapshots once a minute. Before the first one the answers are empty, with `as_of` null.
"""

from __future__ import annotations

from typing import Any

from gpu_recovery.core.console_snapshots import SnapshotName, map_document, members_document
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import FLAG, Parameter, Request, Route
from gpu_recovery.job_api.response import ApiResponse

_NONE = {"as_of": None, "members": None}
_EMPTY_MAP: dict[str, Any] = {**map_document((), ""), **_NONE, "statuses": [], "utilisation": None}
_EMPTY_MEMBERS: dict[str, Any] = {**members_document(()), **_NONE}


def read_map(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the fleet map.

    Its `utilisation` is null without `gpu=1`, and in a deployment that keeps no GPU history. `gpu_history` tells which.
    """
    shown = {**_EMPTY_MAP, **dependencies.snapshots.load(SnapshotName.MAP, dependencies.recovery.clock())}
    gpu_history = dependencies.deployment.gpu_history
    if not (request.flag("gpu") and gpu_history):
        shown["utilisation"] = None
    return ApiResponse(200, {**shown, "gpu_history": gpu_history})


def read_members(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the members of the map. The answer changes with the membership, and otherwise once a day."""
    known = dependencies.snapshots.load(SnapshotName.MEMBERS, dependencies.recovery.clock())
    return ApiResponse(200, {**_EMPTY_MEMBERS, **known})


def read_limits(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the totals and the fleet limits of the last reconcile cycle. `GET /api/v2/fleet` reads every record."""
    known = dependencies.snapshots.load(SnapshotName.LIMITS, dependencies.recovery.clock())
    return ApiResponse(200, {"as_of": None, "totals": None, "limits": None, **known})


_GPU = Parameter("gpu", "1: with the utilisation of each GPU.", FLAG)
ROUTES = (
    Route("GET", "/api/v2/fleet/map", read_map, "Read the fleet map", {200: "FleetMap"}, query=(_GPU,)),
    Route("GET", "/api/v2/fleet/members", read_members, "Read the instances of the fleet map", {200: "FleetMembers"}),
    Route(
        "GET",
        "/api/v2/fleet/limits",
        read_limits,
        "Read the fleet limits of the last reconcile cycle",
        {200: "FleetLimits"},
    ),
)
