"""Faults of instances: their GPUs, processes, agents, reboots, health checks and clocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from gpu_recovery.core.health_check import CheckOutcome

from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import CuredBy, Ec2State, RebootBehaviour
from simulator.cloud.task_environment import environment
from simulator.cloud.workloads import ScriptedCheck
from simulator.faults.schedule import InstanceFault

if TYPE_CHECKING:
    from simulator.world import World


@dataclass(frozen=True, kw_only=True)
class GpuBreaks(InstanceFault):
    """A GPU fails.

    fault:    xid79, xid119, ecc, missing, asks_reboot, hidden or level3. With xid119 the driver asks for a reset. The
              kernel log does not show missing and asks_reboot. Only a check at level 3 or 4 detects level3. No health
              check detects hidden.
    cured_by: reset, reboot, replace or never.
    """

    kind = "gpu"
    fault: str = "xid79"
    cured_by: str = "reboot"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.break_gpu(instance, self.fault, CuredBy(self.cured_by))
        return True


@dataclass(frozen=True, kw_only=True)
class RankExits(InstanceFault):
    """The rank of a job on the instance ends by itself with exit code `code`; None: its container vanishes."""

    kind = "exit"
    code: int | None = None

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        tasks = [task for task in world.fleet.running() if task.instance_id == instance.instance_id]
        ranks = [task for task in tasks if "CHECK_ID" not in environment(task)]
        for task in ranks:
            world.transcript.happened(f"a rank on {instance.instance_id} exits with {self.code}")
            world.fleet.end(task, self.code)
        return bool(ranks)


@dataclass(frozen=True, kw_only=True)
class AgentFlaps(InstanceFault):
    """The ECS agent is disconnected for `for_s` seconds; the processes continue."""

    kind = "agent_flaps"
    for_s: float = 60

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        if not instance.agent_connected:
            return False
        world.transcript.happened(f"the agent of {instance.instance_id} is cut off for {self.for_s:.0f} s")
        world.fleet.disconnect(instance)
        world.timeline.after(self.for_s, _reconnect, world, instance.instance_id)
        return True


def _reconnect(world: World, instance_id: str) -> None:
    instance = world.cluster.instances[instance_id]
    hangs = instance_id in world.fleet.hung  # then the agent reconnects when the instance has booted
    if instance.ec2_state is Ec2State.RUNNING and not instance.agent_connected and not hangs:
        world.fleet.reconnect(instance)


@dataclass(frozen=True, kw_only=True)
class NodeAgentSilent(InstanceFault):
    """No report of the node agent arrives for `for_s` seconds; processes and ECS agent continue."""

    kind = "node_agent_silent"
    for_s: float = 600

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        if world.agents is None or instance.instance_id in world.agents.cut_off:
            return False
        world.transcript.happened(f"nothing of the node agent of {instance.instance_id} arrives for {self.for_s:.0f} s")
        world.agents.cut_off.add(instance.instance_id)
        world.timeline.after(self.for_s, world.agents.cut_off.discard, instance.instance_id)
        return True


@dataclass(frozen=True, kw_only=True)
class HostHangs(InstanceFault):
    """The instance stops responding, EC2 reports it as running, and only a reboot ends its processes."""

    kind = "host_hangs"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.transcript.happened(f"{instance.instance_id} hangs")
        if instance.agent_connected:
            world.fleet.disconnect(instance)
        world.fleet.hang(instance)
        return True


@dataclass(frozen=True, kw_only=True)
class HostDies(InstanceFault):
    """EC2 terminates the instance without notice; an Auto Scaling group launches another instance in its place."""

    kind = "host_dies"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.transcript.happened(f"{instance.instance_id} dies")
        world.fleet.terminate(instance)
        return True


@dataclass(frozen=True, kw_only=True)
class RebootsGoWrong(InstanceFault):
    """Reboots of the instance go wrong as `how` says.

    All later reboots: silent (it boots, but its agent does not reconnect) or ignored (no reboot takes place).
    The next reboot only: slow (the boot takes five times as long) or late (the instance goes down after ten minutes).
    """

    kind = "reboots"
    how: str = "silent"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        if self.how == "slow":
            world.fleet.slow[instance.instance_id] = 5
        elif self.how == "late":
            world.fleet.late[instance.instance_id] = 600
        else:
            instance.reboot_behaviour = RebootBehaviour(self.how)
        return True


@dataclass(frozen=True, kw_only=True)
class CheckHangs(InstanceFault):
    """The next health check of the instance never ends."""

    kind = "check_hangs"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.checks.script(instance, ScriptedCheck(None))
        return True


@dataclass(frozen=True, kw_only=True)
class CheckSays(InstanceFault):
    """The next health check of the instance ends with `outcome`, independent of the true state.

    document: whether the check writes its verdict document.
    """

    kind = "check_says"
    outcome: str = "INCONCLUSIVE"
    document: bool = True

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.checks.script(instance, ScriptedCheck(CheckOutcome(self.outcome), document=self.document))
        return True


@dataclass(frozen=True, kw_only=True)
class RanksAreStuck(InstanceFault):
    """No signal ends a process on the instance: only a reboot does."""

    kind = "stuck"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.transcript.happened(f"processes on {instance.instance_id} hear no signal any more")
        world.fleet.stuck.add(instance.instance_id)
        return True


@dataclass(frozen=True, kw_only=True)
class ClockIsWrong(InstanceFault):
    """The instance's own clock is `by_s` seconds ahead (negative: behind)."""

    kind = "clock"
    by_s: float = 300

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.checks.skew[instance.instance_id] = timedelta(seconds=self.by_s)
        return True
