"""Faults in what EC2 and ECS report: interruptions, status checks, scheduled events, GPU health."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox.cluster.model import health
from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import StatusCheck
from simulator.faults.schedule import InstanceFault

if TYPE_CHECKING:
    from simulator.world import World


@dataclass(frozen=True, kw_only=True)
class SpotInterruption(InstanceFault):
    """A Spot interruption: two minutes' notice, then EC2 terminates the instance."""

    kind = "spot"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.transcript.happened(f"{instance.instance_id} gets two minutes' notice")
        instance.lifecycle = "spot"
        world.fleet.interrupt(instance)
        return True


@dataclass(frozen=True, kw_only=True)
class StatusCheckFails(InstanceFault):
    """EC2's status check `check` (system or instance) fails for `for_s` seconds, unless a reboot cures it."""

    kind = "status_check"
    check: str = "instance"
    for_s: float = 3600

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        check = StatusCheck(self.check)
        world.transcript.happened(f"EC2's {check} check of {instance.instance_id} fails")
        world.fleet.announce(health.impair, instance, check)
        world.timeline.after(self.for_s, instance.impaired.pop, check, None)
        return True


@dataclass(frozen=True, kw_only=True)
class MaintenancePlanned(InstanceFault):
    """EC2 plans the scheduled event `code` (instance-retirement, system-reboot, ...) for `in_s` seconds later."""

    kind = "maintenance"
    code: str = "instance-retirement"
    in_s: float = 3600

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.transcript.happened(f"EC2 plans {self.code} of {instance.instance_id} in {self.in_s:.0f} s")
        world.fleet.plan(instance, self.code, self.in_s)
        return True


@dataclass(frozen=True, kw_only=True)
class EcsHealthReported(InstanceFault):
    """ECS reports the GPUs of the instance as `status` (IMPAIRED or OK), independent of their true state."""

    kind = "health"
    status: str = "IMPAIRED"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        reason = "XID_79" if self.status == "IMPAIRED" else None
        world.transcript.happened(f"ECS reports the GPUs of {instance.instance_id} {self.status}")
        world.fleet.announce(health.report_health, instance, "ACCELERATED_COMPUTE", self.status, reason)
        return True


@dataclass(frozen=True, kw_only=True)
class RebalanceRecommended(InstanceFault):
    """A rebalance recommendation: EC2 reports an elevated risk of interruption of the instance."""

    kind = "rebalance"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.fleet.announce(health.recommend_rebalance, instance)
        return True
