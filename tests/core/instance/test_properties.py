"""What holds for every instance, in whatever order and however often events come."""

from __future__ import annotations

from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.effects import waiting_jobs
from gpu_recovery.core.instance.record import Instance, InstanceStatus, RankOnInstance
from gpu_recovery.core.instance.repair_proof import proves_reboot
from gpu_recovery.core.policy import RecoveryPolicy
from hypothesis import given

from tests.core.all_events import Edge
from tests.core.property_runs import FIRST, POLICY, instance_run, works_only_after_proof
from tests.core.random_walks import STEPS, Step

IN_MOTION = tuple(set(InstanceStatus) - {InstanceStatus.AVAILABLE, InstanceStatus.GONE})


# -- of instances ------------------------------------------------------------------------------------------------------


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_instance_in_motion_never_waits_without_end(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """What is checked, rebooted or quarantined has a deadline; what is kept for a job is kept for a while."""
    for step in instance_run(policy, first, steps).taken:
        after: Instance = step.decision.record
        if after.status in IN_MOTION or after.reserved_for:
            assert after.deadline_at is not None, after.status


def test_no_move_that_exploring_finds_leaves_an_instance_waiting_without_end(
    instance_edges: list[Edge],
) -> None:
    """The same, for every move there is."""
    for after in (edge.after for edge in instance_edges):
        assert after.deadline_at is not None or not (after.status in IN_MOTION or after.reserved_for), after.status


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_the_epoch_rises_with_each_repair_and_never_falls(
    policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """A claim made before a reboot or a replacement can never be mistaken for one made after it."""
    repairs = (commands.RebootInstance, commands.ReplaceInstance)
    for step in instance_run(policy, first, steps).taken:
        given = [one.command for one in step.decision.commands if isinstance(one.command, repairs)]
        assert step.decision.record.epoch == step.before.epoch + len(given)
        assert all(order.epoch == step.decision.record.epoch for order in given)


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_a_repaired_instance_works_again_only_after_proof_and_a_passing_check(
    policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """Out of REBOOTING there is no way to AVAILABLE; out of VERIFYING one: HEALTHY, and proof if it was rebooted."""
    for step in instance_run(policy, first, steps).taken:
        works_only_after_proof(step.before, step.event, step.decision.record, policy)


def test_no_move_that_exploring_finds_lets_an_unproved_instance_work(
    instance_edges: list[Edge],
) -> None:
    """The same, for every move there is."""
    for edge in instance_edges:
        works_only_after_proof(edge.before, edge.event, edge.after, edge.policy)


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_a_quarantined_instance_waits_for_a_person(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """Only a release, or its leaving the cluster, ends a quarantine in which no repair is held back."""
    for step in instance_run(policy, first, steps).taken:
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
                assert before.reboot.ends == RankOnInstance(job_id, before.claims[job_id].attempt)
                assert proves_reboot(before.reboot, event.verdict)
        else:
            assert after.status is InstanceStatus.GONE


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_claims_go_only_when_the_end_of_their_rank_is_sure(
    policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """A claim is dropped for a check its own attempt asks for, for a proved reboot, or with the machine."""
    for step in instance_run(policy, first, steps).taken:
        _claims_go_only_when_sure(step.before, step.event, step.decision.record)


def test_no_move_that_exploring_finds_drops_a_claim_too_early(instance_edges: list[Edge]) -> None:
    """The same, for every move there is."""
    for edge in instance_edges:
        _claims_go_only_when_sure(edge.before, edge.event, edge.after)


# -- of reasons, orders and sizes --------------------------------------------------------------------------------------


def test_whoever_waits_for_a_repair_goes_on_waiting_or_hears_its_end(instance_edges: list[Edge]) -> None:
    """No move forgets a job: RepairEnded is told once when it leaves those who wait, and never while it stays."""
    for edge in instance_edges:
        before, after = ({(one.job_id, one.attempt) for one in waiting_jobs(one)} for one in (edge.before, edge.after))
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
