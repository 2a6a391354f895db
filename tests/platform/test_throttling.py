"""30 % throttling on every API: the same end, and no act waits out its claim because AWS was busy for a moment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.commands import StopAttempt
from gpu_recovery.core.state_machine import PendingCommand

from tests.platform.cloud import Request
from tests.platform.faults import THROTTLES, AllAtOnce, At, Throttling, lose_answer, runs
from tests.platform.incident import QUICK, Heal, Incident, assert_same_end
from tests.platform.platform_world import PlatformWorld
from tests.tiers import seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(40, default=1))
def test_a_third_of_all_requests_refused_changes_no_end(heal: Heal, undisturbed: Incident, seed: int) -> None:
    """A throttle is a definite no, so that not even a message is sent twice."""
    fault = Throttling(seed)
    assert_same_end(heal(fault), undisturbed)
    assert fault.met > 50


@pytest.mark.parametrize("service", THROTTLES)
@pytest.mark.parametrize("seed", seeds(2, fast=0, default=1))
def test_a_service_that_refuses_half_of_what_it_is_asked_changes_no_end(
    heal: Heal, undisturbed: Incident, service: str, seed: int
) -> None:
    """Beyond this botocore's retry quota runs dry within one incident, and nothing but waiting helps."""
    fault = Throttling(seed, 0.45, only=lambda request: request.service == service)
    assert_same_end(heal(fault), undisturbed)
    assert fault.met


@pytest.mark.slow
def test_a_reboot_that_was_throttled_is_asked_for_again_within_two_minutes(heal: Heal, undisturbed: Incident) -> None:
    """It was not heard, so the machine need not be looked at; and nobody waits for a claim to end."""
    only_first = Throttling(0, 1.0, only=lambda request: request.operation == "RebootInstances" and not only_first.met)
    incident = heal(only_first)
    assert_same_end(incident, undisturbed)
    assert "the machine shows its old boot" not in incident.world.transcript.text()
    asked = [request for request in incident.world.cloud.requests if request.operation == "RebootInstances"]
    assert len(asked) == 2
    late = incident.world.timeline.now - undisturbed.world.timeline.now
    assert late.total_seconds() <= 120
    assert incident.world.failures == []


@pytest.mark.slow
def test_what_is_put_off_stays_in_the_record_as_refused(heal: Heal, undisturbed: Incident) -> None:
    """Its claim is short, so that it is due again soon, and it is not the invocation that failed."""
    put_off: list[PendingCommand] = []
    fault = Throttling(0, 1.0, only=lambda request: request.operation == "StopTask" and not put_off)

    def prepare(world: PlatformWorld) -> None:
        happened = world.cloud.happened

        def look(request: Request) -> None:
            happened(request)
            put_off.extend(one for job in world.jobs() for one in job.commands if one.refusals)

        world.cloud.happened = look

    incident = heal(fault, prepare=prepare)
    assert_same_end(incident, undisturbed)
    assert {(type(one.command), one.refusals) for one in put_off} == {(StopAttempt, 1)}
    assert incident.world.failures == []


@pytest.mark.slow
def test_a_check_that_may_run_already_is_not_started_again(heal: Heal, undisturbed: Incident) -> None:
    """Its start was heard and not answered, and the next try throttled: a throttle makes the request another one only
    if it is certain that nothing was started before."""
    checks: list[int] = []

    def only(request: Request) -> bool:
        if runs("check/")(request) and request.call not in checks:
            checks.append(request.call)
        return request.call in checks[1:2]

    def prepare(world: PlatformWorld) -> None:
        world.settings = replace(world.settings, check_reserves_gpus=False)  # ECS itself would refuse a second one
        world.recovery = world.production()

    fault = AllAtOnce([At(0, lose_answer, only=runs("check/")), Throttling(0, 1.0, only=only)])
    incident = heal(fault, prepare=prepare, nnodes=1, timings=replace(QUICK, check_s=400))
    started = [task.started_by for task in incident.world.cluster.tasks.values() if "check/" in (task.started_by or "")]
    assert len(started) == len(set(started)) == 2
