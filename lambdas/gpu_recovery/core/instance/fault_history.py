"""What is remembered of an instance for 28 days: derived from how its record moves, in one place, as `telling` is.

Nothing is written for it alone: it goes with the write of the decision, and with the one that gives a claim back.

- a repair that begins is OUT; one that turns out never to have begun is taken back;
- a person who must act, or another machine that is asked for, is a TICKET, once for each need;
- an XID that is not the program's doing is one; what a fault writes within an hour is the same fault;
- a job that ended there first, or whose check blames the instance, is GANG_FAILED, or ALONE_FAILED if it had no other;
- a person who takes a machine out against which nothing speaks, and a job that leaves it out, may only guess: LEFT_OUT.

A run that went well ends without a write of the record, and is not remembered (ALONE_WELL). Once another host is under
the machine, all that was remembered is another's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.instance import lemons
from gpu_recovery.core.instance.lemons import WINDOW_S, LemonSignal, Signal
from gpu_recovery.core.instance.record import Instance, RepairLevel
from gpu_recovery.core.policy import PERCENT_MAX
from gpu_recovery.core.state_machine import DecisionContext
from gpu_recovery.core.xid import HARMLESS, NAMED_XID, class_of

EACH_MAX = 8
"""Of each signal so many are remembered, the newest: no more of them would count."""
HISTORY_MAX = EACH_MAX * len(LemonSignal)
SAME_FAULT_S = 3_600


def updated_history(
    before: Instance, after: Instance, event: events.InstanceEvent, given: DecisionContext
) -> tuple[Signal, ...]:
    """What is remembered once `before` has become `after` because of `event`; as it was where nothing is to be noted.

    after: with the changes of the step, but without what is remembered.
    """
    past = () if after.replaced_at != before.replaced_at else before.past
    if _repair_never_began(before, after):
        past = _without_last(past, LemonSignal.OUT)
    new = tuple(signal_at(given.now, kind) for kind in _new_signals(before, after, event, given))
    if not new and len(past) <= HISTORY_MAX:
        return past
    return _recent((*past, *new), given.now)


def signal_at(now: datetime, kind: LemonSignal) -> Signal:
    """A signal of this moment, as records keep it."""
    return Signal(kind, int(now.timestamp()))


def failure_of(event: events.CheckRequested) -> LemonSignal:
    """What the failure of the attempt is that wants the check."""
    return LemonSignal.ALONE_FAILED if event.alone else LemonSignal.GANG_FAILED


def score(past: tuple[Signal, ...], now: datetime) -> float:
    """The lemon score of what is remembered, from 0 to 1."""
    return lemons.lemon_score(past, now.timestamp()) if past else 0.0


def grade(past: tuple[Signal, ...], now: datetime) -> float:
    """The score in the steps in which machines are compared."""
    return lemons.graded(score(past, now))


def percent(past: tuple[Signal, ...], now: datetime) -> int:
    """The score in percent, rounded down: never a hundred."""
    return int(PERCENT_MAX * score(past, now))


def score_sentence(past: tuple[Signal, ...], now: datetime) -> str:
    """What the score is made of, in words."""
    return lemons.signals_sentence(past, now.timestamp())


def _new_signals(
    before: Instance, after: Instance, event: events.InstanceEvent, given: DecisionContext
) -> Iterator[LemonSignal]:
    match event:
        case events.CheckRequested() if event.first == before.instance_id:
            yield failure_of(event)
        case events.CheckEnded() if before.check is not None and event.verdict.outcome.blames_hardware:
            if before.check.put_down is not None:
                yield before.check.put_down
        case events.HealthReported() if event.status is HealthStatus.IMPAIRED:
            named = event.sentence if event.xid is None else f"XID {event.xid}"
            if _is_an_xid(named, before.past, given):
                yield LemonSignal.XID
        case events.InstanceBooted() if _is_an_xid(event.sentence, before.past, given):
            yield LemonSignal.XID
    if after.under_repair and not before.under_repair:
        yield LemonSignal.OUT
    if after.needs_operator and not before.needs_operator:
        if after.withdrawn:
            yield LemonSignal.LEFT_OUT
        elif not _needs_second_repair(before):
            yield LemonSignal.TICKET
    elif _needs_second_repair(after) and not _needs_second_repair(before):
        yield LemonSignal.TICKET


def _is_an_xid(text: str, past: tuple[Signal, ...], given: DecisionContext) -> bool:
    """Whether the text names an XID that speaks against the machine, and not the fault that is known."""
    profile, now_s = given.policy.xid_profile, given.now.timestamp()
    if all(class_of(int(found["xid"]), profile) in HARMLESS for found in NAMED_XID.finditer(text)):
        return False
    return all(one.kind is not LemonSignal.XID or now_s - one.at_s >= SAME_FAULT_S for one in past)


def _needs_second_repair(instance: Instance) -> bool:
    return instance.need is not None and instance.need.rung is RepairLevel.REPLACE


def _repair_never_began(before: Instance, after: Instance) -> bool:
    """Whether the repair under way never began: its own time is taken out of the record again."""
    return before.under_repair and not after.under_repair and after.reboots == before.reboots[:-1] != before.reboots


def _without_last(past: tuple[Signal, ...], kind: LemonSignal) -> tuple[Signal, ...]:
    last = max((number for number, one in enumerate(past) if one.kind is kind), default=None)
    return tuple(one for number, one in enumerate(past) if number != last)


def _recent(past: tuple[Signal, ...], now: datetime) -> tuple[Signal, ...]:
    """The newest of each signal that are not too old to count."""
    recent = sorted((one for one in past if now.timestamp() - one.at_s < WINDOW_S), key=lambda one: one.at_s)
    left = Counter(one.kind for one in recent)
    kept: list[Signal] = []
    for one in recent:
        if left[one.kind] <= EACH_MAX:
            kept.append(one)
        left[one.kind] -= 1
    return tuple(kept)
