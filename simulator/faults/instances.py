"""What goes wrong with machines by themselves: their GPUs, processes, agents, boots, checks and clocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from gpu_recovery.core.health_check import CheckOutcome

from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import CuredBy, Ec2State, RebootBehaviour
from simulator.cloud.workloads import ScriptedCheck, environment
from simulator.faults.schedule import InstanceFault

if TYPE_CHECKING:
    from simulator.world import World


@dataclass(frozen=True, kw_only=True)
class GpuBreaks(InstanceFault):
    """A GPU fails. `fault`: xid79, ecc, or hidden (no check sees it). `cured_by`: reboot, replace or never."""

    kind = "gpu"
    fault: str = "xid79"
    cured_by: str = "reboot"

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.break_gpu(machine, self.fault, CuredBy(self.cured_by))
        return True


@dataclass(frozen=True, kw_only=True)
class RankExits(InstanceFault):
    """The rank of a job on the machine ends by itself with `code`; left out: its container vanishes."""

    kind = "exit"
    code: int | None = None

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        here = [task for task in world.fleet.running() if task.instance_id == machine.instance_id]
        ranks = [task for task in here if "CHECK_ID" not in environment(task)]
        for task in ranks:
            world.transcript.happened(f"a rank on {machine.instance_id} exits with {self.code}")
            world.fleet.end(task, self.code)
        return bool(ranks)


@dataclass(frozen=True, kw_only=True)
class AgentFlaps(InstanceFault):
    """The ECS agent is cut off for `for_s`; the processes go on."""

    kind = "agent_flaps"
    for_s: float = 60

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        if not machine.agent_connected:
            return False
        world.transcript.happened(f"the agent of {machine.instance_id} is cut off for {self.for_s:.0f} s")
        world.fleet.disconnect(machine)
        world.timeline.after(self.for_s, _reconnect, world, machine.instance_id)
        return True


def _reconnect(world: World, instance_id: str) -> None:
    machine = world.cluster.instances[instance_id]
    hangs = instance_id in world.fleet.hung  # then it is back when the machine has booted
    if machine.ec2_state is Ec2State.RUNNING and not machine.agent_connected and not hangs:
        world.fleet.reconnect(machine)


@dataclass(frozen=True, kw_only=True)
class NodeAgentSilent(InstanceFault):
    """Nothing of the node agent arrives for `for_s`; the machine, its processes and the agent of ECS go on."""

    kind = "node_agent_silent"
    for_s: float = 600

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        if world.agents is None or machine.instance_id in world.agents.cut_off:
            return False
        world.transcript.happened(f"nothing of the node agent of {machine.instance_id} arrives for {self.for_s:.0f} s")
        world.agents.cut_off.add(machine.instance_id)
        world.timeline.after(self.for_s, world.agents.cut_off.discard, machine.instance_id)
        return True


@dataclass(frozen=True, kw_only=True)
class HostHangs(InstanceFault):
    """The machine stops answering anybody, EC2 finds it running, and its processes end by a reboot only."""

    kind = "host_hangs"

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.transcript.happened(f"{machine.instance_id} hangs")
        if machine.agent_connected:
            world.fleet.disconnect(machine)
        world.fleet.hang(machine)
        return True


@dataclass(frozen=True, kw_only=True)
class HostDies(InstanceFault):
    """EC2 terminates the machine without a word; a group launches another in its place."""

    kind = "host_dies"

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.transcript.happened(f"{machine.instance_id} dies")
        world.fleet.terminate(machine)
        return True


@dataclass(frozen=True, kw_only=True)
class RebootsGoWrong(InstanceFault):
    """From then on the machine's reboots are `how`: silent (it boots, its agent stays away), or ignored. Only the next
    one is slow (its boot takes five times as long), or late (it goes down after ten minutes).
    """

    kind = "reboots"
    how: str = "silent"

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        if self.how == "slow":
            world.fleet.slow[machine.instance_id] = 5
        elif self.how == "late":
            world.fleet.late[machine.instance_id] = 600
        else:
            machine.reboot_behaviour = RebootBehaviour(self.how)
        return True


@dataclass(frozen=True, kw_only=True)
class CheckHangs(InstanceFault):
    """The next health check of the machine never ends."""

    kind = "check_hangs"

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.checks.script(machine, ScriptedCheck(None))
        return True


@dataclass(frozen=True, kw_only=True)
class CheckSays(InstanceFault):
    """The next health check of the machine says `outcome`, whatever is so; without a document if `document` is off."""

    kind = "check_says"
    outcome: str = "INCONCLUSIVE"
    document: bool = True

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.checks.script(machine, ScriptedCheck(CheckOutcome(self.outcome), document=self.document))
        return True


@dataclass(frozen=True, kw_only=True)
class RanksAreStuck(InstanceFault):
    """No signal ends a process on the machine: only a new boot does."""

    kind = "stuck"

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.transcript.happened(f"processes on {machine.instance_id} hear no signal any more")
        world.fleet.stuck.add(machine.instance_id)
        return True


@dataclass(frozen=True, kw_only=True)
class ClockIsWrong(InstanceFault):
    """The machine's own clock is `by_s` ahead (negative: behind)."""

    kind = "clock"
    by_s: float = 300

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.checks.skew[machine.instance_id] = timedelta(seconds=self.by_s)
        return True
