"""What holds for every job, in whatever order and however often events come."""

from __future__ import annotations

from dataclasses import replace

from gpu_recovery.core import commands, events
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.job.record import TERMINAL, CloseCause, Job, JobStatus, Origin, StopPurpose
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import EventOutcome, due_at
from hypothesis import given

from tests.core import all_events
from tests.core.all_events import Edge
from tests.core.property_runs import FIRST, POLICY, job_run
from tests.core.random_walks import STEPS, Step, run_of

# -- of jobs -----------------------------------------------------------------------------------------------------------


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_event_of_another_attempt_never_changes_a_job(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """The attempt is the fence, whatever the event and whatever the status."""
    for step in job_run(policy, first, steps).taken:
        if step.event.attempt != step.before.attempt:
            assert step.decision.outcome is EventOutcome.OUTDATED
            assert step.decision.record is step.before


def test_no_event_of_another_attempt_moves_a_job_that_exploring_finds(job_edges: list[Edge]) -> None:
    """Every event that moves a job leaves it alone when it is about the attempt before or after."""
    for edge in job_edges:
        for attempt in (edge.event.attempt - 1, edge.event.attempt + 1):
            other = replace(edge.event, attempt=attempt)
            assert job_state_machine.decide(edge.before, other, edge.policy, edge.at).record is edge.before


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_no_job_waits_without_end(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """While a job goes on, its deadline or its look brings the reconciler back, even when no command is pending."""
    for step in job_run(policy, first, steps).taken:
        after = step.decision.record
        due = due_at(after.deadline_at, after.look_at, ())
        assert (due is None) == (after.status in TERMINAL), after.status


def test_no_move_that_exploring_finds_leaves_a_job_waiting_without_end(job_edges: list[Edge]) -> None:
    """The same, for every move there is."""
    for after in (edge.after for edge in job_edges):
        assert (due_at(after.deadline_at, after.look_at, ()) is None) == (after.status in TERMINAL), after.status


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


def test_no_move_that_exploring_finds_passes_the_limit_of_attempts(job_edges: list[Edge]) -> None:
    """The same, for every move there is, where few attempts are allowed."""
    counted = {edge.after.attempts_counted for edge in job_edges}
    uncounted = {number for edge in job_edges for number in edge.after.attempts_uncounted.values()}
    assert (max(counted), max(uncounted)) == (2, 1)


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


def _has_its_incident(after: Job, before: Job) -> None:
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


# -- of incidents ------------------------------------------------------------------------------------------------------


def test_whoever_gives_instances_back_wakes_the_scheduler_after_that(job_edges: list[Edge]) -> None:
    """Others may wait for them; woken before, a pass would find them taken, and the next comes minutes later."""
    found = 0
    for edge in job_edges:
        new = edge.after.commands[len(edge.before.commands) :]
        kinds = [type(one.command) for one in new]
        if commands.ReleaseInstances in kinds:
            found += 1
            last = len(kinds) - 1 - kinds[::-1].index(commands.ReleaseInstances)
            assert commands.PokeScheduler in kinds[last:], (edge.before.status, edge.event, kinds)
    assert found > 100


def test_a_job_knows_since_when_it_is_in_an_incident(job_edges: list[Edge]) -> None:
    """From the order to stop, or the end of all, until it runs again or has ended well; one incident, one time.

    A FAILED job keeps the time of the incident that it did not survive, until a person starts it anew.
    """
    for edge in job_edges:
        _has_its_incident(edge.after, edge.before)
        if isinstance(edge.event, events.NewerTaskSeen):
            assert edge.after.incident_at is None and edge.after.quick_ends == 0 and edge.after.not_before is None
