"""Spoilt events to every function: acted on, left alone, or refused by an error that names the field; never in between.

After them the next good event about the same record must still do what it does.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from hypothesis import given

from tests.aws.ecs_events import check_event, instance_event, ours, rank_event, task_event
from tests.aws.records import JOB, A
from tests.fuzz.conftest import CHECKED, EVENT_HANDLERS, World
from tests.fuzz.mutations import HALF_A_CHARACTER, mutated, nested, odd_values
from tests.lambdas.starting_states import EVENTS, published

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
PATH = re.compile(r"^(the document|[A-Za-z][\w-]*(\[\d+\])?(\.[A-Za-z][\w-]*(\[\d+\])?)*): \S")
PERSONS = {"JOB_ID": "by-hand", "RANK": "0", "WORLD_SIZE": "2", "LR": "0.1"}
RANK_EVENTS = [
    rank_event(JOB, 1, 0, "STOPPED", exit_code=1),
    rank_event(JOB, 1, 1, "STOPPED", exit_code=0),
    rank_event(JOB, 1, 0, "RUNNING"),
    task_event("theirs", "", "RUNNING", PERSONS),
    task_event("theirs", "ana", "STOPPED", PERSONS, exit_code=137, stop_code="SpotInterruption"),
    ours(published("ecs_task_stopped_userinitiated_ec2_exit0_v7_cwlogs")),
]
CHECK_EVENTS = [check_event(CHECKED, 1, code) for code in (0, 1, None)]
INSTANCE_EVENTS = [
    instance_event(A, 9),
    instance_event(A, 9, agentConnected=False, remainingResources=[]),
    instance_event("i-0d", 1),
    instance_event(A, 9, status="INACTIVE"),
    ours(published("ecs_container_instance_active_2016")),
]
WATCHERS = ("ec2_spot", "ec2_state", "ec2_rebalance", "health_", "cloudwatch_alarm_ec2", "asg_")
WATCHERS_EVENTS = [
    ours(published(path.stem)) for path in sorted(EVENTS.glob("*.json")) if path.stem.startswith(WATCHERS)
]
"""What others than ECS say of an instance: their readers have tests of their own, and must survive the same."""


def survives(world: World, handler: str, event: Any) -> None:
    """Acted on, left alone, or refused before anybody was called; the records stay readable."""
    refusal = world.give(handler, event)
    if isinstance(refusal, EventUnreadable):
        assert PATH.match(str(refusal)), refusal
        assert not world.functions.aws.calls, "somebody was called about an event that could not be read"
    if world.writes():
        world.begin_again()


def spoil(world: World, handler: str, documents: list[Any], *also: Any) -> None:
    """Many spoilt `documents`, and then the first of them as it was, which must still do what it does."""

    @given(event=mutated(documents))
    def each(event: Any) -> None:
        survives(world, handler, event)

    each()
    for event in also:
        survives(world, handler, event)
    assert world.give(handler, documents[0]) is None


def test_spoilt_task_events(world: World) -> None:
    """A rank's start and end, a person's task, a stranger's; then a failed rank still stops its gang."""
    endless = {**RANK_EVENTS[0], "id": nested(900)}
    half = task_event("theirs", "", "RUNNING", PERSONS | {"LR": HALF_A_CHARACTER})
    spoil(world, "ecs_task_handler", RANK_EVENTS, {"detail": {"taskArn": "a/b", "version": 10**400}}, endless, half)
    assert world.functions.job(JOB).status is JobStatus.STOPPING


def test_spoilt_check_events(world: World) -> None:
    """A check that ended; then the good one still gives its verdict."""
    spoil(world, "dcgm_task_monitor", CHECK_EVENTS)
    assert world.functions.instance(CHECKED).status is not InstanceStatus.CHECKING


def test_spoilt_instance_events(world: World) -> None:
    """A container instance that is new, known, disconnected or gone; then the good one is still entered."""
    spoil(world, "ecs_instance_monitor", INSTANCE_EVENTS)
    assert world.functions.instance(A).ecs_version == 9


def test_spoilt_events_of_watchers(world: World) -> None:
    """Spot, EC2, AWS Health and alarms: spoilt or not, what ECS says afterwards is still entered."""

    @given(event=mutated(WATCHERS_EVENTS))
    def each(event: Any) -> None:
        survives(world, "ecs_instance_monitor", event)

    each()
    assert world.give("ecs_instance_monitor", INSTANCE_EVENTS[0]) is None
    assert world.functions.instance(A).ecs_version == 9


def test_what_is_no_event_at_all(world: World) -> None:
    """Lists, numbers, texts, depths: every function says that it is no event, before it does anything."""

    @given(event=odd_values())
    def each(event: Any) -> None:
        for handler in EVENT_HANDLERS:
            refusal = world.give(handler, event)
            assert isinstance(refusal, EventUnreadable), refusal
            assert refusal.field in ("the document", "source")

    each()
    assert world.functions.kept() == world.start


@pytest.mark.parametrize("event", [None, [], "text", 7, {}, {"Records": None}, {"Records": [None, 7]}, nested()])
def test_what_wakes_the_scheduler_and_the_reconciler_is_never_read(world: World, event: Any) -> None:
    """A message says that something changed, whatever it says: garbage must not keep the line waiting."""
    for handler in ("scheduler", "reconciler"):
        assert world.give(handler, event) is None
