"""Operations on instances: ECS state, the agent's connection, reboot, stop, start, terminate, GPU faults."""

from dataclasses import replace
from datetime import datetime
from ipaddress import IPv4Address
from typing import Any

from sandbox.cluster.model.cluster import AwsApiError, ClusterModel, OperationResult
from sandbox.cluster.model.events import container_instance_changed, ec2_state_changed
from sandbox.cluster.model.records import GpuFault, ModelInstance
from sandbox.cluster.model.statuses import (
    ContainerInstanceStatus,
    CuredBy,
    Ec2State,
    EcsStopCode,
    ProcessState,
    RebootBehaviour,
    StatusCheck,
)
from sandbox.cluster.model.tasks import Events, finish, report
from sandbox.cluster.model.views import container_instance_view

MANAGED_TAG = "gpu-recovery:managed"
INSTANCE_TYPES = {1: "g5.xlarge", 4: "g5.12xlarge", 8: "p4d.24xlarge"}
CPU_UNITS_PER_GPU, MEMORY_MIB_PER_GPU = 12 * 1024, 144_000
FIRST_ADDRESS, ADDRESSES = 11, 200
"""First host number of a network of 256 addresses, and number of instances in a network."""


def launch(cluster: ClusterModel, gpus: int, now: datetime, tags: dict[str, str] | None = None) -> OperationResult:
    """Launch an instance with `gpus` GPUs; its agent has just registered.

    Args:
        cluster: The cluster; its state changes.
        gpus: Number of GPUs, which also sets CPU units, memory and instance type.
        now: Time of the launch.
        tags: Tags of the instance; None sets the managed tag and a name.

    Returns:
        The result `{"instance_id": …}`.
    """
    index = len(cluster.instances)
    instance_id = f"i-{cluster.ids.hex('instance', 17)}"
    instance = ModelInstance(
        instance_id=instance_id,
        arn=cluster.arn("container-instance", f"{cluster.name}/{cluster.ids.hex('container-instance')}"),
        gpus=tuple(f"GPU-{cluster.ids.uuid('gpu')}" for _ in range(gpus)),
        cpu=CPU_UNITS_PER_GPU * max(gpus, 1),
        memory=MEMORY_MIB_PER_GPU * max(gpus, 1),
        private_ip=str(IPv4Address(cluster.network) + index // ADDRESSES * 256 + FIRST_ADDRESS + index % ADDRESSES),
        availability_zone=f"{cluster.region}{cluster.zones[index % len(cluster.zones)]}",
        instance_type=INSTANCE_TYPES.get(gpus, "p4d.24xlarge"),
        tags={MANAGED_TAG: "true", "Name": f"gpu-{index}"} if tags is None else tags,
        boot_id=cluster.ids.uuid("boot"),
        booted_at=now,
        launched_at=now,
        registered_at=now,
        updated_at=now,
    )
    cluster.instances[instance_id] = instance
    event = container_instance_changed(cluster, instance, now, is_new=True)
    return OperationResult({"instance_id": instance_id}, [event])


def announce(cluster: ClusterModel, now: datetime) -> OperationResult:
    """Register every connected agent again: one event each, for rules that were deployed after the first event."""
    connected = [i for i in cluster.instances.values() if i.agent_connected]
    return OperationResult({}, [container_instance_changed(cluster, instance, now) for instance in connected])


def find_instances(cluster: ClusterModel, instance_ids: list[str]) -> list[ModelInstance]:
    """Return the instances with these ids. Raises AwsApiError if an id is unknown."""
    missing = [instance_id for instance_id in instance_ids if instance_id not in cluster.instances]
    if missing:
        raise AwsApiError("InvalidInstanceID.NotFound", f"The instance ID '{missing[0]}' does not exist")
    return [cluster.instances[instance_id] for instance_id in instance_ids]


def update_container_instances_state(cluster: ClusterModel, request: dict[str, Any], now: datetime) -> OperationResult:
    """UpdateContainerInstancesState: set ACTIVE or DRAINING. The instances' tasks do not change."""
    if len(request["containerInstances"]) > 10:
        raise AwsApiError("InvalidParameterException", "instanceIds can have at most 10 items.")
    if request["status"] not in {ContainerInstanceStatus.ACTIVE, ContainerInstanceStatus.DRAINING}:
        raise AwsApiError("InvalidParameterException", "Container instances status should be one of [ACTIVE, DRAINING]")
    views, failures, events = [], [], []
    for reference in request["containerInstances"]:
        instance = cluster.find_container_instance(reference)
        if instance is None or instance.status is ContainerInstanceStatus.INACTIVE:
            arn = reference if ":" in reference else cluster.arn("container-instance", f"{cluster.name}/{reference}")
            failures.append({"arn": arn, "reason": "MISSING" if instance is None else "INACTIVE"})
            continue
        if instance.status != request["status"]:
            instance.status = ContainerInstanceStatus(request["status"])
            events.append(container_instance_changed(cluster, instance, now))
        views.append(container_instance_view(cluster, instance))
    return OperationResult({"containerInstances": views, "failures": failures}, events)


def deregister(cluster: ClusterModel, reference: str, *, force: bool, now: datetime) -> OperationResult:
    """DeregisterContainerInstance. With `force`, ECS ends the instance's tasks; their processes run on as orphans.

    Raises:
        AwsApiError: The instance is unknown or INACTIVE, or holds tasks without `force`.
    """
    instance = cluster.find_container_instance(reference)
    if instance is None or instance.status is ContainerInstanceStatus.INACTIVE:
        raise AwsApiError("InvalidParameterException", "The referenced container instance was not found.")
    if instance.live and not force:
        raise AwsApiError("InvalidParameterException", "Found running tasks on the instance.")
    instance.status, instance.agent_connected = ContainerInstanceStatus.INACTIVE, False
    events = [container_instance_changed(cluster, instance, now)]
    reason = "Container instance deregistration forced by user"
    events += _give_up(cluster, instance, EcsStopCode.USER, reason, now)
    return OperationResult({"containerInstance": container_instance_view(cluster, instance)}, events)


def register_again(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """Register a deregistered instance again, as its agent does after its data directory was emptied.

    The new registration has another ARN, and ECS counts every GPU as free. Orphans of the old registration run on.
    """
    if instance.status is not ContainerInstanceStatus.INACTIVE or instance.ec2_state is not Ec2State.RUNNING:
        return OperationResult({}, [])
    instance.arn = cluster.arn("container-instance", f"{cluster.name}/{cluster.ids.hex('container-instance')}")
    instance.status, instance.agent_connected = ContainerInstanceStatus.ACTIVE, True
    instance.version, instance.registered_at = 1, now
    return OperationResult({}, [container_instance_changed(cluster, instance, now, is_new=True)])


def _give_up(cluster: ClusterModel, instance: ModelInstance, code: EcsStopCode, reason: str, now: datetime) -> Events:
    """End the instance's tasks in ECS without exit codes, because no agent reports them."""
    events: Events = []
    for task in cluster.live_tasks(instance):
        task.stop_code, task.stopped_reason = code, reason
        events += finish(cluster, task, None, None, now)
    return events


def agent_disconnected(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """Disconnect the agent. The processes run on; the agent reports their changes after it has reconnected."""
    if not instance.agent_connected:
        return OperationResult({}, [])
    instance.agent_connected = False
    return OperationResult({}, [container_instance_changed(cluster, instance, now)])


def agent_reconnected(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """Connect the agent, which reports every change of its tasks. An INACTIVE instance does not change."""
    if instance.agent_connected or instance.status is ContainerInstanceStatus.INACTIVE:
        return OperationResult({}, [])
    instance.agent_connected = True
    events = [container_instance_changed(cluster, instance, now)]
    for task in cluster.live_tasks(instance):
        events += report(cluster, task, now)
    return OperationResult({}, events)


def went_down(
    cluster: ClusterModel, instance: ModelInstance, now: datetime, exit_code: int | None = 137
) -> OperationResult:
    """Switch the instance off: every process on it ends, and ECS does not know of the ends yet.

    Orphans of a forced deregistration end, too. ECS has shown their tasks as STOPPED before.

    `exit_code` is the code that docker reports for the containers afterwards; None if docker has lost them.
    """
    outcome = agent_disconnected(cluster, instance, now)
    for task in cluster.tasks.running():
        if task.instance_id == instance.instance_id:
            cluster.processed(task, ProcessState.ENDED)
            task.process_exit, task.process_ended_at = exit_code, now
            task.process_reason = None if exit_code is not None else "ContainerVanishedError: container not found"
    return outcome


def came_back(
    cluster: ClusterModel, instance: ModelInstance, now: datetime, *, agent_connects: bool = True
) -> OperationResult:
    """Boot the instance: it gets a new boot id and keeps its ARN. Faults that a reboot cures are gone."""
    instance.boot_id, instance.booted_at = cluster.ids.uuid("boot"), now
    _cure(instance, {CuredBy.RESET, CuredBy.REBOOT})
    instance.impaired.pop(StatusCheck.INSTANCE, None)
    instance.ecs_health.clear()  # the agent starts again, and its health checks with it
    return agent_reconnected(cluster, instance, now) if agent_connects else OperationResult({}, [])


def gpus_reset(instance: ModelInstance) -> None:
    """Reset the GPUs of the instance. Faults that a reset cures are gone; the boot stays."""
    _cure(instance, {CuredBy.RESET})


def _cure(instance: ModelInstance, by: set[CuredBy]) -> None:
    instance.faults = {gpu: fault for gpu, fault in instance.faults.items() if fault.cured_by not in by}


def request_reboot(cluster: ClusterModel, instance_ids: list[str]) -> list[ModelInstance]:
    """RebootInstances: return the instances that will really reboot.

    The call only queues the reboots. EC2 ignores an instance that does not run, such as a terminated instance.
    """
    return [
        instance
        for instance in find_instances(cluster, instance_ids)
        if instance.ec2_state is Ec2State.RUNNING and instance.reboot_behaviour is not RebootBehaviour.IGNORED
    ]


def _move(cluster: ClusterModel, instance: ModelInstance, state: Ec2State, now: datetime) -> OperationResult:
    before, instance.ec2_state = instance.ec2_state, state
    change = {
        "InstanceId": instance.instance_id,
        "PreviousState": ec2_code(before),
        "CurrentState": ec2_code(state),
    }
    return OperationResult(change, [] if before is state else [ec2_state_changed(cluster, instance, now)])


def begin_stop(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """StopInstances: the state becomes `stopping`. `stopped` follows when the processes are dead.

    Raises:
        AwsApiError: The instance does not run.
    """
    if instance.ec2_state in {Ec2State.STOPPED, Ec2State.STOPPING}:
        return _move(cluster, instance, instance.ec2_state, now)
    if instance.ec2_state is not Ec2State.RUNNING:
        raise AwsApiError("IncorrectInstanceState", f"The instance '{instance.instance_id}' is not running")
    return _move(cluster, instance, Ec2State.STOPPING, now)


def stopped(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """The state becomes `stopped`. ECS keeps the registration.

    If the agent was connected, ECS ends the instance's tasks. Otherwise the tasks stay until the agent reconnects.
    """
    was_connected = instance.agent_connected
    down = went_down(cluster, instance, now)
    moved = _move(cluster, instance, Ec2State.STOPPED, now)
    reason = f"Host EC2 (instance {instance.instance_id}) stopped."
    ended = _give_up(cluster, instance, EcsStopCode.TERMINATION, reason, now) if was_connected else []
    return OperationResult(moved.result, down.events + moved.events + ended)


def begin_start(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """StartInstances: the state becomes `pending`. The instance gets another host, without the old host's faults.

    Raises:
        AwsApiError: The instance is not stopped.
    """
    if instance.ec2_state in {Ec2State.RUNNING, Ec2State.PENDING}:
        return _move(cluster, instance, instance.ec2_state, now)
    if instance.ec2_state is not Ec2State.STOPPED:
        raise AwsApiError("IncorrectInstanceState", f"The instance '{instance.instance_id}' is not stopped")
    instance.launched_at, instance.reboot_behaviour = now, RebootBehaviour.NORMAL
    _cure(instance, {CuredBy.REPLACE})
    instance.impaired.clear()
    instance.scheduled = [
        event if event.description.startswith("[") else replace(event, description=f"[Completed] {event.description}")
        for event in instance.scheduled
    ]
    return _move(cluster, instance, Ec2State.PENDING, now)


def started(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """The state becomes `running`, and the instance boots (see `came_back`)."""
    moved = _move(cluster, instance, Ec2State.RUNNING, now)
    return OperationResult(moved.result, moved.events + came_back(cluster, instance, now).events)


def begin_terminate(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """TerminateInstances: the state becomes `shutting-down`. `terminated` follows when the processes are dead."""
    if instance.ec2_state in {Ec2State.TERMINATED, Ec2State.SHUTTING_DOWN}:
        return _move(cluster, instance, instance.ec2_state, now)
    return _move(cluster, instance, Ec2State.SHUTTING_DOWN, now)


def terminated(cluster: ClusterModel, instance: ModelInstance, now: datetime) -> OperationResult:
    """The state becomes `terminated`, and a connected agent deregisters its instance.

    If the agent was disconnected, the registration and its tasks stay in ECS as zombies.
    """
    was_connected = instance.agent_connected
    down = went_down(cluster, instance, now)
    moved = _move(cluster, instance, Ec2State.TERMINATED, now)
    instance.terminated_at = now
    events = down.events + moved.events
    if was_connected and instance.status is not ContainerInstanceStatus.INACTIVE:
        instance.status = ContainerInstanceStatus.INACTIVE
        events.append(container_instance_changed(cluster, instance, now))
        reason = f"Host EC2 (instance {instance.instance_id}) terminated."
        events += _give_up(cluster, instance, EcsStopCode.TERMINATION, reason, now)
    return OperationResult(moved.result, events)


def break_gpu(instance: ModelInstance, gpu: str, fault: GpuFault) -> None:
    """Break the GPU with this UUID until `fault.cured_by` happens. Raises AwsApiError if there is no such GPU."""
    if gpu not in instance.gpus:
        raise AwsApiError("InvalidParameterException", f"{instance.instance_id} has no GPU {gpu}")
    instance.faults[gpu] = fault


_EC2_CODES = {
    Ec2State.PENDING: 0,
    Ec2State.RUNNING: 16,
    Ec2State.SHUTTING_DOWN: 32,
    Ec2State.TERMINATED: 48,
    Ec2State.STOPPING: 64,
    Ec2State.STOPPED: 80,
}


def ec2_code(state: Ec2State) -> dict[str, Any]:
    """Return the state as the EC2 API writes it: its number (`Code`) and its name (`Name`)."""
    return {"Code": _EC2_CODES[state], "Name": str(state)}
