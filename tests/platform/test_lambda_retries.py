"""A handler that raises is invoked twice more with the same event; then the event is lost, and the reconciler heals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.commands import DrainInstance, RebootInstance
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.state_machine import PendingCommand

from simulator.faults.delivery import Unruly
from tests.platform.cloud import Request
from tests.platform.faults import AllAtOnce, Sometimes, Throttling, lose_answer, refuse, reset
from tests.platform.incident import Heal, Incident, assert_same_end
from tests.platform.platform_world import PlatformWorld
from tests.tiers import seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20, default=1))
def test_invocations_that_fail_change_no_end(heal: Heal, undisturbed: Incident, seed: int) -> None:
    """One call in thirty fails with all its tries, and with it the invocation; Lambda's retries do no harm.

    A message whose settling failed is sent again, under the same incident id.
    """
    fault = Sometimes(seed, 1 / 30, reset, for_good=True)
    incident = heal(fault)
    settling = sum(request.operation == "UpdateItem" for request in fault.met)
    assert_same_end(incident, undisturbed, repeats=settling)
    assert incident.world.failures


@pytest.mark.parametrize("seed", seeds(12, fast=0, default=1))
def test_events_that_are_lost_with_their_invocation_change_no_end(heal: Heal, undisturbed: Incident, seed: int) -> None:
    """As if every failed invocation had been its event's last: the dead letter is not needed for the job to heal."""
    fault = Sometimes(seed, 1 / 30, refuse("InternalServerError", 500), for_good=True)
    incident = heal(fault, loses_failed=True)
    settling = sum(request.operation == "UpdateItem" for request in fault.met)
    assert_same_end(incident, undisturbed, repeats=settling)
    assert fault.met


def is_send(request: Request) -> bool:
    """Whatever a time-out may leave done: all but messages to people, which may then come twice."""
    return request.mutates and request.operation != "Publish"


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.full), *seeds(30, fast=0, default=2)[1:]])
def test_everything_at_once_changes_no_end(heal: Heal, undisturbed: Incident, seed: int) -> None:
    """Throttles, lost answers, resets and trouble on their side, while events are lost, doubled, late and out of
    order."""
    fault = AllAtOnce(
        [
            Throttling(seed, 0.15),
            Sometimes(seed, 0.04, lose_answer, only=is_send),
            Sometimes(seed, 0.01, lose_answer, only=is_send, for_good=True),
            Sometimes(seed, 0.01, reset, for_good=True),
            Sometimes(seed, 0.03, refuse("InternalFailure", 500)),
        ]
    )
    assert_same_end(heal(fault, delivery=Unruly(seed, late_max_s=60)), undisturbed, repeats=1)


@pytest.mark.slow
def test_an_order_that_the_one_before_it_made_void_is_not_obeyed(heal: Heal) -> None:
    """Of two orders left by the dead, the first has the record move on: the second is judged by what it is then.

    Else a late DrainInstance would shut out the very check for which the instance has just been made ACTIVE.
    """
    seen: list[str] = []

    def prepare(world: PlatformWorld) -> None:
        happened = world.cloud.happened

        def look(request: Request) -> None:
            happened(request)
            if request.operation == "RebootInstances" and not seen:
                seen.append("rebooting")
                world.timeline.after(1, lambda: world.invoke("reconciler", lambda: leave_two_orders(world)))
            elif request.operation == "UpdateContainerInstancesState" and seen:
                seen.append(request.asked["status"])

        world.cloud.happened = look

    incident = heal(prepare=prepare, limit_s=1800)
    assert incident.world.failures == []
    assert seen == ["rebooting", "ACTIVE"]


def leave_two_orders(world: PlatformWorld) -> None:
    """The instance under repair, with a reboot and a drain whose actor has died."""
    record = next(one for one in world.instances() if one.status is InstanceStatus.REBOOTING)
    now, name = world.timeline.now, f"{record.instance_id}/{record.version}"
    orders = (RebootInstance(record.epoch), DrainInstance())
    left = tuple(PendingCommand(f"{name}/{number}", order, now) for number, order in enumerate(orders, 90))
    world.recovery.reclaim_expired(replace(record, commands=(*record.commands, *left)))
