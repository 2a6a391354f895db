"""Fault history: signals of the last 28 days, derived from changes of an instance's record.

The history causes no write of its own: it is saved with the decision, or with the release of a claim. The signals:

- OUT: a repair begins. It is removed again if the repair turns out never to have begun.
- TICKET: an operator must act, or a replacement is requested; once for each need.
- XID: an XID that the program did not cause. XIDs of the same fault within an hour count once.
- GANG_FAILED: a gang ended there first, or the check of its failure finds the instance faulty.
- ALONE_FAILED: the same for a job on this instance alone.
- LEFT_OUT: an operator withdraws an instance without evidence, or a job leaves it out. Both may be guesses.

A successful run ends without a write of the instance's record, so ALONE_WELL is not recorded. After a move to another
host the history is dropped, because it is that of the former host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.instance import lemons
from gpu_recovery.core.instance.lemons import WINDOW_S, LemonSignal, Signal
from gpu_recovery.core.instance.record import Instance, InstanceStatus, RepairLevel
from gpu_recovery.core.policy import PERCENT_MAX
from gpu_recovery.core.state_machine import DecisionContext
from gpu_recovery.core.xid import HARMLESS, NAMED_XID, class_of

EACH_MAX = 8
"""Number of signals of each kind that are saved, the newest. More would not change the score."""
HISTORY_MAX = EACH_MAX * len(LemonSignal)
"""Upper bound of the saved signals."""
SAME_FAULT_S = 3_600
"""Seconds within which XIDs count as the same fault."""


def updated_history(
    before: Instance, after: Instance, event: events.InstanceEvent, context: DecisionContext
) -> tuple[Signal, ...]:
    """Return the fault history after `event` has changed the record from `before` to `after`.

    Args:
        after: the record with the changes of the step, but with the fault history of `before`.
    """
    past = () if after.replaced_at != before.replaced_at else before.past
    if _repair_never_began(before, after):
        past = _without_last(past, LemonSignal.OUT)
    new = tuple(signal_at(context.now, kind) for kind in _new_signals(before, after, event, context))
    if not new and len(past) <= HISTORY_MAX:
        return past
    return _recent((*past, *new), context.now)


def signal_at(now: datetime, kind: LemonSignal) -> Signal:
    """Return a signal of `now` in whole Unix seconds, as records save it."""
    return Signal(kind, int(now.timestamp()))


def failure_of(event: events.CheckRequested) -> LemonSignal:
    """Return the signal for the failure of the attempt that asked for the check."""
    return LemonSignal.ALONE_FAILED if event.alone else LemonSignal.GANG_FAILED


def score(past: tuple[Signal, ...], now: datetime) -> float:
    """Return the lemon score of the history, from 0 to 1."""
    return lemons.lemon_score(past, now.timestamp()) if past else 0.0


def grade(past: tuple[Signal, ...], now: datetime) -> float:
    """Return the lemon score, rounded down to the steps in which instances are compared."""
    return lemons.graded(score(past, now))


def percent(past: tuple[Signal, ...], now: datetime) -> int:
    """Return the lemon score in percent, rounded down; it never reaches 100."""
    return int(PERCENT_MAX * score(past, now))


def score_sentence(past: tuple[Signal, ...], now: datetime) -> str:
    """Return the signals behind the score as a sentence."""
    return lemons.signals_sentence(past, now.timestamp())


def _new_signals(
    before: Instance, after: Instance, event: events.InstanceEvent, context: DecisionContext
) -> Iterator[LemonSignal]:
    """Yield the signals that the change of the record adds."""
    match event:
        case events.CheckRequested() if event.first == before.instance_id:
            yield failure_of(event)
        case events.CheckEnded() if before.check is not None and event.verdict.outcome.blames_hardware:
            if before.check.put_down is not None:
                yield before.check.put_down
        case events.HealthReported() if event.status is HealthStatus.IMPAIRED:
            text = event.sentence if event.xid is None else f"XID {event.xid}"
            if _is_an_xid(text, before.past, context):
                yield LemonSignal.XID
        case events.InstanceBooted() if _is_an_xid(event.sentence, before.past, context):
            yield LemonSignal.XID
    if after.under_repair and not before.under_repair:
        yield LemonSignal.OUT
    if after.needs_operator and before.quarantine is None and not before.needs_operator:
        if after.withdrawn:
            yield LemonSignal.LEFT_OUT
        elif not _needs_replacement(before):
            yield LemonSignal.TICKET
    elif _needs_replacement(after) and not _needs_replacement(before):
        yield LemonSignal.TICKET


def _is_an_xid(text: str, past: tuple[Signal, ...], context: DecisionContext) -> bool:
    """Return whether the text names an XID that counts against the instance and is not part of a known fault."""
    profile, now_s = context.policy.xid_profile, context.now.timestamp()
    if all(class_of(int(match["xid"]), profile) in HARMLESS for match in NAMED_XID.finditer(text)):
        return False
    return all(signal.kind is not LemonSignal.XID or now_s - signal.at_s >= SAME_FAULT_S for signal in past)


def _needs_replacement(instance: Instance) -> bool:
    """Return whether the instance needs a replacement."""
    return instance.need is not None and instance.need.rung is RepairLevel.REPLACE


def _repair_never_began(before: Instance, after: Instance) -> bool:
    """Return whether the repair under way never began: its time was removed from the record again."""
    undone = after.reboots == before.reboots[:-1] != before.reboots
    if before.status is InstanceStatus.RESETTING:
        undone = after.reset_at is None
    return before.under_repair and not after.under_repair and undone


def _without_last(past: tuple[Signal, ...], kind: LemonSignal) -> tuple[Signal, ...]:
    """Return the history without the last signal of this kind."""
    last = max((number for number, signal in enumerate(past) if signal.kind is kind), default=None)
    return tuple(signal for number, signal in enumerate(past) if number != last)


def _recent(past: tuple[Signal, ...], now: datetime) -> tuple[Signal, ...]:
    """Return the newest signals of each kind that are within the window."""
    recent = sorted(
        (signal for signal in past if now.timestamp() - signal.at_s < WINDOW_S), key=lambda signal: signal.at_s
    )
    left = Counter(signal.kind for signal in recent)
    newest: list[Signal] = []
    for signal in recent:
        if left[signal.kind] <= EACH_MAX:
            newest.append(signal)
        left[signal.kind] -= 1
    return tuple(newest)
