"""What holds for every move of an instance: each decision that changes a record which exploring finds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.effects import waiting_jobs
from gpu_recovery.core.instance.record import IN_USE, Instance, InstanceStatus
from gpu_recovery.core.state_machine import Decision

from tests import tiers
from tests.core import all_events, exploration, move_rules
from tests.core.build import FLEET, orders, tell
from tests.core.exploration import PAUSED, Move
from tests.core.move_rules import Broken, Rule, RuleMaker
from tests.core.property_runs import IN_MOTION, claims_go_only_when_sure, works_only_after_proof

MANY = 100
OUT_OF_USE = (InstanceStatus.RESETTING, InstanceStatus.REBOOTING, InstanceStatus.REPLACING, InstanceStatus.QUARANTINED)
TOUCHING = (
    commands.DrainInstance,
    commands.ResetGpus,
    commands.RebootInstance,
    commands.ReplaceInstance,
    commands.StartInstance,
    commands.DeregisterInstance,
)
UNTOLD = (
    commands.NotifyOperator,
    commands.PublishEvent,
    commands.ReportCheck,
    commands.PokeScheduler,
    commands.StopCheck,
)
PERSON = (events.QuarantineRequested, events.ReleaseRequested)


class NoInstanceWaitsWithoutEnd(Rule):
    """What is checked, rebooted or quarantined has a deadline; what is kept for a job is kept for a while."""

    def see(self, move: Move) -> None:
        after = move.after
        assert after.deadline_at is not None or not (after.status in IN_MOTION or after.reserved_for), after.status


class NoUnprovedInstanceWorks(Rule):
    """Out of REBOOTING there is no way to AVAILABLE; out of VERIFYING one: HEALTHY, and proof if it was rebooted."""

    def see(self, move: Move) -> None:
        works_only_after_proof(move.before, move.event, move.after, move.policy)


class NoClaimIsDroppedTooEarly(Rule):
    """A claim is dropped for a check its own attempt asks for, for a proved reboot, or with the machine."""

    def see(self, move: Move) -> None:
        claims_go_only_when_sure(move.before, move.event, move.after)


class WhoeverWaitsForARepairGoesOnWaitingOrHearsItsEnd(Rule):
    """No move forgets a job: RepairEnded is told once when it leaves those who wait, and never while it stays."""

    def see(self, move: Move) -> None:
        before, after = ({(one.job_id, one.attempt) for one in waiting_jobs(one)} for one in (move.before, move.after))
        told = [
            (one.job_id, one.event.attempt)
            for one in move.orders
            if isinstance(one, commands.TellJob) and isinstance(one.event, events.RepairEnded)
        ]
        assert len(told) == len(set(told))
        replaced = {one for one in before if any(other[0] == one[0] for other in after)}
        assert before - after - replaced <= set(told), (move.before.status, move.event, move.after.status)
        assert not set(told) & after


class ABarrierIsAlwaysAnswered(Rule):
    """A check that a job waits for is not dropped without a report to that job."""

    def see(self, move: Move) -> None:
        run, after = move.before.check, move.after.check
        if run is None or not run.job_id:
            return
        if after is not None and (after.check_id, after.job_id, after.attempt) == (
            run.check_id,
            run.job_id,
            run.attempt,
        ):
            return
        reports = [one for one in move.orders if isinstance(one, commands.ReportCheck)]
        assert (run.job_id, run.attempt) in [(one.job_id, one.attempt) for one in reports], (move.event, move.after)


class LooksGiveNoOrderThatIsGivenAlready(Rule):
    """What is asked again and again while nothing changes must not fill the record with its orders.

    The drain of an instance that was not drained before is given once.
    """

    def see(self, move: Move) -> None:
        if isinstance(move.event, events.InstanceLookDue) and move.after.status is move.before.status:
            first_drain = move.after.drained and not move.before.drained
            assert len(move.after.commands) <= len(move.before.commands) + 1 + first_drain


# -- observe-only ------------------------------------------------------------------------------------------------------


class NoObservedMoveTouchesAMachine(Rule):
    """Not one order that changes anything, whatever is told; a person's quarantine and release are done.

    The drain belongs to the person's quarantine also when the instance registers anew.
    """

    def __init__(self) -> None:
        self.found = 0

    def see(self, move: Move) -> None:
        if move.policy.observe_only and not isinstance(move.event, PERSON):
            self.found += 1
            asked = move.before.quarantine is not None and move.before.quarantine.by
            touching = [one for one in move.orders if isinstance(one, TOUCHING)]
            assert touching in ([], [commands.DrainInstance()] if asked else []), (move.before.status, move.event)

    def end(self) -> None:
        assert self.found > MANY


class NothingObservedIsTakenOutOfUse(Rule):
    """What works, works on; only a person's word leads to QUARANTINED."""

    def __init__(self) -> None:
        self.found = 0

    def see(self, move: Move) -> None:
        if move.policy.observe_only and move.before.status in IN_USE and move.after.status in OUT_OF_USE:
            self.found += 1
            assert isinstance(move.event, events.QuarantineRequested)

    def end(self) -> None:
        assert self.found


class WhatIsToldIsWhatWouldBeDone(Rule):
    """The status and every order by name, for each event that would take an instance out of use.

    Of the records, every fourth; the tier `full` compares all of them.
    """

    def __init__(self) -> None:
        self.at_work: dict[Any, Move] = {}

    def see(self, move: Move) -> None:
        if move.policy.observe_only and move.before.status in IN_USE:
            self.at_work[exploration.instance_signature(move.before)] = move

    def end(self) -> None:
        compared = set()
        for move in list(self.at_work.values())[:: tiers.scaled(fast=4, default=4, full=1)]:
            for (at, event), fleet in product(all_events.anything_for_instance(move.before, move.at), (FLEET, PAUSED)):
                acting = tell(move.before, event, replace(move.policy, observe_only=False), at, fleet)
                if isinstance(event, PERSON) or acting.record.status not in OUT_OF_USE:
                    continue
                compared.add((move.before.status, acting.record.status))
                self.says_what_would_be_done(acting, tell(move.before, event, move.policy, at, fleet))
        every = {(before, after) for before in IN_USE for after in OUT_OF_USE}
        assert compared == every - {(InstanceStatus.AVAILABLE, InstanceStatus.RESETTING)}  # a check comes first

    def says_what_would_be_done(self, acting: Decision[Instance], told: Decision[Instance]) -> None:
        names = [type(one.command).__name__ for one in acting.commands if not isinstance(one.command, UNTOLD)]
        orders_ = ", ".join(names) or "none"
        would = f"it would be {acting.record.status}: {acting.reason}; the orders would be {orders_}"
        assert told.reason == f"observe-only: {would}"
        assert [one for one in orders(told, commands.NotifyOperator) if would in one.body]
        assert told.record.status is InstanceStatus.AVAILABLE


class AnInstanceThatIsLeftAloneIsThoughtOfLaterOrNotAtAll(Rule):
    """A deadline that is over when it is set would bring the same message every minute."""

    def __init__(self) -> None:
        self.found = 0

    def see(self, move: Move) -> None:
        withheld = move.policy.observe_only and move.after.reason.startswith("observe-only")
        if withheld and move.before.status is InstanceStatus.AVAILABLE and move.after.reason != move.before.reason:
            self.found += 1
            assert move.after.deadline_at is None or move.after.deadline_at > move.at

    def end(self) -> None:
        assert self.found


class NothingObservedIsBlamedOrUnderRepair(Rule):
    """What is not done uses up no budget and opens no breaker."""

    def __init__(self) -> None:
        self.found = 0

    def see(self, move: Move) -> None:
        if move.policy.observe_only:
            self.found += 1
            assert not move.after.under_repair and move.after.blamed_at is None
            assert (move.after.need, move.after.held, move.after.epoch) == (None, None, 0)

    def end(self) -> None:
        assert self.found > MANY


RULES = move_rules.rules(
    NoInstanceWaitsWithoutEnd,
    NoUnprovedInstanceWorks,
    NoClaimIsDroppedTooEarly,
    WhoeverWaitsForARepairGoesOnWaitingOrHearsItsEnd,
    ABarrierIsAlwaysAnswered,
    LooksGiveNoOrderThatIsGivenAlready,
    NoObservedMoveTouchesAMachine,
    NothingObservedIsTakenOutOfUse,
    WhatIsToldIsWhatWouldBeDone,
    AnInstanceThatIsLeftAloneIsThoughtOfLaterOrNotAtAll,
    NothingObservedIsBlamedOrUnderRepair,
    move_rules.NoEventOnTheWayMovesTheRecordAgain,
    move_rules.NoRecordGrowsWithWhatIsSaidOfIt,
    move_rules.NoMoveBreaksAThread,
    partial(move_rules.EveryDeclaredTargetIsReached, state_machine),
    partial(move_rules.EveryEventIsValid, move_rules.DETAIL_TYPES_OF_INSTANCES),
    partial(move_rules.EveryMetricIsMeasured, move_rules.METRICS_OF_INSTANCES),
)


@pytest.fixture(scope="module")
def broken() -> Broken:
    """The rules that some move breaks."""
    return move_rules.broken_rules(exploration.INSTANCE, RULES)


@pytest.mark.parametrize("rule", RULES)
def test_every_move_of_an_instance_keeps_the_rule(rule: RuleMaker, broken: Broken) -> None:
    """The class of the rule says what it is."""
    move_rules.assert_kept(rule, broken)
