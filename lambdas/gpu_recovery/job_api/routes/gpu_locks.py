"""Routes of GPU locks between processes of a job: acquire, renew, release and read a lock.

Leases are measured with the server's clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.gpu_lock import (
    HOLDER,
    LEASE_S,
    LEASE_S_MAX,
    LEASE_S_MIN,
    NAME,
    OWNER,
    GpuLockRecord,
    LockRefused,
    acquired,
    has_ended,
    released,
    renewed,
)
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.liveness import Liveness, liveness
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import TEXT, Parameter, Request, Route
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.ports.retry import save_with_retry
from gpu_recovery.wire.json_body import object_of, time_text

LOCK_SAVE_ATTEMPTS_MAX = 4
"""Tries to save a lock that other requests write at the same time."""
TOKEN_MAX = 2**53 - 1
"""Upper bound of a fencing token: the largest integer that every JSON parser reads exactly."""
Change = Callable[[GpuLockRecord], GpuLockRecord]
"""Returns the changed lock, or raises LockRefused."""


def acquire_lock(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Acquire the lock for the owner in the body, and return it with its fencing token.

    Raises:
        ApiError: 409, another process holds the lock.
    """
    fields = _read_fields(request, "holder", "rank", "lease_s")
    job, owner = _job(dependencies, request, fields), _text_field(fields, "owner", OWNER)
    holder = _text_field(fields, "holder", HOLDER) if fields.get("holder") is not None else ""
    rank, lease_s = (
        _integer_field(fields, "rank", 0, 1_000_000, -1),
        _integer_field(fields, "lease_s", LEASE_S_MIN, LEASE_S_MAX, LEASE_S),
    )
    instance_id = job.instances[rank] if 0 <= rank < len(job.instances) else ""
    now = dependencies.recovery.clock()

    def change(lock: GpuLockRecord) -> GpuLockRecord:
        return acquired(lock, owner, holder, instance_id, lease_s, now, _is_holder_lost(dependencies, lock, owner))

    return _save_change(dependencies, request, job, change)


def renew_lock(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Renew the lease of the lock and return the lock.

    Raises:
        ApiError: 409, the caller does not hold the lock any more.
    """
    fields = _read_fields(request, "token", "lease_s")
    job, owner, token = _job(dependencies, request, fields), _text_field(fields, "owner", OWNER), _token_field(fields)
    lease_s, now = _integer_field(fields, "lease_s", LEASE_S_MIN, LEASE_S_MAX, LEASE_S), dependencies.recovery.clock()
    return _save_change(dependencies, request, job, lambda lock: renewed(lock, owner, token, lease_s, now))


def release_lock(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Release the lock and return it.

    Raises:
        ApiError: 409, the caller does not hold the lock.
    """
    fields = _read_fields(request, "token")
    job, owner, token = _job(dependencies, request, fields), _text_field(fields, "owner", OWNER), _token_field(fields)
    return _save_change(dependencies, request, job, lambda lock: released(lock, owner, token))


def read_lock(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the lock with its present owner."""
    job = _job(dependencies, request, {"job_id": request.query.get("job_id")})
    return ApiResponse(200, _view(dependencies, dependencies.recovery.store.load_lock(job.job_id, _name(request))))


def _save_change(dependencies: Dependencies, request: Request, job: Job, change: Change) -> ApiResponse:
    """Change the lock with one conditional write, and return the lock. A conflicting write leads to another try."""
    name, store = _name(request), dependencies.recovery.store

    def saved(after: GpuLockRecord) -> GpuLockRecord:
        store.save_lock(after, dependencies.recovery.clock())
        return after

    conflict_text = f"lock {name} of job {job.job_id} was written {LOCK_SAVE_ATTEMPTS_MAX} times meanwhile"
    try:
        after = save_with_retry(
            lambda: store.load_lock(job.job_id, name), change, saved, LOCK_SAVE_ATTEMPTS_MAX, conflict_text
        )
    except LockRefused as refused:
        raise ApiError(409, "locked", "Locked", refused.detail, lock=_view(dependencies, refused.lock)) from refused
    return ApiResponse(200, _view(dependencies, after))


def _is_holder_lost(dependencies: Dependencies, lock: GpuLockRecord, owner: str) -> bool:
    """Return whether the holder's lease has ended and the heartbeat of the holder's instance timed out.

    The heartbeat is read only if another owner asks for a lock with an ended lease.
    """
    now = dependencies.recovery.clock()
    if lock.owner in ("", owner) or not has_ended(lock, now) or not lock.instance_id:
        return False
    heartbeat = dependencies.recovery.store.load_heartbeats((lock.instance_id,)).get(lock.instance_id)
    return heartbeat is not None and liveness(now - heartbeat.seen_at, dependencies.recovery.policy) is Liveness.LOST


def _view(dependencies: Dependencies, lock: GpuLockRecord) -> dict[str, Any]:
    return {
        "job_id": lock.job_id,
        "name": lock.name,
        "owner": lock.owner or None,
        "token": lock.token,
        "instance_id": lock.instance_id or None,
        "acquired_at": time_text(lock.acquired_at),
        "expires_at": time_text(lock.expires_at),
        "has_ended": has_ended(lock, dependencies.recovery.clock()),
    }


# -- parts of the request ----------------------------------------------------------------------------------------------


def _read_fields(request: Request, *more: str) -> dict[str, Any]:
    fields = object_of(request.text())
    for name in fields:
        if name not in ("job_id", "owner", *more):
            raise SpecInvalid(str(name)[:80], "is not known here")
    return fields


def _job(dependencies: Dependencies, request: Request, fields: dict[str, Any]) -> Job:
    job_id = fields.get("job_id")
    if not isinstance(job_id, str) or not job_id:
        raise SpecInvalid("job_id", "must be the id of the job whose processes are to meet")
    job = dependencies.recovery.store.load_job(job_id)
    if job is None:
        raise ApiError(404, "no_such_job", "No such job", f"there is no job {job_id[:255]}")
    request.caller.must_own(job)
    return job


def _name(request: Request) -> str:
    name = request.named["name"]
    if not NAME.fullmatch(name):
        raise ApiError(404, "no_such_thing", "Not found", "a lock's name is letters, digits, ., _ and -, at most 64")
    return name


def _text_field(fields: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise SpecInvalid(name, f"must be spelt as {pattern.pattern}")
    return value


def _token_field(fields: dict[str, Any]) -> int:
    return _integer_field(fields, "token", 1, TOKEN_MAX, None)


def _integer_field(fields: dict[str, Any], name: str, least: int, most: int, default: int | None) -> int:
    value = fields.get(name)
    value = default if value is None else value
    if type(value) is not int or (value != default and not least <= value <= most):
        raise SpecInvalid(name, f"must be a whole number from {least} to {most}")
    return value


_LOCK = "/api/v2/locks/<name>"
_JOB_ID = (Parameter("job_id", "whose lock it is", TEXT, required=True),)
ROUTES = (
    Route("GET", _LOCK, read_lock, "Who has a lock of a job", {200: "Lock"}, Role.USER, _JOB_ID, refuses=(422,)),
    Route(
        "POST",
        f"{_LOCK}/acquire",
        acquire_lock,
        "Acquire a lock of a job",
        {200: "Lock"},
        Role.USER,
        takes="LockWish",
        needs_body=True,
        refuses=(409, 413, 422),
    ),
    Route(
        "POST",
        f"{_LOCK}/renew",
        renew_lock,
        "Renew the lease of a lock",
        {200: "Lock"},
        Role.USER,
        takes="LockRenewal",
        needs_body=True,
        refuses=(409, 413, 422),
    ),
    Route(
        "POST",
        f"{_LOCK}/release",
        release_lock,
        "Give a lock back",
        {200: "Lock"},
        Role.USER,
        takes="LockReturn",
        needs_body=True,
        refuses=(409, 413, 422),
    ),
)
