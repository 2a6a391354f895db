"""The survey of an account by `gpu-recovery init`: clusters, task definition families, and deployments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_recovery_client.account.access import Account, Refused, batches
from gpu_recovery_client.account.deployment import Deployment
from gpu_recovery_client.account.findings import DEFAULTS
from gpu_recovery_client.account.instances import container_instances, gpus_of, read_fleet
from gpu_recovery_client.account.tasks import definitions, log_groups_of, needs_gpus, roles_of

CLUSTERS_PER_CALL = 100
FAMILIES_MAX = 300
"""Largest number of families whose task definitions are read: a call for each, at 20 a second."""
SUBSCRIBED = {"email": "alert_emails", "https": "alert_endpoints", "sqs": "alert_endpoints"}
"""Protocols of subscriptions, with the setting that lists the endpoints."""
PROFILE_DAYS = {"dev": 7, "prod": 90}
"""Days for which log groups keep their lines, by profile."""
OWN_IMAGE = "gpu-recovery-health-check:latest"
"""Image in the ECR of the account that an empty `health_check_image` selects."""
NOT_SHOWN = (
    *("health_check_base_image", "agent_base_image", "ray_image", "ray_base_image", "image_revision"),
    *("agent_gpu_reset_instance_types", "agent_gpu_reset_services", "agent_gpu_events"),
    *("reconcile_every_minutes", "schedule_every_minutes", "upgrade_from"),
)
"""Settings that the stacks of a running deployment do not show."""


@dataclass(frozen=True, slots=True)
class Family:
    """A task definition family with GPUs: its network mode, roles and log groups."""

    name: str
    network_mode: str
    roles: Sequence[str]
    log_groups: Sequence[str]


def clusters(account: Account) -> dict[str, int]:
    """Return the active clusters of the account with the number of their container instances, the largest first."""
    arns = [*account.items("ecs", "list_clusters", "clusterArns")]
    found = {
        one["clusterName"]: int(one.get("registeredContainerInstancesCount", 0))
        for batch in batches(arns, CLUSTERS_PER_CALL)
        for one in account.call("ecs", "describe_clusters", clusters=batch)["clusters"]
        if one.get("status") == "ACTIVE"
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def families(account: Account, left_out: Callable[[str], bool]) -> list[Family]:
    """Return the families whose newest task definition requires GPUs, without those of `left_out`."""
    names = [*account.items("ecs", "list_task_definition_families", "families", status="ACTIVE")]
    chosen = [name for name in names if not left_out(name)][:FAMILIES_MAX]
    return [
        Family(name, one.get("networkMode", "bridge"), roles_of(one), log_groups_of(one))
        for name, one in definitions(account, chosen).items()
        if one is not None and needs_gpus(one)
    ]


def instances_of(account: Account, cluster: str) -> tuple[list[str], set[str]]:
    """Return a line for each kind of GPU instance of a cluster (number, type, architecture, AMI), and architectures."""
    with_gpus = [one for one in container_instances(account, cluster) if one.get("ec2InstanceId") and gpus_of(one)]
    fleet = read_fleet(account, [one["ec2InstanceId"] for one in with_gpus])
    kinds = Counter(
        (one.get("InstanceType", ""), one.get("Architecture", ""), one.get("ImageId", "")) for one in fleet.described
    )
    images = _image_names(account, sorted({image for _, _, image in kinds}))
    lines = [
        f"{number} x {kind} ({architecture}), AMI {image}{f' ({images[image]})' if image in images else ''}"
        for (kind, architecture, image), number in sorted(kinds.items())
    ]
    return lines, set(fleet.architectures)


def _image_names(account: Account, images: Sequence[str]) -> dict[str, str]:
    try:
        found = account.call("ec2", "describe_images", ImageIds=list(images))["Images"] if images else []
    except Refused:
        return {}  # an AMI that was deregistered has no name any more
    return {one["ImageId"]: one.get("Name", "") for one in found}


def settings_of(deployment: Deployment) -> dict[str, Any]:
    """Return the settings of a running deployment that its stacks show, without those that have their default.

    The stacks do not show the settings of `NOT_SHOWN`.
    """
    outputs, account = deployment.outputs, deployment.account
    state = account.call("cloudformation", "describe_stacks", StackName=f"{deployment.name}State")["Stacks"][0]
    profile = "prod" if state.get("EnableTerminationProtection") else "dev"
    found = {
        **deployment.settings.values,
        **_subscribers(deployment),
        **_of_ray(deployment),
        "health_check_image": _check_image(deployment),
        "profile": profile,
        "log_retention_days": _retention_days(deployment, profile),
        "reserved_concurrency": account.call(
            "lambda", "get_function_concurrency", FunctionName=outputs["ReconcilerFunctionName"]
        ).get("ReservedConcurrentExecutions", 0),
        "snap_start": _starts_from_snapshot(deployment),
        "powertools_layer": _layer(deployment),
        "build_agent_image": "AgentImageUri" in outputs and "AgentLogGroupName" not in outputs,
        "chat_topic": "ChatTopicArn" in outputs,
        "console": "on" if "ConsoleUrl" in outputs or deployment.settings["api_auth"] == "iam" else "off",
        "console_url": _console_url(deployment),
        "function_name_prefix": outputs["JobApiFunctionName"].removesuffix("job_api"),
        "check_family": outputs["HealthCheckTaskDefinitionArn"].rsplit("/", 1)[-1].rpartition(":")[0],
        "topic_name": outputs["TopicArn"].rsplit(":", 1)[-1],
        "bus_name": outputs["EventBusName"],
        "job_table_name": outputs["JobTableName"],
        "instance_table_name": outputs["InstanceTableName"],
        "event_history_table_name": outputs["EventHistoryTableName"],
    }
    return {name: _plain(value) for name, value in found.items() if _plain(value) != _plain(DEFAULTS[name])}


def _subscribers(deployment: Deployment) -> dict[str, list[str]]:
    """Return the addresses and endpoints that the topic notifies."""
    topic = deployment.outputs["TopicArn"]
    found = deployment.account.items("sns", "list_subscriptions_by_topic", "Subscriptions", TopicArn=topic)
    subscribers: dict[str, list[str]] = {"alert_emails": [], "alert_endpoints": []}
    for one in found:
        if one["Protocol"] in SUBSCRIBED:
            subscribers[SUBSCRIBED[one["Protocol"]]].append(one["Endpoint"])
    return subscribers


def _of_ray(deployment: Deployment) -> dict[str, Any]:
    """Return the settings of the Ray cluster, from the function that reaches it; {} if there is no Ray cluster."""
    name = deployment.environment.get("RAY_RUNNER_FUNCTION")
    if not name:
        return {}
    function = deployment.account.call("lambda", "get_function_configuration", FunctionName=name)
    variables, network = function["Environment"]["Variables"], function.get("VpcConfig", {})
    return {
        "ray_dashboard": variables["RAY_DASHBOARD"],
        "ray_control_store": variables["RAY_CONTROL_STORE"],
        "ray_subnet_ids": network.get("SubnetIds", []),
        "ray_security_group_ids": network.get("SecurityGroupIds", []),
    }


def _check_image(deployment: Deployment) -> str:
    """Return the setting of the health check's image. The digest of an image that the deployment built is none."""
    image = str(deployment.settings["health_check_image"])
    _, in_ecr, repository = image.partition("/")
    if in_ecr and ".dkr.ecr." in image and repository == OWN_IMAGE:
        return ""
    name = repository.partition("@")[0].partition(":")[0]
    return "build" if name in deployment.of_type("AWS::ECR::Repository").values() else image


def _retention_days(deployment: Deployment, profile: str) -> int:
    """Return the days for which logs are kept; 0 for those of the profile."""
    name = deployment.outputs["HealthCheckLogGroupName"]
    groups = deployment.account.items("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=name)
    days = next((int(one.get("retentionInDays", 0)) for one in groups if one["logGroupName"] == name), 0)
    return 0 if days == PROFILE_DAYS[profile] else days


def _layer(deployment: Deployment) -> str:
    """Return the layer of the functions: `own` if the stack made it, else its ARN, also of a public layer."""
    if deployment.of_type("AWS::Lambda::LayerVersion"):
        return "own"
    return next((str(one["Arn"]) for one in _job_api(deployment).get("Layers", ())), "own")


def _starts_from_snapshot(deployment: Deployment) -> bool:
    """Return whether the published versions of the job API start from a snapshot."""
    return bool(_job_api(deployment).get("SnapStart", {}).get("ApplyOn") == "PublishedVersions")


def _job_api(deployment: Deployment) -> Any:
    """Return the configuration of the function that serves the job API."""
    name = deployment.outputs["JobApiFunctionName"]
    return deployment.account.call("lambda", "get_function_configuration", FunctionName=name)


def _console_url(deployment: Deployment) -> str:
    """Return the address of the console in messages; "" for the address that the deployment serves."""
    url = deployment.environment.get("CONSOLE_URL", "")
    return "" if url == deployment.outputs.get("ConsoleUrl") else url


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def default_families(found: Sequence[Family]) -> list[str]:
    """Return the families that training jobs can use: those in host mode, or all if there is none."""
    return [one.name for one in found if one.network_mode == "host"] or [one.name for one in found]
