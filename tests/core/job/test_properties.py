"""What holds for every job, in whatever order and however often events come."""

from __future__ import annotations

from gpu_recovery.core import commands, events
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.job.record import TERMINAL, Origin
from gpu_recovery.core.job.state_machine import OF_ANY_ATTEMPT
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import EventOutcome, due_at
from hypothesis import given

from tests.core import all_events
from tests.core.property_runs import FIRST, POLICY, job_run
from tests.core.random_walks import STEPS, Step, run_of

# -- of jobs -----------------------------------------------------------------------------------------------------------


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_event_of_another_attempt_never_changes_a_job(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """The attempt is the fence, whatever the event and whatever the status; a warm spare has a number as its fence."""
    for step in job_run(policy, first, steps).taken:
        if isinstance(step.event, OF_ANY_ATTEMPT):
            continue
        if step.event.attempt != step.before.attempt:
            assert step.decision.outcome is EventOutcome.OUTDATED
            assert step.decision.record is step.before


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_no_job_waits_without_end(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """While a job goes on, its deadline or its look brings the reconciler back, even when no command is pending."""
    for step in job_run(policy, first, steps).taken:
        after = step.decision.record
        due = due_at(after.deadline_at, after.look_at, ())
        assert (due is None) == (after.status in TERMINAL), after.status


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_attempts_are_numbered_upwards_and_counted_ones_are_bounded(
    policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """No attempt number is used twice, and neither counted nor uncounted attempts pass their limits."""
    for step in job_run(policy, first, steps).taken:
        before, after = step.before, step.decision.record
        placed = any(isinstance(one.command, commands.LaunchAttempt) for one in step.decision.commands)
        anew = isinstance(step.event, events.NewerTaskSeen) and step.decision.outcome is EventOutcome.APPLIED
        assert after.attempt == before.attempt + (placed or anew)
        assert after.attempts_counted <= after.attempts_max(policy)
        assert all(number <= policy.uncounted_relaunches_max for number in after.attempts_uncounted.values())


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_ended_job_stays_ended(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """Only a person who starts an adopted job's tasks anew moves it from its end."""
    for step in job_run(policy, first, steps).taken:
        if step.before.status in TERMINAL and step.decision.record.status is not step.before.status:
            assert isinstance(step.event, events.NewerTaskSeen)
            assert step.before.origin is Origin.ADOPTED


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_a_failed_job_is_always_told_to_operators(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """The decision that fails a job notifies under the incident that the record keeps."""
    for step in job_run(policy, first, steps).taken:
        after = step.decision.record
        if after.status is not step.before.status and after.status == "FAILED":
            told = [one.command for one in step.decision.commands if isinstance(one.command, commands.NotifyOperator)]
            assert after.incident_id in [one.incident_id for one in told]


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_observed_job_is_left_alone_unless_a_person_cancels_it(
    policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """Adopted to be observed: nothing is stopped, checked or launched that nobody asked for."""
    acting = (commands.StopAttempt, commands.LaunchAttempt, commands.CheckInstances, commands.TellInstance)
    asked = False
    observed_only = all_events.first_jobs(policy)[-1]
    assert observed_only.hands_off
    for step in run_of(job_state_machine, observed_only, all_events.anything_for_job, policy, steps).taken:
        asked |= isinstance(step.event, events.CancelRequested)
        assert asked or not any(isinstance(one.command, acting) for one in step.decision.commands)


# -- of incidents ------------------------------------------------------------------------------------------------------
