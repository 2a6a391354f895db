"""`gpu-recovery init` on a running deployment: the settings that it reads are those that the stacks were made with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from gpu_recovery_client.account import deployment as running
from gpu_recovery_client.account.access import Account
from gpu_recovery_client.account.survey import NOT_SHOWN, settings_of

from infra.settings import DeploymentSettings
from infra.settings_error import NAMESPACE
from tests.infra.contexts import LAYER_ARN
from tests.infra.deployment import Deployment

pytestmark = pytest.mark.slow

ROLE = "arn:aws:iam::111122223333:role/"
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/"
NAMES = {
    "cluster_name": "lab-gpus",
    "stack_name": "Lab",
    "function_name_prefix": "lab-",
    "check_family": "lab-check",
    "job_table_name": "lab-jobs",
    "instance_table_name": "lab-instances",
    "event_history_table_name": "lab-history",
    "topic_name": "lab-notifications",
    "bus_name": "lab",
}
SIGNED: dict[str, Any] = {
    **NAMES,
    "training_task_families": ("llm", "vision"),
    "training_role_arns": (f"{ROLE}training",),
    "training_log_groups": ("/ecs/llm",),
    "node_role_arns": (f"{ROLE}nodes",),
    "api_auth": "iam",
    "api_roles": {f"{ROLE}operators": "operator"},
    "adopt": "recover",
    "managed_tag_key": "team:healed",
    "managed_tag_value": "yes",
    "preset": "classic",
    "policy": {"attempts_max": 5, "check_timeout_s": 9_000, "verify_timeout_s": 9_000},
    "replace": True,
    "tag_repairs": True,
    "record_attempts": False,
    "observe_only": True,
    "user_priority_max": "HIGH",
    "job_id_prefix": "lab",
    "health_check_image": f"{IMAGE}checks@sha256:{64 * '7'}",
    "node_agent": "daemon",
    "check_level": 3,
    "check_reserves_gpus": False,
    "check_host_engine": "host",
    "xid_policy": "aws",
    "ray_dashboard": "http://ray.internal:8265",
    "ray_control_store": "ray.internal:6379",
    "ray_subnet_ids": ("subnet-0a1b2c3d",),
    "ray_security_group_ids": ("sg-0a1b2c3d",),
    "ray_image": f"{IMAGE}ray@sha256:{64 * '8'}",
    "console_url": "https://heal.example.com",
    "gpu_history": "off",
    "chat_topic": True,
    "alert_emails": ("ops@example.com",),
    "alert_endpoints": ("https://alerts.example.com/gpu", "arn:aws:sqs:us-east-1:111122223333:incidents"),
    "profile": "prod",
    "log_retention_days": 120,
    "log_level": "ERROR",
    "reserved_concurrency": 2,
    "snap_start": True,
    "powertools_layer": LAYER_ARN,
}
"""Every setting of the stacks that requests with signatures allow, off its default."""
REST: dict[str, Any] = {
    "console": "off",
    "build_agent_image": True,
    "health_check_image": "",
    "powertools_layer": LAYER_ARN,
}
"""The other settings."""


class FakeAccount:
    """The account after the deployment of the templates, as far as `settings_of` reads it."""

    def __init__(self, deployed: Deployment, name: str) -> None:
        self.deployed, self.name = deployed, name
        self.names = {
            logical_id: str(properties[key])
            for kind, key in (
                ("AWS::Lambda::Function", "FunctionName"),
                ("AWS::DynamoDB::Table", "TableName"),
                ("AWS::Events::EventBus", "Name"),
            )
            for logical_id, properties in deployed.of_type(kind).items()
            if key in properties
        }
        family = deployed.only("AWS::ECS::TaskDefinition", "HealthCheck")["Family"]
        topics = [one["TopicName"] for one in deployed.of_type("AWS::SNS::Topic").values()]
        (topic,) = (one for one in topics if not one.endswith("-chat"))
        self.outputs = {
            **{key: self.names.get(value, value) for key, value in deployed.outputs(name).items()},
            "HealthCheckTaskDefinitionArn": f"arn:aws:ecs:us-east-1:111122223333:task-definition/{family}:7",
            "TopicArn": f"arn:aws:sns:us-east-1:111122223333:{topic}",
        }

    def _function(self, name: str) -> Mapping[str, Any]:
        functions = self.deployed.of_type("AWS::Lambda::Function").values()
        (found,) = (one for one in functions if one.get("FunctionName") == name)
        return found

    def call(self, service: str, operation: str, **parameters: Any) -> Any:
        """The answer of AWS, with the keys that are read."""
        if operation == "describe_stacks":
            protected = self.deployed.termination_protection[parameters["StackName"]]
            return {"Stacks": [{"EnableTerminationProtection": protected}]}
        if operation == "describe_task_definition":
            container = self.deployed.only("AWS::ECS::TaskDefinition", "HealthCheck")["ContainerDefinitions"][0]
            environment = [{"name": one["Name"], "value": one["Value"]} for one in container["Environment"]]
            return {
                "taskDefinition": {"containerDefinitions": [{"image": container["Image"], "environment": environment}]}
            }
        function = self._function(parameters["FunctionName"])
        if operation == "get_function_concurrency":
            return {key: function[key] for key in ("ReservedConcurrentExecutions",) if key in function}
        assert operation == "get_function_configuration", (service, operation)
        network = function.get("VpcConfig", {})
        return {
            "Environment": function["Environment"],
            "SnapStart": function.get("SnapStart", {"ApplyOn": "None"}),
            "Layers": [{"Arn": arn} for arn in function.get("Layers", ())],
            "VpcConfig": {key: network.get(key, []) for key in ("SubnetIds", "SecurityGroupIds")},
        }

    def items(self, service: str, operation: str, key: str, **parameters: Any) -> Iterator[Any]:
        """The items of an answer."""
        if operation == "list_subscriptions_by_topic":
            yield from self.deployed.of_type("AWS::SNS::Subscription").values()
        elif operation == "describe_log_groups":
            name = parameters["logGroupNamePrefix"]
            yield {"logGroupName": name, "retentionInDays": self._log_group(name)["RetentionInDays"]}
        else:
            assert operation == "list_stack_resources", (service, operation)
            for qualified, resource in self.deployed.resources.items():
                stack, logical_id = qualified.split("/")
                if stack == self.name:
                    yield {
                        "LogicalResourceId": logical_id,
                        "PhysicalResourceId": self.names.get(logical_id, logical_id),
                        "ResourceType": resource["Type"],
                    }

    def _log_group(self, name: str) -> Mapping[str, Any]:
        return self.deployed.of_type("AWS::Logs::LogGroup")[name]


def read_back(folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that `init` reads from the stacks of these settings."""
    cdk = import_module("aws_cdk")  # the CDK takes a second
    context = {f"{NAMESPACE}{name}": list(v) if isinstance(v, tuple) else v for name, v in given.items()}
    import_module("app").build(cdk.App(context=context, outdir=str(folder))).synth()
    name = given.get("stack_name", "GpuRecovery")
    return settings_shown(Deployment.read(folder), name)


def settings_shown(deployed: Deployment, name: str) -> dict[str, Any]:
    """The settings that `init` reads from these stacks."""
    account = FakeAccount(deployed, name)
    return settings_of(running.Deployment(cast(Account, account), name, "CREATE_COMPLETE", account.outputs))


@pytest.mark.parametrize("given", [SIGNED, REST], ids=["signed", "rest"])
def test_each_setting_is_read_back_or_named_as_not_shown(tmp_path: Path, given: dict[str, Any]) -> None:
    """A setting that were lost would be undone by the next deployment with the file."""
    expected = DeploymentSettings(**{name: value for name, value in given.items() if name not in NOT_SHOWN})
    assert DeploymentSettings(**read_back(tmp_path, given)) == expected


def test_a_deployment_of_the_defaults_shows_no_setting(deployment: Deployment) -> None:
    """Only the settings that differ from the defaults are written."""
    assert settings_shown(deployment, "GpuRecovery") == {}


def test_every_setting_is_off_its_default_or_named_as_not_shown() -> None:
    """So a new setting cannot be forgotten."""
    default = DeploymentSettings()
    moved = {name for given in (SIGNED, REST) for name, value in given.items() if value != getattr(default, name)}
    assert moved | {*NOT_SHOWN} == {each.name for each in fields(DeploymentSettings)}
