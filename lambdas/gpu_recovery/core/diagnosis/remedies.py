"""Remedy table: the remedy for each diagnosed cause. No remedy reboots an instance; a failed health check may."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy, Scope, ScopeKind

_REMEDIES: Mapping[Cause, Remedy] = {
    Cause.GPU_FAULT: Remedy.CHECK,
    Cause.GPU_CONTEXT: Remedy.CHECK,
    Cause.DRIVER: Remedy.CHECK,
    Cause.NODE_FAULT: Remedy.CHECK,
    Cause.NETWORK: Remedy.RESTART,
    Cause.NETWORK_SLOW: Remedy.NOTHING,
    Cause.RDMA: Remedy.LEAVE_OUT,
    Cause.METADATA_SERVER: Remedy.RESTART,
    Cause.CALLER: Remedy.RESTART,
    Cause.WORKER_HANG: Remedy.LEAVE_OUT,
    Cause.WORKER_CRASH: Remedy.CHECK,
    Cause.WORKER_ERROR: Remedy.FAIL,
    Cause.WORKER_STARTUP: Remedy.RESTART,
    Cause.STRAGGLER: Remedy.CHECK,
    Cause.UNEVEN_STAGE: Remedy.NOTHING,
    Cause.GPU_MEMORY: Remedy.FAIL,
    Cause.HOST_MEMORY: Remedy.FAIL,
    Cause.CPU_CONTENTION: Remedy.NOTHING,
    Cause.EVENT_UNDELIVERED: Remedy.RESTART,
    Cause.EVENT_UNPROCESSED: Remedy.RESTART,
    Cause.GPU_NOT_RELEASED: Remedy.RELEASE,
    Cause.LOCK_HELD: Remedy.RELEASE,
    Cause.APPLICATION: Remedy.FAIL,
    Cause.CONFIGURATION: Remedy.FAIL,
    Cause.NUMERICAL: Remedy.FAIL,
    Cause.RESOURCES: Remedy.WAIT,
    Cause.STORAGE: Remedy.WAIT,
    Cause.EXTERNAL: Remedy.WAIT,
    Cause.PREEMPTED: Remedy.RESTART,
    Cause.UNKNOWN: Remedy.NOTHING,
}


STORAGE_FULL_ROW = "log storage_full"
"""Row of the rule that finds full storage (`rules/log_lines.py`)."""
MISSING_ROW, UNPROVED_ROW, LATE_ROW = "flight", "flightu", "flightl"
"""Rows of the rules that find a hung rank by its flight record (`rules/collectives.py`)."""


def remedy_for(cause: Cause, scope: Scope, rows: frozenset[str] = frozenset()) -> Remedy:
    """Remedy for `cause` at `scope`, where `rows` are the rules that found the cause.

    Full storage stays full. If the whole job shares the storage, an operator must free space. The own storage of an
    instance is left with the instance.

    A rank that the flight records of the others wait for may hang for its GPU. So its instance is checked.

    If the network of an instance or a rack is bad, the next attempt leaves these instances out. If the scope is the
    whole job, no instance can be left out, so the job is restarted.
    """
    if cause is Cause.STORAGE and STORAGE_FULL_ROW in rows:
        return Remedy.PERSON if scope.kind is ScopeKind.JOB else Remedy.LEAVE_OUT
    if cause is Cause.WORKER_HANG and scope.kind is not ScopeKind.JOB and rows & {MISSING_ROW, UNPROVED_ROW, LATE_ROW}:
        return Remedy.CHECK
    if _REMEDIES[cause] is Remedy.LEAVE_OUT and scope.kind is ScopeKind.JOB:
        return Remedy.RESTART
    if cause is Cause.NETWORK and scope.kind in (ScopeKind.INSTANCE, ScopeKind.RACK):
        return Remedy.LEAVE_OUT
    return _REMEDIES[cause]
