"""What holds for every instance, in whatever order and however often events come."""

from __future__ import annotations

from gpu_recovery.core import commands, events
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.policy import RecoveryPolicy
from hypothesis import given

from tests.core.property_runs import (
    FIRST,
    IN_MOTION,
    POLICY,
    claims_go_only_when_sure,
    instance_run,
    works_only_after_proof,
)
from tests.core.random_walks import STEPS, Step

# -- of instances ------------------------------------------------------------------------------------------------------


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_an_instance_in_motion_never_waits_without_end(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """What is checked, rebooted or quarantined has a deadline; what is kept for a job is kept for a while."""
    for step in instance_run(policy, first, steps).taken:
        after: Instance = step.decision.record
        if after.status in IN_MOTION or after.reserved_for:
            assert after.deadline_at is not None, after.status


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


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_a_quarantined_instance_waits_for_a_person(policy: RecoveryPolicy, first: int, steps: list[Step]) -> None:
    """Only a release, or its leaving the cluster, ends a quarantine in which no repair is held back."""
    for step in instance_run(policy, first, steps).taken:
        before, after = step.before, step.decision.record
        if before.status is InstanceStatus.QUARANTINED and before.held is None and after.status is not before.status:
            assert isinstance(step.event, events.ReleaseRequested) or after.status is InstanceStatus.GONE


@given(policy=POLICY, first=FIRST, steps=STEPS)
def test_claims_go_only_when_the_end_of_their_rank_is_sure(
    policy: RecoveryPolicy, first: int, steps: list[Step]
) -> None:
    """A claim is dropped for a check its own attempt asks for, for a proved reboot, or with the machine."""
    for step in instance_run(policy, first, steps).taken:
        claims_go_only_when_sure(step.before, step.event, step.decision.record)
