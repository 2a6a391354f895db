"""The fleet's brakes: budget, breaker, pause."""

from __future__ import annotations

from gpu_recovery import fleet_controls
from gpu_recovery.auth.roles import Role
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.wire.fleet import fleet_view
from gpu_recovery.wire.json_body import because_of


def read_fleet(desk: Dependencies, request: Request) -> ApiResponse:
    """The brakes, and whom they hold."""
    store = desk.recovery.store
    bad: list[Exception] = []
    out_of_use = store.instances_in([InstanceStatus.QUARANTINED], bad)
    return ApiResponse(200, fleet_view(store.load_fleet(), desk.recovery.policy, out_of_use, bad))


def pause_fleet(desk: Dependencies, request: Request) -> ApiResponse:
    """The brakes, with recovery paused."""
    because = because_of(request.text(), required=True)
    fleet_controls.pause(desk.recovery, request.caller.name, because)
    return read_fleet(desk, request)


def unpause_fleet(desk: Dependencies, request: Request) -> ApiResponse:
    """The brakes, with recovery going on."""
    fleet_controls.unpause(desk.recovery)
    return read_fleet(desk, request)


def reset_breaker(desk: Dependencies, request: Request) -> ApiResponse:
    """The brakes, with the breaker closed."""
    fleet_controls.reset_breaker(desk.recovery, request.caller.name)
    return read_fleet(desk, request)


_FLEET = {200: "Fleet"}
ROUTES = (
    Route("GET", "/api/v2/fleet", read_fleet, "The brakes, and whom they hold", _FLEET),
    Route(
        "POST",
        "/api/v2/fleet/pause",
        pause_fleet,
        "Let no repair begin",
        _FLEET,
        Role.OPERATOR,
        takes="Why",
        needs_body=True,
        refuses=(413, 422),
    ),
    Route("POST", "/api/v2/fleet/unpause", unpause_fleet, "Let repairs begin again", _FLEET, Role.OPERATOR),
    Route("POST", "/api/v2/fleet/reset-breaker", reset_breaker, "Close the breaker", _FLEET, Role.OPERATOR),
)
