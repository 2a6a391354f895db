"""What EC2's API orders of machines, under virtual time: the counterpart of the sandbox's `PowerControl`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox.cluster.model import instances
from sandbox.cluster.model.cluster import OperationResult
from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import Ec2State
from simulator.cloud.fleet import VirtualFleet


class VirtualPower:
    """Each order answers at once with the change of state; what it asks for takes its time. Asked again, it changes
    nothing."""

    def __init__(self, fleet: VirtualFleet) -> None:
        self.fleet = fleet

    def reboot(self, instance_ids: list[str]) -> None:
        """RebootInstances."""
        for instance_id in instance_ids:
            self.fleet.ordered[instance_id] = self.fleet.timeline.now
            self.fleet.reboot(instance_id)

    def stop(self, instance_ids: list[str]) -> list[dict[str, Any]]:
        """StopInstances."""
        return [self._order(one, instances.begin_stop, self._stopped) for one in self._found(instance_ids)]

    def _stopped(self, instance_id: str) -> None:
        instance = self.fleet.cluster.instances[instance_id]
        if instance.ec2_state is Ec2State.STOPPING:
            self.fleet.shut_down(instance, instances.stopped)

    def start(self, instance_ids: list[str]) -> list[dict[str, Any]]:
        """StartInstances: another host, another boot, the same registration."""
        return [self._order(one, instances.begin_start, self._started) for one in self._found(instance_ids)]

    def _started(self, instance_id: str) -> None:
        instance = self.fleet.cluster.instances[instance_id]
        if instance.ec2_state is Ec2State.PENDING:
            self.fleet.change(lambda now: instances.started(self.fleet.cluster, instance, now))

    def terminate(self, instance_ids: list[str], *, replaced: bool = True) -> list[dict[str, Any]]:
        """TerminateInstances. A machine of a group is followed by another, unless the group shrinks."""
        end = self._replaced if replaced else self._terminated
        return [self._order(one, instances.begin_terminate, end) for one in self._found(instance_ids)]

    def _terminated(self, instance_id: str) -> bool:
        instance = self.fleet.cluster.instances[instance_id]
        shutting_down = instance.ec2_state is Ec2State.SHUTTING_DOWN
        if shutting_down:
            self.fleet.shut_down(instance, instances.terminated)
        return shutting_down

    def _replaced(self, instance_id: str) -> None:
        if self._terminated(instance_id):
            self.fleet.succeed(self.fleet.cluster.instances[instance_id])

    def _found(self, instance_ids: list[str]) -> list[ModelInstance]:
        return instances.find_instances(self.fleet.cluster, instance_ids)

    def _order(
        self, instance: ModelInstance, begin: Callable[..., OperationResult], end: Callable[[str], object]
    ) -> dict[str, Any]:
        change = self.fleet.change(lambda now: begin(self.fleet.cluster, instance, now))
        if change["CurrentState"] != change["PreviousState"]:
            timings = self.fleet.timings
            starting = instance.ec2_state is Ec2State.PENDING
            self.fleet.timeline.after(timings.boot_s if starting else timings.down_s, end, instance.instance_id)
        return change
