"""A lock between processes of one job on different instances: a lease with a fencing token. Pure.

A lock whose holder crashed would be kept for ever, and one that is simply taken away may be had by two. So a lease ends
unless it is renewed; what has ended is given to another only once its holder is not heard of any more, or some time
later; and each new holder gets a number above every earlier one, by which whatever it does can be told from what an
earlier one still does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpu_recovery.core.errors import RecoveryError

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
OWNER = re.compile(r"[A-Za-z0-9_-]{1,32}")
HOLDER = re.compile(r"[0-9a-f]{8,32}")
LEASE_S, LEASE_S_MIN, LEASE_S_MAX = 60, 5, 3_600
GRACE = timedelta(seconds=120)
"""So long after its end a lease is kept for a holder whose instance is still heard of, or of which nobody knows."""


@dataclass(frozen=True, slots=True)
class GpuLockRecord:
    """A lock of a job. `owner` is "" where nobody has it; `token` only grows, and is the last holder's.

    holder:      which of the owner's processes it is, "" if it does not say.
    instance_id: where that is, whose heartbeat tells whether it may still be at work; "" if it did not say.
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
    """Why somebody does not get, keep or give back a lock; `lock` is as it stands."""

    def __init__(self, detail: str, lock: GpuLockRecord) -> None:
        super().__init__(detail)
        self.detail, self.lock = detail, lock


def has_ended(lock: GpuLockRecord, now: datetime) -> bool:
    """Whether nobody has it, or its lease is over."""
    return not lock.owner or lock.expires_at is None or lock.expires_at <= now


def acquired(
    lock: GpuLockRecord, owner: str, holder: str, instance_id: str, lease_s: int, now: datetime, holder_is_silent: bool
) -> GpuLockRecord:
    """The lock once `owner` has it. Raises LockRefused while another does, or may still.

    The holder that has it gets it again, with the same token. Another process of the same owner, which may have been
    begun anew, waits for the end of the lease and no longer.
    holder_is_silent: the present holder's instance is known, and not heard of any more.
    """
    until = now + timedelta(seconds=lease_s)
    if lock.owner == owner and lock.holder == holder:
        return replace(lock, instance_id=instance_id, expires_at=max(until, lock.expires_at or until))
    if not has_ended(lock, now):
        raise LockRefused(f"GPU locked by {lock.owner}", lock)
    over_since = lock.expires_at or now
    if lock.owner not in ("", owner) and not holder_is_silent and now < over_since + GRACE:
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
    """The lock with a longer lease. Raises LockRefused for whoever does not have it: another may be at work."""
    _require_holder(lock, owner, token, "renew")
    until = now + timedelta(seconds=lease_s)
    return replace(lock, expires_at=max(until, lock.expires_at or until))


def released(lock: GpuLockRecord, owner: str, token: int) -> GpuLockRecord:
    """The lock, given back. Raises LockRefused for whoever does not have it; one that is free already is no harm."""
    if not lock.owner and lock.token == token:
        return lock
    _require_holder(lock, owner, token, "release")
    return replace(lock, owner="", holder="", instance_id="", acquired_at=None, expires_at=None)


def _require_holder(lock: GpuLockRecord, owner: str, token: int, what: str) -> None:
    if lock.owner != owner or lock.token != token:
        raise LockRefused(f"GPU owned by {lock.owner or 'nobody'}, cannot {what}", lock)
