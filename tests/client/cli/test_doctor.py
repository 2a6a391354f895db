"""The verb doctor, against an account in memory: each finding comes with the command that ends it."""

from __future__ import annotations

import gc
import importlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import moto.utilities.utils
import pytest
from gpu_recovery_client.account.instances import PRIVILEGED
from gpu_recovery_client.cli import doctor
from moto import mock_aws
from typer.testing import Result

from tests.client.conftest import FakeApi

pytestmark = pytest.mark.slow

REGION, GROUP, TYPE = "cn-north-1", "gpus", "p5.48xlarge"
Run = Callable[..., Result]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty account, with the caller's credentials for it.

    moto gets no images, one instance type, and the offerings of one region. All of them would take 250 MB.
    """
    load = moto.utilities.utils.load_resource

    def of_the_region(path: str) -> Any:
        if "/instance_type_offerings/" in path and f"/{REGION}." not in path:
            return []
        found = load(path)
        return {TYPE: found[TYPE]} if path.endswith("/instance_types.json") else found

    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    monkeypatch.setattr(moto.utilities.utils, "load_resource", of_the_region)
    importlib.import_module("moto.ec2.models.instance_types")
    for name, value in {"REGION": REGION, "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(
        doctor, "of_address", lambda account, api_url: None
    )  # moto's CloudFormation needs more packages
    with mock_aws():
        yield
    gc.collect()  # the account and its clients refer to each other, 40 MB for each test


def client(service: str) -> Any:
    return boto3.client(service, region_name=REGION)


def launch(api: FakeApi, *, tokens: str = "required", hops: int = 1, number: int = 1) -> list[str]:
    """Instances in an Auto Scaling group, as the API lists them."""
    network = client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    image = client("ec2").register_image(Name="gpu", RootDeviceName="/dev/xvda")["ImageId"]
    client("ec2").create_launch_template(
        LaunchTemplateName="gpu",
        LaunchTemplateData={"ImageId": image, "InstanceType": TYPE},
    )
    client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=GROUP,
        LaunchTemplate={"LaunchTemplateName": "gpu"},
        MinSize=number,
        MaxSize=number,
        VPCZoneIdentifier=network,
    )
    ids = [one["InstanceId"] for one in client("autoscaling").describe_auto_scaling_instances()["AutoScalingInstances"]]
    for name in ids:
        client("ec2").modify_instance_metadata_options(InstanceId=name, HttpTokens=tokens, HttpPutResponseHopLimit=hops)
    api.instances = [{**api.instances[0], "instance_id": name, "status": "AVAILABLE"} for name in ids]
    return ids


def protect(ids: list[str]) -> None:
    """The group as docs/deploy.md asks for it."""
    client("autoscaling").suspend_processes(
        AutoScalingGroupName=GROUP, ScalingProcesses=["HealthCheck", "ReplaceUnhealthy", "AZRebalance"]
    )
    client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=GROUP, NewInstancesProtectedFromScaleIn=True)
    client("autoscaling").set_instance_protection(
        AutoScalingGroupName=GROUP, InstanceIds=ids, ProtectedFromScaleIn=True
    )


def register(name: str, *attributes: str) -> None:
    """The ECS agent of the instance joins the cluster with these attributes."""
    document = json.dumps({"instanceId": name})
    joined = client("ecs").register_container_instance(cluster=GROUP, instanceIdentityDocument=document)
    target = joined["containerInstance"]["containerInstanceArn"]
    client("ecs").put_attributes(
        cluster=GROUP,
        attributes=[
            {"name": name, "targetId": target}
            for name in (PRIVILEGED, *(f"ecs.capability.{attribute}" for attribute in attributes))
        ],
    )


def findings(run: Run, code: int, *options: str) -> list[dict[str, str]]:
    """The findings of the verb, which ends with `code`."""
    result = run("doctor", "--skip", "tokens", "--json", *options)
    assert result.exit_code == code, result.output
    found: list[dict[str, str]] = json.loads(result.stdout)["findings"]
    return found


def carry_out(command: str) -> None:
    """The call that the AWS CLI makes for the command: its options are the parameters of the operation."""
    _, service, operation, *words = shlex.split(command)
    connection = client(service)
    name = operation.replace("-", "_")
    model: Any = connection.meta.service_model.operation_model(connection.meta.method_to_api_mapping[name])
    shapes = {key.lower(): (key, shape) for key, shape in model.input_shape.members.items()}
    asked: dict[str, Any] = {}
    while words:
        option = words.pop(0).removeprefix("--")
        values = [words.pop(0) for _ in range(next((n for n, w in enumerate(words) if w.startswith("--")), len(words)))]
        key, shape = shapes[option.replace("-", "")]
        kind = shape.type_name
        asked[key] = values if kind == "list" else True if kind == "boolean" else values[0]
        if kind == "integer":
            asked[key] = int(values[0])
    getattr(connection, name)(**asked)


@pytest.mark.usefixtures("account")
def test_an_account_set_as_the_documents_ask_has_nothing_to_change(run: Run, api: FakeApi) -> None:
    """Exit code 0 and one line."""
    protect(launch(api))
    result = run("doctor", "--skip", "tokens")
    assert (result.exit_code, result.stdout) == (0, f"checked in {REGION}: instances, autoscaling; nothing to change\n")


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tokens": "optional"}, "without a session token"),
        ({"hops": 2}, "the hop limit is 2"),
    ],
)
def test_metadata_that_gives_credentials_away_is_found(
    run: Run, api: FakeApi, options: dict[str, Any], sentence: str
) -> None:
    """Each option alone; the printed command ends the finding."""
    ids = launch(api, **options)
    protect(ids)
    (found,) = findings(run, 1)
    assert found["subject"] == ids[0] and sentence in found["sentence"]
    carry_out(found["command"])
    assert findings(run, 0) == []


@pytest.mark.usefixtures("account")
def test_a_group_that_may_terminate_an_instance_is_found(run: Run, api: FakeApi) -> None:
    """The processes, the new instances and the present instances; the printed commands end the findings."""
    ids = launch(api, number=2)
    found = findings(run, 1)
    assert [one["subject"] for one in found] == [GROUP] * 3
    assert "ReplaceUnhealthy" in found[0]["sentence"] and "new instances" in found[1]["sentence"]
    assert all(name in found[2]["sentence"] for name in ids)
    for one in found:
        carry_out(one["command"])
    assert findings(run, 0) == []


@pytest.mark.usefixtures("account")
def test_only_the_processes_that_are_active_are_named(run: Run, api: FakeApi) -> None:
    """A command that suspends what is suspended already would hide what is wrong."""
    protect(launch(api))
    client("autoscaling").resume_processes(AutoScalingGroupName=GROUP, ScalingProcesses=["ReplaceUnhealthy"])
    (found,) = findings(run, 1)
    assert found["command"].endswith("--scaling-processes ReplaceUnhealthy")


@pytest.mark.usefixtures("account")
def test_an_agent_that_leaves_the_metadata_to_awsvpc_tasks_is_found(run: Run, api: FakeApi) -> None:
    """If the cluster is named. The last agent runs no task in awsvpc mode, and the API does not list the stranger."""
    ids = launch(api, number=3)
    protect(ids)
    image = {"ImageId": "ami-1", "InstanceType": TYPE}
    (stranger,) = client("ec2").run_instances(MinCount=1, MaxCount=1, **image)["Instances"]
    client("ecs").create_cluster(clusterName=GROUP)
    register(ids[0], "task-eni")
    register(ids[1], "task-eni", "task-eni-block-instance-metadata")
    register(ids[2])
    register(stranger["InstanceId"], "task-eni")
    (found,) = findings(run, 1, "--cluster", GROUP)
    assert found["subject"] == ids[0] and "ECS_AWSVPC_BLOCK_IMDS=true" in found["command"]
    assert findings(run, 0) == []


@pytest.mark.usefixtures("account")
def test_another_cluster_is_no_clean_cluster(run: Run, api: FakeApi) -> None:
    """A misspelt name must not look like agents that are all set well."""
    (name,) = ids = launch(api)
    protect(ids)
    client("ecs").create_cluster(clusterName="others")
    (found,) = findings(run, 1, "--cluster", "others")
    assert found["subject"] == name and "not registered in the cluster others" in found["sentence"]


@pytest.mark.usefixtures("account")
def test_an_instance_of_another_account_is_no_clean_instance(run: Run, api: FakeApi) -> None:
    """The wrong profile or region must not look like a good account; an instance that is GONE is not asked about."""
    api.instances = [
        {**api.instances[0], "instance_id": "i-0aaa00000000000a1", "status": "AVAILABLE"},
        {**api.instances[0], "instance_id": "i-0bbb00000000000b2", "status": "GONE"},
    ]
    (found,) = findings(run, 1)
    assert (found["subject"], "were not checked" in found["sentence"]) == ("i-0aaa00000000000a1", True)


@pytest.mark.usefixtures("account")
def test_an_instance_of_ecs_anywhere_is_not_asked_of_ec2(run: Run, api: FakeApi) -> None:
    """EC2 refuses a call that names an id of Systems Manager, and would then answer about no instance at all."""
    protect(launch(api, hops=2))
    api.instances = [{**api.instances[0], "instance_id": "mi-0a1b2c3d4e5f60718"}, *api.instances]
    (found,) = findings(run, 1)
    assert found["subject"] == api.instances[1]["instance_id"]


@pytest.mark.usefixtures("account")
def test_without_botocore_the_package_to_install_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line alone does not need botocore."""
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    result = run("doctor")
    assert result.exit_code == 2 and "pip install 'gpu-recovery[iam]'" in result.output
