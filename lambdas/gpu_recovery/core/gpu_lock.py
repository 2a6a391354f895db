"""GPU lock between processes of one job on different instances: a lease with a fencing token. Pure.

Without a lease, the lock of a crashed holder would never be free. Without a fence, two holders could work at once.
So a lease ends unless its holder renews it. An ended lock goes to another owner only after the old holder's heartbeat
timed out, or after `GRACE`. Each new holder gets a larger token, so work of an earlier holder can be recognised.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta

from gpu_recovery.core.errors import RecoveryError, SpecInvalid
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Pattern of a lock's name."""
OWNER = re.compile(r"[A-Za-z0-9_-]{1,32}")
"""Pattern of an owner's name."""
HOLDER = re.compile(r"[0-9a-f]{8,32}")
"""Pattern of a holder's id."""
LEASE_S, LEASE_S_MIN, LEASE_S_MAX = 60, 5, 3_600
"""Seconds of a lease: default, lower bound and upper bound."""
RANK_MAX, TOKEN_MAX = 1_000_000, 2**53 - 1
"""Upper bounds of the rank of a holder, and of a fencing token: the largest integer that every JSON parser reads."""
GRACE = timedelta(seconds=120)
"""Time that an ended lease stays reserved for its holder if the holder's instance is alive or unknown."""
LOCKS_MAX = 256
"""Upper bound of the names of locks that one job may use. A gang of 16 instances has 128 GPUs."""
UNUSED_TTL = timedelta(days=90)
"""Time for which a lock is stored after its last use. Then it is deleted, and its tokens begin with 1 again."""


@frozen_dataclass()
class GpuLockRecord:
    """A lock of a job.

    owner:       present owner, "" if the lock is free.
    holder:      process of the owner that holds the lock, "" if the process gave no id.
    instance_id: instance of that process, "" if not given. Its heartbeat shows whether the process may still work.
    token:       fencing token of the latest holder. It only grows.
    """

    job_id: str
    name: str
    owner: str = ""
    holder: str = ""
    instance_id: str = ""
    token: int = 0
    acquired_at: datetime | None = None
    expires_at: datetime | None = None
    revision: int = 0


class LockRefused(RecoveryError):
    """A request to acquire, renew or release a lock is refused. `detail` says why; `lock` is the present lock."""

    def __init__(self, detail: str, lock: GpuLockRecord) -> None:
        super().__init__(detail)
        self.detail, self.lock = detail, lock


class TooManyLocks(SpecInvalid):
    """A job that has used LOCKS_MAX names asks for a lock of another name."""

    def __init__(self, lock: GpuLockRecord) -> None:
        detail = (
            f"must be one of the {LOCKS_MAX} names that job {lock.job_id} has used: a job has no more, not {lock.name}"
        )
        super().__init__("name", detail)


def has_ended(lock: GpuLockRecord, now: datetime) -> bool:
    """Return whether the lock is free or its lease has ended."""
    return not lock.owner or lock.expires_at is None or lock.expires_at <= now


def acquired(
    lock: GpuLockRecord, owner: str, holder: str, instance_id: str, lease_s: int, now: datetime, holder_is_silent: bool
) -> GpuLockRecord:
    """Return the lock with `owner` as its owner.

    The present holder gets the lock again, with the same token. Another process of the same owner, for example after
    a restart, waits only for the end of the lease.

    Args:
        lock: the present lock.
        owner: name of the new owner.
        holder: id of the owner's process, "" for none.
        instance_id: instance of that process, "" if unknown.
        lease_s: length of the lease in seconds.
        now: time of the request.
        holder_is_silent: whether the present holder's instance is known and its heartbeat timed out.

    Raises:
        LockRefused: another process holds the lock, or may still use it.
    """
    until = now + timedelta(seconds=lease_s)
    if lock.owner == owner and lock.holder == holder:
        return replace(lock, instance_id=instance_id, expires_at=max(until, lock.expires_at or until))
    if not has_ended(lock, now):
        raise LockRefused(f"GPU locked by {lock.owner}", lock)
    ended_at = lock.expires_at or now
    if lock.owner not in ("", owner) and not holder_is_silent and now < ended_at + GRACE:
        raise LockRefused(f"GPU locked by {lock.owner}, whose lease is over and whose instance may still work", lock)
    return replace(
        lock,
        owner=owner,
        holder=holder,
        instance_id=instance_id,
        token=lock.token + 1,
        acquired_at=now,
        expires_at=until,
    )


def renewed(lock: GpuLockRecord, owner: str, token: int, lease_s: int, now: datetime) -> GpuLockRecord:
    """Return the lock with a lease of `lease_s` seconds from now. The lease never becomes shorter.

    Raises:
        LockRefused: `owner` does not hold the lock with this token. Another process may be working.
    """
    _require_holder(lock, owner, token, "renew")
    until = now + timedelta(seconds=lease_s)
    return replace(lock, expires_at=max(until, lock.expires_at or until))


def released(lock: GpuLockRecord, owner: str, token: int) -> GpuLockRecord:
    """Return the lock without an owner. A lock that was already released with this token stays as it is.

    Raises:
        LockRefused: `owner` does not hold the lock with this token.
    """
    if not lock.owner and lock.token == token:
        return lock
    _require_holder(lock, owner, token, "release")
    return replace(lock, owner="", holder="", instance_id="", acquired_at=None, expires_at=None)


def _require_holder(lock: GpuLockRecord, owner: str, token: int, request: str) -> None:
    if lock.owner != owner or lock.token != token:
        raise LockRefused(f"GPU owned by {lock.owner or 'nobody'}, cannot {request}", lock)
