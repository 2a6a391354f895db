"""The faults of the platform find the mistakes they are made for: each is planted here, and must be seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from gpu_recovery import recovery
from gpu_recovery.aws import actions, dynamodb, ec2, ecs, ecs_requests
from gpu_recovery.core.instance.record import EcsStatus
from gpu_recovery.execution import observe
from gpu_recovery.execution.context import DONE
from gpu_recovery.ports.errors import OutcomeUnknown, TryAgainSoon

from simulator.invariants.records import InvariantBroken
from simulator.world import NeverHappened
from tests.platform.cloud import Fault
from tests.platform.faults import (
    At,
    Sometimes,
    Throttling,
    bus_says_no,
    lose_answer,
    of,
    runs,
    says_no,
    some_are_missing,
)
from tests.platform.incident import Heal, Incident, assert_same_end

Patch = pytest.MonkeyPatch
LIMIT_S = 1800
"""What takes this long has gone wrong: without its mistake each run is over in ten minutes."""


def new_token_each_time(patch: Patch) -> None:
    """A client token that is not made from what is asked."""
    numbers = itertools.count()
    patch.setattr(ecs_requests, "token", lambda *parts: f"token-{next(numbers)}")


def silence_means_not_rebooted(patch: Patch) -> None:
    """A reboot that was not answered is asked for again at once."""
    ask = ec2.Ec2.reboot

    def reboot(self: ec2.Ec2, instance_id: str) -> Any:
        try:
            return ask(self, instance_id)
        except OutcomeUnknown:
            return ask(self, instance_id)

    patch.setattr(ec2.Ec2, "reboot", reboot)


def nobody_reads_failures_of_a_status(patch: Patch) -> None:
    """UpdateContainerInstancesState answered 200, so it is done."""

    def set_status(self: ecs.Ecs, instance: Any, status: EcsStatus) -> None:
        self.client.update_container_instances_state(
            cluster=self.cluster, containerInstances=[instance.container_instance_id], status=status.value
        )

    patch.setattr(ecs.Ecs, "set_status", set_status)


def nobody_reads_failed_entry_count(patch: Patch) -> None:
    """PutEvents answered 200, so the event is on the bus."""

    def publish(self: actions.AwsActions, event: Any, causation_id: str) -> None:
        entry = {"Source": "gpu.recovery", "DetailType": event.detail_type, "Detail": "{}"}
        self._events.put_events(Entries=[entry])

    patch.setattr(actions.AwsActions, "publish", publish)


def refused_ranks_are_launched(patch: Patch) -> None:
    """RunTask answered 200, so every rank has its task."""
    launched = ecs.Ecs.run

    def run(self: ecs.Ecs, request: dict[str, Any]) -> Any:
        answer = launched(self, request)
        return answer if isinstance(answer, str) else "a-task"

    patch.setattr(ecs.Ecs, "run", run)


def one_answer_ends_a_rank(patch: Patch) -> None:
    """A task that DescribeTasks does not know has ended, whatever a listing shows."""
    patch.setattr(observe, "_tasks_of_attempt", lambda kit, job, plan: frozenset())


def a_lost_write_is_somebody_elses(patch: Patch) -> None:
    """Every failed condition means that another was there first."""
    patch.setattr(dynamodb, "_is_own", lambda error, item: False)


def a_throttled_order_is_done(patch: Patch) -> None:
    """AWS was too busy, and the order is taken out of the record all the same."""
    act = recovery.execution.execute

    def acted(*given: Any) -> Any:
        try:
            return act(*given)
        except TryAgainSoon:
            return DONE

    patch.setattr(recovery.execution, "execute", acted)


PLANTED: list[tuple[Callable[[Patch], None], Callable[[], Fault]]] = [
    (new_token_each_time, lambda: At(1, lose_answer, only=runs("sft-"))),
    (silence_means_not_rebooted, lambda: At(0, lose_answer, only=of("RebootInstances"))),
    (nobody_reads_failures_of_a_status, lambda: At(1, says_no("BUSY"), only=of("UpdateContainerInstancesState"))),
    (nobody_reads_failed_entry_count, lambda: Sometimes(1, 0.3, bus_says_no("InternalFailure"), only=of("PutEvents"))),
    (refused_ranks_are_launched, lambda: At(1, says_no("AGENT"), only=runs("sft-"))),
    (one_answer_ends_a_rank, lambda: Sometimes(0, 0.5, some_are_missing, only=of("DescribeTasks"))),
    (a_lost_write_is_somebody_elses, lambda: At(0, lose_answer, tries=1)),
    (a_throttled_order_is_done, lambda: Throttling(0, 1.0, only=first_check())),
]


def first_check() -> Callable[[Any], bool]:
    """Every try of the first call that runs a check."""
    calls: list[int] = []

    def only(request: Any) -> bool:
        if runs("check/")(request) and not calls:
            calls.append(request.call)
        return request.call in calls

    return only


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "fault"), PLANTED, ids=lambda one: getattr(one, "__name__", ""))
def test_a_planted_mistake_is_seen(
    heal: Heal, undisturbed: Incident, monkeypatch: Patch, plant: Callable[[Patch], None], fault: Callable[[], Fault]
) -> None:
    """The run that the product survives breaks with the mistake in it."""
    runs_s = 300 if plant is one_answer_ends_a_rank else 20
    plant(monkeypatch)
    with pytest.raises((AssertionError, InvariantBroken, NeverHappened)):
        incident = heal(fault(), runs_s=runs_s, limit_s=LIMIT_S)
        assert_same_end(incident, undisturbed)
        assert sorted(incident.world.published) == sorted(undisturbed.world.published)
