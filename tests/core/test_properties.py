"""What holds whatever a machine is told, in whatever order, however often."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.check import CheckOutcome
from gpu_recovery.core.instance import machine as instance
from gpu_recovery.core.instance.orders import waiting_for
from gpu_recovery.core.instance.record import Instance, InstanceStatus, Rank
from gpu_recovery.core.instance.rules import proves_reboot
from gpu_recovery.core.job import machine as job
from gpu_recovery.core.job.record import TERMINAL, Cause, Job, JobStatus, Origin, StopPurpose
from gpu_recovery.core.machine import Outcome, due_at
from gpu_recovery.core.policy import RecoveryPolicy, policy_from
from gpu_recovery.core.signals import HealthStatus
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import tellings
from tests.core.build import POLICIES, tell
from tests.core.tellings import Edge
from tests.core.walks import AGAIN, STEPS, Run, Step, run_of

TIGHT = policy_from({"history_max": 3, "attempts_max": 2, "uncounted_max": 2, "reboots_max": 1, "replace": True})
OBSERVED = policy_from({"observe_only": True, "replace": True})
POLICY = st.sampled_from((*POLICIES, TIGHT, OBSERVED))
IN_MOTION = tuple(set(InstanceStatus) - {InstanceStatus.AVAILABLE, InstanceStatus.GONE})
FIRST = st.integers(0, 99)
many = settings(max_examples=60, deadline=None)
most = settings(max_examples=200, deadline=None)


def _job_run(policy: RecoveryPolicy, first: int, steps: list[Step]) -> Run:
    firsts = tellings.first_jobs(policy)
    return run_of(job, firsts[first % len(firsts)], tellings.anything_for_job, policy, steps)


def _instance_run(policy: RecoveryPolicy, first: int, steps: list[Step]) -> Run:
    """A run over instances; every other one begins with a claim, as a launch leaves it."""
    firsts = tellings.first_instances(policy)
    firsts += [claimed for one in firsts for claimed in tellings.written_by_a_store(one)]
    return run_of(instance, firsts[first % len(firsts)], tellings.anything_for_instance, policy, steps)


RUNS = pytest.mark.parametrize("run", [_job_run, _instance_run], ids=["job", "instance"])


@RUNS
@most
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_event_that_moved_a_record_never_moves_it_again(
    run: Any, policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """Whatever has happened since, the second delivery of an event changes nothing."""
    for step in run(policy, first, steps).taken:
        if step.how == AGAIN:
            assert step.decision.outcome is not Outcome.APPLIED, (step.before.status, step.event)


@pytest.mark.parametrize("machine", [job, instance], ids=["job", "instance"])
def test_no_event_on_the_way_to_any_record_moves_it_again(machine: Any, request: pytest.FixtureRequest) -> None:
    """The same, for every move that exploring finds: all events of the way there are told once more."""
    told: set[Any] = set()
    for edge in request.getfixturevalue("job_edges" if machine is job else "instance_edges"):
        for event in edge.told_again():
            if (edge.policy, edge.shape, id(event)) in told:
                continue
            told.add((edge.policy, edge.shape, id(event)))
            again = tell(edge.after, event, edge.policy, edge.at + timedelta(seconds=1), edge.fleet)
            assert again.outcome is not Outcome.APPLIED, (edge.after.status, event)


@RUNS
@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_what_is_not_applied_changes_nothing(run: Any, policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """A decision that is not applied holds the very record it was given, and orders nothing."""
    for step in run(policy, first, steps).taken:
        if step.decision.outcome is not Outcome.APPLIED:
            assert step.decision.record is step.before
            assert step.decision.commands == ()


@RUNS
@many
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
@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_each_applied_decision_is_one_version_with_commands_of_its_own(
    run: Any, policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """The version rises by one, and each new command's id is made of it, so that no id ever comes twice."""
    walked = run(policy, first, steps)
    ids: list[str] = []
    for step in walked.taken:
        if step.decision.outcome is Outcome.APPLIED:
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
@many
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
                step.before.status, step.decision.record.status, step.decision.reason
            )  # fmt: skip


@RUNS
@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_every_decision_says_why_in_one_line(run: Any, policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """People read the reason, wherever the decision shows."""
    for step in run(policy, first, steps).taken:
        assert step.decision.reason.strip()
        assert "\n" not in step.decision.reason


# -- of jobs -----------------------------------------------------------------------------------------------------------


@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_event_of_another_attempt_never_changes_a_job(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """The attempt is the fence, whatever the event and whatever the status."""
    for step in _job_run(policy, first, steps).taken:
        if step.event.attempt != step.before.attempt:
            assert step.decision.outcome is Outcome.OUTDATED
            assert step.decision.record is step.before


def test_no_event_of_another_attempt_moves_a_job_that_exploring_finds(job_edges: list[Edge]) -> None:
    """Every event that moves a job leaves it alone when it is about the attempt before or after."""
    for edge in job_edges:
        for attempt in (edge.event.attempt - 1, edge.event.attempt + 1):
            other = replace(edge.event, attempt=attempt)
            assert job.decide(edge.before, other, edge.policy, edge.at).record is edge.before


@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_no_job_waits_without_end(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """While a job goes on, its deadline or its look brings the reconciler back, even when no command is pending."""
    for step in _job_run(policy, first, steps).taken:
        after = step.decision.record
        due = due_at(after.deadline_at, after.look_at, ())
        assert (due is None) == (after.status in TERMINAL), after.status


def test_no_move_that_exploring_finds_leaves_a_job_waiting_without_end(job_edges: list[Edge]) -> None:
    """The same, for every move there is."""
    for after in (edge.after for edge in job_edges):
        assert (due_at(after.deadline_at, after.look_at, ()) is None) == (after.status in TERMINAL), after.status


@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_attempts_are_numbered_upwards_and_counted_ones_are_bounded(
    policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """No attempt number is used twice, and neither counted nor uncounted attempts pass their limits."""
    for step in _job_run(policy, first, steps).taken:
        before, after = step.before, step.decision.record
        placed = any(isinstance(one.command, commands.LaunchAttempt) for one in step.decision.commands)
        anew = isinstance(step.event, events.NewerTaskSeen) and step.decision.outcome is Outcome.APPLIED
        assert after.attempt == before.attempt + (placed or anew)
        assert after.attempts_counted <= after.attempts_max(policy)
        assert all(number <= policy.uncounted_max for number in after.attempts_uncounted.values())


def test_no_move_that_exploring_finds_passes_the_limit_of_attempts(job_edges: list[Edge]) -> None:
    """The same, for every move there is, where few attempts are allowed."""
    counted = {edge.after.attempts_counted for edge in job_edges}
    uncounted = {number for edge in job_edges for number in edge.after.attempts_uncounted.values()}
    assert (max(counted), max(uncounted)) == (2, 1)


@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_ended_job_stays_ended(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """Only a person who starts an adopted job's tasks anew moves it from its end."""
    for step in _job_run(policy, first, steps).taken:
        if step.before.status in TERMINAL and step.decision.record.status is not step.before.status:
            assert isinstance(step.event, events.NewerTaskSeen)
            assert step.before.origin is Origin.ADOPTED


@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_a_failed_job_is_always_told_to_operators(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """The decision that fails a job notifies under the incident that the record keeps."""
    for step in _job_run(policy, first, steps).taken:
        after = step.decision.record
        if after.status is not step.before.status and after.status == "FAILED":
            told = [one.command for one in step.decision.commands if isinstance(one.command, commands.NotifyOperator)]
            assert after.incident_id in [one.incident_id for one in told]


@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_observed_job_is_left_alone_unless_a_person_cancels_it(
    policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """Adopted to be observed: nothing is stopped, checked or launched that nobody asked for."""
    acting = (commands.StopAttempt, commands.LaunchAttempt, commands.CheckInstances, commands.TellInstance)
    asked = False
    observed_only = tellings.first_jobs(policy)[-1]
    assert observed_only.hands_off
    for step in run_of(job, observed_only, tellings.anything_for_job, policy, steps).taken:
        asked |= isinstance(step.event, events.CancelRequested)
        assert asked or not any(isinstance(one.command, acting) for one in step.decision.commands)


# -- of instances ------------------------------------------------------------------------------------------------------


@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_instance_in_motion_never_waits_without_end(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """What is checked, rebooted or quarantined has a deadline; what is kept for a job is kept for a while."""
    for step in _instance_run(policy, first, steps).taken:
        after: Instance = step.decision.record
        if after.status in IN_MOTION or after.reserved_for:
            assert after.deadline_at is not None, after.status


def test_no_move_that_exploring_finds_leaves_an_instance_waiting_without_end(
    instance_edges: list[Edge],
) -> None:
    """The same, for every move there is."""
    for after in (edge.after for edge in instance_edges):
        assert after.deadline_at is not None or not (after.status in IN_MOTION or after.reserved_for), after.status


@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_the_epoch_rises_with_each_repair_and_never_falls(
    policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """A claim made before a reboot or a replacement can never be mistaken for one made after it."""
    repairs = (commands.RebootInstance, commands.ReplaceInstance)
    for step in _instance_run(policy, first, steps).taken:
        given = [one.command for one in step.decision.commands if isinstance(one.command, repairs)]
        assert step.decision.record.epoch == step.before.epoch + len(given)
        assert all(order.epoch == step.decision.record.epoch for order in given)


def _works_only_after_proof(before: Instance, event: Any, after: Instance, policy: RecoveryPolicy) -> None:
    if after.status is not InstanceStatus.AVAILABLE or before.status is InstanceStatus.AVAILABLE:
        return
    if isinstance(event, events.ReleaseRequested):  # a person had taken it away, nothing spoke against it
        assert before.withdrawn and before.claims
        return
    if policy.observe_only and before.status is InstanceStatus.CHECKING:
        return  # nothing is withheld of an instance but what would take it out of use
    assert before.status in (InstanceStatus.CHECKING, InstanceStatus.VERIFYING)
    if before.status is InstanceStatus.CHECKING and isinstance(event, events.InstanceDeadlineReached):
        assert before.check is not None
        # ECS never started its check, and nothing blames it; or it only read logs beside somebody's work.
        assert before.check.passive or any(one.refusals for one in before.commands)
        return
    assert isinstance(event, events.CheckEnded)
    if before.status is InstanceStatus.VERIFYING:
        assert event.verdict.outcome is CheckOutcome.HEALTHY
        assert before.reboot is None or proves_reboot(before.reboot, event.verdict)
    else:
        assert not event.verdict.outcome.blames_hardware
        assert before.check is not None
        if event.verdict.outcome is not CheckOutcome.HEALTHY and not before.check.passive:
            assert not _has_a_fault_of_this_check(before)


def _has_a_fault_of_this_check(before: Instance) -> bool:
    """Whether a watcher has named an error that only a repair cures, since the check began and the last boot."""
    faults = [one.fault for one in before.health.values() if one.status is HealthStatus.IMPAIRED]
    since = max(filter(None, (before.status_at, before.boot_heard_at)))
    return any(one is not None and one.since >= since for one in faults)


@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_a_repaired_instance_works_again_only_after_proof_and_a_passing_check(
    policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """Out of REBOOTING there is no way to AVAILABLE; out of VERIFYING one: HEALTHY, and proof if it was rebooted."""
    for step in _instance_run(policy, first, steps).taken:
        _works_only_after_proof(step.before, step.event, step.decision.record, policy)


def test_no_move_that_exploring_finds_lets_an_unproved_instance_work(
    instance_edges: list[Edge],
) -> None:
    """The same, for every move there is."""
    for edge in instance_edges:
        _works_only_after_proof(edge.before, edge.event, edge.after, edge.policy)


@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_a_quarantined_instance_waits_for_a_person(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """Only a release, or its leaving the cluster, ends a quarantine in which no repair is held back."""
    for step in _instance_run(policy, first, steps).taken:
        before, after = step.before, step.decision.record
        if before.status is InstanceStatus.QUARANTINED and before.held is None and after.status is not before.status:
            assert isinstance(step.event, events.ReleaseRequested) or after.status is InstanceStatus.GONE


def _claims_go_only_when_sure(before: Instance, event: Any, after: Instance) -> None:
    for job_id in before.claims.keys() - after.claims.keys():
        if isinstance(event, events.CheckRequested):
            assert event.job_id == job_id
            assert event.attempt >= before.claims[job_id].attempt
        elif isinstance(event, events.MachineSeen):
            assert event.state.is_off
        elif isinstance(event, events.CheckEnded):
            if before.reboot is None:  # given back by a person, or registered anew: its check had every GPU
                assert event.verdict.outcome is CheckOutcome.HEALTHY
            else:
                assert before.reboot.ends == Rank(job_id, before.claims[job_id].attempt)
                assert proves_reboot(before.reboot, event.verdict)
        else:
            assert after.status is InstanceStatus.GONE


@many
@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_claims_go_only_when_the_end_of_their_rank_is_sure(
    policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """A claim is dropped for a check its own attempt asks for, for a proved reboot, or with the machine."""
    for step in _instance_run(policy, first, steps).taken:
        _claims_go_only_when_sure(step.before, step.event, step.decision.record)


def test_no_move_that_exploring_finds_drops_a_claim_too_early(instance_edges: list[Edge]) -> None:
    """The same, for every move there is."""
    for edge in instance_edges:
        _claims_go_only_when_sure(edge.before, edge.event, edge.after)


# -- of reasons, orders and sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [job, instance], ids=["job", "instance"])
def test_no_record_grows_with_what_is_said_of_it(machine: Any, request: pytest.FixtureRequest) -> None:
    """A reason quotes each part of what it rests on once: after a dozen moves it is as short as after two."""
    for edge in request.getfixturevalue("job_edges" if machine is job else "instance_edges"):
        assert len(edge.after.reason) < REASON_CHARACTERS_MAX, (len(edge.path), edge.after.reason)


REASON_CHARACTERS_MAX = 400
"""Several times the longest reason that a short path leads to."""


def test_whoever_waits_for_a_repair_goes_on_waiting_or_hears_its_end(instance_edges: list[Edge]) -> None:
    """No move forgets a job: RepairEnded is told once when it leaves those who wait, and never while it stays."""
    for edge in instance_edges:
        before, after = ({(one.job_id, one.attempt) for one in waiting_for(one)} for one in (edge.before, edge.after))
        told = [
            (one.command.job_id, one.command.event.attempt)
            for one in edge.after.commands[len(edge.before.commands) :]
            if isinstance(one.command, commands.TellJob) and isinstance(one.command.event, events.RepairEnded)
        ]
        assert len(told) == len(set(told))
        replaced = {one for one in before if any(other[0] == one[0] for other in after)}
        assert before - after - replaced <= set(told), (edge.before.status, edge.event, edge.after.status)
        assert not set(told) & after


def test_a_barrier_that_an_instance_is_asked_for_is_always_answered(instance_edges: list[Edge]) -> None:
    """A check that a job waits for is not dropped without a report to that job."""
    for edge in instance_edges:
        run = edge.before.check
        if run is None or not run.job_id or edge.after.check == run:
            continue
        new = edge.after.commands[len(edge.before.commands) :]
        reports = [one.command for one in new if isinstance(one.command, commands.ReportCheck)]
        assert (run.job_id, run.attempt) in [(one.job_id, one.attempt) for one in reports], (edge.event, edge.after)


def test_looks_give_no_order_that_is_given_already(instance_edges: list[Edge]) -> None:
    """What is asked again and again while nothing changes must not fill the record with its orders."""
    for edge in instance_edges:
        if isinstance(edge.event, events.InstanceLookDue) and edge.after.status is edge.before.status:
            assert len(edge.after.commands) <= len(edge.before.commands) + 1


# -- of incidents ------------------------------------------------------------------------------------------------------


def _has_its_incident(after: Job, before: Job) -> None:
    if after.status in (JobStatus.RUNNING, JobStatus.SUCCEEDED, JobStatus.CANCELED):
        assert after.incident_at is None
    if after.status in (JobStatus.DIAGNOSING, JobStatus.RECOVERING):
        assert after.incident_at is not None
    stopping_for = after.stop_purpose in (StopPurpose.DIAGNOSE, StopPurpose.RELAUNCH)
    if after.status is JobStatus.STOPPING and stopping_for and after.stop_cause is not Cause.INSUFFICIENT_RESOURCES:
        assert after.incident_at is not None
    if before.incident_at is not None and after.incident_at is not None:
        assert after.incident_at == before.incident_at


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
