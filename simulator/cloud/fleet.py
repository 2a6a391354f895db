"""Virtual fleet: the cluster model under virtual time, with ECS agents, containers, reboots and terminations.

A `Program` decides how a running container behaves. The fleet starts the container, requests its stop, and reports its
end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from sandbox.cluster.model import health, instances, tasks
from sandbox.cluster.model.cluster import ClusterModel, OperationResult
from sandbox.cluster.model.records import ModelInstance, Task
from sandbox.cluster.model.statuses import ContainerInstanceStatus, Ec2State, ProcessState, RebootBehaviour
from simulator.cloud.held_ranks import HeldRanks
from simulator.cloud.task_environment import environment
from simulator.virtual_clock import VirtualClock

SIGTERM_EXIT, SIGKILL_EXIT = 143, 137
"""Exit codes of a process that a signal ended: 128 plus the number of the signal."""


@dataclass(frozen=True)
class FleetTimings:
    """Durations of what instances and containers do, in virtual seconds. The product can change none of them."""

    start_s: float = 10  # placement to process
    leave_s: float = 2  # SIGTERM to the end of a process that obeys it
    stop_timeout_s: float = 30  # SIGTERM to SIGKILL of a container without a `stopTimeout`
    down_s: float = 15  # reboot request to the instance being down
    boot_s: float = 165  # instance down to the ECS agent being connected again
    launch_s: float = 300  # an instance of a group terminated, to the ECS agent of its replacement
    spot_notice_s: float = 120  # notice of a Spot interruption to the termination
    check_s: float = 60  # a whole health check
    deep_check_s: float = 1200  # a whole health check at level 3 or 4
    abort_s: float = 3  # a GPU breaks, to the end of the rank that uses it


class Program(Protocol):
    """Behaviour of the containers of a task definition."""

    def started(self, task: Task) -> None:
        """Called when the process of `task` has begun."""

    def leaves_in(self, task: Task) -> float:
        """Return the seconds from SIGTERM to the end of the process. SIGKILL is the upper bound."""

    def leaves(self, task: Task) -> int:
        """Called when the process ends after SIGTERM. Return its exit code."""


class VirtualFleet:
    """The instances of a cluster.

    Args:
        cluster: the model of the cluster.
        timeline: the virtual clock.
        timings: durations of what instances and containers do.
        emit: receives every batch of EventBridge envelopes.
    """

    def __init__(
        self,
        cluster: ClusterModel,
        timeline: VirtualClock,
        timings: FleetTimings,
        emit: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        self.cluster, self.timeline, self.timings, self._emit = cluster, timeline, timings, emit
        self.program: Callable[[Task], Program]
        self.ranks = HeldRanks(timeline, environment, self._leave)
        self.ranks.started = lambda task: self.program(task).started(task)
        self._taken: set[str] = set()
        self._down: set[str] = set()
        self._off: set[str] = set()
        self.changes = 0
        """Number of changes of the cluster so far."""
        self.boots: Counter[str] = Counter()
        """Completed reboots, by instance."""
        self.stuck: set[str] = set()
        """Instances with processes that ignore all signals. Only a reboot ends these processes."""
        self.hung: set[str] = set()
        """Instances that hang: no process ends and no node agent reports."""
        self.ordered: dict[str, datetime] = {}
        """Time of the product's latest reboot request, by instance, until the instance goes down."""
        self.goes_down: Callable[[str, datetime], object] = lambda instance_id, ordered_at: None
        """Called when an instance of `ordered` goes down, with its id and the time of the request."""
        self.about_to_end: Callable[[Task, int | None], object] = lambda task, code: None
        """Called just before a process ends by itself or by a signal, with its task and its exit code."""
        self.late: dict[str, float] = {}
        """Delay in seconds between the request and the begin of the next reboot, by instance. Replaces `down_s`."""
        self.slow: dict[str, float] = {}
        """Factor for the duration of the next boot, by instance."""

    def change(self, operation: Callable[[datetime], OperationResult]) -> dict[str, Any]:
        """Run a model operation now, emit its events and let the ECS agents react. Return its result."""
        self.changes += 1
        outcome = operation(self.timeline.now)
        self._emit(outcome.events)
        for instance in self._touched():
            self._serve(instance)
        return outcome.result

    def _touched(self) -> list[ModelInstance]:
        """Return the instances with possible new work for their ECS agents, in launch order."""
        touched, instances_by_id = self.cluster.touched, self.cluster.instances
        order = (
            [instance_id for instance_id in instances_by_id if instance_id in touched]
            if len(touched) > 1
            else list(touched)
        )
        touched.clear()
        return [instances_by_id[instance_id] for instance_id in order]

    def launch(self, gpus: int) -> ModelInstance:
        """Launch an instance with `gpus` GPUs and register it with the cluster."""
        answer = self.change(lambda now: instances.launch(self.cluster, gpus, now))
        return self.cluster.instances[answer["instance_id"]]

    def _serve(self, instance: ModelInstance) -> None:
        to_start, to_stop = tasks.agent_work(self.cluster, instance)
        for task in to_start:
            self._once(f"start {task.task_id}", task, self.timings.start_s, self._start)
        for task in to_stop:
            held = task.task_id in self.ranks.held
            seconds = 0.5 if held else min(self.program(task).leaves_in(task), self.stop_timeout_s(task))
            self._once(f"stop {task.task_id}", task, seconds, self._stop)

    def stop_timeout_s(self, task: Task) -> float:
        """Return the seconds from SIGTERM to SIGKILL: the `stopTimeout` of the main container."""
        containers = task.definition.get("containerDefinitions", ())
        own = (container.get("stopTimeout") for container in containers if container["name"] == task.main)
        return float(next(own, None) or self.timings.stop_timeout_s)

    def _once(self, name: str, task: Task, seconds: float, step: Callable[[str], None]) -> None:
        if name not in self._taken:
            self._taken.add(name)
            self.timeline.after(seconds, step, task.task_id)

    def _start(self, task_id: str) -> None:
        task = self.cluster.tasks[task_id]
        self._taken.discard(f"start {task.task_id}")
        instance = self.cluster.instance_of(task)
        if instance.agent_connected and task_id in instance.live and tasks.is_to_start(task):
            self.change(lambda now: tasks.process_started(self.cluster, task, now))
            if not self.ranks.wait_warm(task):
                self.program(task).started(task)

    def _stop(self, task_id: str) -> None:
        task = self.cluster.tasks[task_id]
        if task.instance_id not in self.stuck and task.process is ProcessState.RUNNING:
            self.end(task, self.program(task).leaves(task), with_container=True)

    def end(self, task: Task, code: int | None, *, asked: bool = False, with_container: bool = False) -> None:
        """End the process by itself or by a signal. Do nothing if the process has ended, or its instance hangs.

        Args:
            task: the task of the process.
            code: the exit code; None: its container vanishes.
            asked: the node agent ends the process and keeps the container, if the wrapper of the rank does so.
            with_container: the container ends in any case.
        """
        if task.process is ProcessState.RUNNING and task.instance_id not in self.hung:
            if task.task_id in self.ranks.held and not with_container and code is not None:
                return  # no process of the rank runs any more
            if task.task_id not in self.ranks.held:
                self.about_to_end(task, code)
                if not with_container and self.ranks.hold(task, code, asked):
                    self.changes += 1
                    return
            self.ranks.forget(task.task_id)
            self.change(lambda now: tasks.process_ended(self.cluster, task, code, now))
            self._taken.discard(f"stop {task.task_id}")

    def _leave(self, task_id: str, code: int) -> None:
        self.end(self.cluster.tasks[task_id], code, with_container=True)

    def running(self) -> list[Task]:
        """Return the tasks with a process that runs in fact, even if ECS shows another status."""
        return self.cluster.tasks.running()

    # -- instances -----------------------------------------------------------------------------------------------------

    def reboot(self, instance_id: str) -> None:
        """Request a reboot, as RebootInstances does. A second request before the end of the reboot has no effect."""
        if instances.request_reboot(self.cluster, [instance_id]) and instance_id not in self._down:
            self._down.add(instance_id)
            self.timeline.after(self.late.pop(instance_id, self.timings.down_s), self._goes_off, instance_id)

    def is_down(self, instance: ModelInstance) -> bool:
        """Whether the instance is down for a reboot, so that nothing runs on it."""
        return instance.instance_id in self._off

    def _goes_off(self, instance_id: str) -> None:
        instance = self.cluster.instances[instance_id]
        ordered_at = self.ordered.pop(instance_id, None)
        if instance.ec2_state is Ec2State.RUNNING:
            if ordered_at is not None:
                self.goes_down(instance_id, ordered_at)
            self._off.add(instance_id)
            self.hung.discard(instance_id)
            self.change(lambda now: instances.went_down(self.cluster, instance, now))
            self.stuck.discard(instance_id)
            self.timeline.after(self.timings.boot_s * self.slow.pop(instance_id, 1), self._up, instance_id)

    def _up(self, instance_id: str) -> None:
        instance = self.cluster.instances[instance_id]
        self.boots[instance.instance_id] += 1
        self._down.discard(instance.instance_id)
        self._off.discard(instance_id)
        if instance.ec2_state is Ec2State.RUNNING:
            connects = instance.reboot_behaviour is not RebootBehaviour.SILENT
            self.change(lambda now: instances.came_back(self.cluster, instance, now, agent_connects=connects))

    def announce(self, operation: Callable[..., OperationResult], instance: ModelInstance, *details: Any) -> None:
        """Emit the health report of a health source about the instance.

        Args:
            operation: a function of `sandbox.cluster.model.health`.
            instance: the instance of the report.
            details: further arguments of the operation.
        """
        self.change(lambda now: operation(self.cluster, instance, *details, now))

    def plan(self, instance: ModelInstance, code: str, in_s: float) -> None:
        """Schedule an EC2 event for the instance, and carry the event out unless it was completed before.

        Args:
            instance: the instance, which a stop and start saves from the event.
            code: EC2's code of the event.
            in_s: seconds from now to the event.
        """
        self.announce(health.schedule, instance, code, self.timeline.now + timedelta(seconds=in_s))
        event_id = instance.scheduled[-1].event_id
        self.timeline.after(in_s, self._carry_out, instance.instance_id, event_id)

    def _carry_out(self, instance_id: str, event_id: str) -> None:
        instance = self.cluster.instances[instance_id]
        event = next(event for event in instance.scheduled if event.event_id == event_id)
        if event.description.startswith("[") or instance.ec2_state is not Ec2State.RUNNING:
            return
        health.complete(instance, event)
        self.changes += 1  # DescribeInstanceStatus shows the completion
        if event.code in health.RETIREMENTS:
            self.change(lambda now: instances.begin_stop(self.cluster, instance, now))
            self.shut_down(instance, instances.stopped)
        else:
            self.reboot(instance.instance_id)

    def interrupt(self, instance: ModelInstance) -> None:
        """Interrupt a Spot instance: a notice of `spot_notice_s`, then the termination."""
        self.change(lambda now: health.warn_of_spot_interruption(self.cluster, instance, now))
        self.timeline.after(self.timings.spot_notice_s, self._reclaim, instance.instance_id)

    def _reclaim(self, instance_id: str) -> None:
        self.terminate(self.cluster.instances[instance_id])

    def terminate(self, instance: ModelInstance) -> None:
        """Terminate the instance now. If it belongs to a group, the group launches a replacement."""
        self.change(lambda now: instances.begin_terminate(self.cluster, instance, now))
        self.shut_down(instance, instances.terminated)
        self.succeed(instance)

    def shut_down(self, instance: ModelInstance, operation: Callable[..., OperationResult]) -> None:
        """Turn the instance off. Its processes end, also those that ignore all signals.

        Args:
            instance: the instance.
            operation: the model operation, `stopped` or `terminated`.
        """
        self.change(lambda now: operation(self.cluster, instance, now))
        self.stuck.discard(instance.instance_id)
        self.hung.discard(instance.instance_id)
        self._down.discard(instance.instance_id)
        self._off.discard(instance.instance_id)

    def succeed(self, gone: ModelInstance) -> None:
        """Let the Auto Scaling group of the lost instance `gone`, if there is a group, launch a replacement."""
        if health.group_of(gone):
            self.timeline.after(self.timings.launch_s, self._launch_in_place_of, gone.instance_id)

    def _launch_in_place_of(self, gone_id: str) -> None:
        gone = self.cluster.instances[gone_id]
        self.change(lambda now: health.launch_in_place_of(self.cluster, gone, now))

    def hang(self, instance: ModelInstance) -> None:
        """Let the instance hang until its next boot."""
        self.hung.add(instance.instance_id)
        self.stuck.add(instance.instance_id)
        self.changes += 1

    def deregister(self, instance: ModelInstance) -> None:
        """Deregister the instance from ECS by force. ECS ends its tasks, and their processes run on as orphans."""
        self.change(lambda now: instances.deregister(self.cluster, instance.arn, force=True, now=now))

    def set_state(self, instance: ModelInstance, status: ContainerInstanceStatus) -> None:
        """Set the instance to ACTIVE or DRAINING in ECS, as UpdateContainerInstancesState does."""
        request = {"containerInstances": [instance.arn], "status": status}
        self.change(lambda now: instances.update_container_instances_state(self.cluster, request, now))

    def register_again(self, instance: ModelInstance) -> None:
        """Register the deregistered instance again, unless it is down or off. Orphans run on."""
        if not self.is_down(instance):
            self.change(lambda now: instances.register_again(self.cluster, instance, now))

    def disconnect(self, instance: ModelInstance) -> None:
        """Disconnect the ECS agent. The processes continue."""
        self.change(lambda now: instances.agent_disconnected(self.cluster, instance, now))

    def reconnect(self, instance: ModelInstance) -> None:
        """Connect the ECS agent again. The agent reports the processes that ended meanwhile."""
        self.change(lambda now: instances.agent_reconnected(self.cluster, instance, now))
