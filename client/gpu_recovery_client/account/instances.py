"""Checks of the GPU instances of the cluster and of their Auto Scaling groups. docs/deploy.md has the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gpu_recovery_client.account.access import Account, Described, batches
from gpu_recovery_client.account.findings import Finding, Settings

SUSPENDED = ("HealthCheck", "ReplaceUnhealthy", "AZRebalance")
"""Processes of an Auto Scaling group that must be suspended."""
RUNS_AWSVPC, BLOCKS_METADATA = "ecs.capability.task-eni", "ecs.capability.task-eni-block-instance-metadata"
"""Attributes by which an ECS agent shows that it runs tasks in awsvpc mode, and that ECS_AWSVPC_BLOCK_IMDS is set."""
PRIVILEGED = "com.amazonaws.ecs.capability.privileged-container"
"""Attribute by which an ECS agent shows that it starts privileged containers."""
ARCHITECTURES = {"x86_64": "x86_64", "arm64": "arm64", "amd64": "x86_64"}
"""Names of processor architectures in ECS, EC2 and image manifests, by one name for each."""


@dataclass(frozen=True)
class Fleet:
    """The instances of a deployment as AWS describes them.

    names:      ids of the instances that the checks are about.
    registered: the container instances of these instances.
    described:  the instances in EC2.
    members:    the instances in Auto Scaling.
    groups:     their Auto Scaling groups.
    """

    names: Sequence[str]
    registered: Sequence[Described] = ()
    described: Sequence[Described] = ()
    members: Sequence[Described] = ()
    groups: Sequence[Described] = field(default=())

    @property
    def architectures(self) -> dict[str, list[str]]:
        """The ids of instances by their processor architecture."""
        found: dict[str, list[str]] = {}
        for instance in self.described:
            named = str(instance.get("Architecture", ""))
            kind = ARCHITECTURES.get(named, named)
            found.setdefault(kind, []).append(instance["InstanceId"])
        return found


def container_instances(account: Account, cluster: str) -> list[Described]:
    """Return the container instances of a cluster."""
    arns = [*account.items("ecs", "list_container_instances", "containerInstanceArns", cluster=cluster)]
    return [
        one
        for batch in batches(arns)
        for one in account.call("ecs", "describe_container_instances", cluster=cluster, containerInstances=batch)[
            "containerInstances"
        ]
    ]


def gpus_of(container_instance: Described) -> list[str]:
    """Return the ids of the GPUs that a container instance has registered."""
    resources = {resource["name"]: resource for resource in container_instance.get("registeredResources", ())}
    return list(resources.get("GPU", {}).get("stringSetValue", ()))


def read_fleet(account: Account, names: Sequence[str], registered: Sequence[Described] = ()) -> Fleet:
    """Return what EC2 and Auto Scaling say about these instances. Instances of ECS Anywhere are in neither."""
    of_ec2 = [name for name in names if name.startswith("i-")]
    # An id that EC2 no longer knows would make a request by InstanceIds fail for all ids.
    described = [
        instance
        for batch in batches(of_ec2)
        for reservation in account.items(
            "ec2", "describe_instances", "Reservations", Filters=[{"Name": "instance-id", "Values": batch}]
        )
        for instance in reservation["Instances"]
    ]
    members = [
        member
        for batch in batches(of_ec2)
        for member in account.call("autoscaling", "describe_auto_scaling_instances", InstanceIds=batch)[
            "AutoScalingInstances"
        ]
    ]
    groups = [
        group
        for batch in batches(sorted({member["AutoScalingGroupName"] for member in members}))
        for group in account.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=batch)[
            "AutoScalingGroups"
        ]
    ]
    return Fleet(of_ec2, registered, described, members, groups)


def check_instances(fleet: Fleet, settings: Settings, region: str) -> Iterator[Finding]:
    """Yield findings about the instances themselves."""
    yield from _unknown(fleet, region)
    if settings.knows("managed_tag_key"):
        yield from tags(fleet.described, settings)
    yield from metadata(fleet.described)
    yield from ecs_agents(fleet.registered)
    yield from unprivileged(fleet.registered)


def tags(instances: Iterable[Described], settings: Settings) -> Iterator[Finding]:
    """Yield a finding for the instances without the opt-in tag."""
    key, value = settings["managed_tag_key"], settings["managed_tag_value"]
    without = [one["InstanceId"] for one in instances if _tags(one).get(key) != value]
    for batch in batches(sorted(without)):
        yield Finding(
            "instances",
            ", ".join(batch),
            f"the tag {key} = {value} is missing",
            "IAM lets the stack reboot only instances with this tag, so a faulty instance without it is not repaired. "
            "Let the launch template or the Auto Scaling group set it for new instances",
            f"aws ec2 create-tags --resources {' '.join(batch)} --tags Key={key},Value={value}",
        )


def metadata(instances: Iterable[Described]) -> Iterator[Finding]:
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
            yield Finding(
                "instances",
                name,
                f"the metadata service gives away the credentials of the instance's role: {'; '.join(wrong)}",
                "a training program could act as the instance, for example report as another node",
                f"aws ec2 modify-instance-metadata-options --instance-id {name} "
                "--http-tokens required --http-put-response-hop-limit 1",
            )


def ecs_agents(container_instances: Iterable[Described]) -> Iterator[Finding]:
    """Yield a finding for each instance on which tasks in awsvpc mode reach the metadata service.

    The ranks of jobs are in host mode, which no setting of the agent keeps from the service.
    """
    for instance in container_instances:
        attributes = {attribute["name"] for attribute in instance.get("attributes", ())}
        if RUNS_AWSVPC in attributes and BLOCKS_METADATA not in attributes:
            yield Finding(
                "instances",
                instance["ec2InstanceId"],
                "tasks in awsvpc mode reach the metadata service, because ECS_AWSVPC_BLOCK_IMDS is not set for the ECS "
                "agent. Run the command on the instance, and put it into the user data of new instances",
                "these tasks could act as the instance",
                "echo ECS_AWSVPC_BLOCK_IMDS=true | sudo tee -a /etc/ecs/ecs.config && sudo systemctl restart ecs",
            )


def unprivileged(container_instances: Iterable[Described]) -> Iterator[Finding]:
    """Yield a finding for each instance whose ECS agent refuses privileged containers."""
    for instance in container_instances:
        attributes = {attribute["name"] for attribute in instance.get("attributes", ())}
        if PRIVILEGED not in attributes:
            yield Finding(
                "instances",
                instance["ec2InstanceId"],
                "the ECS agent refuses privileged containers. Run the command on the instance; on Bottlerocket set "
                "settings.ecs.allow-privileged-containers = true in the user data",
                "the container of the health check is privileged, so no check starts on this instance",
                "sudo sed -i /ECS_DISABLE_PRIVILEGED/d /etc/ecs/ecs.config && sudo systemctl restart ecs",
            )


def check_auto_scaling(fleet: Fleet, settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each way in which a group may disturb a repair, or cannot be repaired."""
    for group in fleet.groups:
        yield from _group(group, fleet.members)
        if settings.knows("managed_tag_key"):
            yield from _group_tag(group, settings)


def _group(group: Described, members: Sequence[Described]) -> Iterator[Finding]:
    name = group["AutoScalingGroupName"]
    suspended = {process["ProcessName"] for process in group.get("SuspendedProcesses", ())}
    active = [process for process in SUSPENDED if process not in suspended]
    if active:
        yield Finding(
            "autoscaling",
            name,
            f"the group may replace an instance in the middle of its repair: {', '.join(active)} must be suspended",
            "the health checks of the group do not know that gpu-recovery reboots an instance",
            f"aws autoscaling suspend-processes --auto-scaling-group-name {name} "
            f"--scaling-processes {' '.join(active)}",
        )
    lost = "the job is relaunched elsewhere, and the evidence on the instance is lost"
    if not group.get("NewInstancesProtectedFromScaleIn"):
        yield Finding(
            "autoscaling",
            name,
            "a scale-in may terminate an instance that runs a rank: new instances are not protected",
            lost,
            f"aws autoscaling update-auto-scaling-group --auto-scaling-group-name {name} "
            "--new-instances-protected-from-scale-in",
        )
    exposed = sorted(
        member["InstanceId"]
        for member in members
        if member["AutoScalingGroupName"] == name and not member["ProtectedFromScaleIn"]
    )
    for batch in batches(exposed):
        yield Finding(
            "autoscaling",
            name,
            f"a scale-in may terminate an instance that runs a rank: {', '.join(batch)} must be protected",
            lost,
            f"aws autoscaling set-instance-protection --auto-scaling-group-name {name} "
            f"--instance-ids {' '.join(batch)} --protected-from-scale-in",
        )


def _group_tag(group: Described, settings: Settings) -> Iterator[Finding]:
    key, value = settings["managed_tag_key"], settings["managed_tag_value"]
    name = group["AutoScalingGroupName"]
    tag = next((one for one in group.get("Tags", ()) if one["Key"] == key and one.get("Value") == value), None)
    if tag is None and settings.knows("replace") and settings["replace"]:
        yield Finding(
            "autoscaling",
            name,
            f"the group lacks the tag {key} = {value}",
            "IAM tests the tag of the group before it replaces an instance, so no instance of the group is replaced",
            f"aws autoscaling create-or-update-tags --tags ResourceId={name},ResourceType=auto-scaling-group,"
            f"Key={key},Value={value},PropagateAtLaunch=true",
        )


def _unknown(fleet: Fleet, region: str) -> Iterator[Finding]:
    known = {instance["InstanceId"] for instance in fleet.described}
    for name in fleet.names:
        if name not in known:
            yield Finding(
                "instances",
                name,
                f"the instance is not in {region} of this account, so its settings were not checked",
                "the credentials may be for another account than the deployment's",
                "aws sts get-caller-identity",
            )


def check_registered(fleet: Fleet, cluster: str) -> Iterator[Finding]:
    """Yield a finding for each instance that is not in the cluster."""
    known = {instance["ec2InstanceId"] for instance in fleet.registered}
    for name in fleet.names:
        if name not in known:
            yield Finding(
                "cluster",
                name,
                f"the instance is not registered in the cluster {cluster}, so its ECS agent was not checked",
                "gpu-recovery works with the container instances of one cluster",
                "aws ecs list-clusters",
            )


def _tags(instance: Described) -> dict[str, str]:
    return {tag["Key"]: tag.get("Value", "") for tag in instance.get("Tags", ())}
