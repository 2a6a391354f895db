"""Errors that a store or an action raises, and that the loop and the APIs handle."""

from __future__ import annotations

from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.heartbeat import Heartbeat


class StaleRecord(RecoveryError):
    """Another writer saved the record since it was read. Load the record and decide again."""


class TooManyConflicts(RecoveryError):
    """Other writers saved the record at every try. The event must be delivered again."""


class TermOver(RecoveryError):
    """The scheduler's term is over because another pass has begun. Decisions of this pass are not saved."""


class CursorInvalid(RecoveryError):
    """A listing cursor that this service did not issue."""


class SequenceStale(RecoveryError):
    """An agent report older than the latest report of the same boot. `last` is the latest sequence number."""

    def __init__(self, last: int) -> None:
        super().__init__(f"report {last} of this boot was received already")
        self.last = last


class AnotherAgent(RecoveryError):
    """A report of an agent that another agent on the instance has replaced. `known` is the stored heartbeat."""

    def __init__(self, known: Heartbeat) -> None:
        super().__init__(f"another agent, that started later, reports for {known.instance_id}")
        self.known = known


class TooManyReports(RecoveryError):
    """Too many reports with one token. The next report is accepted after `retry_after_s` seconds."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too many reports; the next in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class VerdictUnreadable(RecoveryError):
    """A malformed verdict document."""


class Unavailable(RecoveryError):
    """Storage that no decision reads did not answer: a throttle, a timeout, or an error of the server. It passes."""


class StorageFailed(RecoveryError):
    """Storage that no decision reads refused a call, or its content is malformed. A repeated call fails again."""


class TryAgainSoon(RecoveryError):
    """AWS definitely did not carry out the call: it was throttled, or its answers are not consistent yet."""


class OutcomeUnknown(RecoveryError):
    """A call to AWS that may or may not have taken effect, and that must not simply be repeated."""


class NotificationFailed(ExceptionGroup):
    """Every other command was executed, but a notification could not be sent.

    The notification stays in the record and is tried again.
    """
