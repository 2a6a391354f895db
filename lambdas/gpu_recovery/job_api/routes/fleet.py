"""Routes of the fleet limits: read them, pause repairs, close the circuit breaker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_recovery import fleet_controls
from gpu_recovery.auth.roles import Role
from gpu_recovery.core.instance.record import PRESENT
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.job_api.validation import body_of
from gpu_recovery.wire.fleet import fleet_view

if TYPE_CHECKING:
    from gpu_recovery.job_api.models.requests import RequiredReason


def read_fleet(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the fleet limits, and the instances that get no job with the reason of each."""
    store = dependencies.recovery.store
    failures: list[Exception] = []
    instances = store.instances_in(PRESENT, failures)
    return ApiResponse(200, fleet_view(store.load_fleet(), dependencies.recovery.policy, instances, failures))


def pause_fleet(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Pause all repairs and return the fleet limits."""
    body: RequiredReason = body_of(request.text(), "RequiredReason")
    fleet_controls.pause(dependencies.recovery, request.caller.name, body.because.strip())
    return read_fleet(dependencies, request)


def unpause_fleet(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Permit repairs again and return the fleet limits."""
    fleet_controls.unpause(dependencies.recovery)
    return read_fleet(dependencies, request)


def reset_breaker(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Close the circuit breaker and return the fleet limits."""
    fleet_controls.reset_breaker(dependencies.recovery, request.caller.name)
    return read_fleet(dependencies, request)


_FLEET = {200: "Fleet"}
ROUTES = (
    Route("GET", "/api/v2/fleet", read_fleet, "Read the fleet limits", _FLEET),
    Route(
        "POST",
        "/api/v2/fleet/pause",
        pause_fleet,
        "Pause all repairs",
        _FLEET,
        Role.OPERATOR,
        takes="RequiredReason",
        needs_body=True,
        refuses=(413, 422),
    ),
    Route("POST", "/api/v2/fleet/unpause", unpause_fleet, "Permit repairs again", _FLEET, Role.OPERATOR),
    Route("POST", "/api/v2/fleet/reset-breaker", reset_breaker, "Close the circuit breaker", _FLEET, Role.OPERATOR),
)
