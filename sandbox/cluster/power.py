"""Power timelines of an instance (reboot, stop, start, terminate, Spot interruption), and fault injection."""

import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from sandbox.cluster.driver import Driver
from sandbox.cluster.model import health, instances
from sandbox.cluster.model.cluster import AwsApiError, OperationResult
from sandbox.cluster.model.records import GpuFault, ModelInstance, Task
from sandbox.cluster.model.statuses import CuredBy, Ec2State, ProcessState, RebootBehaviour

GPU_FAULTS = {"xid79": CuredBy.REBOOT, "xid119": CuredBy.RESET, "ecc": CuredBy.REBOOT}
"""Faults of one GPU, each with the repair that cures it by default."""
FAULT_KINDS = (*GPU_FAULTS, "hang", "agent_lost", "spot", "kill")
LOOK_S = 0.05
"""Seconds between two looks whether the node agent of an instance that shuts down has ended."""
Step = Callable[[ModelInstance, int], None]


class PowerControl:
    """Runs the timelines of the instances. A new timeline of an instance cancels the later steps of the former."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._cluster = driver, driver.cluster
        self._epochs: dict[str, int] = {}
        self._booting: set[str] = set()

    def _begin(self, instance: ModelInstance) -> int:
        epoch = self._epochs.get(instance.instance_id, 0) + 1
        self._epochs[instance.instance_id] = epoch
        self._booting.discard(instance.instance_id)
        return epoch

    def _later(self, delay_s: float, instance: ModelInstance, epoch: int, step: Step) -> None:
        def call() -> None:
            with self._driver.lock:
                if self._epochs[instance.instance_id] == epoch:
                    step(instance, epoch)

        self._driver.timers.after(delay_s, call)

    def _shut_down_later(self, instance: ModelInstance, epoch: int, off: Step) -> None:
        """Shut the instance down after `down_s`, and take the step `off` when it is down.

        The node agent gets SIGTERM, and up to `shutdown_s` to end. A suspended agent stands for a host that hangs: EC2
        switches such a host off without a shutdown.
        """

        def begin(instance: ModelInstance, epoch: int) -> None:
            heard = self._driver.node_agents.shut_down(instance.instance_id)
            self._await_agent(off, self._driver.timings.shutdown_s if heard else 0.0, instance, epoch)

        self._later(self._driver.timings.down_s, instance, epoch, begin)

    def _await_agent(self, off: Step, left_s: float, instance: ModelInstance, epoch: int) -> None:
        """Take the step `off` when the node agent has ended, `left_s` seconds from now at the latest.

        The lock of the driver is free between two looks, because the agent may be waiting for an answer of the API.
        """
        if left_s > 0 and self._driver.node_agents.pid(instance.instance_id) is not None:
            self._later(LOOK_S, instance, epoch, partial(self._await_agent, off, left_s - LOOK_S))
        else:
            off(instance, epoch)

    def reboot(self, instance_ids: list[str]) -> None:
        """RebootInstances: return at once, and reboot later. A second request during the reboot has no effect."""
        with self._driver.lock:
            for instance in instances.request_reboot(self._cluster, instance_ids):
                if instance.instance_id in self._booting:
                    continue
                epoch = self._begin(instance)
                self._booting.add(instance.instance_id)
                self._shut_down_later(instance, epoch, self._reboot_down)

    def _reboot_down(self, instance: ModelInstance, epoch: int) -> None:
        self._driver.change(lambda now: instances.went_down(self._cluster, instance, now))
        self._driver.kill_all_on(instance)
        self._later(self._driver.timings.boot_s, instance, epoch, self._reboot_up)

    def _reboot_up(self, instance: ModelInstance, epoch: int) -> None:
        self._booting.discard(instance.instance_id)
        connects = instance.reboot_behaviour is not RebootBehaviour.SILENT
        self._driver.change(
            lambda now: self._boot(instance, instances.came_back(self._cluster, instance, now, agent_connects=connects))
        )

    def _boot(self, instance: ModelInstance, outcome: OperationResult) -> OperationResult:
        """Update the instance's folder, then start its node agent. The caller holds the driver's lock."""
        host = self._driver.hosts[instance.instance_id]
        host.boot(instance, self._driver.now())
        if not self._driver.closing:
            self._driver.node_agents.begin(instance.instance_id, host.folder)
        return outcome

    def stop(self, instance_ids: list[str]) -> list[dict[str, Any]]:
        """StopInstances: return the state changes at once, and stop the instances later."""
        with self._driver.lock:
            return [self._stop(instance) for instance in instances.find_instances(self._cluster, instance_ids)]

    def _stop(self, instance: ModelInstance) -> dict[str, Any]:
        answer = self._driver.change(lambda now: instances.begin_stop(self._cluster, instance, now))
        if answer["CurrentState"] != answer["PreviousState"]:
            self._shut_down_later(instance, self._begin(instance), self._stopped)
        return answer

    def _stopped(self, instance: ModelInstance, epoch: int) -> None:
        self._driver.change(lambda now: instances.stopped(self._cluster, instance, now))
        self._driver.kill_all_on(instance)

    def start(self, instance_ids: list[str]) -> list[dict[str, Any]]:
        """StartInstances: return the state changes at once, and boot the instances later."""
        with self._driver.lock:
            return [self._start(instance) for instance in instances.find_instances(self._cluster, instance_ids)]

    def _start(self, instance: ModelInstance) -> dict[str, Any]:
        answer = self._driver.change(lambda now: instances.begin_start(self._cluster, instance, now))
        if answer["CurrentState"] != answer["PreviousState"]:
            self._later(self._driver.timings.boot_s, instance, self._begin(instance), self._started)
        return answer

    def _started(self, instance: ModelInstance, epoch: int) -> None:
        self._driver.change(lambda now: self._boot(instance, instances.started(self._cluster, instance, now)))

    def terminate(self, instance_ids: list[str], *, replaced: bool = True) -> list[dict[str, Any]]:
        """TerminateInstances: return the state changes at once, and terminate the instances later.

        An Auto Scaling group launches a replacement, unless the group shrinks (`replaced` False).
        """
        with self._driver.lock:
            terminated = instances.find_instances(self._cluster, instance_ids)
            return [self._terminate(instance, replaced) for instance in terminated]

    def _terminate(self, instance: ModelInstance, replaced: bool) -> dict[str, Any]:
        answer = self._driver.change(lambda now: instances.begin_terminate(self._cluster, instance, now))
        if answer["CurrentState"] != answer["PreviousState"]:
            timings = self._driver.timings
            self._shut_down_later(instance, self._begin(instance), self._terminated)
            if replaced and health.group_of(instance):
                self._driver.timers.after(timings.down_s + timings.boot_s, lambda: self._replace(instance))
        return answer

    def _replace(self, gone: ModelInstance) -> None:
        self._driver.change(lambda now: health.launch_in_place_of(self._cluster, gone, now))

    def _terminated(self, instance: ModelInstance, epoch: int) -> None:
        self._driver.change(lambda now: instances.terminated(self._cluster, instance, now))
        self._driver.kill_all_on(instance)

    def inject(
        self,
        instance_id: str,
        kind: str,
        cured_by: CuredBy | None,
        reboot: RebootBehaviour,
        gpu_index: int | None = None,
    ) -> dict[str, Any]:
        """Inject a fault now.

        Args:
            instance_id: The instance, which must be running.
            kind: One of `FAULT_KINDS`.
            cured_by: Repair that cures a GPU fault; None takes the repair of `GPU_FAULTS`.
            reboot: Reaction of this instance to reboot requests from now on.
            gpu_index: GPU that a GPU fault breaks; None breaks a GPU that a rank holds, else the first GPU.

        Returns:
            The fault and the ARNs of the tasks that it affects.

        Raises:
            AwsApiError: The instance, the kind or the GPU is unknown, or the instance does not run.
        """
        with self._driver.lock:
            instance = instances.find_instances(self._cluster, [instance_id])[0]
            if kind not in FAULT_KINDS:
                raise AwsApiError("InvalidParameterException", f"kind must be one of {', '.join(FAULT_KINDS)}")
            if instance.ec2_state is not Ec2State.RUNNING:
                raise AwsApiError("IncorrectInstanceState", f"{instance_id} is {instance.ec2_state}")
            instance.reboot_behaviour = reboot
            ranks = self._ranks(instance)
            if kind in GPU_FAULTS:
                return self._break_gpu(instance, GpuFault(kind, cured_by or GPU_FAULTS[kind]), ranks, gpu_index)
            if kind == "agent_lost":
                self._driver.change(lambda now: instances.agent_disconnected(self._cluster, instance, now))
                self._driver.node_agents.end(instance_id)
                ranks = []
            elif kind == "spot":
                self._driver.change(lambda now: health.warn_of_spot_interruption(self._cluster, instance, now))
                notice_s = self._driver.timings.spot_notice_s
                self._driver.timers.after(notice_s, lambda: self._reclaim(instance_id))
                ranks = []
            if kind == "hang":
                self._driver.node_agents.suspend(instance_id)
            self._signal(ranks, signal.SIGSTOP if kind == "hang" else signal.SIGKILL)
            return {"instance": instance_id, "kind": kind, "tasks": [task.arn for task in ranks]}

    def reset_gpus(self, instance_id: str) -> list[str]:
        """Reset all GPUs of an instance, unless a process uses one of them. Returns the UUIDs of the GPUs in use.

        Raises:
            AwsApiError: The instance is unknown or does not run.
        """
        with self._driver.lock:
            instance = instances.find_instances(self._cluster, [instance_id])[0]
            if instance.ec2_state is not Ec2State.RUNNING:
                raise AwsApiError("IncorrectInstanceState", f"{instance_id} is {instance.ec2_state}")
            running = [task for task in self._cluster.tasks.running() if task.instance_id == instance_id]
            if in_use := sorted({gpu for task in running for gpu in task.gpu_ids}):
                return in_use
            instances.gpus_reset(instance)
            self._driver.hosts[instance_id].note_gpus(instance)
            return []

    def _reclaim(self, instance_id: str) -> None:
        self.terminate([instance_id])

    def _break_gpu(
        self, instance: ModelInstance, fault: GpuFault, ranks: list[Task], gpu_index: int | None
    ) -> dict[str, Any]:
        """Break a GPU, write the kernel log, and abort the ranks that use the GPU, as CUDA does."""
        held = [gpu for task in ranks for gpu in task.gpu_ids]
        if gpu_index is not None and not 0 <= gpu_index < len(instance.gpus):
            raise AwsApiError("InvalidParameterException", f"{instance.instance_id} has no GPU {gpu_index}")
        gpu = (held or list(instance.gpus))[0] if gpu_index is None else instance.gpus[gpu_index]
        instances.break_gpu(instance, gpu, fault)
        host = self._driver.hosts[instance.instance_id]
        host.note_gpus(instance)
        host.log_fault(instance, gpu, fault.kind, self._driver.now())
        victims = [task for task in ranks if gpu in task.gpu_ids]
        self._signal(victims, signal.SIGABRT)
        return {
            "instance": instance.instance_id,
            "kind": fault.kind,
            "gpu": gpu,
            "gpu_index": instance.gpus.index(gpu),
            "tasks": [task.arn for task in victims],
        }

    def _ranks(self, instance: ModelInstance) -> list[Task]:
        """Return the running tasks without the health checks, which report a fault and do not end by it."""
        live = self._cluster.live_tasks(instance)
        return [t for t in live if t.process is ProcessState.RUNNING and not (t.started_by or "").startswith("check/")]

    def _signal(self, victims: list[Task], number: int) -> None:
        for task in victims:
            process = self._driver.processes[task.task_id]
            process.signal(number) if number == signal.SIGKILL else process.signal_program(number)
