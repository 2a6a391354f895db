"""Driver of the cluster model: real processes and real time for the model's tasks and instances.

Every change goes through `Driver.change`: it takes one lock, runs one model operation and queues its events in order.
Then each ECS agent compares its tasks with the state that ECS wants (level-triggered, as the real ECS agent is).

Limits: only the main container of a task runs. The other containers are shown as running and stopped beside it. There
are no images, so a task needs a command, and its program must exist on this host.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandbox.cluster.agents import NodeAgents
from sandbox.cluster.awslogs import AwsLogs
from sandbox.cluster.container_process import TaskProcess
from sandbox.cluster.event_publisher import Publisher
from sandbox.cluster.instance_folder import InstanceFolder
from sandbox.cluster.model import tasks
from sandbox.cluster.model.cluster import ClusterModel, OperationResult
from sandbox.cluster.model.records import ModelInstance, Task
from sandbox.cluster.model.statuses import ProcessState
from sandbox.cluster.timers import Timers

REPOSITORY = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S = 30  # ECS_CONTAINER_STOP_TIMEOUT


@dataclass(frozen=True)
class ClusterTimings:
    """Durations of the cluster's steps, in seconds. A real cluster takes minutes for most of these steps."""

    start_s: float = 0.1  # from the placement to the process
    down_s: float = 1.0  # from the request of a reboot, stop or terminate until the instance shuts down
    shutdown_s: float = 10.0  # upper bound from SIGTERM to SIGKILL of the node agent: TimeoutStopSec of its unit
    boot_s: float = 3.0  # from off until the agent has reconnected
    spot_notice_s: float = 5.0  # two minutes on AWS
    stop_timeout_max_s: float = STOP_TIMEOUT_S  # upper bound of every container's stopTimeout


def utc_now() -> datetime:
    """Return the current time, aware, in UTC."""
    return datetime.now(UTC)


class Driver:
    """Runs the processes of one cluster model, and applies every change to the model under one lock."""

    def __init__(
        self,
        cluster: ClusterModel,
        folder: Path,
        publisher: Publisher,
        *,
        timings: ClusterTimings | None = None,
        environment: dict[str, str] | None = None,
        clock: Callable[[], datetime] = utc_now,
        logs: AwsLogs | None = None,
    ) -> None:
        self.cluster, self.folder, self.publisher = cluster, folder.resolve(), publisher
        self.timings, self._base_environment = timings or ClusterTimings(), environment or {}
        self.now, self._logs = clock, logs
        self.lock = threading.RLock()
        self.timers = Timers()
        self.control: Mapping[str, object] = {}
        """URL and keys of the control API, for the programs of the instances. They are set before the first launch."""
        self.hosts: dict[str, InstanceFolder] = {}
        self.node_agents = NodeAgents()
        self.processes: dict[str, TaskProcess] = {}
        self._runs_on: dict[str, str] = {}  # instance of each process, also of tasks that the cluster forgot
        self._taken: set[str] = set()  # tasks that an agent has begun to start or to stop
        self._waiters: list[threading.Thread] = []
        self.closing = False
        (self.folder / "tasks").mkdir(parents=True, exist_ok=True)

    def change(self, operation: Callable[[datetime], OperationResult]) -> dict[str, Any]:
        """Run one model operation now, publish its events, and let the agents react. Returns the operation's result."""
        with self.lock:
            outcome = operation(self.now())
            self._add_hosts()
            self.publisher.publish(outcome.events)
            self._serve_agents()
            return outcome.result

    def log_path(self, task_id: str) -> Path:
        """Return the file that holds the output of the task."""
        return self.folder / "tasks" / f"{task_id}.log"

    def close(self) -> None:
        """End every process that this driver has started, and its threads."""
        with self.lock:
            self.closing = True
            self.node_agents.end_all()
            for process in list(self.processes.values()):
                process.signal(signal.SIGKILL)
        self.timers.close()
        for waiter in self._waiters:
            waiter.join(timeout=10)
        if self._logs is not None:
            self._logs.close()
        self.publisher.close()

    def _add_hosts(self) -> None:
        for instance in self.cluster.instances.values():
            if instance.instance_id not in self.hosts:
                self.hosts[instance.instance_id] = InstanceFolder(
                    self.folder / "instances" / instance.instance_id, instance, self.control
                )

    def _serve_agents(self) -> None:
        for instance in self.cluster.instances.values():
            wanted, unwanted = tasks.agent_work(self.cluster, instance)
            for task in wanted:
                if f"start {task.task_id}" not in self._taken:
                    self._taken.add(f"start {task.task_id}")
                    self.timers.after(self.timings.start_s, lambda task=task: self._start(task))  # type: ignore[misc]
            for task in unwanted:
                if f"stop {task.task_id}" not in self._taken:
                    self._taken.add(f"stop {task.task_id}")
                    self._stop(task)

    def _start(self, task: Task) -> None:
        with self.lock:
            instance = self.cluster.instance_of(task)
            self._taken.discard(f"start {task.task_id}")
            if self.closing or task not in tasks.agent_work(self.cluster, instance)[0]:
                return  # the task was stopped, or the agent disconnected, before the container was created
            try:
                process = self._spawn(task, instance)
            except OSError as error:
                reason = str(error)
                self.change(lambda now: tasks.process_failed(self.cluster, task, reason, now))
                return
            self.processes[task.task_id], self._runs_on[task.task_id] = process, task.instance_id
            if self._logs is not None:
                self._logs.follow(task.definition, task.main, task.task_id, self.log_path(task.task_id))
            waiter = threading.Thread(target=self._wait, args=(task, process), name=f"task-{task.task_id[:8]}")
            self._waiters = [thread for thread in self._waiters if thread.is_alive()] + [waiter]
            waiter.start()
            self.change(lambda now: tasks.process_started(self.cluster, task, now))

    def _spawn(self, task: Task, instance: ModelInstance) -> TaskProcess:
        specs = {spec["name"]: spec for spec in task.definition["containerDefinitions"]}
        overrides = {entry["name"]: entry for entry in task.overrides["containerOverrides"]}
        spec, override = specs[task.main], overrides.get(task.main, {})
        command = spec.get("entryPoint", []) + (override.get("command") or spec.get("command") or [])
        if not command:
            raise FileNotFoundError("no command specified, and the sandbox has no image to take one from")
        scratch = self.folder / "tasks" / task.task_id
        scratch.mkdir(exist_ok=True)
        folder = Path(spec.get("workingDirectory") or scratch)
        environment = self._environment(task, instance, spec, override) | {"HOME": str(scratch)}
        program = _which(command[0], environment["PATH"])
        return TaskProcess([program, *command[1:]], environment, folder, self.log_path(task.task_id))

    def _environment(
        self, task: Task, instance: ModelInstance, spec: dict[str, Any], override: dict[str, Any]
    ) -> dict[str, str]:
        host = self.hosts[instance.instance_id]
        gpus = next(container.gpu_ids for container in task.containers if container.name == task.main)
        path = [
            str(host.folder / "bin"),
            str(Path(sys.executable).parent),
            "/usr/local/bin",
            "/usr/bin",
            "/bin",
        ]
        base = {
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join(str(REPOSITORY / part) for part in ("", "lambdas", "agent")),
            "NVIDIA_VISIBLE_DEVICES": "void",  # a task without a GPU requirement sees no driver
        }
        from_task = {e["name"]: e["value"] for part in (spec, override) for e in part.get("environment", [])}
        pinned = {"NVIDIA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
        environment = base | self._base_environment | host.environment() | from_task | pinned
        return environment | {"PATH": os.pathsep.join(path)}

    def _wait(self, task: Task, process: TaskProcess) -> None:
        code = process.wait()
        if self._logs is not None:
            self._logs.finish(task.task_id)
        with self.lock:
            self.processes.pop(task.task_id, None)
            self._runs_on.pop(task.task_id, None)
            self._taken.discard(f"stop {task.task_id}")
            # When an instance goes down, the model has already recorded the end of its processes.
            if not self.closing and task.process is ProcessState.RUNNING:
                self.change(lambda now: tasks.process_ended(self.cluster, task, code, now))

    def _stop(self, task: Task) -> None:
        """Stop a task's process: SIGTERM, then SIGKILL after the container's stopTimeout."""
        spec = next(s for s in task.definition["containerDefinitions"] if s["name"] == task.main)
        grace_s = min(spec.get("stopTimeout", STOP_TIMEOUT_S), self.timings.stop_timeout_max_s)
        process = self.processes[task.task_id]
        process.signal(signal.SIGTERM)
        self.timers.after(grace_s, lambda: process.signal(signal.SIGKILL))
        self.change(lambda now: tasks.stopping(self.cluster, task, now))

    def kill_all_on(self, instance: ModelInstance) -> None:
        """Kill every process of an instance that goes down.

        The model must record the loss first (`went_down`). Otherwise the driver would report the exits to ECS.
        """
        self.node_agents.end(instance.instance_id)
        for task_id, process in list(self.processes.items()):
            if self._runs_on[task_id] == instance.instance_id:
                process.signal(signal.SIGKILL)


def _which(program: str, path: str) -> str:
    """Return the program as the task's own PATH finds it. Raises FileNotFoundError with docker's message."""
    candidates = [Path(program)] if "/" in program else [Path(part) / program for part in path.split(os.pathsep)]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    raise FileNotFoundError(f'exec: "{program}": executable file not found in $PATH')
