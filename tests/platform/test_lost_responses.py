"""Time-outs after the call took effect: one call at a time, for every call of the incident that changes something."""

from __future__ import annotations

import pytest

from tests.platform.cloud import Request
from tests.platform.faults import At, lose_answer, reset
from tests.platform.incident import Heal, Incident, assert_same_end
from tests.tiers import sampled

CALLS_MAX = 136
"""More than the incident makes; `test_the_incident_makes_every_kind_of_call` sees to it."""


def kind(request: Request) -> tuple[str, ...]:
    """What one call is like another in."""
    asked = request.asked
    if request.operation == "RunTask":
        return (request.operation, "check" if asked["startedBy"].startswith("check/") else "rank")
    return (request.operation, asked.get("TableName", asked.get("status", "")))


def calls(undisturbed: Incident) -> list[Request]:
    """The incident's calls that change something, or would if their condition held."""
    return [one for one in undisturbed.world.cloud.requests if one.mutates and one.tried == 1]


def numbers(undisturbed: Incident) -> dict[tuple[str, ...], list[int]]:
    """The numbers of the incident's calls that change something, by kind."""
    found: dict[tuple[str, ...], list[int]] = {}
    for number, request in enumerate(calls(undisturbed)):
        found.setdefault(kind(request), []).append(number)
    return found


KINDS = [
    ("PutItem", "ecs-job-sub"),
    ("PutItem", "ecs_container_instance"),
    ("UpdateItem", "ecs-job-sub"),
    ("UpdateItem", "ecs_container_instance"),
    ("TransactWriteItems", ""),
    ("RunTask", "rank"),
    ("RunTask", "check"),
    ("StopTask", ""),
    ("UpdateContainerInstancesState", "DRAINING"),
    ("UpdateContainerInstancesState", "ACTIVE"),
    ("RebootInstances", ""),
    ("Publish", ""),
    ("PutEvents", ""),
    ("SendMessage", ""),
]


def test_the_incident_makes_every_kind_of_call(undisturbed: Incident) -> None:
    """What is not called is not tried."""
    assert set(numbers(undisturbed)) == set(KINDS)
    assert len(calls(undisturbed)) <= CALLS_MAX


def assert_survives(heal: Heal, undisturbed: Incident, fault: At) -> None:
    """The same end; a message may be sent again if its own answer was lost, or the write that says it is done."""
    incident = heal(fault)
    published = sum(request.operation == "Publish" for request in fault.met)
    unsettled = any(request.operation == "UpdateItem" for request in fault.met)
    assert_same_end(incident, undisturbed, repeats=published + unsettled)
    assert fault.met


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.full if kind == ("RebootInstances", "") else ()) for kind in KINDS],
    ids="-".join,
)
def test_a_call_whose_answers_are_all_lost_changes_no_end(
    heal: Heal, undisturbed: Incident, kind: tuple[str, ...]
) -> None:
    """It took effect with each of botocore's tries, and the product heard nothing but time-outs.

    The default tier has the reboot in a test of its own, below.
    """
    among = numbers(undisturbed)[kind]
    assert_survives(heal, undisturbed, At(among[len(among) // 2], lose_answer))


@pytest.mark.parametrize("number", sampled(range(CALLS_MAX), default=2))
def test_whichever_call_loses_its_answers_the_end_is_the_same(heal: Heal, undisturbed: Incident, number: int) -> None:
    """Every call, one at a time."""
    assert_survives(heal, undisturbed, At(made(number, undisturbed), lose_answer))


@pytest.mark.parametrize("number", sampled(range(0, CALLS_MAX, 2), default=3))
def test_whichever_call_is_heard_twice_the_end_is_the_same(heal: Heal, undisturbed: Incident, number: int) -> None:
    """The first try took effect and was not answered; the second is answered."""
    assert_survives(heal, undisturbed, At(made(number, undisturbed), lose_answer, tries=1))


@pytest.mark.parametrize("number", sampled(range(0, CALLS_MAX, 3), default=2))
def test_whichever_call_never_arrives_the_end_is_the_same(heal: Heal, undisturbed: Incident, number: int) -> None:
    """The connection is reset before the request is read, each time it is tried."""
    assert_survives(heal, undisturbed, At(made(number, undisturbed), reset))


def made(number: int, undisturbed: Incident) -> int:
    """The number of a call that the incident makes; the test of another number is skipped."""
    if number >= len(calls(undisturbed)):
        pytest.skip(f"the incident makes {len(calls(undisturbed))} calls")
    return number


@pytest.mark.slow
def test_a_reboot_whose_answer_is_lost_is_not_asked_for_again(heal: Heal, undisturbed: Incident) -> None:
    """One request reaches EC2: the machine is asked for its boot instead."""
    (number,) = numbers(undisturbed)[("RebootInstances", "")]
    incident = heal(At(number, lose_answer))
    assert [one.operation for one in incident.world.cloud.requests].count("RebootInstances") == 1
    assert_same_end(incident, undisturbed)


@pytest.mark.slow
def test_a_reboot_that_never_arrived_is_asked_for_once_more(heal: Heal, undisturbed: Incident) -> None:
    """The look shows the old boot; only then."""
    (number,) = numbers(undisturbed)[("RebootInstances", "")]
    incident = heal(At(number, reset))
    assert [one.operation for one in incident.world.cloud.requests].count("RebootInstances") == 2
    assert_same_end(incident, undisturbed)
