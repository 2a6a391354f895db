"""EventBridge envelopes as AWS documents them. Building an ECS one is what raises the record's version."""

from datetime import UTC, datetime
from typing import Any

from sandbox.cluster.model import Cluster, Instance, Task
from sandbox.cluster.model_views import container_instance_detail, task_detail

TASK = "ECS Task State Change"
CONTAINER_INSTANCE = "ECS Container Instance State Change"
EC2_STATE = "EC2 Instance State-change Notification"
SPOT_WARNING = "EC2 Spot Instance Interruption Warning"


def _envelope(cluster: Cluster, detail_type: str, arn: str, detail: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {
        "version": "0",
        "id": cluster.ids.uuid("event"),
        "detail-type": detail_type,
        "source": "aws.ecs" if detail_type in {TASK, CONTAINER_INSTANCE} else "aws.ec2",
        "account": cluster.account,
        "time": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": cluster.region,
        "resources": [arn],
        "detail": detail,
    }


def task_changed(cluster: Cluster, task: Task, now: datetime, *, is_new: bool = False) -> dict[str, Any]:
    if not is_new:
        task.version += 1
    task.updated_at = now
    return _envelope(cluster, TASK, task.arn, task_detail(cluster, task), now)


def container_instance_changed(
    cluster: Cluster, instance: Instance, now: datetime, *, is_new: bool = False
) -> dict[str, Any]:
    if not is_new:
        instance.version += 1
    instance.updated_at = now
    detail = container_instance_detail(cluster, instance)
    return _envelope(cluster, CONTAINER_INSTANCE, instance.arn, detail, now)


def _ec2_arn(cluster: Cluster, instance: Instance) -> str:
    return f"arn:{cluster.partition}:ec2:{cluster.region}:{cluster.account}:instance/{instance.instance_id}"


def ec2_state_changed(cluster: Cluster, instance: Instance, now: datetime) -> dict[str, Any]:
    detail = {"instance-id": instance.instance_id, "state": str(instance.ec2_state)}
    return _envelope(cluster, EC2_STATE, _ec2_arn(cluster, instance), detail, now)


def spot_warned(cluster: Cluster, instance: Instance, now: datetime) -> dict[str, Any]:
    detail = {"instance-id": instance.instance_id, "instance-action": "terminate"}
    arn = f"arn:{cluster.partition}:ec2:{instance.availability_zone}:instance/{instance.instance_id}"
    return _envelope(cluster, SPOT_WARNING, arn, detail, now)  # an AZ and no account, as published
