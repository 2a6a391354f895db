"""What EC2 and ECS say of machines, and what follows from it: interruptions, failed checks, plans, health."""

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
    """Two minutes' notice, then the machine is taken away."""

    kind = "spot"

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.transcript.happened(f"{machine.instance_id} gets two minutes' notice")
        machine.lifecycle = "spot"
        world.fleet.interrupt(machine)
        return True


@dataclass(frozen=True, kw_only=True)
class StatusCheckFails(InstanceFault):
    """One of EC2's status checks, `check` system or instance, fails for `for_s`, unless a new boot cures it."""

    kind = "status_check"
    check: str = "instance"
    for_s: float = 3600

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        check = StatusCheck(self.check)
        world.transcript.happened(f"EC2's {check} check of {machine.instance_id} fails")
        world.fleet.announce(health.impair, machine, check)
        world.timeline.after(self.for_s, machine.impaired.pop, check, None)
        return True


@dataclass(frozen=True, kw_only=True)
class MaintenancePlanned(InstanceFault):
    """EC2 plans `code` (instance-retirement, system-reboot, …) for `in_s` from then."""

    kind = "maintenance"
    code: str = "instance-retirement"
    in_s: float = 3600

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.transcript.happened(f"EC2 plans {self.code} of {machine.instance_id} in {self.in_s:.0f} s")
        world.fleet.plan(machine, self.code, self.in_s)
        return True


@dataclass(frozen=True, kw_only=True)
class EcsHealthReported(InstanceFault):
    """ECS finds the machine's GPUs `status`, IMPAIRED or OK, whatever is so."""

    kind = "health"
    status: str = "IMPAIRED"

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        reason = "XID_79" if self.status == "IMPAIRED" else None
        world.transcript.happened(f"ECS reports the GPUs of {machine.instance_id} {self.status}")
        world.fleet.announce(health.report_health, machine, "ACCELERATED_COMPUTE", self.status, reason)
        return True


@dataclass(frozen=True, kw_only=True)
class RebalanceRecommended(InstanceFault):
    """EC2 finds the machine more likely than usual to be interrupted."""

    kind = "rebalance"

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.fleet.announce(health.recommend_rebalance, machine)
        return True
