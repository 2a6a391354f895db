"""Faults of instances that a failure trace injects into the virtual world, until a repair cures them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox.cluster.model import instances
from sandbox.cluster.model.records import GpuFault, ModelInstance
from sandbox.cluster.model.statuses import CuredBy, Ec2State
from simulator.cloud.fleet import VirtualFleet
from simulator.cloud.workloads import DEEP, ONLY_DEEP
from simulator.goodput.assumptions import Conditions, Cure, Shows
from simulator.goodput.failure_trace import Failure


@dataclass(frozen=True)
class FaultyInstance:
    """Fault of an instance: its failure, the boot in which it began, and the time from which its agent can see it."""

    failure: Failure
    boot_id: str
    visible_at: datetime


class InstanceFaults:
    """The uncured faults of the instances of one run, at most one fault per instance."""

    def __init__(self, fleet: VirtualFleet, conditions: Conditions, level: int) -> None:
        self.fleet, self.conditions, self.level = fleet, conditions, level
        self._faulty: dict[str, FaultyInstance] = {}

    def add(self, failure: Failure, instance_id: str) -> None:
        """Make the instance faulty. A GPU breaks if checks of the level of the run, or idle checks, see the fault."""
        instance = self.fleet.cluster.instances[instance_id]
        shown_s = self.conditions.exit_s if failure.shows is Shows.EXIT else 0.0
        visible_at = self.fleet.timeline.now + timedelta(seconds=shown_s + self.conditions.evidence_s)
        self._faulty[instance_id] = FaultyInstance(failure, instance.boot_id, visible_at)
        if failure.is_seen(self.conditions, self.level):
            self._break(instance, "ecc" if failure.verdict is Cure.REPLACE else "xid79", failure)
        elif failure.is_seen(self.conditions, DEEP):
            self._break(instance, ONLY_DEEP, failure)

    def _break(self, instance: ModelInstance, kind: str, failure: Failure) -> None:
        cured_by = CuredBy.REPLACE if failure.cure is Cure.REPLACE else CuredBy.REBOOT
        instances.break_gpu(instance, instance.gpus[0], GpuFault(kind, cured_by))
        self.fleet.changes += 1

    def is_running(self, instance_id: str) -> bool:
        """Whether EC2 has the instance in the state `running`."""
        instance = self.fleet.cluster.instances.get(instance_id)
        return instance is not None and instance.ec2_state is Ec2State.RUNNING

    def uncured(self, instance_id: str) -> FaultyInstance | None:
        """Return the fault of the instance; None if there is none, or if a reboot or a replacement cured it."""
        fault = self._faulty.get(instance_id)
        if fault is None:
            return None
        rebooted = self.is_running(instance_id) and self.fleet.cluster.instances[instance_id].boot_id != fault.boot_id
        if not self.is_running(instance_id) or (fault.failure.cure is Cure.REBOOT and rebooted):
            del self._faulty[instance_id]
            return None
        return fault

    def any_uncured(self) -> bool:
        """Whether any instance has an uncured fault."""
        return any(self.uncured(instance_id) is not None for instance_id in list(self._faulty))

    def is_reported(self, instance_id: str) -> bool:
        """Whether the node agent of the instance reports the fault: a check of level 1 would see it."""
        fault = self.uncured(instance_id)
        is_visible = fault is not None and self.fleet.timeline.now >= fault.visible_at
        return is_visible and fault is not None and fault.failure.is_seen(self.conditions, 1)

    def needs_reboot(self, instance_id: str) -> bool:
        """Whether the instance has a fault that a reboot cures."""
        fault = self.uncured(instance_id)
        return fault is not None and fault.failure.cure is Cure.REBOOT

    def mend_failure(self, failure: Failure) -> None:
        """Cure the instances that have this fault. An operator did the repair."""
        for instance_id in [instance_id for instance_id, fault in self._faulty.items() if fault.failure is failure]:
            self.mend_instance(self.fleet.cluster.instances[instance_id])

    def mend_instance(self, instance: ModelInstance) -> None:
        """Cure the instance of every fault. An operator did the repair."""
        self._faulty.pop(instance.instance_id, None)
        instance.faults.clear()
        self.fleet.changes += 1
