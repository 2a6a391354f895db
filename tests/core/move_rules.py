"""Rules of moves: statements that hold for each move which exploring finds, and rules of both state machines.

One exploration asks all rules, because exploring takes longer than any rule.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.commands import NotifyOperator, PublishEvent
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.metrics import of_decision, of_due_record, status_metric
from gpu_recovery.core.state_machine import EventOutcome

from tests import tiers
from tests.core.build import later, tell
from tests.core.event_schemas import DETAIL_TYPES, detail, of_type
from tests.core.exploration import Explored, Move, is_whole, without_garbage_collection
from tests.core.notifications.incident_thread import Thread, own

NUMBER = re.compile(r"[0-9]+")
REASON_CHARACTERS_MAX = 400
"""Several times the longest reason that a short path leads to."""
DETAIL_TYPES_OF_INSTANCES = {"Instance State Changed", "Operator Action Required"}
DETAIL_TYPES_OF_JOBS = set(DETAIL_TYPES) - DETAIL_TYPES_OF_INSTANCES
METRICS_OF_JOBS = {
    *(status_metric(status) for status in JobStatus if status is not JobStatus.QUEUED),
    *(f"Recoveries{word}" for word in ("Started", "Succeeded", "Failed", "Canceled")),
    *(f"{phase}Seconds" for phase in ("Detection", "Stop", "Check", "Wait", "Launch", "Start", "Recovery", "Lost")),
    *("RecoveryAgeSeconds", "OverdueSeconds", "GpuHoursLost", "VerdictsFailed", "VerdictsHeld"),
}
"""Metrics that the moves of jobs give."""
METRICS_OF_INSTANCES = {
    *(status_metric(status) for status in InstanceStatus),
    *("InstancesSilent", "OverdueSeconds", "Reboots", "FalseReboots", "RepairsHeld"),
}
"""Metrics that the moves of instances give."""


class Rule(ABC):
    """A statement about moves. A subclass says what holds for each move, and may say what holds for all of them."""

    @abstractmethod
    def see(self, move: Move) -> None:
        """Assert what holds for `move`."""

    def end(self) -> None:  # noqa: B027 - few rules are about all moves
        """Assert what holds for all moves, after the last of them. By default nothing more."""


RuleMaker = Callable[[], Rule]
Broken = dict[str, AssertionError]
"""The first failure of each rule that some move breaks, by the name of the rule."""


def name_of(rule: RuleMaker) -> str:
    """Return the name of a rule."""
    return (rule.func if isinstance(rule, partial) else rule).__name__


def rules(*makers: RuleMaker) -> list[Any]:
    """Return the rules as parameters of a test. A rule about all moves is `slow`: the fast tier has not all of them."""
    return [pytest.param(one, id=name_of(one), marks=pytest.mark.slow if _is_about_all(one) else ()) for one in makers]


def _is_about_all(rule: RuleMaker) -> bool:
    return type(rule()).end is not Rule.end


def broken_rules(explored: Explored, parameters: Iterable[Any]) -> Broken:
    """Explore, and return the first failure of each rule that is broken, by the name of the rule."""
    asked = {name_of(one.values[0]): one.values[0]() for one in parameters}
    broken: Broken = {}
    with without_garbage_collection():
        for move in explored.moves():
            for name, rule in list(asked.items()):
                try:
                    rule.see(move)
                except AssertionError as failure:
                    broken[name] = failure
                    del asked[name]
    for name, rule in asked.items() if is_whole() else ():
        try:
            rule.end()
        except AssertionError as failure:
            broken[name] = failure
    return broken


def assert_kept(rule: RuleMaker, broken: Broken) -> None:
    """Assert that the rule is kept by every move.

    Raises:
        AssertionError: the failure of the first move that breaks it.
    """
    if name_of(rule) in broken:
        raise broken[name_of(rule)]


# -- rules of both state machines --------------------------------------------------------------------------------------


class NoEventOnTheWayMovesTheRecordAgain(Rule):
    """All events of the way to a record are told to it once more, and change nothing."""

    def __init__(self) -> None:
        self.told: dict[tuple[int, int, int], Any] = {}

    def see(self, move: Move) -> None:
        for event in move.told_again():
            key = (id(move.policy), move.shape, id(event))
            if key in self.told:
                continue
            self.told[key] = event  # an event that is kept shares its id with no other
            again = tell(move.after, event, move.policy, move.at + timedelta(seconds=1), move.fleet)
            assert again.outcome is not EventOutcome.APPLIED, (move.after.status, event)


class NoRecordGrowsWithWhatIsSaidOfIt(Rule):
    """A reason quotes each part of what it rests on once: after a dozen moves it is as short as after two."""

    def see(self, move: Move) -> None:
        assert len(move.after.reason) < REASON_CHARACTERS_MAX, (len(move.path), move.after.reason)


class NoMoveBreaksAThread(Rule):
    """Each single move: it may open only what is closed, speak only of what is open, and names whom it is about."""

    def see(self, move: Move) -> None:
        told: list[NotifyOperator] = own(move.decision)
        thread = Thread(move.before.incident_id or "")
        thread.hears(told)
        assert not thread.wrong, thread.wrong
        assert thread.open_id == (move.after.incident_id or "")
        assert all(_name(move.before) in (one.job_id, one.instance_id) for one in told)


WALKED_ELSEWHERE = (
    events.SparesOffered,
    events.SparesRecalled,
    events.SpareSeen,
    events.SpareEnded,
    events.NamedInstancePassed,
    events.RecoveryLimitPassed,
)
"""Events about warm spares, the check of a named instance that the job does not wait for, and a recovery contract."""


OF_ELASTIC_JOBS = {
    ("RUNNING", "GrowRequested", "SUSPENDING"),
    ("SUSPENDING", "AllRanksStopped", "RECOVERING"),
}
"""Moves that only an elastic job makes: status, event and next status."""


class EveryDeclaredTargetIsReached(Rule):
    """What a row of `machine` says it may lead to is led to by some record and some event.

    No explored record has warm spares or a recovery contract, few have a named instance, and none is elastic. Their
    rows are walked by `test_warm_spares.py`, `test_recovery_contract.py`, `test_named_instances.py` and
    `test_growth.py`.
    """

    def __init__(self, machine: Any) -> None:
        rows = machine.TRANSITIONS.items()
        self.missing = {
            (status, event): {to for to in row.targets if (status, event.__name__, to) not in OF_ELASTIC_JOBS}
            for (status, event), row in rows
        }

    def see(self, move: Move) -> None:
        self.missing[move.before.status, type(move.event)].discard(move.after.status)

    def end(self) -> None:
        missing = {pair: targets for pair, targets in self.missing.items() if targets}
        assert {pair: targets for pair, targets in missing.items() if pair[1] not in WALKED_ELSEWHERE} == {}


class EveryEventIsValid(Rule):
    """Each event on the bus has its schema. Every type of `detail_types` occurs, so none is valid because it does not.

    Events of several moves that differ in their numbers alone are compared with the schema once; in the tier `full`
    only equal events are.
    """

    def __init__(self, detail_types: set[str]) -> None:
        self.missing, self.valid = set(detail_types), set[tuple[str, str]]()

    def see(self, move: Move) -> None:
        for one in move.decision.commands:
            if not isinstance(one.command, PublishEvent):
                continue
            causation_id = one.command_id.rsplit("/", 1)[0]
            assert causation_id == f"{_name(move.before)}/{move.after.version}"
            kind, text = one.command.detail_type, f"{causation_id} {one.command.data}"
            if tiers.selected() is not tiers.Tier.FULL:
                text = NUMBER.sub("0", text)
            if (kind, text) in self.valid:
                continue
            told = detail(one.command, causation_id)
            assert told["metadata"]["correlation_id"] == (told["data"]["incident_id"] or causation_id)
            assert of_type(kind).is_valid(told), list(of_type(kind).iter_errors(told))
            self.valid.add((kind, text))
            self.missing.discard(kind)

    def end(self) -> None:
        assert self.missing == set()


class EveryMetricIsMeasured(Rule):
    """Each metric of `metrics` is given by some decision or some look, so no dashboard shows it in vain."""

    def __init__(self, metrics: set[str]) -> None:
        self.missing = set(metrics)

    def see(self, move: Move) -> None:
        if not self.missing:
            return
        self.missing -= {one.name for one in of_decision(move.before, move.decision)}
        self.missing -= {one.name for one in of_due_record(move.after, later(10**6))}

    def end(self) -> None:
        assert self.missing == set()


def _name(record: Any) -> str:
    return str(record.job_id if isinstance(record, Job) else record.instance_id)
