"""The simulator's ECS and EC2 refuse what the sandbox's refuse: the documented limits of the API references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sandbox.cluster.api import Ec2Api, EcsApi
from sandbox.cluster.model.cluster import AwsApiError
from simulator.cloud.ec2 import VirtualDriver
from simulator.world import CLUSTER, TRAINING_FAMILY, World

RANK = {"cluster": CLUSTER, "taskDefinition": TRAINING_FAMILY}
LONG = {"containerOverrides": [{"name": "train", "command": ["x" * 8_192]}]}
ECS: list[tuple[str, dict[str, Any], str]] = [
    ("run_task", RANK | {"count": 11}, "count must be between 1 and 10"),
    ("run_task", RANK | {"overrides": LONG}, "Container Overrides length must be at most 8192"),
    ("run_task", RANK | {"startedBy": "x" * 129}, "startedBy must be at most 128"),
    ("run_task", RANK | {"startedBy": "by.a.person"}, "letters, numbers, hyphens, slashes and underscores"),
    ("run_task", RANK | {"clientToken": "x" * 65}, "clientToken must be 1 to 64"),
    ("run_task", RANK | {"placementConstraints": [{"type": "distinctInstance"}] * 11}, "at most 10 items"),
    (
        "stop_task",
        {"cluster": CLUSTER, "task": "1", "reason": "r" * 1_025},
        "was not found|reason must be at most 1024",
    ),
    ("describe_tasks", {"cluster": CLUSTER, "tasks": ["1"] * 101}, "more than 100 elements"),
    ("describe_container_instances", {"cluster": CLUSTER, "containerInstances": ["1"] * 101}, "at most 100 items"),
    (
        "update_container_instances_state",
        {"cluster": CLUSTER, "containerInstances": ["1"] * 11, "status": "DRAINING"},
        "at most 10 items",
    ),
]
"""Requests to ECS beyond a limit, each with the refusal."""
EC2: list[tuple[str, dict[str, Any], str]] = [
    ("describe_instances", {"Filters": [{"Name": "instance-id", "Values": ["i-1"] * 201}]}, "at most 200 values"),
    ("describe_instance_status", {"InstanceIds": ["i-1"] * 101}, "At most 100 instance IDs"),
]
"""Requests to EC2 beyond a limit, each with the refusal."""


def refusal(call: Callable[[], object], why: str) -> tuple[str, str]:
    """The code and the message with which a request is refused."""
    with pytest.raises((AwsApiError, ClientError), match=why) as raised:
        call()
    error = raised.value
    if isinstance(error, AwsApiError):
        return error.code, error.message
    return error.response["Error"]["Code"], error.response["Error"]["Message"]


@pytest.mark.parametrize(("operation", "request_", "why"), ECS)
def test_both_refuse_a_request_to_ecs_beyond_a_limit_in_the_same_words(
    operation: str, request_: dict[str, Any], why: str
) -> None:
    """The product calls the simulator's client; boto3 calls the sandbox's API. Nothing is started or changed."""
    world = World(instances=1)
    driver: Any = VirtualDriver(world.fleet)
    sandbox = EcsApi(driver, world.definitions)
    found = refusal(lambda: getattr(world.actions.ecs.client, operation)(**request_), why)
    assert refusal(lambda: getattr(sandbox, operation)(**request_), why) == found
    assert not world.cluster.tasks.values()


@pytest.mark.parametrize("operation", ["list_tasks", "list_container_instances"])
@pytest.mark.parametrize("size", [0, 101])
def test_a_page_of_ecs_has_between_1_and_100_items(operation: str, size: int) -> None:
    """The simulator's paginator asks for no size, as the product does, and gives pages of a hundred."""
    world = World(instances=101)
    driver: Any = VirtualDriver(world.fleet)
    sandbox = EcsApi(driver, world.definitions)
    code, _ = refusal(lambda: getattr(sandbox, operation)(cluster=CLUSTER, maxResults=size), "between 1 and 100")
    assert code == "InvalidParameterException"
    pages = list(world.actions.ecs.client.get_paginator("list_container_instances").paginate(cluster=CLUSTER))
    assert [len(page["containerInstanceArns"]) for page in pages] == [100, 1]


@pytest.mark.parametrize(("operation", "request_", "why"), EC2)
def test_both_refuse_a_request_to_ec2_beyond_a_limit(operation: str, request_: dict[str, Any], why: str) -> None:
    """The product asks in smaller pieces."""
    world = World(instances=1)
    driver: Any = VirtualDriver(world.fleet)
    power: Any = None
    sandbox = Ec2Api(driver, power)
    found = refusal(lambda: getattr(world.actions.ec2.client, operation)(**request_), why)
    assert refusal(lambda: getattr(sandbox, operation)(**request_), why) == found
