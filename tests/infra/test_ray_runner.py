"""The function that reaches a Ray cluster: made where a deployment names one, and only there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.aws.ray_client import GROUP

from infra.settings import RAY_NEEDS, DeploymentSettings
from infra.settings_error import NAMESPACE, DeploymentSettingsError
from tests.infra.contexts import RAY
from tests.infra.deployment import Deployment, listed

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
NETWORK_INTERFACES = {
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
}
"""What Lambda itself does with the role of a function in a VPC."""


def runner(deployment: Deployment) -> dict[str, Any]:
    """The function."""
    return deployment.only("AWS::Lambda::Function", "Ray")


def test_a_deployment_without_a_cluster_has_nothing_of_it(deployment: Deployment, with_ray: Deployment) -> None:
    """No image to build, no queue, no variable."""
    words = re.compile(r"Ray[A-Z]|RAY_|\bray_|QueuesRay")
    assert words.search(json.dumps(with_ray.templates))
    assert not words.search(json.dumps(deployment.templates).replace("XRay", ""))


def test_it_is_an_image_in_the_clusters_network(with_ray: Deployment) -> None:
    """It has the addresses of the cluster, and an interface where they can be reached."""
    function = runner(with_ray)
    assert function["PackageType"] == "Image" and function["FunctionName"] == "gpu-recovery-ray_runner"
    assert function["VpcConfig"] == {"SubnetIds": ["subnet-0a1b2c3d"], "SecurityGroupIds": ["sg-0a1b2c3d"]}
    variables = function["Environment"]["Variables"]
    assert variables["RAY_DASHBOARD"] == "http://ray.internal:8265"
    assert variables["RAY_CONTROL_STORE"] == "ray.internal:6379"


def test_the_variables_are_those_that_the_handler_reads(with_ray: Deployment) -> None:
    """A name that differs on one side is found at the first job."""
    text = (ROOT / "ray_runner" / "handler.py").read_text()
    read = set(re.findall(r'os\.environ\["(\w+)"\]', text))
    assert read == {"RAY_DASHBOARD", "RAY_CONTROL_STORE"}
    assert read <= set(runner(with_ray)["Environment"]["Variables"])


def test_everybody_who_moves_jobs_can_wake_it(with_ray: Deployment) -> None:
    """Every function has the queue's address, and those that act may send to it."""
    others = with_ray.package_functions().values()
    assert len({function["Environment"]["Variables"]["RAY_QUEUE_URL"] for function in others}) == 1
    senders = [
        name
        for name, policy in with_ray.of_type("AWS::IAM::Policy").items()
        for statement in policy["PolicyDocument"]["Statement"]
        if "sqs:SendMessage" in listed(statement["Action"]) and "QueuesRay.Arn" in listed(statement["Resource"])
    ]
    assert len(senders) == len(others) - 1  # the event recorder moves no job


def test_it_is_alone_and_nothing_stands_in_its_way_for_long(with_ray: Deployment) -> None:
    """One message group; a message that fails twice makes way, and its dead letters are watched."""
    queue = with_ray.of_type("AWS::SQS::Queue")["QueuesRay"]
    assert queue["FifoQueue"] and queue["RedrivePolicy"]["maxReceiveCount"] == 2
    assert queue["VisibilityTimeout"] > runner(with_ray)["Timeout"]
    assert queue["DelaySeconds"] > 0
    assert any("RayDeadLetters" in name for name in with_ray.of_type("AWS::CloudWatch::Alarm"))
    rule = with_ray.only("AWS::Events::Rule", "Ray")
    assert list(rule["Targets"][0]["SqsParameters"]) == ["MessageGroupId"]


def test_both_sides_name_the_same_message_group(with_ray: Deployment) -> None:
    """Two groups would be two runs at once."""
    rule = with_ray.only("AWS::Events::Rule", "Ray")
    assert rule["Targets"][0]["SqsParameters"]["MessageGroupId"] == GROUP


def test_its_role_has_nothing_to_do_with_machines(with_ray: Deployment) -> None:
    """It moves jobs and tells of it; the interfaces of its network are all that it has of EC2."""
    (policy,) = (
        one for one in with_ray.of_type("AWS::IAM::Policy").values() if any("RayRole" in role for role in one["Roles"])
    )
    actions = {action for statement in policy["PolicyDocument"]["Statement"] for action in listed(statement["Action"])}
    assert {one for one in actions if one.startswith("ec2:")} == NETWORK_INTERFACES
    assert not {one for one in actions if one.startswith(("ecs:", "autoscaling:", "secretsmanager:"))}
    assert {one for one in actions if one.startswith("s3:")} == {"s3:PutObject"}  # records of its jobs


def test_the_api_alone_may_ask_it_for_logs(with_ray: Deployment, deployment: Deployment) -> None:
    """By its name, which every function is told and nobody without a cluster; and nothing else may call it."""
    callers = {
        str(policy["Roles"]): statement["Resource"]
        for policy in with_ray.of_type("AWS::IAM::Policy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        if "lambda:InvokeFunction" in listed(statement["Action"]) and "ray_runner" in str(statement["Resource"])
    }
    ((role, arns),) = callers.items()
    assert "JobApi" in role
    (arn,) = (one for one in listed(arns) if "ray_runner" in one)
    assert arn.endswith(":function:gpu-recovery-ray_runner")
    names = {
        function["Environment"]["Variables"].get("RAY_RUNNER_FUNCTION")
        for function in with_ray.package_functions().values()
    }
    assert names == {runner(with_ray)["FunctionName"]}
    assert "ray_runner" not in str(deployment.templates)


@pytest.mark.parametrize("missing", RAY_NEEDS)
def test_a_cluster_without_its_network_is_refused_by_name(missing: str) -> None:
    """Before a single resource exists."""
    with pytest.raises(DeploymentSettingsError, match=f"^{NAMESPACE}{missing}: is needed"):
        DeploymentSettings.from_context({key: value for key, value in RAY.items() if key != NAMESPACE + missing})


def test_the_image_has_what_its_dockerfile_copies(validated: dict[str, Path]) -> None:
    """What is left out of the build's context, which is in the assembly, cannot be copied into the image."""
    text = (ROOT / "ray_runner" / "Dockerfile").read_text()
    copied = [line.split()[1] for line in text.splitlines() if line.startswith("COPY")]
    (context,) = (path for path in validated["ray"].glob("asset.*") if (path / "ray_runner").is_dir())
    assert copied and all(list(context.glob(one)) for one in copied)
    assert {path.name for path in context.iterdir()} == {"lambdas", "ray_runner"}


def test_the_image_has_the_releases_that_the_tests_run_with() -> None:
    """Each package of the image is pinned, and to the release of the project's own requirements."""
    image, tested = _pins("ray_runner/requirements.txt"), _pins("requirements-test.txt")
    tested |= _pins("requirements-demo.txt") | _pins("requirements-deploy.txt")
    assert "ray[default]" in image
    assert image.items() <= tested.items()


def _pins(path: str) -> dict[str, str]:
    """Each line of a requirements file that is no comment: the package with its extras, and its release."""
    lines = [line for line in (ROOT / path).read_text().splitlines() if line and not line.startswith(("#", "-r "))]
    pins = [re.fullmatch(r"([\w.-]+(?:\[[\w,-]+\])?)==([\w.]+)", line) for line in lines]
    assert pins and all(pins), [line for line, pin in zip(lines, pins, strict=True) if pin is None]
    return {pin[1]: pin[2] for pin in pins if pin is not None}
