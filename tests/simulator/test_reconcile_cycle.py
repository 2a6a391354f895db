"""A round of the reconciler lists the fleet once, and sees in that listing what it has told itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.aws.item_codec import ItemUnreadable
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.values import Ec2InstanceStatus
from gpu_recovery.reconciler.reconcile import reconcile
from gpu_recovery.recovery import Recovery

from simulator.world import World


class Asked:
    """The loop of a world, whose listings of instances and questions to EC2 are kept; listings may fail."""

    def __init__(self, world: World) -> None:
        self.store, self.actions = world.recovery.store, world.recovery.actions
        self.listings: list[tuple[str, ...]] = []
        self.machines: list[tuple[str, ...]] = []
        self.unreadable: list[Exception] = []
        self.refusals = 0
        self.recovery: Recovery = replace(
            world.recovery,
            store=Half(self.store, instances_in=self.instances_in),
            actions=Half(self.actions, describe_ec2_status=self.describe_ec2_status),
        )

    def instances_in(
        self, statuses: Sequence[InstanceStatus], unreadable: list[Exception] | None = None
    ) -> tuple[Instance, ...]:
        """As the store's."""
        if self.refusals:
            self.refusals -= 1
            raise TryAgainSoon("asked too often")
        found = self.store.instances_in(statuses, unreadable)
        self.listings.append(tuple(one.instance_id for one in found))
        if unreadable is not None:
            unreadable += self.unreadable
        return found

    def describe_ec2_status(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2InstanceStatus]:
        """As EC2's."""
        self.machines.append(tuple(instance_ids))
        return self.actions.describe_ec2_status(instance_ids)


class Half:
    """Another thing with some of its functions replaced."""

    def __init__(self, other: Any, **functions: Any) -> None:
        self._other = other
        for name, function in functions.items():
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)


def deaf(envelope: Mapping[str, Any]) -> tuple[float, ...]:
    """No event arrives."""
    return ()


def leaves(failure: BaseException) -> list[BaseException]:
    """The failures within a group of groups."""
    if not isinstance(failure, BaseExceptionGroup):
        return [failure]
    return [leaf for part in failure.exceptions for leaf in leaves(part)]


def test_a_round_lists_the_instances_once() -> None:
    """With agents that report, a job that runs, and news that no event told."""
    world = World(instances=3, agents=True)
    world.until_status(world.submit(2), JobStatus.RUNNING)
    world.delivery = deaf
    world.fleet.launch(8)
    asked = Asked(world)
    reconcile(asked.recovery)
    assert len(asked.listings) == 1
    assert len(asked.machines) == 1
    reconcile(asked.recovery)
    assert len(asked.listings) == 2


def test_an_instance_that_only_ecs_knew_is_counted_and_looked_at_in_the_same_round() -> None:
    """The listing was made before its record was."""
    world = World(instances=2, delivery=deaf)
    found = world.fleet.launch(8)
    asked = Asked(world)
    reconcile(asked.recovery)
    assert found.instance_id not in asked.listings[0]
    assert found.instance_id in asked.machines[0]
    assert world.store.load_fleet().gpu_instances == 3


def test_an_instance_that_turns_out_to_have_left_is_looked_at_no_more() -> None:
    """The listing still has it; the round itself has found out that it is gone."""
    world = World(instances=3, delivery=deaf)
    gone = world.model_instance(1)
    world.fleet.terminate(gone)
    asked = Asked(world)
    reconcile(asked.recovery)
    assert gone.instance_id in asked.listings[0]
    assert world.instance(gone).status is InstanceStatus.GONE
    assert gone.instance_id not in asked.machines[0]
    assert world.store.load_fleet().gpu_instances == 2


def test_a_record_that_nobody_can_read_is_told_of_once() -> None:
    """Not once for each comparison."""
    world = World(instances=2)
    asked = Asked(world)
    asked.unreadable = [ItemUnreadable("instance i-1")]
    with pytest.raises(ExceptionGroup) as raised:
        reconcile(asked.recovery)
    assert leaves(raised.value) == asked.unreadable


def test_a_listing_that_fails_is_tried_by_the_next_comparison() -> None:
    """What could not be compared is raised; the rest of the round is made."""
    world = World(instances=2)
    asked = Asked(world)
    asked.refusals = 1
    with pytest.raises(ExceptionGroup) as raised:
        reconcile(asked.recovery)
    assert [type(leaf) for leaf in leaves(raised.value)] == [TryAgainSoon]
    assert len(asked.listings) == 1
    assert len(asked.machines) == 1
