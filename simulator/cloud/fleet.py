"""The cluster model under virtual time: agents that start and stop containers, machines that reboot and vanish.

What a container does once it runs is a `Program`; the fleet only starts it, asks it to stop, and reports its end.
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
from sandbox.cluster.model.statuses import Ec2State, ProcessState, RebootBehaviour
from simulator.virtual_clock import VirtualClock

SIGTERM_EXIT, SIGKILL_EXIT = 143, 137


@dataclass(frozen=True)
class FleetTimings:
    """Virtual seconds of what machines do; none of them is ours to change."""

    start_s: float = 10  # placement to process
    leave_s: float = 2  # SIGTERM to the end of a process that heeds it
    stop_timeout_s: float = 30  # SIGTERM to SIGKILL
    down_s: float = 15  # reboot requested to the machine being off
    boot_s: float = 165  # off, to the agent being back
    launch_s: float = 300  # a machine of a group terminated, to the agent of its successor
    spot_notice_s: float = 120
    check_s: float = 60
    abort_s: float = 3  # a GPU breaks, to the rank that uses it dying


class Program(Protocol):
    """What runs in the containers of a task definition."""

    def started(self, task: Task) -> None:
        """The process has begun."""

    def leaves_in(self, task: Task) -> float:
        """Seconds from SIGTERM to its end, which SIGKILL brings at the latest."""

    def leaves(self, task: Task) -> int:
        """It ends after SIGTERM, now: its exit code."""


class VirtualFleet:
    """The machines of one cluster. `tell` gets every batch of EventBridge envelopes."""

    def __init__(
        self,
        cluster: ClusterModel,
        timeline: VirtualClock,
        timings: FleetTimings,
        tell: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        self.cluster, self.timeline, self.timings, self._emit = cluster, timeline, timings, tell
        self.program: Callable[[Task], Program]
        self._taken: set[str] = set()
        self._down: set[str] = set()
        self._off: set[str] = set()
        self.changes = 0
        self.boots: Counter[str] = Counter()
        """How often each instance has really rebooted."""
        self.stuck: set[str] = set()
        """Instances whose processes no signal ends: only a reboot does."""
        self.hung: set[str] = set()
        """Instances on which nothing moves: no process ends, no agent speaks."""
        self.ordered: dict[str, datetime] = {}
        """Instances that the product has ordered to reboot and that have not gone down yet, and since when."""
        self.goes_down: Callable[[str, datetime], object] = lambda instance_id, ordered_at: None
        """Told when one of those goes down."""
        self.about_to_end: Callable[[Task, int | None], object] = lambda task, code: None
        """Told just before a process ends by itself or by a signal."""
        self.late: dict[str, float] = {}
        """Instances whose next reboot begins only after so many seconds."""
        self.slow: dict[str, float] = {}
        """Instances whose next boot takes this many times as long."""

    def change(self, operation: Callable[[datetime], OperationResult]) -> dict[str, Any]:
        """Run one model operation now, publish its events, let the agents react; its result."""
        self.changes += 1
        outcome = operation(self.timeline.now)
        self._emit(outcome.events)
        for instance in self._touched():
            self._serve(instance)
        return outcome.result

    def _touched(self) -> list[ModelInstance]:
        """The instances whose agents may have something new to do, in the order in which they were launched."""
        touched, every = self.cluster.touched, self.cluster.instances
        order = [one for one in every if one in touched] if len(touched) > 1 else list(touched)
        touched.clear()
        return [every[one] for one in order]

    def launch(self, gpus: int) -> ModelInstance:
        """A new machine, registered."""
        answer = self.change(lambda now: instances.launch(self.cluster, gpus, now))
        return self.cluster.instances[answer["instance_id"]]

    def _serve(self, instance: ModelInstance) -> None:
        wanted, unwanted = tasks.agent_work(self.cluster, instance)
        for task in wanted:
            self._once(f"start {task.task_id}", task, self.timings.start_s, self._start)
        for task in unwanted:
            seconds = min(self.program(task).leaves_in(task), self.timings.stop_timeout_s)
            self._once(f"stop {task.task_id}", task, seconds, self._stop)

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
            self.program(task).started(task)

    def _stop(self, task_id: str) -> None:
        task = self.cluster.tasks[task_id]
        if task.instance_id not in self.stuck and task.process is ProcessState.RUNNING:
            self.end(task, self.program(task).leaves(task))

    def end(self, task: Task, code: int | None) -> None:
        """The process ends by itself or by a signal; nothing happens to one that has ended."""
        if task.process is ProcessState.RUNNING and task.instance_id not in self.hung:
            self.about_to_end(task, code)
            self.change(lambda now: tasks.process_ended(self.cluster, task, code, now))
            self._taken.discard(f"stop {task.task_id}")

    def running(self) -> list[Task]:
        """The tasks whose process really runs, whatever ECS knows."""
        return self.cluster.tasks.running()

    # -- machines ------------------------------------------------------------------------------------------------------

    def reboot(self, instance_id: str) -> None:
        """RebootInstances: answers at once; a second request during the reboot changes nothing."""
        if instances.request_reboot(self.cluster, [instance_id]) and instance_id not in self._down:
            self._down.add(instance_id)
            self.timeline.after(self.late.pop(instance_id, self.timings.down_s), self._goes_off, instance_id)

    def is_down(self, instance: ModelInstance) -> bool:
        """Whether the machine is rebooting, and nothing runs on it."""
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

    def announce(self, operation: Callable[..., OperationResult], instance: ModelInstance, *given: Any) -> None:
        """Let a watcher of the machine speak: `operation` is one of `model_watchers`."""
        self.change(lambda now: operation(self.cluster, instance, *given, now))

    def plan(self, instance: ModelInstance, code: str, in_s: float) -> None:
        """EC2 plans something with the machine and, unless it was stopped and started before, does it."""
        self.announce(health.schedule, instance, code, self.timeline.now + timedelta(seconds=in_s))
        event_id = instance.scheduled[-1].event_id
        self.timeline.after(in_s, self._carry_out, instance.instance_id, event_id)

    def _carry_out(self, instance_id: str, event_id: str) -> None:
        instance = self.cluster.instances[instance_id]
        event = next(one for one in instance.scheduled if one.event_id == event_id)
        if event.description.startswith("[") or instance.ec2_state is not Ec2State.RUNNING:
            return
        health.complete(instance, event)
        self.changes += 1  # a look at the machine shows it
        if event.code in health.RETIREMENTS:
            self.change(lambda now: instances.begin_stop(self.cluster, instance, now))
            self.shut_down(instance, instances.stopped)
        else:
            self.reboot(instance.instance_id)

    def interrupt(self, instance: ModelInstance) -> None:
        """A Spot interruption: two minutes' notice, then the machine is terminated."""
        self.change(lambda now: health.warn_of_spot_interruption(self.cluster, instance, now))
        self.timeline.after(self.timings.spot_notice_s, self._reclaim, instance.instance_id)

    def _reclaim(self, instance_id: str) -> None:
        self.terminate(self.cluster.instances[instance_id])

    def terminate(self, instance: ModelInstance) -> None:
        """The machine is gone for good."""
        self.change(lambda now: instances.begin_terminate(self.cluster, instance, now))
        self.shut_down(instance, instances.terminated)
        self.succeed(instance)

    def shut_down(self, instance: ModelInstance, operation: Callable[..., OperationResult]) -> None:
        """The machine is off, `stopped` or `terminated`; whatever its processes were deaf to, they are dead."""
        self.change(lambda now: operation(self.cluster, instance, now))
        self.stuck.discard(instance.instance_id)
        self.hung.discard(instance.instance_id)
        self._down.discard(instance.instance_id)
        self._off.discard(instance.instance_id)

    def succeed(self, gone: ModelInstance) -> None:
        """An Auto Scaling group launches another machine in the place of one that it loses."""
        if health.group_of(gone):
            self.timeline.after(self.timings.launch_s, self._launch_in_place_of, gone.instance_id)

    def _launch_in_place_of(self, gone_id: str) -> None:
        gone = self.cluster.instances[gone_id]
        self.change(lambda now: health.launch_in_place_of(self.cluster, gone, now))

    def hang(self, instance: ModelInstance) -> None:
        """Nothing on the machine moves any more, until it boots."""
        self.hung.add(instance.instance_id)
        self.stuck.add(instance.instance_id)
        self.changes += 1

    def disconnect(self, instance: ModelInstance) -> None:
        """The agent is cut off; the processes go on."""
        self.change(lambda now: instances.agent_disconnected(self.cluster, instance, now))

    def reconnect(self, instance: ModelInstance) -> None:
        """The agent is back and reports what has ended meanwhile."""
        self.change(lambda now: instances.agent_reconnected(self.cluster, instance, now))
