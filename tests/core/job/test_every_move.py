"""What holds for every move of a job: each decision that changes a record which exploring finds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import TERMINAL, CloseCause, Job, JobStatus, StopPurpose
from gpu_recovery.core.state_machine import due_at

from tests.core import exploration, move_rules
from tests.core.exploration import Move
from tests.core.move_rules import Broken, Rule, RuleMaker

MANY = 100


class NoEventOfAnotherAttemptMovesAJob(Rule):
    """Every event that moves a job leaves it alone when it is about the attempt before or after."""

    def see(self, move: Move) -> None:
        for attempt in (move.event.attempt - 1, move.event.attempt + 1):
            other = replace(move.event, attempt=attempt)
            assert state_machine.decide(move.before, other, move.policy, move.at).record is move.before


class NoJobWaitsWithoutEnd(Rule):
    """While a job goes on, its deadline or its look brings the reconciler back, even when no command is pending."""

    def see(self, move: Move) -> None:
        after = move.after
        assert (due_at(after.deadline_at, after.look_at, ()) is None) == (after.status in TERMINAL), after.status


class NoMovePassesTheLimitOfAttempts(Rule):
    """Where few attempts are allowed, all of them are used and no more."""

    def __init__(self) -> None:
        self.counted = self.uncounted = 0

    def see(self, move: Move) -> None:
        self.counted = max(self.counted, move.after.attempts_counted)
        self.uncounted = max(self.uncounted, *move.after.attempts_uncounted.values(), 0)
        assert self.counted <= 2 and self.uncounted <= 1

    def end(self) -> None:
        assert (self.counted, self.uncounted) == (2, 1)


class WhoeverGivesInstancesBackWakesTheScheduler(Rule):
    """Others may wait for them; woken before, a pass would find them taken, and the next comes minutes later."""

    def __init__(self) -> None:
        self.found = 0

    def see(self, move: Move) -> None:
        kinds = [type(one) for one in move.orders]
        if commands.ReleaseInstances in kinds:
            self.found += 1
            last = len(kinds) - 1 - kinds[::-1].index(commands.ReleaseInstances)
            assert commands.PokeScheduler in kinds[last:], (move.before.status, move.event, kinds)

    def end(self) -> None:
        assert self.found > MANY


class AJobKnowsSinceWhenItIsInAnIncident(Rule):
    """From the order to stop, or the end of all, until it runs again or has ended well; one incident, one time.

    A FAILED job keeps the time of the incident that it did not survive, until a person starts it anew.
    """

    def see(self, move: Move) -> None:
        self.has_its_incident(move.after, move.before)
        if isinstance(move.event, events.NewerTaskSeen):
            assert move.after.incident_at is None and move.after.quick_ends == 0 and move.after.not_before is None

    def has_its_incident(self, after: Job, before: Job) -> None:
        if after.status in (JobStatus.RUNNING, JobStatus.SUCCEEDED, JobStatus.CANCELED):
            assert after.incident_at is None
        if after.status in (JobStatus.DIAGNOSING, JobStatus.RECOVERING):
            assert after.incident_at is not None
        stopping_for = after.stop_purpose in (StopPurpose.DIAGNOSE, StopPurpose.RELAUNCH)
        if (
            after.status is JobStatus.STOPPING
            and stopping_for
            and after.stop_cause is not CloseCause.INSUFFICIENT_RESOURCES
        ):
            assert after.incident_at is not None
        if before.incident_at is not None and after.incident_at is not None:
            assert after.incident_at == before.incident_at


class NoObservedGangIsStoppedForAFailure(Rule):
    """No rank that failed, no instance that is sick, leaving or late stops a gang, checks it or launches it anew."""

    def __init__(self) -> None:
        self.found = 0

    def see(self, move: Move) -> None:
        if not move.policy.observe_only or _is_not_recovery(move):
            return
        self.found += 1
        assert not [one for one in move.orders if isinstance(one, commands.StopAttempt | commands.CheckInstances)], (
            move.before.status,
            move.event,
        )

    def end(self) -> None:
        assert self.found > MANY


def _is_not_recovery(move: Move) -> bool:
    """A person's cancel, a launch of ours that is rolled back, and the user's own time limit are no recovery."""
    if isinstance(move.event, events.CancelRequested | events.LaunchRefused | events.AttemptLaunched):
        return True
    status = move.before.status
    overdue = isinstance(move.event, events.JobDeadlineReached)
    return overdue and status in (JobStatus.SUBMITTING, JobStatus.RUNNING, JobStatus.STOPPING)


RULES = move_rules.rules(
    NoEventOfAnotherAttemptMovesAJob,
    NoJobWaitsWithoutEnd,
    NoMovePassesTheLimitOfAttempts,
    WhoeverGivesInstancesBackWakesTheScheduler,
    AJobKnowsSinceWhenItIsInAnIncident,
    NoObservedGangIsStoppedForAFailure,
    move_rules.NoEventOnTheWayMovesTheRecordAgain,
    move_rules.NoRecordGrowsWithWhatIsSaidOfIt,
    move_rules.NoMoveBreaksAThread,
    partial(move_rules.EveryDeclaredTargetIsReached, state_machine),
    partial(move_rules.EveryEventIsValid, move_rules.DETAIL_TYPES_OF_JOBS),
    partial(move_rules.EveryMetricIsMeasured, move_rules.METRICS_OF_JOBS),
)


@pytest.fixture(scope="module")
def broken() -> Broken:
    """The rules that some move breaks."""
    return move_rules.broken_rules(exploration.JOB, RULES)


@pytest.mark.parametrize("rule", RULES)
def test_every_move_of_a_job_keeps_the_rule(rule: RuleMaker, broken: Broken) -> None:
    """The class of the rule says what it is."""
    move_rules.assert_kept(rule, broken)
