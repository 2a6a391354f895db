"""Operations on tasks: RunTask, StopTask, and the facts that an agent reports about a task's process."""

import json
import re
from datetime import datetime
from typing import Any

from sandbox.cluster.model.cluster import AwsApiError, ClusterModel, OperationResult
from sandbox.cluster.model.events import container_instance_changed, task_changed
from sandbox.cluster.model.placement import ResourceNeed, choose, need_of
from sandbox.cluster.model.records import Container, ModelInstance, StoredToken, Task
from sandbox.cluster.model.statuses import ContainerInstanceStatus, EcsStopCode, ProcessState, TaskStatus
from sandbox.cluster.model.views import task_answered

OVERRIDES_CHARS_MAX = 8192
REASON_CHARS_MAX = 1024
CONSTRAINTS_MAX = 10
_STARTED_BY = re.compile(r"^[A-Za-z0-9_/\-]{0,128}$")
_TOKEN = re.compile(r"[!-~]{1,64}")
EXITED = "Essential container in task exited"
SIDECAR_EXIT = 143  # the agent stops the other containers with SIGTERM when the main container ends
Events = list[dict[str, Any]]


def main_container(definition: dict[str, Any], overrides: dict[str, Any]) -> str:
    """Return the name of the main container, which runs the task's process.

    The main container is the first essential container with a command, else the first essential container, else the
    first container.
    """
    containers = [c for c in definition["containerDefinitions"] if c.get("essential", True)]
    overridden = {o["name"] for o in overrides.get("containerOverrides", []) if o.get("command")}
    runnable = [c for c in containers if c.get("command") or c.get("entryPoint") or c["name"] in overridden]
    name: str = (runnable or containers or definition["containerDefinitions"])[0]["name"]
    return name


def _check_request(request: dict[str, Any], definition: dict[str, Any]) -> None:
    overrides = request.get("overrides", {})
    known = {container["name"] for container in definition["containerDefinitions"]}
    unknown = [o.get("name") for o in overrides.get("containerOverrides", []) if o.get("name") not in known]
    token = request.get("clientToken", "x")
    problem = None
    if not 1 <= request.get("count", 1) <= 10:
        problem = "count must be between 1 and 10."
    elif len(request.get("placementConstraints", [])) > CONSTRAINTS_MAX:
        problem = f"placementConstraints can have at most {CONSTRAINTS_MAX} items."
    elif not _STARTED_BY.match(request.get("startedBy", "")):
        problem = "startedBy must be at most 128 letters, numbers, hyphens, slashes and underscores."
    elif _is_too_long(overrides):
        problem = f"Container Overrides length must be at most {OVERRIDES_CHARS_MAX}"
    elif unknown:
        problem = f"Override for container named {unknown[0]} is not a container in the TaskDefinition."
    elif not _TOKEN.fullmatch(token):
        problem = "clientToken must be 1 to 64 ASCII characters in the range 33-126."
    if problem:
        raise AwsApiError("InvalidParameterException", problem)


def _is_too_long(overrides: dict[str, Any]) -> bool:
    text = repr(overrides)  # the JSON has at most twice the characters, so it is written only near the limit
    if text.isascii() and 2 * len(text) <= OVERRIDES_CHARS_MAX:
        return False
    return len(json.dumps(overrides)) > OVERRIDES_CHARS_MAX


def run_task(
    cluster: ClusterModel, request: dict[str, Any], definition: dict[str, Any], now: datetime
) -> OperationResult:
    """RunTask: place `count` copies of a task. Each copy is placed or fails on its own.

    Args:
        cluster: The cluster; its state changes.
        request: Parameters of RunTask, as botocore takes them.
        definition: The task definition, as DescribeTaskDefinition returns it.
        now: Time of the call.

    Returns:
        The response with the members `tasks` and `failures`.

    Raises:
        AwsApiError: ECS refuses the whole request.
    """
    cluster.check_cluster(request.get("cluster"))
    _check_request(request, definition)
    if denial := cluster.denied_families.get(definition["family"]):
        raise AwsApiError("AccessDeniedException", denial)
    cluster.forget(now)
    token = request.get("clientToken")
    rest = {k: v for k, v in request.items() if k != "clientToken"}
    if token in cluster.tokens:
        return _repeated(cluster, cluster.tokens[token], rest)
    need = need_of(definition, request.get("overrides", {}))
    placed, tasks, failures, events = [], [], [], []
    for _ in range(request.get("count", 1)):
        instance, reasons = choose(cluster, request.get("placementConstraints", []), need)
        if instance is None:
            failures += reasons
            continue
        task = _place(cluster, instance, request, definition, need=need, now=now)
        events.append(task_changed(cluster, task, now, is_new=True))
        placed.append(task.task_id)
        tasks.append(task_answered(cluster, task) | {"tags": task.tags})
        events.append(container_instance_changed(cluster, instance, now))
        task.last_status = TaskStatus.PENDING
        events.append(task_changed(cluster, task, now))
    if token and placed:
        cluster.tokens[token] = StoredToken(rest, tuple(placed), now)
    return OperationResult({"tasks": tasks, "failures": failures}, events)


def _repeated(cluster: ClusterModel, stored: StoredToken, request: dict[str, Any]) -> OperationResult:
    tasks = [cluster.tasks[task_id] for task_id in stored.task_ids if task_id in cluster.tasks]
    if stored.request != request:
        message = "The clientToken was used before with other parameters."
        raise AwsApiError("ConflictException", message, resourceIds=[task.arn for task in tasks])
    return OperationResult({"tasks": [task_answered(cluster, t) | {"tags": t.tags} for t in tasks], "failures": []}, [])


def _place(
    cluster: ClusterModel,
    instance: ModelInstance,
    request: dict[str, Any],
    definition: dict[str, Any],
    *,
    need: ResourceNeed,
    now: datetime,
) -> Task:
    task_id = cluster.ids.hex("task")
    free = cluster.free_gpus(instance)
    overrides = request.get("overrides", {})
    overrides_by_name = {entry["name"]: entry for entry in overrides.get("containerOverrides", [])}
    containers = []
    for spec in definition["containerDefinitions"]:
        count = need.gpus.get(spec["name"], 0)
        count = len(instance.gpus) if count is None else count
        assigned, free = tuple(free[:count]), free[count:]
        containers.append(
            Container(
                name=spec["name"],
                arn=cluster.arn("container", f"{cluster.name}/{task_id}/{cluster.ids.uuid('container')}"),
                image=spec.get("image", ""),
                runtime_id=cluster.ids.hex("runtime", 64),
                cpu=spec.get("cpu", 0),
                memory=spec.get("memory"),
                memory_reservation=spec.get("memoryReservation"),
                gpu_ids=assigned,
            )
        )
    family = definition["family"]
    task = Task(
        task_id=task_id,
        arn=cluster.arn("task", f"{cluster.name}/{task_id}"),
        definition=definition,
        instance_id=instance.instance_id,
        container_instance_arn=instance.arn,
        group=request.get("group") or f"family:{family}",
        overrides={k: v for k, v in overrides.items() if k != "containerOverrides"}
        | {"containerOverrides": [overrides_by_name.get(c.name, {"name": c.name}) for c in containers]},
        cpu=need.cpu,
        memory=need.memory,
        containers=containers,
        main=main_container(definition, overrides),
        created_at=now,
        updated_at=now,
        started_by=request.get("startedBy"),
        tags=request.get("tags", []),
    )
    cluster.tasks[task_id] = task
    instance.live.append(task_id)
    return task


def stop_task(cluster: ClusterModel, reference: str, reason: str | None, now: datetime) -> OperationResult:
    """StopTask: set the desired status to STOPPED. A connected agent then stops the process (see `agent_work`).

    Raises:
        AwsApiError: The task is unknown, or `reason` is longer than `REASON_CHARS_MAX`.
    """
    task = cluster.find_task(reference, now)
    if task is None:
        raise AwsApiError("InvalidParameterException", "The referenced task was not found.")
    if len(reason or "") > REASON_CHARS_MAX:
        raise AwsApiError("InvalidParameterException", f"reason must be at most {REASON_CHARS_MAX} characters.")
    events: Events = []
    if task.is_live and task.desired_status is not TaskStatus.STOPPED:
        task.desired_status = TaskStatus.STOPPED
        task.stop_code, task.stopped_reason = EcsStopCode.USER, reason or "Task stopped by user"
        task.stopping_at = now
        task.tags = []  # as AWS documents it, StopTask deletes the task's tags
        events.append(task_changed(cluster, task, now))
        if task.process is ProcessState.NONE and cluster.instance_of(task).agent_connected:
            events += finish(cluster, task, None, None, now)
    return OperationResult({"task": task_answered(cluster, task)}, events)


def is_to_start(task: Task) -> bool:
    """Whether ECS wants the task to run, and no process was started yet."""
    return task.process is ProcessState.NONE and task.desired_status is TaskStatus.RUNNING


def agent_work(cluster: ClusterModel, instance: ModelInstance) -> tuple[list[Task], list[Task]]:
    """Return the work that ECS has for the instance's agent: (tasks to start, tasks to stop).

    Both lists are empty while the agent is disconnected.
    """
    wanted: list[Task] = []
    unwanted: list[Task] = []
    if instance.agent_connected:
        for task in cluster.live_tasks(instance):
            if is_to_start(task):
                wanted.append(task)
            elif task.process is ProcessState.RUNNING and task.desired_status is TaskStatus.STOPPED:
                unwanted.append(task)
    return wanted, unwanted


def process_started(cluster: ClusterModel, task: Task, now: datetime) -> OperationResult:
    """Record a fact from the driver: the task's process runs."""
    cluster.processed(task, ProcessState.RUNNING)
    task.process_started_at = now
    return OperationResult({}, report(cluster, task, now))


def process_ended(cluster: ClusterModel, task: Task, exit_code: int | None, now: datetime) -> OperationResult:
    """Record a fact from the driver: the process ended. `exit_code` is None if the container vanished."""
    cluster.processed(task, ProcessState.ENDED)
    task.process_exit, task.process_ended_at = exit_code, now
    task.process_reason = None if exit_code is not None else "ContainerVanishedError: container not found"
    return OperationResult({}, report(cluster, task, now))


def process_failed(cluster: ClusterModel, task: Task, reason: str, now: datetime) -> OperationResult:
    """Record a fact from the driver: the container could not be started, for `reason`."""
    cluster.processed(task, ProcessState.FAILED_TO_START)
    task.process_ended_at = now
    task.process_reason = f"CannotStartContainerError: {reason}"
    return OperationResult({}, report(cluster, task, now))


def stopping(cluster: ClusterModel, task: Task, now: datetime) -> OperationResult:
    """Record a fact from the driver: the agent has sent the stop signal."""
    if task.last_status is not TaskStatus.RUNNING:
        return OperationResult({}, [])
    task.last_status = TaskStatus.STOPPING
    return OperationResult({}, [task_changed(cluster, task, now)])


def report(cluster: ClusterModel, task: Task, now: datetime) -> Events:
    """Report the true state of a task's process to ECS, if the agent is connected: RUNNING, or the end."""
    instance = cluster.instance_of(task)
    if not instance.agent_connected or not task.is_live:
        return []
    events: Events = []
    if task.started_at is None and task.process_started_at is not None:
        task.started_at, task.last_status = task.process_started_at, TaskStatus.RUNNING
        for container in task.containers:
            container.last_status = TaskStatus.RUNNING
        events.append(task_changed(cluster, task, now))
    if task.process is ProcessState.ENDED:
        events += finish(cluster, task, task.process_exit, task.process_reason, now)
    elif task.process is ProcessState.FAILED_TO_START:
        if task.stop_code is None:
            task.stop_code, task.stopped_reason = EcsStopCode.FAILED_TO_START, "Task failed to start"
        events += finish(cluster, task, None, task.process_reason, now)
    elif task.process is ProcessState.NONE and task.desired_status is TaskStatus.STOPPED:
        events += finish(cluster, task, None, None, now)
    return events


def finish(
    cluster: ClusterModel, task: Task, exit_code: int | None, container_reason: str | None, now: datetime
) -> Events:
    """End the task in ECS: DEPROVISIONING, then STOPPED. The instance's resources become free."""
    task.desired_status = TaskStatus.STOPPED
    if task.stop_code is None:
        task.stop_code, task.stopped_reason = EcsStopCode.ESSENTIAL_EXITED, EXITED
    task.stopping_at = task.stopping_at or now
    task.execution_stopped_at = task.process_ended_at or now
    for container in task.containers:
        container.last_status = TaskStatus.STOPPED
        is_main = container.name == task.main
        if is_main:
            container.exit_code, container.reason = exit_code, container_reason
        elif exit_code is not None:
            container.exit_code = SIDECAR_EXIT
    task.last_status = TaskStatus.DEPROVISIONING
    events = [task_changed(cluster, task, now)]
    task.last_status, task.stopped_at = TaskStatus.STOPPED, now
    events.append(task_changed(cluster, task, now))
    instance = cluster.instance_of(task)
    instance.live.remove(task.task_id)
    if instance.status is not ContainerInstanceStatus.INACTIVE:
        events.append(container_instance_changed(cluster, instance, now))
    return events
