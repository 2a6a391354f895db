"""The survey of an account by `gpu-recovery init`: clusters, task definition families, and deployments."""

from __future__ import annotations

import json
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
SWITCHES = ("replace", "observe_only", "record_attempts")


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
    """Return the settings of a running deployment that its stacks show, without those that have their default."""
    outputs, variables, account = deployment.outputs, deployment.environment, deployment.account
    policy = json.loads(variables.get("RECOVERY_POLICY", "{}"))
    topic = outputs["TopicArn"]
    subscriptions = account.items("sns", "list_subscriptions_by_topic", "Subscriptions", TopicArn=topic)
    state = account.call("cloudformation", "describe_stacks", StackName=f"{deployment.name}State")["Stacks"][0]
    found = {
        **{name: value for name, value in deployment.settings.values.items() if name in DEFAULTS and name != "policy"},
        "profile": "prod" if state.get("EnableTerminationProtection") else "dev",
        "alert_emails": [one["Endpoint"] for one in subscriptions if one["Protocol"] == "email"],
        "adopt": variables.get("ADOPT", "off"),
        "function_name_prefix": outputs["JobApiFunctionName"].removesuffix("job_api"),
        "check_family": _family(outputs["HealthCheckTaskDefinitionArn"]),
        "topic_name": topic.rsplit(":", 1)[-1],
        "bus_name": outputs["EventBusName"],
        "job_table_name": outputs["JobTableName"],
        "instance_table_name": outputs["InstanceTableName"],
        "event_history_table_name": outputs["EventHistoryTableName"],
    }
    if "amazonaws" not in found["health_check_image"] or "@sha256:" in found["health_check_image"]:
        del found["health_check_image"]  # the digest of an image that the deployment has built is no setting
    differs = {name: value for name, value in found.items() if _plain(value) != _plain(DEFAULTS[name])}
    thresholds = {name: value for name, value in policy.items() if name not in (*SWITCHES, "preset", "xid_profile")}
    extra = {
        "preset": policy.get("preset", "adaptive") if policy.get("preset") != "adaptive" else None,
        "observe_only": True if policy.get("observe_only") else None,
        "xid_policy": policy.get("xid_profile"),
        "policy": thresholds or None,
    }
    return {**differs, **{name: value for name, value in extra.items() if value is not None}}


def _family(definition: str) -> str:
    return definition.rsplit("/", 1)[-1].rpartition(":")[0]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def default_families(found: Sequence[Family]) -> list[str]:
    """Return the families that training jobs can use: those in host mode, or all if there is none."""
    return [one.name for one in found if one.network_mode == "host"] or [one.name for one in found]
