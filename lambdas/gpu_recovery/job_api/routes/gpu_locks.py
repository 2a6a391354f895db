"""Locks between the processes of a job: acquired, renewed, released, read. The server's clock counts."""

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
TOKEN_MAX = 2**53 - 1
Change = Callable[[GpuLockRecord], GpuLockRecord]


def acquire_lock(desk: Dependencies, request: Request) -> ApiResponse:
    """The lock with its token, once the caller's owner has it; 409 while another does."""
    asked = _asked(request, "holder", "rank", "lease_s")
    job, owner = _job(desk, request, asked), _spelt(asked, "owner", OWNER)
    holder = _spelt(asked, "holder", HOLDER) if asked.get("holder") is not None else ""
    rank, lease_s = _whole(asked, "rank", 0, 1_000_000, -1), _whole(asked, "lease_s", LEASE_S_MIN, LEASE_S_MAX, LEASE_S)
    instance_id = job.instances[rank] if 0 <= rank < len(job.instances) else ""
    now = desk.recovery.clock()

    def change(lock: GpuLockRecord) -> GpuLockRecord:
        return acquired(lock, owner, holder, instance_id, lease_s, now, _is_silent(desk, lock, owner))

    return _changed(desk, request, job, change)


def renew_lock(desk: Dependencies, request: Request) -> ApiResponse:
    """The lock with a longer lease; 409 for whoever does not have it any more."""
    asked = _asked(request, "token", "lease_s")
    job, owner, token = _job(desk, request, asked), _spelt(asked, "owner", OWNER), _token(asked)
    lease_s, now = _whole(asked, "lease_s", LEASE_S_MIN, LEASE_S_MAX, LEASE_S), desk.recovery.clock()
    return _changed(desk, request, job, lambda lock: renewed(lock, owner, token, lease_s, now))


def release_lock(desk: Dependencies, request: Request) -> ApiResponse:
    """The lock, free again; 409 for whoever does not have it."""
    asked = _asked(request, "token")
    job, owner, token = _job(desk, request, asked), _spelt(asked, "owner", OWNER), _token(asked)
    return _changed(desk, request, job, lambda lock: released(lock, owner, token))


def read_lock(desk: Dependencies, request: Request) -> ApiResponse:
    """Who has the lock."""
    job = _job(desk, request, {"job_id": request.query.get("job_id")})
    return ApiResponse(200, _view(desk, desk.recovery.store.load_lock(job.job_id, _name(request))))


def _changed(desk: Dependencies, request: Request, job: Job, change: Change) -> ApiResponse:
    """The lock after one conditional write, made again if somebody else was there meanwhile."""
    name, store = _name(request), desk.recovery.store

    def saved(after: GpuLockRecord) -> GpuLockRecord:
        store.save_lock(after)
        return after

    contended = f"lock {name} of job {job.job_id} was written {LOCK_SAVE_ATTEMPTS_MAX} times meanwhile"
    try:
        after = save_with_retry(
            lambda: store.load_lock(job.job_id, name), change, saved, LOCK_SAVE_ATTEMPTS_MAX, contended
        )
    except LockRefused as refusal:
        raise ApiError(409, "locked", "Locked", refusal.detail, lock=_view(desk, refusal.lock)) from refusal
    return ApiResponse(200, _view(desk, after))


def _is_silent(desk: Dependencies, lock: GpuLockRecord, owner: str) -> bool:
    """Whether the instance of a holder whose lease is over is not heard of any more. One read, where it matters."""
    now = desk.recovery.clock()
    if lock.owner in ("", owner) or not has_ended(lock, now) or not lock.instance_id:
        return False
    beat = desk.recovery.store.load_heartbeats((lock.instance_id,)).get(lock.instance_id)
    return beat is not None and liveness(now - beat.seen_at, desk.recovery.policy) is Liveness.LOST


def _view(desk: Dependencies, lock: GpuLockRecord) -> dict[str, Any]:
    return {
        "job_id": lock.job_id,
        "name": lock.name,
        "owner": lock.owner or None,
        "token": lock.token,
        "instance_id": lock.instance_id or None,
        "acquired_at": time_text(lock.acquired_at),
        "expires_at": time_text(lock.expires_at),
        "has_ended": has_ended(lock, desk.recovery.clock()),
    }


# -- what is asked -----------------------------------------------------------------------------------------------------


def _asked(request: Request, *more: str) -> dict[str, Any]:
    asked = object_of(request.text())
    for name in asked:
        if name not in ("job_id", "owner", *more):
            raise SpecInvalid(str(name)[:80], "is not known here")
    return asked


def _job(desk: Dependencies, request: Request, asked: dict[str, Any]) -> Job:
    job_id = asked.get("job_id")
    if not isinstance(job_id, str) or not job_id:
        raise SpecInvalid("job_id", "must be the id of the job whose processes are to meet")
    job = desk.recovery.store.load_job(job_id)
    if job is None:
        raise ApiError(404, "no_such_job", "No such job", f"there is no job {job_id[:255]}")
    request.caller.must_own(job)
    return job


def _name(request: Request) -> str:
    name = request.named["name"]
    if not NAME.fullmatch(name):
        raise ApiError(404, "no_such_thing", "Not found", "a lock's name is letters, digits, ., _ and -, at most 64")
    return name


def _spelt(asked: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise SpecInvalid(name, f"must be spelt as {pattern.pattern}")
    return value


def _token(asked: dict[str, Any]) -> int:
    return _whole(asked, "token", 1, TOKEN_MAX, None)


def _whole(asked: dict[str, Any], name: str, least: int, most: int, default: int | None) -> int:
    value = asked.get(name)
    value = default if value is None else value
    if type(value) is not int or (value != default and not least <= value <= most):
        raise SpecInvalid(name, f"must be a whole number from {least} to {most}")
    return value


_ONE = "/api/v2/locks/<name>"
_JOB = (Parameter("job_id", "whose lock it is", TEXT, required=True),)
ROUTES = (
    Route("GET", _ONE, read_lock, "Who has a lock of a job", {200: "Lock"}, Role.USER, _JOB, refuses=(422,)),
    Route(
        "POST",
        f"{_ONE}/acquire",
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
        f"{_ONE}/renew",
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
        f"{_ONE}/release",
        release_lock,
        "Give a lock back",
        {200: "Lock"},
        Role.USER,
        takes="LockReturn",
        needs_body=True,
        refuses=(409, 413, 422),
    ),
)
