"""Orders carried to AWS: refusals are read, unknown outcomes are told apart, and nothing is swallowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY, Stubber
from gpu_recovery.aws.actions import AwsActions
from gpu_recovery.aws.ecs import InstanceStatusRefused
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.core.missing_permission import MissingPermission
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.values import Refusal

from tests.aws.environment import CLUSTER, FUNCTION
from tests.aws.records import A, instance

CHECK = f"check/{A}/1"
TASK = f"arn:aws:ecs:us-east-1:123456789012:task/{CLUSTER}/0a1b"


@pytest.fixture
def ecs(actions: AwsActions) -> Iterator[Stubber]:
    """ECS, answering what a test tells it, in order."""
    with Stubber(actions.ecs.client) as stub:
        yield stub
        stub.assert_no_pending_responses()


def failed(reason: str, arn: str = "arn") -> dict[str, Any]:
    """RunTask's way of saying no with HTTP 200."""
    return {"tasks": [], "failures": [{"arn": arn, "reason": reason}]}


def run(actions: AwsActions) -> str | Refusal:
    return actions.run_check(instance(), CHECK, 0, "key")


# -- RunTask -----------------------------------------------------------------------------------------------------------


def test_the_id_of_the_started_task_is_the_last_part_of_its_arn(actions: AwsActions, ecs: Stubber) -> None:
    """And the request is the one for this instance."""
    constraint = [{"type": "memberOf", "expression": f"ec2InstanceId == {A}"}]
    expected = {
        "cluster": CLUSTER,
        "taskDefinition": FUNCTION["DCGM_HEALTH_CHECK_TASK"],
        "count": 1,
        "launchType": "EC2",
        "placementConstraints": constraint,
        "overrides": ANY,
        "startedBy": CHECK,
        "clientToken": ANY,
    }
    ecs.add_response("run_task", {"tasks": [{"taskArn": TASK}], "failures": []}, expected)
    assert run(actions) == "0a1b"


@pytest.mark.parametrize("reason", ["RESOURCE:GPU", "RESOURCE:MEMORY", "AGENT"])
def test_a_refusal_that_passes_is_read_from_failures(actions: AwsActions, ecs: Stubber, reason: str) -> None:
    """Asking again may help."""
    ecs.add_response("run_task", failed(reason))
    assert run(actions) == Refusal(reason, lasting=False)


@pytest.mark.parametrize("reason", ["ATTRIBUTE", "MISSING", "INACTIVE"])
def test_a_lasting_refusal_is_told_apart(actions: AwsActions, ecs: Stubber, reason: str) -> None:
    """Asking again does not help."""
    ecs.add_response("run_task", failed(reason))
    assert run(actions) == Refusal(reason, lasting=True)


def test_neither_task_nor_failure_is_a_refusal_without_a_reason(actions: AwsActions, ecs: Stubber) -> None:
    """Nothing was started, and that is said."""
    ecs.add_response("run_task", {"tasks": [], "failures": []})
    assert run(actions) == Refusal("no reason", lasting=False)


def test_a_conflict_over_the_token_names_the_task_that_exists(actions: AwsActions, ecs: Stubber) -> None:
    """The same rank was launched before under another policy: that task is the one we want."""
    ecs.add_client_error("run_task", "ConflictException", modeled_fields={"resourceIds": [TASK]})
    assert run(actions) == "0a1b"


def test_a_conflict_that_names_nothing_is_raised(actions: AwsActions, ecs: Stubber) -> None:
    """Which task exists is not known, so nothing may be concluded."""
    ecs.add_client_error("run_task", "ConflictException")
    with pytest.raises(ClientError):
        run(actions)


@pytest.mark.parametrize(
    ("code", "lasting"),
    [("InvalidParameterException", False), ("ClientException", True), ("ClusterNotFoundException", True)],
)
def test_an_error_that_says_no_is_a_refusal_with_its_message(
    actions: AwsActions, ecs: Stubber, code: str, lasting: bool
) -> None:
    """InvalidParameter is also what ECS says while every instance is draining; the others do not pass."""
    ecs.add_client_error("run_task", code, "why not")
    assert run(actions) == Refusal(f"{code}: why not", lasting)


ROLE = "arn:aws-cn:iam::123456789012:role/teams/training.task"
OURS = "User: arn:aws:sts::123456789012:assumed-role/r/f is not authorized to perform: "
OF_A_FAMILY = "arn:aws:ecs:us-east-1:123456789012:task-definition/llm:3"


@pytest.mark.parametrize(
    ("code", "message", "lacks"),
    [
        (
            "AccessDeniedException",
            f"{OURS}iam:PassRole on resource: {ROLE} because no identity-based policy allows the iam:PassRole action",
            MissingPermission("iam:PassRole", ROLE),
        ),
        (
            "ClientException",
            f"{OURS}iam:PassRole on resource: {ROLE} because no identity-based policy allows the iam:PassRole action",
            MissingPermission("iam:PassRole", ROLE),
        ),
        (
            "AccessDeniedException",
            f"{OURS}ecs:RunTask on resource: {OF_A_FAMILY} because no policy allows the ecs:RunTask action",
            MissingPermission("ecs:RunTask", OF_A_FAMILY),
        ),
        (
            "AccessDeniedException",
            f"{OURS}ecs:RunTask on resource: {OF_A_FAMILY} with an explicit deny in a service control policy",
            MissingPermission("ecs:RunTask", OF_A_FAMILY, forbidden=True),
        ),
        (
            "AccessDeniedException",
            f"{OURS}ecs:RunTask on resource: {OF_A_FAMILY} because no service control policy allows the ecs:RunTask "
            "action",
            MissingPermission("ecs:RunTask", OF_A_FAMILY, forbidden=True),
        ),
        (
            "ClientException",
            f"{OURS}iam:PassRole on resource: {ROLE} because no permissions boundary allows the iam:PassRole action",
            MissingPermission("iam:PassRole", ROLE, forbidden=True),
        ),
        ("AccessDeniedException", f"{OURS}ecs:RunTask", MissingPermission("ecs:RunTask", everywhere=True)),
        (
            "AccessDeniedException",
            f"{OURS}ecs:TagResource on resource: * because no identity-based policy allows the ecs:TagResource action",
            MissingPermission("ecs:TagResource"),
        ),
        ("AccessDeniedException", "no", MissingPermission("ecs:RunTask")),
    ],
)
def test_a_denied_launch_names_the_permission_that_the_deployment_lacks(
    actions: AwsActions, ecs: Stubber, code: str, message: str, lacks: MissingPermission
) -> None:
    """A denial is no lasting refusal of the job. Its message says whether one task definition or all are affected."""
    ecs.add_client_error("run_task", code, message)
    assert run(actions) == Refusal(f"{code}: {message}", lasting=False, lacks=lacks)


def test_a_role_that_ecs_cannot_assume_is_a_lasting_refusal_with_what_mends_it(
    actions: AwsActions, ecs: Stubber
) -> None:
    """The trust policy of the role is at fault. The deployment lacks no permission."""
    message = (
        f"ECS was unable to assume the role '{ROLE}' that was provided for this task. Please verify that the role "
        "being passed has the proper trust relationship and permissions and that your IAM user has permissions to "
        "pass this role."
    )
    ecs.add_client_error("run_task", "ClientException", message)
    sentence = f"ECS cannot assume {ROLE}: its trust policy must allow ecs-tasks.amazonaws.com"
    assert run(actions) == Refusal(f"{sentence} (ClientException: {message})", lasting=True)


def test_whether_ecs_knows_the_task_that_is_stopped_is_told(actions: AwsActions, ecs: Stubber) -> None:
    """Only its own word for one that is not there; any other error says nothing of that, and is raised."""
    ecs.add_response("stop_task", {"task": {}})
    assert actions.stop_task("task-1", "make room")
    ecs.add_client_error("stop_task", "InvalidParameterException", "The referenced task was not found.")
    assert not actions.stop_task("task-1", "make room")
    ecs.add_client_error("stop_task", "AccessDeniedException")
    with pytest.raises(ClientError, match="AccessDenied"):
        actions.stop_task("task-1", "make room")


def test_an_error_that_passes_is_raised_and_refuses_nothing(actions: AwsActions, ecs: Stubber) -> None:
    """The function fails and is tried again with the same token."""
    ecs.add_client_error("run_task", "ServerException", http_status_code=500)
    with pytest.raises(ClientError, match="ServerException"):
        run(actions)


@pytest.mark.parametrize("code", ["ThrottlingException", "RequestLimitExceeded"])
def test_a_throttle_refuses_nothing_for_good(actions: AwsActions, ecs: Stubber, code: str) -> None:
    """It was definitely not done, and may be asked for again soon."""
    ecs.add_client_error("run_task", code, http_status_code=400)
    with pytest.raises(TryAgainSoon, match=code):
        run(actions)


# -- tasks and instances -----------------------------------------------------------------------------------------------


def test_our_stop_gives_its_reason(actions: AwsActions, ecs: Stubber) -> None:
    """ECS repeats it as stoppedReason; 1,024 characters are kept."""
    ecs.add_response("stop_task", {}, {"cluster": CLUSTER, "task": "0a1b", "reason": "r" * 1024})
    actions.stop_tasks(["0a1b"], "r" * 2000)


def test_a_task_that_ecs_has_forgotten_is_stopped_already(actions: AwsActions, ecs: Stubber) -> None:
    """InvalidParameterException is how ECS says so."""
    ecs.add_client_error("stop_task", "InvalidParameterException", "The referenced task was not found.")
    actions.stop_tasks(["0a1b"], "gpu-recovery: over")


@pytest.mark.parametrize("code", ["ServerException", "AccessDeniedException", "ClusterNotFoundException"])
def test_a_stop_that_failed_is_raised(actions: AwsActions, ecs: Stubber, code: str) -> None:
    """A rank that may still run is not passed over."""
    ecs.add_client_error("stop_task", code)
    with pytest.raises(ClientError, match=code):
        actions.stop_tasks(["0a1b"], "gpu-recovery: over")


def test_tasks_are_found_by_who_started_them_running_or_stopped(actions: AwsActions, ecs: Stubber) -> None:
    """Every page of both lists."""
    asked = {"cluster": CLUSTER, "startedBy": CHECK}
    first = {"taskArns": [f"{TASK}1"], "nextToken": "more"}
    ecs.add_response("list_tasks", first, asked | {"desiredStatus": "RUNNING"})
    ecs.add_response(
        "list_tasks", {"taskArns": [f"{TASK}2"]}, asked | {"desiredStatus": "RUNNING", "nextToken": "more"}
    )
    ecs.add_response("list_tasks", {"taskArns": [f"{TASK}3"]}, asked | {"desiredStatus": "STOPPED"})
    assert actions.tasks_started_by(CHECK) == ("0a1b1", "0a1b2", "0a1b3")


def test_many_tasks_are_described_a_hundred_at_a_time(actions: AwsActions, ecs: Stubber) -> None:
    """And those that ECS does not know are left out, not an error."""
    ids = [f"task-{n}" for n in range(150)]
    known = {"tasks": [{"taskArn": TASK, "lastStatus": "RUNNING"}], "failures": [{"arn": "x", "reason": "MISSING"}]}
    ecs.add_response("describe_tasks", known, {"cluster": CLUSTER, "tasks": ids[:100]})
    ecs.add_response("describe_tasks", {"tasks": [], "failures": []}, {"cluster": CLUSTER, "tasks": ids[100:]})
    assert [fact.task_id for fact in actions.describe_tasks(ids)] == ["0a1b"]


def test_describing_no_task_asks_nobody(actions: AwsActions, ecs: Stubber) -> None:
    """ECS would refuse an empty list."""
    assert actions.describe_tasks([]) == ()


def test_a_container_instance_that_is_gone_is_none(actions: AwsActions, ecs: Stubber) -> None:
    """DescribeContainerInstances says MISSING."""
    ecs.add_response("describe_container_instances", {"containerInstances": [], "failures": [{"reason": "MISSING"}]})
    assert actions.describe_instance("ci-1") is None


def test_draining_and_activating_name_the_registration(actions: AwsActions, ecs: Stubber) -> None:
    """And read the answer's failures."""
    for status in ("DRAINING", "ACTIVE"):
        asked = {"cluster": CLUSTER, "containerInstances": [f"ci-{A}"], "status": status}
        ecs.add_response("update_container_instances_state", {"containerInstances": [], "failures": []}, asked)
    actions.drain(instance())
    actions.activate(instance())


def test_an_instance_that_has_left_has_no_status_to_set(actions: AwsActions, ecs: Stubber) -> None:
    """MISSING is no error, any other failure is raised."""
    answer: dict[str, Any] = {"containerInstances": [], "failures": [{"reason": "MISSING"}]}
    ecs.add_response("update_container_instances_state", answer)
    actions.drain(instance())
    ecs.add_response("update_container_instances_state", answer | {"failures": [{"reason": "BUSY"}]})
    with pytest.raises(InstanceStatusRefused, match="BUSY"):
        actions.drain(instance())


def test_a_registration_is_taken_away_by_force(actions: AwsActions, ecs: Stubber) -> None:
    """Its agent is dead: without force ECS would refuse for the tasks that it still counts as running."""
    asked = {"cluster": CLUSTER, "containerInstance": "ci-1", "force": True}
    ecs.add_response("deregister_container_instance", {"containerInstance": {}}, asked)
    actions.deregister("ci-1")


def test_a_registration_that_is_gone_needs_no_taking_away(actions: AwsActions, ecs: Stubber) -> None:
    """ECS calls an unknown one an invalid parameter; any other error is raised."""
    ecs.add_client_error("deregister_container_instance", "InvalidParameterException", "was not found")
    actions.deregister("ci-1")
    ecs.add_client_error("deregister_container_instance", "AccessDeniedException")
    with pytest.raises(ClientError, match="AccessDenied"):
        actions.deregister("ci-1")


def test_the_tasks_on_an_instance_are_all_that_are_to_run(actions: AwsActions, ecs: Stubber) -> None:
    """Whoever started them."""
    asked = {"cluster": CLUSTER, "containerInstance": f"ci-{A}", "desiredStatus": "RUNNING"}
    ecs.add_response("list_tasks", {"taskArns": [TASK]}, asked)
    known = {"tasks": [{"taskArn": TASK, "lastStatus": "RUNNING"}], "failures": []}
    ecs.add_response("describe_tasks", known, {"cluster": CLUSTER, "tasks": ["0a1b"]})
    assert [fact.task_id for fact in actions.tasks_on(instance())] == ["0a1b"]
    ecs.add_response("list_tasks", {"taskArns": []}, asked)
    assert actions.tasks_on(instance()) == ()
    ecs.add_client_error("list_tasks", "InvalidParameterException", "The referenced container instance was not found.")
    assert actions.tasks_on(instance()) == ()


GARBLED = {"taskArn": f"{TASK}0", "lastStatus": "RUNNING", "containers": [{"name": "main", "exitCode": 2**70}]}


def test_a_task_on_an_instance_that_cannot_be_read_is_raised(actions: AwsActions, ecs: Stubber) -> None:
    """It may hold the GPUs that a reboot would take from it."""
    ecs.add_response("list_tasks", {"taskArns": [f"{TASK}0", TASK]})
    ecs.add_response("describe_tasks", {"tasks": [GARBLED, {"taskArn": TASK, "lastStatus": "RUNNING"}]})
    with pytest.raises(EventUnreadable, match="exitCode"):
        actions.tasks_on(instance())


def test_a_running_task_that_cannot_be_read_is_told_beside_the_others(actions: AwsActions, ecs: Stubber) -> None:
    """Or raised, where nobody asks for it."""
    shown = {"tasks": [GARBLED, {"taskArn": TASK, "lastStatus": "RUNNING"}]}
    for _ in range(2):
        ecs.add_response("list_tasks", {"taskArns": [f"{TASK}0", TASK]})
        ecs.add_response("describe_tasks", shown)
    unreadable: list[Exception] = []
    assert [fact.task_id for fact in actions.running_tasks(unreadable)] == ["0a1b"]
    assert [str(error).split(":")[0] for error in unreadable] == ["containers[0].exitCode"]
    with pytest.raises(EventUnreadable, match="exitCode"):
        list(actions.running_tasks())


def test_of_running_tasks_those_that_are_known_are_not_asked_about(actions: AwsActions, ecs: Stubber) -> None:
    """A large gang is a hundred tasks to a call; where everything is known there is none."""
    ecs.add_response("list_tasks", {"taskArns": [f"{TASK}0", TASK]})
    ecs.add_response(
        "describe_tasks",
        {"tasks": [{"taskArn": TASK, "lastStatus": "RUNNING"}]},
        {"cluster": ANY, "tasks": ["0a1b"]},
    )
    assert [fact.task_id for fact in actions.running_tasks(None, {"0a1b0"})] == ["0a1b"]
    ecs.add_response("list_tasks", {"taskArns": [f"{TASK}0", TASK]})
    assert list(actions.running_tasks(None, {"0a1b0", "0a1b"})) == []
    ecs.assert_no_pending_responses()
