"""Health sources outside an instance: status checks, scheduled events, Spot, ECS health checks, Auto Scaling."""

from dataclasses import replace
from datetime import datetime

from sandbox.cluster.model.cluster import AwsApiError, ClusterModel, OperationResult
from sandbox.cluster.model.events import (
    alarm_changed,
    ec2_state_changed,
    health_changed,
    health_event,
    rebalance_recommended,
    spot_warned,
)
from sandbox.cluster.model.instances import find_instances, launch
from sandbox.cluster.model.records import EcsHealthCheck, ModelInstance, ScheduledEvent
from sandbox.cluster.model.statuses import Ec2State, StatusCheck

GROUP_TAG = "aws:autoscaling:groupName"
RETIREMENTS = ("instance-retirement", "instance-stop")
SCHEDULED_CODES = (*RETIREMENTS, "instance-reboot", "system-reboot", "system-maintenance")


def warn_of_spot_interruption(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """Send the Spot interruption warning: EC2 will take the instance away in two minutes."""
    return OperationResult({}, [spot_warned(cluster, instance, now)])


def recommend_rebalance(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """Send the rebalance recommendation: an interruption of the instance is more likely than usual."""
    return OperationResult({}, [rebalance_recommended(cluster, instance, now)])


def report_health(
    cluster: ClusterModel, instance: ModelInstance, kind: str, status: str, reason: str | None, now: datetime
) -> OperationResult:
    """Set the state of one of ECS's health checks of the instance, and send it. `kind`: AGENT_CONNECTIVITY and others.

    Both ECS's events and its descriptions give times in milliseconds.
    """
    since = now.replace(microsecond=now.microsecond // 1000 * 1000)
    instance.ecs_health[kind] = EcsHealthCheck(status, since, reason)
    return OperationResult({}, [health_changed(cluster, instance, kind, status, reason, now)])


def impair(cluster: ClusterModel, instance: ModelInstance, check: StatusCheck, now: datetime) -> OperationResult:
    """Let a status check fail from now on, and send the change of the alarm that the owners set on the check."""
    instance.impaired.setdefault(check, now)
    return OperationResult({}, [alarm_changed(cluster, instance, check, "ALARM", now)])


def schedule(
    cluster: ClusterModel, instance: ModelInstance, code: str, not_before: datetime, now: datetime
) -> OperationResult:
    """Schedule an EC2 event for the instance, and send the AWS Health event about it.

    Raises:
        AwsApiError: `code` is not in `SCHEDULED_CODES`.
    """
    if code not in SCHEDULED_CODES:
        raise AwsApiError("InvalidParameterException", f"code must be one of {', '.join(SCHEDULED_CODES)}, not {code}")
    text = "The instance is running on degraded hardware" if code in RETIREMENTS else "EC2 maintenance"
    event = ScheduledEvent(f"instance-event-{cluster.ids.hex('scheduled', 17)}", code, not_before, text)
    instance.scheduled.append(event)
    return OperationResult({}, [health_event(cluster, instance, event, "upcoming", now)])


def complete(instance: ModelInstance, event: ScheduledEvent) -> None:
    """Mark a scheduled event as completed. EC2 shows the event for a while."""
    done = replace(event, description=f"[Completed] {event.description}")
    instance.scheduled = [done if other.event_id == event.event_id else other for other in instance.scheduled]


def call_off(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """Cancel every scheduled event of the instance that is still to come."""
    canceled = [event for event in instance.scheduled if not event.description.startswith("[")]
    instance.scheduled = [
        replace(event, description=f"[Canceled] {event.description}") if event in canceled else event
        for event in instance.scheduled
    ]
    return OperationResult({}, [health_event(cluster, instance, event, "closed", now) for event in canceled])


# -- Auto Scaling ------------------------------------------------------------------------------------------------------


def group_of(instance: ModelInstance) -> str:
    """Return the name of the instance's Auto Scaling group; "" without a group."""
    return instance.tags.get(GROUP_TAG, "")


def member(cluster: ClusterModel, instance_id: str) -> ModelInstance:
    """Return the instance with this id. Raises AwsApiError unless it is a live member of an Auto Scaling group."""
    instance = cluster.instances.get(instance_id)
    if instance is None or not group_of(instance) or instance.ec2_state is Ec2State.TERMINATED:
        message = f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
        raise AwsApiError("ValidationError", message)
    return find_instances(cluster, [instance_id])[0]


def launch_in_place_of(cluster: ClusterModel, gone: ModelInstance, now: datetime) -> OperationResult:
    """Launch the group's replacement for the instance `gone`: new ids, a new name, the other tags, no faults."""
    tags = {name: value for name, value in gone.tags.items() if name != "Name"}
    launched = launch(cluster, len(gone.gpus), now, {**tags, "Name": f"gpu-{len(cluster.instances)}"})
    instance = cluster.instances[launched.result["instance_id"]]
    instance.lifecycle, instance.root_device = gone.lifecycle, gone.root_device
    return OperationResult(launched.result, [ec2_state_changed(cluster, instance, now), *launched.events])
