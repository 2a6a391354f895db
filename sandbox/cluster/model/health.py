"""Those who watch machines from outside: EC2's status checks and plans, Spot, ECS's health checks, Auto Scaling."""

from dataclasses import replace
from datetime import datetime

from sandbox.cluster.model.cluster import (
    AwsApiError,
    ClusterModel,
    Ec2State,
    ModelInstance,
    OperationResult,
    ScheduledEvent,
    StatusCheck,
)
from sandbox.cluster.model.events import (
    alarm_changed,
    ec2_state_changed,
    health_changed,
    health_event,
    rebalance_recommended,
    spot_warned,
)
from sandbox.cluster.model.instances import find_instances, launch

GROUP_TAG = "aws:autoscaling:groupName"
RETIREMENTS = ("instance-retirement", "instance-stop")
SCHEDULED_CODES = (*RETIREMENTS, "instance-reboot", "system-reboot", "system-maintenance")


def warn_of_spot_interruption(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """Two minutes from now the machine is taken away."""
    return OperationResult({}, [spot_warned(cluster, instance, now)])


def recommend_rebalance(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """The machine is more likely than usual to be interrupted."""
    return OperationResult({}, [rebalance_recommended(cluster, instance, now)])


def report_health(
    cluster: ClusterModel, instance: ModelInstance, kind: str, status: str, reason: str | None, now: datetime
) -> OperationResult:
    """ECS says how one of its health checks of the instance is: `kind` AGENT_CONNECTIVITY and others."""
    return OperationResult({}, [health_changed(cluster, instance, kind, status, reason, now)])


def impair(cluster: ClusterModel, instance: ModelInstance, check: StatusCheck, now: datetime) -> OperationResult:
    """A status check fails from now on, and the alarm that the machine's owners set on it says so."""
    instance.impaired.setdefault(check, now)
    return OperationResult({}, [alarm_changed(cluster, instance, check, "ALARM", now)])


def schedule(
    cluster: ClusterModel, instance: ModelInstance, code: str, not_before: datetime, now: datetime
) -> OperationResult:
    """EC2 plans something with the machine; AWS Health tells of it."""
    if code not in SCHEDULED_CODES:
        raise AwsApiError("InvalidParameterException", f"code must be one of {', '.join(SCHEDULED_CODES)}, not {code}")
    words = "The instance is running on degraded hardware" if code in RETIREMENTS else "EC2 maintenance"
    event = ScheduledEvent(f"instance-event-{cluster.ids.hex('scheduled', 17)}", code, not_before, words)
    instance.scheduled.append(event)
    return OperationResult({}, [health_event(cluster, instance, event, "upcoming", now)])


def complete(instance: ModelInstance, event: ScheduledEvent) -> None:
    """What was planned takes place; EC2 shows it for a while."""
    done = replace(event, description=f"[Completed] {event.description}")
    instance.scheduled = [done if one.event_id == event.event_id else one for one in instance.scheduled]


def call_off(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """Nothing that was planned with the machine will take place."""
    over = [event for event in instance.scheduled if not event.description.startswith("[")]
    instance.scheduled = [
        replace(event, description=f"[Canceled] {event.description}") if event in over else event
        for event in instance.scheduled
    ]
    return OperationResult({}, [health_event(cluster, instance, event, "closed", now) for event in over])


# -- Auto Scaling ------------------------------------------------------------------------------------------------------


def group_of(instance: ModelInstance) -> str:
    """The Auto Scaling group of the machine, "" if it is in none."""
    return instance.tags.get(GROUP_TAG, "")


def member(cluster: ClusterModel, instance_id: str) -> ModelInstance:
    """The machine, which must belong to a group that still has it. Raises AwsApiError as Auto Scaling does."""
    instance = cluster.instances.get(instance_id)
    if instance is None or not group_of(instance) or instance.ec2_state is Ec2State.TERMINATED:
        message = f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
        raise AwsApiError("ValidationError", message)
    return find_instances(cluster, [instance_id])[0]


def launch_in_place_of(cluster: ClusterModel, gone: ModelInstance, now: datetime) -> OperationResult:
    """The group's new machine: other ids, the same tags but its name, nothing wrong with it."""
    tags = {name: value for name, value in gone.tags.items() if name != "Name"}
    launched = launch(cluster, len(gone.gpus), now, {**tags, "Name": f"gpu-{len(cluster.instances)}"})
    instance = cluster.instances[launched.result["instance_id"]]
    instance.lifecycle, instance.root_device = gone.lifecycle, gone.root_device
    return OperationResult(launched.result, [ec2_state_changed(cluster, instance, now), *launched.events])
