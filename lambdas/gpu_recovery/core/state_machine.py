"""Common parts of the job and instance state machines: transitions, decisions, pending commands, history.

A state machine is two tables over (status, event type). `TRANSITIONS` has the function that decides. `IGNORED` has a
sentence that says why the event changes nothing. A pair in neither table is a defect and raises `IllegalTransition`.
A test walks all pairs and proves that each pair has its row on purpose.

Effects have one order. First the record of a `Decision` is SAVED, together with its new commands. Then the commands
are executed. Then the finished commands are removed from the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from gpu_recovery.core.errors import IllegalTransition
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.queue.run_time_estimates import RunTime

Record = TypeVar("Record")


class EventOutcome(StrEnum):
    """What an event changed: APPLIED changed the record, IGNORED and OUTDATED changed nothing."""

    APPLIED = "APPLIED"
    IGNORED = "IGNORED"
    OUTDATED = "OUTDATED"


@frozen_dataclass()
class PendingCommand:
    """A saved command that is not known to be done.

    acting_until: end of the lease of the function that executes the command. No other function may execute the
        command before. Afterwards that function is certainly dead, because no function runs that long.
    tries: executions begun. The reconciler adds 1 when it reclaims an expired command.
    refusals: number of deferrals: AWS refused or throttled the command, re-validation delayed it, or the function had
        no time left. The number is part of the client token of a health check. So each deferral makes the next try a
        new request.
    """

    command_id: str
    command: Any
    acting_until: datetime
    tries: int = 1
    refusals: int = 0


@frozen_dataclass()
class HistoryEntry:
    """One decision as users read it. `before` and `after` are statuses, `event` is the event's type name."""

    at: datetime
    before: str
    after: str
    event: str
    attempt: int
    reason: str


@frozen_dataclass()
class Step:
    """Result of a transition function: next status, reason, changed fields and commands to give."""

    status: Any
    reason: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[Any, ...] = ()


@frozen_dataclass()
class DecisionContext:
    """What a transition function may use: the policy, the time, and the fleet record for decisions about repairs."""

    policy: RecoveryPolicy
    now: datetime
    fleet: Fleet | None = None

    @property
    def fleet_limits(self) -> Fleet:
        """The fleet record.

        Raises:
            IllegalTransition: the transition was called without the fleet record.
        """
        if self.fleet is None:
            raise IllegalTransition("a repair is decided without the fleet limits")
        return self.fleet


@frozen_dataclass()
class Transition:
    """A row of TRANSITIONS: the function that decides, and the statuses that the function may return."""

    decide: Callable[..., Step | Ignore]
    targets: frozenset[Any]

    @classmethod
    def to(cls, decide: Callable[..., Step | Ignore], *targets: Any) -> Transition:
        """Return the transition for `decide`, which may only return `targets`."""
        return cls(decide, frozenset(targets))


@frozen_dataclass()
class Ignore:
    """Result of a transition function for an event that adds nothing to the record, with the reason."""

    reason: str


@frozen_dataclass()
class QuotaChange:
    """Change of a user's quota usage by a decision about a job.

    key:   key of the instance count that changes (`queue.quota.QuotaKey.text`).
    nodes: number of instances to add to the count.
    term:  the scheduler's term that decided the change. Once a later term has begun, the change must not be saved.
        None if the scheduler did not decide it.
    ran:   run time of a job that succeeded, saved for the estimates of similar jobs. None otherwise.
    placed_at: time of a placement in `term` that is remembered, because the number of running jobs is limited. None
        otherwise.
    """

    key: str
    nodes: int
    term: int | None = None
    ran: RunTime | None = None
    placed_at: datetime | None = None


@frozen_dataclass()
class Decision(Generic[Record]):
    """Decision about one event.

    record:   the record to save, with its commands. The unchanged record if `outcome` is not APPLIED.
    commands: the new pending commands, already leased to the caller. They are executed AFTER the save.
    reason:   one sentence, the same in log, history, command line, e-mail and transcript.
    fleet:    the fleet record to save in the same transaction. None if it does not change.
    quota:    the change of the user's quota usage to save in the same transaction. None if it does not change.
    """

    record: Record
    commands: tuple[PendingCommand, ...]
    reason: str
    outcome: EventOutcome
    fleet: Fleet | None = None
    quota: QuotaChange | None = None


def replace_fields(record: Record, changes: Mapping[str, Any]) -> Record:
    """Return a copy of `record`, a frozen dataclass, with the fields `changes`.

    `dataclasses.replace` inspects every field and sets each field in turn. With forty fields that is half of the time
    of a decision about an instance. A record without slots and without `__post_init__` is copied by its dict instead.

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
    """Return rows of IGNORED: `event` is ignored in each of `statuses`, and `sentence` says why."""
    return {(status, event): sentence for status in statuses}


def transition_for(
    transitions: Mapping[tuple[Any, type], Transition], ignored: Mapping[tuple[Any, type], str], status: Any, event: Any
) -> Transition | Ignore:
    """Return the transition for (status, type of event), or why the event is ignored.

    Raises:
        IllegalTransition: neither table has the pair.
    """
    key = (status, type(event))
    if key in transitions:
        return transitions[key]
    if key in ignored:
        return Ignore(ignored[key])
    raise IllegalTransition(f"no row for {type(event).__name__} in {status}")


def with_checked_target(row: Transition, status: Any, event: Any, step: Step | Ignore) -> Step | Ignore:
    """Return `step` if `row` declares its target.

    Raises:
        IllegalTransition: the row does not declare the target.
    """
    if isinstance(step, Step) and step.status not in row.targets:
        raise IllegalTransition(f"{type(event).__name__} in {status} may not lead to {step.status}")
    return step


def bounded_history(history: tuple[HistoryEntry, ...], entry: HistoryEntry, most: int) -> tuple[HistoryEntry, ...]:
    """Return the history with `entry` at its end: the first entry (the beginning) and the newest `most` - 1 entries."""
    grown = (*history, entry)
    return grown if len(grown) <= most else (grown[0], *grown[len(grown) - most + 1 :])


def unless_pending(record: Any, command: Any) -> tuple[Any, ...]:
    """Return `(command,)`; () if a command of its type is pending.

    A command that every poll repeats must not pile up.
    """
    return () if any(isinstance(pending.command, type(command)) for pending in record.commands) else (command,)


def next_deadline(record: Any) -> datetime | None:
    """Return when a record's status gives up, or when a limit of a recovery contract passes, if that is earlier."""
    limit_at: datetime | None = getattr(record, "limit_at", None)
    deadline: datetime | None = record.deadline_at
    return deadline if limit_at is None else limit_at if deadline is None else min(deadline, limit_at)


def due_at(
    deadline_at: datetime | None, look_at: datetime | None, commands: tuple[PendingCommand, ...]
) -> datetime | None:
    """Return when the reconciler must next process this record.

    This is the earliest of the deadline, the next poll and the ends of the commands' leases. None if there is none.
    """
    times = [at for at in (deadline_at, look_at) if at is not None]
    if commands:
        times += [pending.acting_until for pending in commands]
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
    """Return the decision that applies `step`: next version, fields, deadlines, history, and commands with leases.

    A step that changes neither the status nor the reason leaves no history entry.

    Args:
        record: the job or instance before the step.
        step: the result of the transition function.
        name: id of the record. The ids of its commands begin with it (`<name>/<version>/<n>`).
        event: the event, or a name where there is no event.
        deadlines: function of the changed record: (deadline of the new status, time of the next poll).
        policy: gives the poll interval, the command lease and the length of the history.
        now: time of the decision.
    """
    version = record.version + 1
    moved = step.status != record.status or record.version == 0
    changes = {**step.changes, "status": step.status, "version": version, "reason": step.reason}
    poll_at = changes.get("look_at", record.look_at)
    if moved:
        deadline, next_poll_at = deadlines(replace_fields(record, changes))
        changes = {"deadline_at": deadline, "look_at": next_poll_at, **changes, "status_at": now}
    elif poll_at is not None and poll_at <= now:
        next_at = deadlines(replace_fields(record, changes))[1]
        changes["look_at"] = (
            next_at if next_at is not None and next_at > now else now + duration(policy.poll_interval_s)
        )
    lease_end = now + duration(policy.command_lease_s)
    new = tuple(
        PendingCommand(f"{name}/{version}/{n}", command, lease_end) for n, command in enumerate(step.commands, 1)
    )
    history = changes.get("history", record.history)
    if moved or step.reason != record.reason:
        before = record.status if record.version else ""
        label = event if isinstance(event, str) else type(event).__name__
        attempt = changes.get("attempt", getattr(record, "attempt", 0))
        entry = HistoryEntry(now, before, step.status, label, attempt, step.reason)
        history = bounded_history(history, entry, policy.history_max)
    changes |= {"commands": (*record.commands, *new), "history": history}
    return Decision(replace_fields(record, changes), new, step.reason, EventOutcome.APPLIED)
