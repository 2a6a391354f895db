"""Errors that a store or an action raises, and that the loop and the APIs handle."""

from __future__ import annotations

from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.heartbeat import Heartbeat


class StaleRecord(RecoveryError):
    """Somebody wrote the record since it was read: read it again and decide again."""


class TooManyConflicts(RecoveryError):
    """A record was written by others each time we decided: the event must be delivered again."""


class TermOver(RecoveryError):
    """The scheduler's pass is over, because another has begun: what it decided is not kept."""


class CursorInvalid(RecoveryError):
    """A listing cursor that this service did not hand out."""


class SequenceStale(RecoveryError):
    """A report older than one that was heard of the same boot. `last` is the newest's number."""

    def __init__(self, last: int) -> None:
        super().__init__(f"report {last} of this boot was heard already")
        self.last = last


class AnotherAgent(RecoveryError):
    """A report of an agent whose place another took: two speak for one instance. `known` is its heartbeat."""

    def __init__(self, known: Heartbeat) -> None:
        super().__init__(f"another agent, that started later, speaks for {known.instance_id}")
        self.known = known


class TooManyReports(RecoveryError):
    """Whoever has one token reports more often than they may; `retry_after_s` is when the next will be heard."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too many reports; the next in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class VerdictUnreadable(RecoveryError):
    """A verdict document that is not one."""


class TryAgainSoon(RecoveryError):
    """AWS did definitely not do it, because too much is asked of it or its answers do not agree yet."""


class OutcomeUnknown(RecoveryError):
    """A call to AWS may or may not have taken effect, and cannot simply be made again."""
