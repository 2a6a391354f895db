"""Exploration of a state machine: every event is told to every record that looks different, and each move is yielded.

A move is one decision that changed a record. Nothing keeps the moves: there are a hundred thousand of them.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core.fleet import Fleet, Pause
from gpu_recovery.core.health_signals import HealthKind
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.escalation import is_withdrawn
from gpu_recovery.core.instance.health_reports import unhandled_report
from gpu_recovery.core.instance.idle_check import is_stopped
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.job.assessment import CURED_BY_RESTART
from gpu_recovery.core.job.record import LIVE, TERMINAL, CloseCause, Job, JobStatus
from gpu_recovery.core.policy import HangAction, RecoveryPolicy
from gpu_recovery.core.state_machine import Decision, EventOutcome

from tests import tiers
from tests.core.all_events import (
    IDLE_PERIOD,
    Telling,
    anything_for_instance,
    anything_for_job,
    first_instances,
    first_jobs,
    written_by_a_store,
)
from tests.core.build import ADAPTIVE, CLASSIC, FLEET, NOW, tell

OBSERVED = replace(ADAPTIVE, replace=True, observe_only=True)
JOB_POLICIES = [
    replace(one, attempts_max=2, uncounted_relaunches_max=1)
    for one in (
        replace(ADAPTIVE, restart_in_place=True, hang_without_progress=HangAction.ACT),
        CLASSIC,
        replace(OBSERVED, hang_without_progress=HangAction.ACT),
    )
]
"""The presets with few attempts, so that exploring comes to where they are used up.

The first restarts in place. The first and the last act on a hang without progress reports.
"""
_IDLE_S = int(IDLE_PERIOD.total_seconds())
INSTANCE_POLICIES = [
    replace(ADAPTIVE, replace=True, gpu_reset=True, idle_check_every_s=_IDLE_S),
    CLASSIC,
    replace(OBSERVED, gpu_reset=True, idle_check_every_s=_IDLE_S),
]
"""Policies of repairs: one that also resets and replaces, one reboot and then a person, and no repair at all."""
STATES_OF_FAST_TIER = 200
"""Number of records that the fast tier explores, the nearest to the first ones."""
STATES_OF_FURTHER_POLICIES = 500
"""Number of records that the default tier explores under each policy but the first, the nearest to the first ones."""


@dataclass(frozen=True, slots=True)
class Move:
    """One decision that changed a record.

    Attributes:
        before: the record before it.
        event: what was told.
        at: when it was told.
        decision: what was decided.
        path: the events that had moved the record before, the first told first.
        fleet: the fleet record that the decision was made with; None where it needs none.
        shape: number of what the record after it looks like, within one exploration.
    """

    before: Any
    event: Any
    at: datetime
    decision: Decision[Any]
    path: tuple[Any, ...]
    policy: RecoveryPolicy
    fleet: Fleet | None
    shape: int

    @property
    def after(self) -> Any:
        """The record after it."""
        return self.decision.record

    @property
    def orders(self) -> list[Any]:
        """The commands that were given."""
        return [one.command for one in self.decision.commands]

    def told_again(self) -> Iterator[Any]:
        """Yield every event of the way here, this move's included.

        A look is our own answer: nobody delivers it twice. Those of a job's earlier attempts are fenced off.
        """
        told = (event for event in (*self.path, self.event) if not getattr(event, "looked", False))
        if isinstance(self.after, Job):
            return (event for event in told if event.attempt == self.after.attempt)
        return told


@dataclass(frozen=True)
class Explored:
    """What is explored of one state machine.

    Attributes:
        ignored: the table of the events that change nothing in a status; they are not told.
        firsts: the records to begin with, under a policy.
        anything: everything that may be told to a record, and when.
        signature: what makes two records look different.
        grown: other records that a record may become without an event.
        policies: the policies to explore under.
    """

    ignored: Mapping[Any, str]
    firsts: Callable[[RecoveryPolicy], list[Any]]
    anything: Callable[[Any, datetime], list[Telling]]
    signature: Callable[[Any], Any]
    grown: Callable[[Any], list[Any]]
    policies: list[RecoveryPolicy]

    def moves(self) -> Iterator[Move]:
        """Yield every move under every policy in the tier `full`.

        In the default tier: every move under the first policy, and the first moves under the others. In the fast tier:
        the first moves under the first policy.
        """
        first, *others = self.policies
        yield from self.moves_under(first, None if is_whole() else STATES_OF_FAST_TIER)
        further = None if tiers.selected() is tiers.Tier.FULL else STATES_OF_FURTHER_POLICIES
        for policy in others if is_whole() else ():
            yield from self.moves_under(policy, further)

    def moves_under(self, policy: RecoveryPolicy, states_max: int | None = None) -> Iterator[Move]:
        """Yield every move of the first `states_max` records that look different (None: of all), under `policy`."""
        seen: set[Any] = set()
        shapes: dict[Any, int] = {}
        front: deque[tuple[Any, datetime, tuple[Any, ...]]] = deque((one, NOW, ()) for one in self.firsts(policy))
        while front and (states_max is None or len(seen) < states_max):
            record, now, path = front.popleft()
            look = self.signature(record)
            if look in seen:
                continue
            seen.add(look)
            front += [(other, now, path) for other in self.grown(record)]
            moves: set[tuple[type, int]] = set()
            fleets = _fleets(record)
            for at, event in self.anything(record, now + timedelta(seconds=1)):
                if (record.status, type(event)) in self.ignored:
                    continue
                for fleet, decision in _decisions(record, event, policy, at, fleets):
                    if decision.outcome is not EventOutcome.APPLIED:
                        continue
                    # Variants of an event that lead to the same are one move.
                    look = self.signature(decision.record)
                    shape = shapes.setdefault(look, len(shapes))
                    if (type(event), shape) in moves:
                        continue
                    moves.add((type(event), shape))
                    yield Move(record, event, at, decision, path, policy, fleet, shape)
                    if look not in seen:
                        front.append((decision.record, at, (*path, event)))


def is_whole() -> bool:
    """Return whether this tier explores every move under the first policy, at least."""
    return tiers.selected() is not tiers.Tier.FAST


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Do not search for cycles of objects: the records have none, and the search takes a sixth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


PAUSED = replace(FLEET, pause=Pause("ada", "moving house", NOW))


def _fleets(record: Any) -> tuple[Fleet, ...]:
    """The brakes that let every repair begin, and those while a person has paused all."""
    if not isinstance(record, Instance):
        return ()
    repairing = frozenset({record.instance_id} if record.under_repair else ())
    return tuple(replace(brakes, repairing=repairing) for brakes in (FLEET, PAUSED))


def _decisions(
    record: Any, event: Any, policy: RecoveryPolicy, at: datetime, fleets: tuple[Fleet, ...]
) -> Iterator[tuple[Fleet | None, Any]]:
    """What is decided under the first of `fleets`, and under the second if a repair begins."""
    if not fleets or not state_machine.needs_fleet_limits(record, event):
        yield None, tell(record, event, policy, at)
        return
    for fleet in fleets:
        decision = tell(record, event, policy, at, fleet)
        yield fleet, decision
        if decision.record.epoch == record.epoch and not policy.observe_only:
            return


def job_signature(record: Job) -> Any:
    """What tells job records apart as far as the rows go."""
    if record.status in TERMINAL:
        return record.status, record.origin, record.hands_off, record.claims_kept
    cured = record.failure is None or record.failure.ending.kind in CURED_BY_RESTART
    under_way = (record.launch_ended, sum(map(bool, record.instances))) if record.status in LIVE else None
    return (
        record.status,
        record.hands_off,
        record.origin,
        record.stop_purpose,
        record.stop_tries,
        cured,
        record.attempts_counted,
        _used_up(record),
        bool(record.repairing),
        bool(record.to_leave),
        under_way,
        bool(record.first_ends),
        record.status is JobStatus.RUNNING and record.hang_told_at is not None,
        len([one for one in record.suspicions if not one.named]),
        record.held,
        (record.holding, record.held_attempt == record.attempt, bool(record.let_go)),
    )


def _used_up(record: Job) -> Any:
    """The uncounted relaunches so far: for want of resources, and for any other cause, which all act alike."""
    short = record.attempts_uncounted.get(CloseCause.INSUFFICIENT_RESOURCES, 0)
    return short, sum(record.attempts_uncounted.values()) > short


def instance_signature(record: Instance) -> Any:
    """What tells instance records apart as far as the rows go.

    Only the tier `full` combines what ECS says of a check with all the rest, and reports during a check with reboots.
    """
    check, reboot, need = record.check, record.reboot, record.need
    if check is not None and check.idle is not None:
        return record.status, is_stopped(check), bool(check.task_id), bool(record.claims), _is_sure(record)
    of_check = (
        (
            bool(check.job_id),
            check.may_reboot,
            check.proof_needed,
            check.repeats,
            bool(check.because),
            check.again,
            bool(check.superseded),
            check.passive and record.status is InstanceStatus.VERIFYING,
        )
        if check
        else None
    )
    in_ecs = _check_in_ecs(record)
    is_full = tiers.selected() is tiers.Tier.FULL
    if any(in_ecs) and not is_full:
        return record.status, of_check, in_ecs, _is_sure(record)
    is_warned = is_full or record.status is not InstanceStatus.CHECKING or not record.reboots
    at_rest = record.status in (InstanceStatus.AVAILABLE, InstanceStatus.QUARANTINED)
    return (
        record.status,
        tuple(sorted(record.claims)) if at_rest else bool(record.claims),
        min(len(record.reboots), 2),
        record.withdrawn,
        bool(record.orphaned_ranks),
        of_check,
        in_ecs,
        (reboot.ends is None, reboot.uncertain, reboot.disconnected and not check, reboot.started and not check)
        if reboot
        else None,
        (need.rung, need.source in tuple(HealthKind), bool(need.source), need.ends is None) if need else None,
        _warned(record) if is_warned else None,
    )


def _check_in_ecs(record: Instance) -> tuple[bool, ...]:
    """What ECS says of a check: refused, drained by others, started, without its registration, orphaned."""
    check = record.check
    if check is None:
        return ()
    started = bool(check.task_id), record.registration_over, check.orphaned_at is not None
    if record.status is InstanceStatus.VERIFYING:
        return record.drained_by_others, *started
    refused = any(one.refusals for one in record.commands) and record.agent_connected
    return refused, record.drained_by_others, *started


def _is_sure(record: Instance) -> bool:
    """Whether a health source has named a fault, which a check that finds nothing does not revoke."""
    is_sure = any(one.fault is not None for one in record.health.values())
    return is_sure and record.check is not None and not record.check.passive


def _warned(record: Instance) -> Any:
    """What was said of the instance, where a row asks for it."""
    match record.status:
        case InstanceStatus.AVAILABLE:
            kind = record.departure.kind if record.departure is not None else None
            return kind, unhandled_report(record), record.deadline_at is None
        case InstanceStatus.CHECKING:
            return unhandled_report(record), _is_sure(record)
        case InstanceStatus.QUARANTINED if record.held is not None and record.need is not None:
            return is_withdrawn(record, record.need), record.agent_connected
        case InstanceStatus.GONE:
            return record.quarantine is not None
    return None


JOB = Explored(job_state_machine.IGNORED, first_jobs, anything_for_job, job_signature, lambda record: [], JOB_POLICIES)
INSTANCE = Explored(
    state_machine.IGNORED,
    first_instances,
    anything_for_instance,
    instance_signature,
    written_by_a_store,
    INSTANCE_POLICIES,
)
