"""Routes of GPU locks between processes of a job: acquire, renew, release and read a lock.

Leases are measured with the server's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.gpu_lock import (
    LEASE_S,
    NAME,
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
from gpu_recovery.job_api.validation import body_of
from gpu_recovery.ports.retry import save_with_retry
from gpu_recovery.wire.json_body import time_text

if TYPE_CHECKING:
    from gpu_recovery.job_api.models.requests import AcquireLockRequest, ReleaseLockRequest, RenewLockRequest

LOCK_SAVE_ATTEMPTS_MAX = 4
"""Tries to save a lock that other requests write at the same time."""
Change = Callable[[GpuLockRecord], GpuLockRecord]
"""Returns the changed lock, or raises LockRefused."""


def acquire_lock(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Acquire the lock for the owner in the body, and return it with its fencing token.

    Raises:
        ApiError: 409, another process holds the lock.
    """
    body: AcquireLockRequest = body_of(request.text(), "AcquireLockRequest")
    job, lease_s, now = _job(dependencies, request, body.job_id), body.lease_s or LEASE_S, dependencies.recovery.clock()
    rank = body.rank
    instance_id = job.instances[rank] if rank is not None and rank < len(job.instances) else ""

    def change(lock: GpuLockRecord) -> GpuLockRecord:
        is_lost = _is_holder_lost(dependencies, lock, body.owner)
        return acquired(lock, body.owner, body.holder or "", instance_id, lease_s, now, is_lost)

    return _save_change(dependencies, request, job, change)


def renew_lock(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Renew the lease of the lock and return the lock.

    Raises:
        ApiError: 409, the caller does not hold the lock any more.
    """
    body: RenewLockRequest = body_of(request.text(), "RenewLockRequest")
    job, lease_s, now = _job(dependencies, request, body.job_id), body.lease_s or LEASE_S, dependencies.recovery.clock()
    return _save_change(dependencies, request, job, lambda lock: renewed(lock, body.owner, body.token, lease_s, now))


def release_lock(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Release the lock and return it.

    Raises:
        ApiError: 409, the caller does not hold the lock.
    """
    body: ReleaseLockRequest = body_of(request.text(), "ReleaseLockRequest")
    job = _job(dependencies, request, body.job_id)
    return _save_change(dependencies, request, job, lambda lock: released(lock, body.owner, body.token))


def read_lock(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the lock with its present owner."""
    job_id = request.query.get("job_id")
    if not job_id:
        raise SpecInvalid("job_id", "must be the id of the job that the lock belongs to")
    job = _job(dependencies, request, job_id)
    return ApiResponse(200, _view(dependencies, dependencies.recovery.store.load_lock(job.job_id, _name(request))))


def _save_change(dependencies: Dependencies, request: Request, job: Job, change: Change) -> ApiResponse:
    """Change the lock with one conditional write, and return the lock. A conflicting write leads to another try."""
    name, store = _name(request), dependencies.recovery.store

    def saved(after: GpuLockRecord) -> GpuLockRecord:
        store.save_lock(after, dependencies.recovery.clock())
        return after

    conflict_text = f"lock {name} of job {job.job_id} was written {LOCK_SAVE_ATTEMPTS_MAX} times during this request"
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


def _job(dependencies: Dependencies, request: Request, job_id: str) -> Job:
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


_LOCK = "/api/v2/locks/<name>"
_JOB_ID = (Parameter("job_id", "Id of the job that the lock belongs to.", TEXT, required=True),)
ROUTES = (
    Route("GET", _LOCK, read_lock, "Read a lock of a job", {200: "Lock"}, Role.USER, _JOB_ID, refuses=(422,)),
    Route(
        "POST",
        f"{_LOCK}/acquire",
        acquire_lock,
        "Acquire a lock of a job",
        {200: "Lock"},
        Role.USER,
        takes="AcquireLockRequest",
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
        takes="RenewLockRequest",
        needs_body=True,
        refuses=(409, 413, 422),
    ),
    Route(
        "POST",
        f"{_LOCK}/release",
        release_lock,
        "Release a lock",
        {200: "Lock"},
        Role.USER,
        takes="ReleaseLockRequest",
        needs_body=True,
        refuses=(409, 413, 422),
    ),
)
