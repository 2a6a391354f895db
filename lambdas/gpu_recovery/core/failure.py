"""Why an attempt failed, in one word (seed 004's `failure_kind`, with the kinds that a sick machine adds)."""

from __future__ import annotations

from enum import StrEnum

from gpu_recovery.core.task import Ending, EndingKind


class FailureKind(StrEnum):
    """Who or what is to blame for the end of an attempt."""

    INSUFFICIENT_RESOURCES = "INSUFFICIENT_RESOURCES"  # it found fewer GPUs than it needs: tried again
    USER_ERROR = "USER_ERROR"  # it could never have started as it was described
    RUNTIME_ERROR = "RUNTIME_ERROR"  # the program started, and ended itself with an error
    UNKNOWN = "UNKNOWN"
    HOST_FAULT = "HOST_FAULT"  # ended by the infrastructure
    HARDWARE = "HARDWARE"  # a check blames a machine
    INTERRUPTED = "INTERRUPTED"  # the capacity was taken away
    REPAIR = "REPAIR"  # a machine of it was repaired for somebody else's sake
    INCONCLUSIVE = "INCONCLUSIVE"  # the checks could not tell


_OF_ENDINGS = {
    EndingKind.SHORT_OF_RESOURCES: FailureKind.INSUFFICIENT_RESOURCES,
    EndingKind.NEVER_STARTED: FailureKind.USER_ERROR,
    EndingKind.FAILED: FailureKind.RUNTIME_ERROR,
    EndingKind.HOST_FAULT: FailureKind.HOST_FAULT,
    EndingKind.INTERRUPTED: FailureKind.INTERRUPTED,
}


def kind_of(ending: Ending) -> FailureKind:
    """The kind that the end of a rank or driver shows by itself, before any machine is checked."""
    if ending.kind is EndingKind.CRASHED and ending.exit_code is not None:
        return FailureKind.RUNTIME_ERROR
    return _OF_ENDINGS.get(ending.kind, FailureKind.UNKNOWN)
