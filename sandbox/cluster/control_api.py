"""What is not AWS: the /_sandbox paths, by which people and tests break things and look behind it."""

import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sandbox.cluster.driver import Driver
from sandbox.cluster.model import health as model_health
from sandbox.cluster.model import instances
from sandbox.cluster.model.cluster import (
    AwsApiError,
    CuredBy,
    ModelInstance,
    OperationResult,
    ProcessState,
    RebootBehaviour,
    StatusCheck,
    Task,
)
from sandbox.cluster.model.views import iso
from sandbox.cluster.power import PowerControl


class Control:
    def __init__(self, driver: Driver, power: PowerControl) -> None:
        self._driver, self._cluster, self._power = driver, driver.cluster, power

    def __call__(self, method: str, url: str, body: dict[str, Any]) -> Any:
        """`POST fault | launch | impair | schedule | health | forget | announce | agents`,

        `GET state | events?after=N`. Raises AwsApiError 404 for others.
        """
        parts = urlsplit(url)
        actions: dict[tuple[str, str], Callable[..., dict[str, Any]]] = {
            ("POST", "/_sandbox/fault"): self.fault,
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
        action, given = actions[method, parts.path], body | dict(parse_qsl(parts.query))
        try:
            inspect.signature(action).bind(**given)
        except TypeError as error:
            raise AwsApiError("InvalidParameterException", str(error)) from error
        return action(**given)

    def fault(
        self,
        instance: str,
        kind: str,
        cured_by: str = "reboot",
        reboot: str = "normal",
        gpu: int | None = None,
    ) -> dict[str, Any]:
        try:
            cure, behaviour = CuredBy(cured_by), RebootBehaviour(reboot)
        except ValueError as error:
            raise AwsApiError("InvalidParameterException", str(error)) from error
        return self._power.inject(instance, kind, cure, behaviour, gpu)

    def launch(self, count: int = 1, gpus: int = 8, group: str = "", lifecycle: str = "") -> dict[str, Any]:
        """New machines, in an Auto Scaling group if it is named, on demand if no other lifecycle is."""
        made = [
            self._driver.change(lambda now: instances.launch(self._cluster, gpus, now))["instance_id"]
            for _ in range(count)
        ]
        with self._driver.lock:
            for instance in (self._cluster.instances[instance_id] for instance_id in made):
                instance.lifecycle = lifecycle
                instance.tags |= {model_health.GROUP_TAG: group} if group else {}
        return {"instances": made}

    def impair(self, instance: str, check: str = "system") -> dict[str, Any]:
        """One of EC2's status checks of the machine fails from now on."""
        try:
            failing = StatusCheck(check)
        except ValueError as error:
            raise AwsApiError("InvalidParameterException", str(error)) from error
        return self._about(instance, lambda found, now: model_health.impair(self._cluster, found, failing, now))

    def schedule(self, instance: str, code: str, in_s: float = 3600) -> dict[str, Any]:
        """EC2 plans something with the machine (`code` of a scheduled event), `in_s` seconds from now."""

        def plan(found: ModelInstance, now: datetime) -> OperationResult:
            return model_health.schedule(self._cluster, found, code, now + timedelta(seconds=in_s), now)

        return self._about(instance, plan)

    def health(self, instance: str, kind: str, status: str, reason: str | None = None) -> dict[str, Any]:
        """ECS says how one of its health checks of the instance is."""
        return self._about(
            instance, lambda found, now: model_health.report_health(self._cluster, found, kind, status, reason, now)
        )

    def forget(self, task: str) -> dict[str, Any]:
        """ECS knows nothing of the task from now on, and tells nothing of it; its process lives on."""
        with self._driver.lock:
            found = self._cluster.find_task(task, self._driver.now())
            if found is None or not found.is_live:
                raise AwsApiError("InvalidParameterException", f"{task} is no task that lives")
            self._cluster.instance_of(found).live.remove(found.task_id)
            del self._cluster.tasks[found.task_id]
            found.process = ProcessState.ENDED
            return {"forgotten": found.task_id}

    def _about(
        self, instance_id: str, operation: Callable[[ModelInstance, datetime], OperationResult]
    ) -> dict[str, Any]:
        with self._driver.lock:
            (found,) = instances.find_instances(self._cluster, [instance_id])
            return self._driver.change(lambda now: operation(found, now))

    def announce(self) -> dict[str, Any]:
        return self._driver.change(lambda now: instances.announce(self._cluster, now))

    def agents(self, api_url: str, tokens: dict[str, str]) -> dict[str, Any]:
        """From now on each instance of `tokens` has a node agent, which reports to `api_url`."""
        with self._driver.lock:
            found = instances.find_instances(self._cluster, list(tokens))
            self._driver.node_agents.enable(api_url, tokens)
            for instance in found:
                self._driver.node_agents.begin(instance.instance_id, self._driver.hosts[instance.instance_id].folder)
            return {"agents": sorted(tokens)}

    def events(self, after: str = "0") -> dict[str, Any]:
        """Events emitted since the first `after`, as full envelopes; `next` is what to ask for then."""
        with self._driver.lock:
            publisher = self._driver.publisher
            first_kept = publisher.emitted_count - len(publisher.emitted)
            kept = list(publisher.emitted)[max(int(after) - first_kept, 0) :]
            return {"events": kept, "next": publisher.emitted_count}

    def state(self) -> dict[str, Any]:
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
