"""What the job machine and the instance machine have in common: rows, decisions, pending commands, history.

A machine is two tables over (status, event type). `TRANSITIONS` says what follows, `IGNORED` says in a sentence why
nothing does, and a pair found in neither is a mistake of ours and raises `IllegalTransition`. So there are exactly
three answers, and a test walks the whole product to see that each was chosen on purpose.

Effects come in one order, and the types carry it: a `Decision` holds the record as it must be SAVED first, with the
commands already in it; only then may a command be carried out; only then is it taken out of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from gpu_recovery.core.errors import IllegalTransition
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.policy import RecoveryPolicy, within
from gpu_recovery.core.queue.run_time_estimates import RunTime

Record = TypeVar("Record")


class EventOutcome(StrEnum):
    """What became of an event."""

    APPLIED = "APPLIED"
    IGNORED = "IGNORED"
    OUTDATED = "OUTDATED"


@dataclass(frozen=True, slots=True)
class PendingCommand:
    """A saved command that is not known to be done.

    `acting_until` is the claim of whoever acts on it: until then nobody else may; afterwards the actor is certainly
    dead (no function runs that long) and the reconciler takes the command over, with `tries` one higher. `refusals`
    counts the definite noes of AWS: only they make the next try another request (another client token).
    """

    command_id: str
    command: Any
    acting_until: datetime
    tries: int = 1
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One decision as people read it. `before` and `after` are statuses, `event` the event's type name."""

    at: datetime
    before: str
    after: str
    event: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """What a transition function answers: the status to go to, the fields to change, the orders to give, and why."""

    status: Any
    reason: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """What every transition is decided under: the thresholds, the time, and the brakes where they have a say."""

    policy: RecoveryPolicy
    now: datetime
    fleet: Fleet | None = None

    @property
    def fleet_limits(self) -> Fleet:
        """The fleet's record; IllegalTransition if a transition asks for it that was not given it."""
        if self.fleet is None:
            raise IllegalTransition("a repair is decided without the fleet's brakes")
        return self.fleet


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of TRANSITIONS: the function that decides and every status it may decide for."""

    decide: Callable[..., Step | Ignore]
    targets: frozenset[Any]

    @classmethod
    def to(cls, decide: Callable[..., Step | Ignore], *targets: Any) -> Transition:
        """A row whose function may answer only with `targets`."""
        return cls(decide, frozenset(targets))


@dataclass(frozen=True, slots=True)
class Ignore:
    """A transition function's answer when the event says nothing that the record does not already hold."""

    reason: str


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """What a decision about a job changes in the books of its user.

    key:   whose count of instances (`queue.quota.QuotaKey.text`); nodes: by how many it grows.
    term:  the scheduler's term that decided it: once another has begun it must not be kept. None: nobody's.
    ran:   the job has come to its end well, and its run time is kept for the estimates of others like it.
    """

    key: str
    nodes: int
    term: int | None = None
    ran: RunTime | None = None


@dataclass(frozen=True, slots=True)
class Decision(Generic[Record]):
    """The answer to one event.

    record:   what must be saved, commands included; the record as it was if `outcome` is not APPLIED.
    commands: the new pending commands, already claimed for the caller, to be carried out AFTER the save.
    reason:   one sentence, the same in log, history, command line, e-mail and transcript.
    fleet:    the brakes as they must be saved in the same transaction, None if they stay as they are.
    quota:    what changes in its user's books, in the same transaction; None if nothing does.
    """

    record: Record
    commands: tuple[PendingCommand, ...]
    reason: str
    outcome: EventOutcome
    fleet: Fleet | None = None
    quota: QuotaChange | None = None


def replace_fields(record: Record, changes: Mapping[str, Any]) -> Record:
    """A copy of `record`, a frozen dataclass, with the fields `changes`.

    `dataclasses.replace` inspects every field and sets each in turn: at forty fields that is half of the time of a
    decision about an instance. A record without slots and without `__post_init__` is copied through its dict instead.

    Raises:
        TypeError: the record has no such field.
    """
    known = getattr(record, "__dict__", None)
    if known is None or hasattr(record, "__post_init__"):
        made: Any = record
        changed: Record = replace(made, **changes)
        return changed
    if not changes.keys() <= known.keys():
        unknown = sorted(changes.keys() - known.keys())
        raise TypeError(f"{type(record).__name__} has no field {unknown[0]!r}")
    copy: Record = object.__new__(type(record))
    copy.__dict__.update(known, **changes)
    return copy


def ignored(sentence: str, event: type, *statuses: Any) -> dict[tuple[Any, type], str]:
    """Rows of IGNORED: in each of `statuses` the event is ignored because of `sentence`."""
    return {(status, event): sentence for status in statuses}


def transition_for(
    transitions: Mapping[tuple[Any, type], Transition], ignored: Mapping[tuple[Any, type], str], status: Any, event: Any
) -> Transition | Ignore:
    """The row for (status, type of event), or the sentence why the event is ignored; else IllegalTransition."""
    key = (status, type(event))
    if key in transitions:
        return transitions[key]
    if key in ignored:
        return Ignore(ignored[key])
    raise IllegalTransition(f"no row for {type(event).__name__} in {status}")


def with_checked_target(row: Transition, status: Any, event: Any, step: Step | Ignore) -> Step | Ignore:
    """`step`, once it is certain that the row declares its target."""
    if isinstance(step, Step) and step.status not in row.targets:
        raise IllegalTransition(f"{type(event).__name__} in {status} may not lead to {step.status}")
    return step


def bounded_history(history: tuple[HistoryEntry, ...], entry: HistoryEntry, most: int) -> tuple[HistoryEntry, ...]:
    """History with `entry` at its end, keeping the first entry (how it began) and the newest `most` - 1."""
    grown = (*history, entry)
    return grown if len(grown) <= most else (grown[0], *grown[len(grown) - most + 1 :])


def unless_pending(record: Any, order: Any) -> tuple[Any, ...]:
    """`order`, unless one of its kind is still to be done: what is repeated at every look must not pile up."""
    return () if any(isinstance(one.command, type(order)) for one in record.commands) else (order,)


def due_at(
    deadline_at: datetime | None, look_at: datetime | None, commands: tuple[PendingCommand, ...]
) -> datetime | None:
    """When the reconciler must next open this record: the first of its deadline, its look and its claims' ends."""
    times = [at for at in (deadline_at, look_at) if at is not None]
    if commands:
        times += [one.acting_until for one in commands]
    return min(times, default=None)


def apply_step(
    record: Any,
    step: Step,
    name: str,
    event: Any,
    deadlines: Callable[[Any], tuple[datetime | None, datetime | None]],
    policy: RecoveryPolicy,
    now: datetime,
) -> Decision[Any]:
    """`record` after `step`: the next version, the fields, the deadlines, the history, the commands with their claims.

    name:      the record's own id, the beginning of its commands' ids (`<name>/<version>/<n>`).
    event:     the event, or its name where there is none yet; a look that finds nothing new leaves no history.
    deadlines: a record just moved -> (when its status gives up, when it is next looked at).
    """
    version = record.version + 1
    moved = step.status != record.status or record.version == 0
    changes = {**step.changes, "status": step.status, "version": version, "reason": step.reason}
    look_at = changes.get("look_at", record.look_at)
    if moved:
        deadline, look = deadlines(replace_fields(record, changes))
        changes = {"deadline_at": deadline, "look_at": look, **changes, "status_at": now}
    elif look_at is not None and look_at <= now:
        again = deadlines(replace_fields(record, changes))[1]
        changes["look_at"] = again if again is not None and again > now else now + within(policy.poll_interval_s)
    claim = now + within(policy.command_lease_s)
    new = tuple(PendingCommand(f"{name}/{version}/{n}", order, claim) for n, order in enumerate(step.commands, 1))
    history = changes.get("history", record.history)
    if moved or step.reason != record.reason:
        before = record.status if record.version else ""
        label = event if isinstance(event, str) else type(event).__name__
        attempt = changes.get("attempt", getattr(record, "attempt", 0))
        entry = HistoryEntry(now, before, step.status, label, attempt, step.reason)
        history = bounded_history(history, entry, policy.history_max)
    changes |= {"commands": (*record.commands, *new), "history": history}
    return Decision(replace_fields(record, changes), new, step.reason, EventOutcome.APPLIED)
