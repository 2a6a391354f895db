"""EventBridge envelopes as AWS documents them. Building a versioned ECS event increments the record's version."""

from datetime import UTC, datetime
from typing import Any

from sandbox.cluster.model.cluster import ClusterModel
from sandbox.cluster.model.records import ModelInstance, ScheduledEvent, Task
from sandbox.cluster.model.statuses import StatusCheck
from sandbox.cluster.model.views import container_instance_detail, iso, task_detail

TASK = "ECS Task State Change"
CONTAINER_INSTANCE = "ECS Container Instance State Change"
EC2_STATE = "EC2 Instance State-change Notification"
SPOT_WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
HEALTH_CHANGE = "ECS Container Instance Health Change"
AWS_HEALTH = "AWS Health Event"
ALARM = "CloudWatch Alarm State Change"
_SOURCES = {
    TASK: "aws.ecs",
    CONTAINER_INSTANCE: "aws.ecs",
    HEALTH_CHANGE: "aws.ecs",
    AWS_HEALTH: "aws.health",
    ALARM: "aws.cloudwatch",
}
_HEALTH_CODES = {
    "instance-retirement": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
    "instance-stop": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
    "instance-reboot": "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED",
    "system-reboot": "AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED",
    "system-maintenance": "AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED",
}
_METRICS = {
    StatusCheck.SYSTEM: "StatusCheckFailed_System",
    StatusCheck.INSTANCE: "StatusCheckFailed_Instance",
}


def _envelope(
    cluster: ClusterModel, detail_type: str, arn: str, detail: dict[str, Any], now: datetime
) -> dict[str, Any]:
    return {
        "version": "0",
        "id": cluster.event_id(),
        "detail-type": detail_type,
        "source": _SOURCES.get(detail_type, "aws.ec2"),
        "account": cluster.account,
        "time": f"{iso(now)[:19]}Z",
        "region": cluster.region,
        "resources": [arn],
        "detail": detail,
    }


def task_changed(cluster: ClusterModel, task: Task, now: datetime, *, is_new: bool = False) -> dict[str, Any]:
    """Return an ECS Task State Change, and increment the task's version unless the task `is_new`.

    If `cluster.mute` matches the task, the event is only a sketch: its type, status and task definition.
    """
    if not is_new:
        task.version += 1
    task.updated_at = now
    cluster.touched[task.instance_id] = None
    if cluster.mute is not None and cluster.mute(task):
        sketch = {"lastStatus": str(task.last_status), "taskDefinitionArn": task.definition["taskDefinitionArn"]}
        return {"detail-type": TASK, "detail": sketch}
    return _envelope(cluster, TASK, task.arn, task_detail(cluster, task), now)


def container_instance_changed(
    cluster: ClusterModel, instance: ModelInstance, now: datetime, *, is_new: bool = False
) -> dict[str, Any]:
    """Return an ECS Container Instance State Change, and increment the version unless the instance `is_new`."""
    if not is_new:
        instance.version += 1
    instance.updated_at = now
    cluster.touched[instance.instance_id] = None
    detail = container_instance_detail(cluster, instance)
    return _envelope(cluster, CONTAINER_INSTANCE, instance.arn, detail, now)


def _ec2_arn(cluster: ClusterModel, instance: ModelInstance) -> str:
    return f"arn:{cluster.partition}:ec2:{cluster.region}:{cluster.account}:instance/{instance.instance_id}"


def ec2_state_changed(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> dict[str, Any]:
    """Return an EC2 Instance State-change Notification."""
    detail = {"instance-id": instance.instance_id, "state": str(instance.ec2_state)}
    return _envelope(cluster, EC2_STATE, _ec2_arn(cluster, instance), detail, now)


def spot_warned(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> dict[str, Any]:
    """Return an EC2 Spot Instance Interruption Warning. Its ARN has a zone and no account, as AWS publishes it."""
    detail = {"instance-id": instance.instance_id, "instance-action": "terminate"}
    arn = f"arn:{cluster.partition}:ec2:{instance.availability_zone}:instance/{instance.instance_id}"
    return _envelope(cluster, SPOT_WARNING, arn, detail, now)


def rebalance_recommended(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> dict[str, Any]:
    """Return an EC2 Instance Rebalance Recommendation."""
    arn = f"arn:{cluster.partition}:ec2:{instance.availability_zone}:instance/{instance.instance_id}"
    return _envelope(cluster, REBALANCE, arn, {"instance-id": instance.instance_id}, now)


def health_changed(
    cluster: ClusterModel, instance: ModelInstance, kind: str, status: str, reason: str | None, now: datetime
) -> dict[str, Any]:
    """Return an ECS Container Instance Health Change, which has no version, as ECS sends it."""
    check = {
        "type": kind,
        "status": status,
        "lastStatusChange": iso(now),
        "lastUpdated": iso(now),
        "statusReason": reason,
    }
    detail = {
        "clusterArn": cluster.cluster_arn,
        "containerInstanceArn": instance.arn,
        "capacityProviderName": None,
        "ec2InstanceId": instance.instance_id,
        "overallStatus": status,
        "healthChecks": [check],
    }
    return _envelope(cluster, HEALTH_CHANGE, instance.arn, detail, now)


def health_event(
    cluster: ClusterModel, instance: ModelInstance, event: ScheduledEvent, status: str, now: datetime
) -> dict[str, Any]:
    """Return an AWS Health Event about a scheduled event. `status` is its `statusCode`: upcoming or closed."""
    code = _HEALTH_CODES[event.code]
    starts_at = event.not_before.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    detail = {
        "eventArn": f"arn:{cluster.partition}:health:{cluster.region}::event/EC2/{code}/{code}_{event.event_id}",
        "service": "EC2",
        "eventTypeCode": code,
        "eventTypeCategory": "scheduledChange",
        "eventScopeCode": "ACCOUNT_SPECIFIC",
        "statusCode": status,
        "startTime": starts_at,
        "endTime": starts_at,
        "eventDescription": [{"language": "en_US", "latestDescription": event.description}],
        "affectedEntities": [{"entityValue": instance.instance_id}],
        "affectedAccount": cluster.account,
        "page": "1",
        "totalPages": "1",
    }
    return _envelope(cluster, AWS_HEALTH, instance.instance_id, detail, now)


def alarm_changed(
    cluster: ClusterModel, instance: ModelInstance, check: StatusCheck, value: str, now: datetime
) -> dict[str, Any]:
    """Return a CloudWatch Alarm State Change for a status check of the instance. `value`: ALARM or OK.

    The alarm's name and values are invented; the shape is that of every alarm.
    """
    name = f"{_METRICS[check]} {instance.instance_id}"
    metric = {
        "namespace": "AWS/EC2",
        "name": _METRICS[check],
        "dimensions": {"InstanceId": instance.instance_id},
    }
    at = iso(now).replace("Z", "+0000")
    detail = {
        "alarmName": name,
        "state": {"value": value, "reason": "Threshold Crossed", "reasonData": "{}", "timestamp": at},
        "previousState": {
            "value": "OK" if value == "ALARM" else "ALARM",
            "reason": "Threshold Crossed",
            "timestamp": at,
        },
        "configuration": {
            "metrics": [
                {"id": "m1", "metricStat": {"metric": metric, "period": 60, "stat": "Maximum"}, "returnData": True}
            ]
        },
    }
    arn = f"arn:{cluster.partition}:cloudwatch:{cluster.region}:{cluster.account}:alarm:{name}"
    return _envelope(cluster, ALARM, arn, detail, now)
