"""Control API of the cluster: the /_sandbox paths for fault injection and inspection, which AWS does not have."""

import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sandbox.cluster.driver import Driver
from sandbox.cluster.model import health as model_health
from sandbox.cluster.model import instances
from sandbox.cluster.model.cluster import AwsApiError, OperationResult
from sandbox.cluster.model.records import ModelInstance, Task
from sandbox.cluster.model.statuses import CuredBy, Ec2State, ProcessState, RebootBehaviour, StatusCheck
from sandbox.cluster.model.views import iso
from sandbox.cluster.power import PowerControl


class Control:
    """Handler of the /_sandbox paths. Each public method is one path; its parameters are the JSON keys."""

    def __init__(self, driver: Driver, power: PowerControl) -> None:
        self._driver, self._cluster, self._power = driver, driver.cluster, power

    def __call__(self, method: str, url: str, body: dict[str, Any]) -> Any:
        """Call the method of a path, with the body and the query as its arguments.

        Paths: `POST fault | reset | launch | impair | schedule | health | forget | announce | agents`,
        `GET state | events?after=N`.

        Raises:
            AwsApiError: The path is unknown (404), or the arguments do not fit.
        """
        parts = urlsplit(url)
        actions: dict[tuple[str, str], Callable[..., dict[str, Any]]] = {
            ("POST", "/_sandbox/fault"): self.fault,
            ("POST", "/_sandbox/reset"): self.reset,
            ("POST", "/_sandbox/launch"): self.launch,
            ("POST", "/_sandbox/impair"): self.impair,
            ("POST", "/_sandbox/schedule"): self.schedule,
            ("POST", "/_sandbox/health"): self.health,
            ("POST", "/_sandbox/forget"): self.forget,
            ("POST", "/_sandbox/announce"): self.announce,
            ("POST", "/_sandbox/agents"): self.agents,
            ("GET", "/_sandbox/state"): self.state,
            ("GET", "/_sandbox/events"): self.events,
        }
        if (method, parts.path) not in actions:
            raise AwsApiError("NotFound", f"{method} {parts.path}", 404)
        action, arguments = actions[method, parts.path], body | dict(parse_qsl(parts.query))
        try:
            inspect.signature(action).bind(**arguments)
        except TypeError as error:
            raise AwsApiError("InvalidParameterException", str(error)) from error
        return action(**arguments)

    def fault(
        self,
        instance: str,
        kind: str,
        cured_by: str | None = None,
        reboot: str = "normal",
        gpu: int | None = None,
    ) -> dict[str, Any]:
        """Inject a fault now (see `PowerControl.inject`). `gpu` is the index of the GPU that a GPU fault breaks."""
        try:
            cure, behaviour = None if cured_by is None else CuredBy(cured_by), RebootBehaviour(reboot)
        except ValueError as error:
            raise AwsApiError("InvalidParameterException", str(error)) from error
        with self._driver.lock:
            known = [one.instance_id for one in self._cluster.instances.values() if one.ec2_state is Ec2State.RUNNING]
        if instance not in self._cluster.instances:
            message = f"there is no instance {instance}; the running instances are {', '.join(sorted(known)) or 'none'}"
            raise AwsApiError("InvalidInstanceID.NotFound", message)
        return self._power.inject(instance, kind, cure, behaviour, gpu)

    def reset(self, instance: str) -> dict[str, Any]:
        """Reset the GPUs of an instance, as its driver does. `in_use` are the GPUs because of which it refuses."""
        return {"in_use": self._power.reset_gpus(instance)}

    def launch(self, count: int = 1, gpus: int = 8, group: str = "", lifecycle: str = "") -> dict[str, Any]:
        """Launch `count` instances, in the Auto Scaling group `group` if it is set. `lifecycle` "" is on demand."""
        instance_ids = [
            self._driver.change(lambda now: instances.launch(self._cluster, gpus, now))["instance_id"]
            for _ in range(count)
        ]
        with self._driver.lock:
            for instance in (self._cluster.instances[instance_id] for instance_id in instance_ids):
                instance.lifecycle = lifecycle
                instance.tags |= {model_health.GROUP_TAG: group} if group else {}
        return {"instances": instance_ids}

    def impair(self, instance: str, check: str = "system") -> dict[str, Any]:
        """Let one of EC2's status checks of the instance fail from now on."""
        try:
            failing = StatusCheck(check)
        except ValueError as error:
            raise AwsApiError("InvalidParameterException", str(error)) from error
        return self._change_instance(
            instance, lambda target, now: model_health.impair(self._cluster, target, failing, now)
        )

    def schedule(self, instance: str, code: str, in_s: float = 3600) -> dict[str, Any]:
        """Schedule an EC2 event of the type `code` for the instance, `in_s` seconds from now."""

        def plan(target: ModelInstance, now: datetime) -> OperationResult:
            return model_health.schedule(self._cluster, target, code, now + timedelta(seconds=in_s), now)

        return self._change_instance(instance, plan)

    def health(self, instance: str, kind: str, status: str, reason: str | None = None) -> dict[str, Any]:
        """Send the state of one of ECS's health checks of the instance (see `model.health.report_health`)."""
        return self._change_instance(
            instance, lambda target, now: model_health.report_health(self._cluster, target, kind, status, reason, now)
        )

    def forget(self, task: str) -> dict[str, Any]:
        """Let ECS forget a live task and send no further event about it. The task's process runs on."""
        with self._driver.lock:
            forgotten = self._cluster.find_task(task, self._driver.now())
            if forgotten is None or not forgotten.is_live:
                raise AwsApiError("InvalidParameterException", f"{task} is no task that lives")
            self._cluster.instance_of(forgotten).live.remove(forgotten.task_id)
            del self._cluster.tasks[forgotten.task_id]
            forgotten.process = ProcessState.ENDED
            return {"forgotten": forgotten.task_id}

    def _change_instance(
        self, instance_id: str, operation: Callable[[ModelInstance, datetime], OperationResult]
    ) -> dict[str, Any]:
        with self._driver.lock:
            (instance,) = instances.find_instances(self._cluster, [instance_id])
            return self._driver.change(lambda now: operation(instance, now))

    def announce(self) -> dict[str, Any]:
        """Register every connected ECS agent again, with one event each."""
        return self._driver.change(lambda now: instances.announce(self._cluster, now))

    def agents(self, api_url: str, tokens: dict[str, str], gpu_reset: bool = False) -> dict[str, Any]:
        """Start a node agent on each instance of `tokens` (tokens by instance id). The agents report to `api_url`.

        `gpu_reset`: the agents are set up to reset GPUs.
        """
        with self._driver.lock:
            with_token = instances.find_instances(self._cluster, list(tokens))
            self._driver.node_agents.enable(api_url, tokens, gpu_reset)
            for instance in with_token:
                self._driver.node_agents.begin(instance.instance_id, self._driver.hosts[instance.instance_id].folder)
            return {"agents": sorted(tokens)}

    def events(self, after: str = "0") -> dict[str, Any]:
        """Return the events after the first `after`, as full envelopes; `next` is `after` of the next call."""
        with self._driver.lock:
            publisher = self._driver.publisher
            first_saved = publisher.emitted_count - len(publisher.emitted)
            events = list(publisher.emitted)[max(int(after) - first_saved, 0) :]
            return {"events": events, "next": publisher.emitted_count}

    def state(self) -> dict[str, Any]:
        """Return the cluster's instances and tasks: both ECS's view and the truth about processes and faults."""
        with self._driver.lock:
            return {
                "cluster": self._cluster.name,
                "instances": [self._instance(i) for i in self._cluster.instances.values()],
                "tasks": [self._task(task) for task in self._cluster.tasks.values()],
            }

    def _instance(self, instance: ModelInstance) -> dict[str, Any]:
        return {
            "instance_id": instance.instance_id,
            "container_instance_arn": instance.arn,
            "status": instance.status,
            "ec2_state": instance.ec2_state,
            "agent_connected": instance.agent_connected,
            "version": instance.version,
            "private_ip": instance.private_ip,
            "boot_id": instance.boot_id,
            "booted_at": iso(instance.booted_at),
            "gpus": list(instance.gpus),
            "free_gpus": self._cluster.free_gpus(instance),
            "faults": {gpu: fault.kind for gpu, fault in instance.faults.items()},
            "reboot_behaviour": instance.reboot_behaviour,
            "folder": str(self._driver.hosts[instance.instance_id].folder),
            "node_agent_pid": self._driver.node_agents.pid(instance.instance_id),
        }

    def _task(self, task: Task) -> dict[str, Any]:
        process = self._driver.processes.get(task.task_id)
        main = next(container for container in task.containers if container.name == task.main)
        return {
            "task_id": task.task_id,
            "instance_id": task.instance_id,
            "started_by": task.started_by,
            "last_status": task.last_status,
            "desired_status": task.desired_status,
            "exit_code": main.exit_code,
            "process": task.process,
            "pid": None if process is None else process.pid,
            "gpu_ids": list(task.gpu_ids),
            "log": str(self._driver.log_path(task.task_id)),
        }
