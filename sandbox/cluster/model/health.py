"""Those who watch machines from outside: EC2's status checks and plans, Spot, ECS's health checks, Auto Scaling."""

from dataclasses import replace
from datetime import datetime

from sandbox.cluster.model.cluster import ApiError, Cluster, Ec2State, Instance, Outcome, ScheduledEvent, StatusCheck
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


def warn_of_spot_interruption(cluster: Cluster, instance: Instance, now: datetime) -> Outcome:
    """Two minutes from now the machine is taken away."""
    return Outcome({}, [spot_warned(cluster, instance, now)])


def recommend_rebalance(cluster: Cluster, instance: Instance, now: datetime) -> Outcome:
    """The machine is more likely than usual to be interrupted."""
    return Outcome({}, [rebalance_recommended(cluster, instance, now)])


def report_health(
    cluster: Cluster, instance: Instance, kind: str, status: str, reason: str | None, now: datetime
) -> Outcome:
    """ECS says how one of its health checks of the instance is: `kind` AGENT_CONNECTIVITY and others."""
    return Outcome({}, [health_changed(cluster, instance, kind, status, reason, now)])


def impair(cluster: Cluster, instance: Instance, check: StatusCheck, now: datetime) -> Outcome:
    """A status check fails from now on, and the alarm that the machine's owners set on it says so."""
    instance.impaired.setdefault(check, now)
    return Outcome({}, [alarm_changed(cluster, instance, check, "ALARM", now)])


def schedule(cluster: Cluster, instance: Instance, code: str, not_before: datetime, now: datetime) -> Outcome:
    """EC2 plans something with the machine; AWS Health tells of it."""
    if code not in SCHEDULED_CODES:
        raise ApiError("InvalidParameterException", f"code must be one of {', '.join(SCHEDULED_CODES)}, not {code}")
    words = "The instance is running on degraded hardware" if code in RETIREMENTS else "EC2 maintenance"
    event = ScheduledEvent(f"instance-event-{cluster.ids.hex('scheduled', 17)}", code, not_before, words)
    instance.scheduled.append(event)
    return Outcome({}, [health_event(cluster, instance, event, "upcoming", now)])


def complete(instance: Instance, event: ScheduledEvent) -> None:
    """What was planned takes place; EC2 shows it for a while."""
    done = replace(event, description=f"[Completed] {event.description}")
    instance.scheduled = [done if one.event_id == event.event_id else one for one in instance.scheduled]


def call_off(cluster: Cluster, instance: Instance, now: datetime) -> Outcome:
    """Nothing that was planned with the machine will take place."""
    over = [event for event in instance.scheduled if not event.description.startswith("[")]
    instance.scheduled = [
        replace(event, description=f"[Canceled] {event.description}") if event in over else event
        for event in instance.scheduled
    ]
    return Outcome({}, [health_event(cluster, instance, event, "closed", now) for event in over])


# -- Auto Scaling ------------------------------------------------------------------------------------------------------


def group_of(instance: Instance) -> str:
    """The Auto Scaling group of the machine, "" if it is in none."""
    return instance.tags.get(GROUP_TAG, "")


def member(cluster: Cluster, instance_id: str) -> Instance:
    """The machine, which must belong to a group that still has it. Raises ApiError as Auto Scaling does."""
    instance = cluster.instances.get(instance_id)
    if instance is None or not group_of(instance) or instance.ec2_state is Ec2State.TERMINATED:
        message = f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
        raise ApiError("ValidationError", message)
    return find_instances(cluster, [instance_id])[0]


def launch_in_place_of(cluster: Cluster, gone: Instance, now: datetime) -> Outcome:
    """The group's new machine: other ids, the same tags but its name, nothing wrong with it."""
    tags = {name: value for name, value in gone.tags.items() if name != "Name"}
    launched = launch(cluster, len(gone.gpus), now, {**tags, "Name": f"gpu-{len(cluster.instances)}"})
    instance = cluster.instances[launched.result["instance_id"]]
    instance.lifecycle, instance.root_device = gone.lifecycle, gone.root_device
    return Outcome(launched.result, [ec2_state_changed(cluster, instance, now), *launched.events])
