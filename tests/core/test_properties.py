"""What holds for both state machines, in whatever order and however often events come."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import EventOutcome
from hypothesis import given

from tests.core.build import tell
from tests.core.property_runs import FIRST, POLICY, instance_run, job_run
from tests.core.random_walks import AGAIN, STEPS, Step

RUNS = pytest.mark.parametrize("run", [job_run, instance_run], ids=["job", "instance"])


@RUNS
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_event_that_moved_a_record_never_moves_it_again(
    run: Any, policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """Whatever has happened since, the second delivery of an event changes nothing."""
    for step in run(policy, first, steps).taken:
        if step.how == AGAIN:
            assert step.decision.outcome is not EventOutcome.APPLIED, (step.before.status, step.event)


@RUNS
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_what_is_not_applied_changes_nothing(run: Any, policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """A decision that is not applied holds the very record it was given, and orders nothing."""
    for step in run(policy, first, steps).taken:
        if step.decision.outcome is not EventOutcome.APPLIED:
            assert step.decision.record is step.before
            assert step.decision.commands == ()


@RUNS
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_a_decision_is_a_function_of_its_arguments(
    run: Any, policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """Deciding again gives the same decision, and deciding has altered neither the record nor the event."""
    walked = run(policy, first, steps)
    for step in walked.taken:
        given_before = copy.deepcopy((step.before, step.event))
        again = tell(step.before, step.event, policy, step.now)
        assert again == step.decision
        assert (step.before, step.event) == given_before


@RUNS
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_each_applied_decision_is_one_version_with_commands_of_its_own(
    run: Any, policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """The version rises by one, and each new command's id is made of it, so that no id ever comes twice."""
    walked = run(policy, first, steps)
    ids: list[str] = []
    for step in walked.taken:
        if step.decision.outcome is EventOutcome.APPLIED:
            after = step.decision.record
            name = after.job_id if isinstance(after, Job) else after.instance_id
            assert after.version == step.before.version + 1
            new = [one.command_id for one in step.decision.commands]
            assert new == [f"{name}/{after.version}/{n}" for n in range(1, len(new) + 1)]
            assert after.commands == (*step.before.commands, *step.decision.commands)
            assert all(one.acting_until > step.now for one in step.decision.commands)
            ids += new
    assert len(ids) == len(set(ids))


@RUNS
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_history_is_bounded_and_keeps_its_beginning(
    run: Any, policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """A record never holds more entries than the policy says, the first among them, the newest at the end."""
    for step in run(policy, first, steps).taken:
        begun = step.before.history[0]
        history = step.decision.record.history
        assert len(history) <= policy.history_max
        assert history[0] == begun
        if step.decision.record.status != step.before.status:
            last = history[-1]
            assert (last.before, last.after, last.reason) == (
                step.before.status,
                step.decision.record.status,
                step.decision.reason,
            )


@RUNS
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_every_decision_says_why_in_one_line(run: Any, policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """People read the reason, wherever the decision shows."""
    for step in run(policy, first, steps).taken:
        assert step.decision.reason.strip()
        assert "\n" not in step.decision.reason
