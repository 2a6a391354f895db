"""Answers with HTTP 200 that are no yes: `failures[]` and FailedEntryCount."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpu_recovery.aws.actions import AwsActions
from gpu_recovery.aws.settings import LambdaSettings
from gpu_recovery.core.commands import PublishEvent
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.errors import TryAgainSoon

from tests.aws.environment import FUNCTION
from tests.aws.records import NOW
from tests.platform.cloud import Answer, Carry, Request
from tests.platform.faults import At, Sometimes, bus_says_no, of, runs, says_no, some_are_missing
from tests.platform.incident import Heal, Incident, assert_same_end
from tests.platform.scripted_client import Scripted
from tests.simulator.incidents import ending

PUT_EVENTS = Request(0, 1, "eventbridge", "PutEvents", {})


def never() -> Answer:
    """Nobody carries this out."""
    raise AssertionError("it was carried out")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "reason"), [(1, "AGENT"), (2, "RESOURCE:GPU")])
def test_a_gang_of_which_one_rank_is_refused_is_stopped_and_launched_again(
    heal: Heal, undisturbed: Incident, number: int, reason: str
) -> None:
    """The launch is not counted: but for its number the end is the same, and operators hear of one incident."""
    incident = heal(At(number, says_no(reason), only=runs("sft-")))
    job = incident.world.job(incident.job_id)
    assert (job.status, job.attempt, job.attempts_counted) == (JobStatus.SUCCEEDED, 3, 1)
    assert sum(job.attempts_uncounted.values()) == 1
    assert ending(incident.world, incident.job_id)[4:] == undisturbed.ending[4:]
    assert incident.running == 0
    assert incident.reboots == undisturbed.reboots
    assert len(incident.messages) == len(undisturbed.messages)


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_check_that_is_refused_is_run_later(heal: Heal, undisturbed: Incident, number: int) -> None:
    """The ranks' GPUs come back a moment after their end; the post-reboot check waits in the same way."""
    assert_same_end(heal(At(number, says_no("RESOURCE:GPU"), only=runs("check/"))), undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_an_instance_whose_status_ecs_would_not_set_is_asked_for_again(
    heal: Heal, undisturbed: Incident, number: int
) -> None:
    """Neither draining nor activating is taken for done."""
    fault = At(number, says_no("BUSY"), only=of("UpdateContainerInstancesState"))
    incident = heal(fault)
    assert_same_end(incident, undisturbed)
    asked = [one.asked["status"] for one in incident.world.cloud.requests if fault.only(one)]
    assert asked[number + 1] == asked[number]


@pytest.mark.slow
@pytest.mark.parametrize("code", ["InternalFailure", pytest.param("ThrottlingException", marks=pytest.mark.slow)])
def test_an_event_that_the_bus_did_not_take_is_put_again(heal: Heal, undisturbed: Incident, code: str) -> None:
    """PutEvents answers 200 with FailedEntryCount 1: nothing else waits for it, and in the end it is there."""
    fault = Sometimes(1, 0.3, bus_says_no(code), only=of("PutEvents"))
    incident = heal(fault)
    assert_same_end(incident, undisturbed)
    assert fault.met
    assert sorted(incident.world.published) == sorted(undisturbed.world.published)


def test_an_event_refused_for_its_rate_may_be_put_again_soon(sleeps: object) -> None:
    """The refusal of an entry is as definite as that of a request."""
    actions = AwsActions(LambdaSettings.from_environment(FUNCTION), lambda: NOW)
    Scripted(actions._events, bus_says_no("ThrottlingException")(PUT_EVENTS, never))
    with pytest.raises(TryAgainSoon, match="ThrottlingException"):
        actions.publish(PublishEvent("Job State Changed", {}), "sft-1/2")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_an_answer_that_knows_none_of_the_tasks_ends_no_rank(heal: Heal, undisturbed: Incident, seed: int) -> None:
    """DescribeTasks may say MISSING of a task that ListTasks shows: the GPUs of a rank that runs stay taken."""
    fault = Sometimes(seed, 0.5, some_are_missing, only=of("DescribeTasks"))
    assert_same_end(heal(fault, runs_s=300), undisturbed)
    assert len(fault.met) > 3


@pytest.mark.slow
def test_an_instance_that_one_answer_does_not_know_is_not_gone(heal: Heal, undisturbed: Incident) -> None:
    """DescribeContainerInstances may say MISSING: EC2 knows better."""
    fault = Sometimes(0, 0.7, some_are_missing, only=of("DescribeContainerInstances"))
    assert_same_end(heal(fault), undisturbed)
    assert fault.met


@pytest.mark.slow
def test_a_machine_is_not_rebooted_while_ecs_contradicts_itself(heal: Heal, undisturbed: Incident) -> None:
    """Before a reboot every task on it is looked at: one that is listed and not described may be at work."""
    hidden: list[Request] = []

    def hide(request: Request, carry_out: Carry) -> Answer:
        lists_machine = request.operation == "ListTasks" and "containerInstance" in request.asked
        if lists_machine and not hidden:
            hidden.append(request)
            return Answer(200, json.dumps({"taskArns": ["arn:aws:ecs:us-east-1:1:task/c/unheard-of"]}).encode())
        return carry_out()

    incident = heal(Sometimes(0, 1.0, hide))
    assert_same_end(incident, undisturbed)
    requests = [one.operation for one in incident.world.cloud.requests]
    looked = requests.index("RebootInstances")
    looks = [one for one in incident.world.cloud.requests[:looked] if "containerInstance" in one.asked]
    assert len(looks) == 2


def test_every_reason_must_last_for_a_refusal_to_last(sleeps: object) -> None:
    """ECS gives a reason for each instance it looked at; one that passes is enough to ask again. Each is said once."""
    actions = AwsActions(LambdaSettings.from_environment(FUNCTION), lambda: NOW)

    def answered(*reasons: str) -> Any:
        failures = [{"arn": f"arn{n}", "reason": reason} for n, reason in enumerate(reasons)]
        Scripted(actions.ecs.client, Answer(200, json.dumps({"tasks": [], "failures": failures}).encode()))
        return actions.ecs.run({"cluster": "c", "taskDefinition": "t"})

    mixed = answered("ATTRIBUTE", "RESOURCE:GPU", "ATTRIBUTE")
    assert (mixed.reason, mixed.lasting) == ("ATTRIBUTE, RESOURCE:GPU", False)
