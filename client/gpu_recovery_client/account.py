"""Checks of the AWS account: settings of EC2, Auto Scaling and ECS that work against recovery.

The calls are made with the AWS credentials of the caller, so no function and no instance needs a further permission:
`ec2:DescribeInstances`, `autoscaling:DescribeAutoScalingInstances`, `autoscaling:DescribeAutoScalingGroups` and, if the
cluster is named, `ecs:ListContainerInstances` and `ecs:DescribeContainerInstances`. They need botocore, which the extra
`iam` installs. docs/deploy.md has the reasons behind each check.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_recovery_client.errors import ClientError, SettingsMissing

BOTOCORE_MISSING = "the account is read with botocore, which is missing: pip install 'gpu-recovery[iam]'"
BATCH = 50
"""Largest number of instances or groups in one request, the limit of Auto Scaling."""
SUSPENDED = ("HealthCheck", "ReplaceUnhealthy", "AZRebalance")
"""Processes of an Auto Scaling group that must be suspended."""
RUNS_AWSVPC, BLOCKS_METADATA = "ecs.capability.task-eni", "ecs.capability.task-eni-block-instance-metadata"
"""Attributes by which an ECS agent shows that it runs tasks in awsvpc mode, and that ECS_AWSVPC_BLOCK_IMDS is set."""
Described = Mapping[str, Any]


@dataclass(frozen=True)
class AccountFinding:
    """One setting to change: the instance or group, what is wrong with it, and the command that changes it.

    The command of a setting of the ECS agent is run on the instance.
    """

    subject: str
    sentence: str
    command: str


def account_findings(instance_ids: Sequence[str], region: str, cluster: str = "") -> list[AccountFinding]:
    """Return what is to be changed for these instances.

    Args:
        instance_ids: ids of EC2 instances.
        region: region of the instances.
        cluster: name of the ECS cluster; "" leaves out the settings of the ECS agents.

    Raises:
        SettingsMissing: botocore or the credentials are missing.
        ClientError: AWS refused a call.
    """
    try:
        session = importlib.import_module("botocore.session").get_session()
        errors: Any = importlib.import_module("botocore.exceptions")
    except ImportError:
        raise SettingsMissing(BOTOCORE_MISSING) from None
    try:
        ec2 = session.create_client("ec2", region_name=region)
        auto_scaling = session.create_client("autoscaling", region_name=region)
        described = [instance for batch in _batches(instance_ids) for instance in _instances(ec2, batch)]
        members = [
            member
            for batch in _batches(instance_ids)
            for member in auto_scaling.describe_auto_scaling_instances(InstanceIds=batch)["AutoScalingInstances"]
        ]
        names = sorted({member["AutoScalingGroupName"] for member in members})
        groups = [
            group
            for batch in _batches(names)
            for group in auto_scaling.describe_auto_scaling_groups(AutoScalingGroupNames=batch)["AutoScalingGroups"]
        ]
        members_of_cluster = _registered(session.create_client("ecs", region_name=region), cluster) if cluster else ()
        registered = [one for one in members_of_cluster if one.get("ec2InstanceId") in instance_ids]
    except (errors.NoCredentialsError, errors.PartialCredentialsError) as error:
        raise SettingsMissing("there are no AWS credentials to read the account with: set AWS_PROFILE") from error
    except (errors.BotoCoreError, errors.ClientError) as error:
        raise ClientError(f"AWS did not answer: {error}") from error
    return [
        *_unknown(instance_ids, described, region),
        *metadata(described),
        *ecs_agents(registered),
        *(_unregistered(instance_ids, registered, cluster) if cluster else ()),
        *auto_scaling_groups(groups, members),
    ]


def metadata(instances: Iterable[Described]) -> Iterator[AccountFinding]:
    """Yield a finding for each instance whose metadata service gives away the credentials of its role."""
    for instance in instances:
        options, name = instance.get("MetadataOptions", {}), instance["InstanceId"]
        if options.get("HttpEndpoint") == "disabled":
            continue
        wrong = []
        if options.get("HttpTokens") != "required":
            wrong.append("it answers requests without a session token (HttpTokens is not required)")
        hops = options.get("HttpPutResponseHopLimit", 1)
        if hops > 1:
            wrong.append(f"containers on a bridge network reach it (the hop limit is {hops})")
        if wrong:
            command = (
                f"aws ec2 modify-instance-metadata-options --instance-id {name} "
                "--http-tokens required --http-put-response-hop-limit 1"
            )
            sentence = f"the metadata service gives away the credentials of the instance's role: {'; '.join(wrong)}"
            yield AccountFinding(name, sentence, command)


def ecs_agents(container_instances: Iterable[Described]) -> Iterator[AccountFinding]:
    """Yield a finding for each instance on which tasks in awsvpc mode reach the metadata service.

    The ranks of jobs are in host mode, which no setting of the agent keeps from the service.
    """
    for instance in container_instances:
        attributes = {attribute["name"] for attribute in instance.get("attributes", ())}
        if RUNS_AWSVPC in attributes and BLOCKS_METADATA not in attributes:
            yield AccountFinding(
                instance["ec2InstanceId"],
                "tasks in awsvpc mode reach the metadata service, because ECS_AWSVPC_BLOCK_IMDS is not set for the ECS "
                "agent. Run the command on the instance, and put it into the user data of new instances",
                "echo ECS_AWSVPC_BLOCK_IMDS=true | sudo tee -a /etc/ecs/ecs.config && sudo systemctl restart ecs",
            )


def auto_scaling_groups(groups: Iterable[Described], members: Sequence[Described]) -> Iterator[AccountFinding]:
    """Yield a finding for each way in which a group may terminate an instance that gpu-recovery works with."""
    for group in groups:
        name = group["AutoScalingGroupName"]
        suspended = {process["ProcessName"] for process in group.get("SuspendedProcesses", ())}
        active = [process for process in SUSPENDED if process not in suspended]
        if active:
            yield AccountFinding(
                name,
                f"the group may replace an instance in the middle of its repair: {', '.join(active)} must be suspended",
                f"aws autoscaling suspend-processes --auto-scaling-group-name {name} "
                f"--scaling-processes {' '.join(active)}",
            )
        if not group.get("NewInstancesProtectedFromScaleIn"):
            yield AccountFinding(
                name,
                "a scale-in may terminate an instance that runs a rank: new instances are not protected",
                f"aws autoscaling update-auto-scaling-group --auto-scaling-group-name {name} "
                "--new-instances-protected-from-scale-in",
            )
        exposed = sorted(
            member["InstanceId"]
            for member in members
            if member["AutoScalingGroupName"] == name and not member["ProtectedFromScaleIn"]
        )
        for batch in _batches(exposed):
            yield AccountFinding(
                name,
                f"a scale-in may terminate an instance that runs a rank: {', '.join(batch)} must be protected",
                f"aws autoscaling set-instance-protection --auto-scaling-group-name {name} "
                f"--instance-ids {' '.join(batch)} --protected-from-scale-in",
            )


def _unknown(instance_ids: Sequence[str], described: Iterable[Described], region: str) -> Iterator[AccountFinding]:
    known = {instance["InstanceId"] for instance in described}
    for name in instance_ids:
        if name not in known:
            sentence = f"the instance is not in {region} of this account, so its settings were not checked"
            yield AccountFinding(name, sentence, "aws sts get-caller-identity")


def _unregistered(
    instance_ids: Sequence[str], registered: Iterable[Described], cluster: str
) -> Iterator[AccountFinding]:
    known = {instance["ec2InstanceId"] for instance in registered}
    for name in instance_ids:
        if name not in known:
            sentence = f"the instance is not registered in the cluster {cluster}, so its ECS agent was not checked"
            yield AccountFinding(name, sentence, "aws ecs list-clusters")


def _instances(ec2: Any, instance_ids: Sequence[str]) -> Iterator[Described]:
    # An id that EC2 no longer knows would make a request by InstanceIds fail for all ids.
    pages = ec2.get_paginator("describe_instances").paginate(Filters=[{"Name": "instance-id", "Values": instance_ids}])
    for page in pages:
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]


def _registered(ecs: Any, cluster: str) -> Iterator[Described]:
    for page in ecs.get_paginator("list_container_instances").paginate(cluster=cluster):
        for batch in _batches(page["containerInstanceArns"]):
            described = ecs.describe_container_instances(cluster=cluster, containerInstances=batch)
            yield from described["containerInstances"]


def _batches(names: Sequence[str]) -> Iterator[list[str]]:
    for first in range(0, len(names), BATCH):
        yield list(names[first : first + BATCH])
