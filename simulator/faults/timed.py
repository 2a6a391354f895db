"""What goes wrong with machines and jobs, and what people do in between: each at its time, in virtual seconds.

A fault names machines by their numbers (`gpu-0` is 0) and jobs by the order of their submission; a number that is too
large wraps around, and a job that does not run at that time is spared. Each is a value that a scenario file can hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from gpu_recovery import braking
from gpu_recovery.core.check import CheckOutcome
from gpu_recovery.core.events import QuarantineRequested
from gpu_recovery.core.job.record import TERMINAL

from sandbox.cluster import model_watchers as watchers
from sandbox.cluster.model import CuredBy, Ec2State, Instance, RebootBehaviour, StatusCheck

from ..cloud.programs import Scripted, environment

if TYPE_CHECKING:
    from ..world import World


@dataclass(frozen=True, kw_only=True)
class TimedFault:
    """Something that happens at `at_s` to `machines`, all at once: two of them fail together, or a whole rack."""

    kind: ClassVar[str]
    at_s: float
    machines: tuple[int, ...] = (0,)

    def strike(self, world: World) -> bool:
        """Let it happen to every machine that runs; whether it happened to any."""
        struck = [self._strike(world, machine) for machine in self._struck(world)]
        return any(struck)

    def _struck(self, world: World) -> Iterator[Instance]:
        for number in dict.fromkeys(number % len(world.cluster.instances) for number in self.machines):
            machine = world.machine(number)
            if machine.ec2_state is Ec2State.RUNNING:
                yield machine

    def _strike(self, world: World, machine: Instance) -> bool:
        """Let it happen to one machine, if it can. A fault that happens to none overrides `strike`."""
        return False


@dataclass(frozen=True, kw_only=True)
class GpuBreaks(TimedFault):
    """A GPU fails. `fault`: xid79, ecc, or hidden (no check sees it). `cured_by`: reboot, replace or never."""

    kind = "gpu"
    fault: str = "xid79"
    cured_by: str = "reboot"

    def _strike(self, world: World, machine: Instance) -> bool:
        world.break_gpu(machine, self.fault, CuredBy(self.cured_by))
        return True


@dataclass(frozen=True, kw_only=True)
class RankExits(TimedFault):
    """The rank of a job on the machine ends by itself with `code`; left out: its container vanishes."""

    kind = "exit"
    code: int | None = None

    def _strike(self, world: World, machine: Instance) -> bool:
        here = [task for task in world.fleet.running() if task.instance_id == machine.instance_id]
        ranks = [task for task in here if "CHECK_ID" not in environment(task)]
        for task in ranks:
            world.happens(f"a rank on {machine.instance_id} exits with {self.code}")
            world.fleet.end(task, self.code)
        return bool(ranks)


@dataclass(frozen=True, kw_only=True)
class AgentFlaps(TimedFault):
    """The ECS agent is cut off for `for_s`; the processes go on."""

    kind = "agent_flaps"
    for_s: float = 60

    def _strike(self, world: World, machine: Instance) -> bool:
        if not machine.agent_connected:
            return False
        world.happens(f"the agent of {machine.instance_id} is cut off for {self.for_s:.0f} s")
        world.fleet.disconnect(machine)
        world.timeline.after(self.for_s, _reconnect, world, machine.instance_id)
        return True


def _reconnect(world: World, instance_id: str) -> None:
    machine = world.cluster.instances[instance_id]
    if machine.ec2_state is Ec2State.RUNNING and not machine.agent_connected:
        world.fleet.reconnect(machine)


@dataclass(frozen=True, kw_only=True)
class HostDies(TimedFault):
    """EC2 terminates the machine without a word; a group launches another in its place."""

    kind = "host_dies"

    def _strike(self, world: World, machine: Instance) -> bool:
        world.happens(f"{machine.instance_id} dies")
        world.fleet.terminate(machine)
        return True


@dataclass(frozen=True, kw_only=True)
class SpotInterruption(TimedFault):
    """Two minutes' notice, then the machine is taken away."""

    kind = "spot"

    def _strike(self, world: World, machine: Instance) -> bool:
        world.happens(f"{machine.instance_id} gets two minutes' notice")
        machine.lifecycle = "spot"
        world.fleet.interrupt(machine)
        return True


@dataclass(frozen=True, kw_only=True)
class StatusCheckFails(TimedFault):
    """One of EC2's status checks, `check` system or instance, fails for `for_s`, unless a new boot cures it."""

    kind = "status_check"
    check: str = "instance"
    for_s: float = 3600

    def _strike(self, world: World, machine: Instance) -> bool:
        check = StatusCheck(self.check)
        world.happens(f"EC2's {check} check of {machine.instance_id} fails")
        world.fleet.say(watchers.impair, machine, check)
        world.timeline.after(self.for_s, machine.impaired.pop, check, None)
        return True


@dataclass(frozen=True, kw_only=True)
class RebootsGoWrong(TimedFault):
    """From then on the machine's reboots are `how`: silent (it boots, its agent stays away), or ignored. Only the next
    one is slow (its boot takes five times as long), or late (it goes down after ten minutes).
    """

    kind = "reboots"
    how: str = "silent"

    def _strike(self, world: World, machine: Instance) -> bool:
        if self.how == "slow":
            world.fleet.slow[machine.instance_id] = 5
        elif self.how == "late":
            world.fleet.late[machine.instance_id] = 600
        else:
            machine.reboot_behaviour = RebootBehaviour(self.how)
        return True


@dataclass(frozen=True, kw_only=True)
class RebootedByHand(TimedFault):
    """A person, or EC2, reboots the machine, whoever works there."""

    kind = "reboot_by_hand"

    def _strike(self, world: World, machine: Instance) -> bool:
        world.happens(f"somebody reboots {machine.instance_id}")
        world.fleet.reboot(machine.instance_id)
        return True


@dataclass(frozen=True, kw_only=True)
class CheckHangs(TimedFault):
    """The next health check of the machine never ends."""

    kind = "check_hangs"

    def _strike(self, world: World, machine: Instance) -> bool:
        world.checks.script(machine, Scripted(None))
        return True


@dataclass(frozen=True, kw_only=True)
class CheckSays(TimedFault):
    """The next health check of the machine says `outcome`, whatever is so; without a document if `document` is off."""

    kind = "check_says"
    outcome: str = "INCONCLUSIVE"
    document: bool = True

    def _strike(self, world: World, machine: Instance) -> bool:
        world.checks.script(machine, Scripted(CheckOutcome(self.outcome), document=self.document))
        return True


@dataclass(frozen=True, kw_only=True)
class RanksAreStuck(TimedFault):
    """No signal ends a process on the machine: only a new boot does."""

    kind = "stuck"

    def _strike(self, world: World, machine: Instance) -> bool:
        world.happens(f"processes on {machine.instance_id} hear no signal any more")
        world.fleet.stuck.add(machine.instance_id)
        return True


@dataclass(frozen=True, kw_only=True)
class ClockIsWrong(TimedFault):
    """The machine's own clock is `by_s` ahead (negative: behind)."""

    kind = "clock"
    by_s: float = 300

    def _strike(self, world: World, machine: Instance) -> bool:
        world.checks.skew[machine.instance_id] = timedelta(seconds=self.by_s)
        return True


@dataclass(frozen=True, kw_only=True)
class MaintenancePlanned(TimedFault):
    """EC2 plans `code` (instance-retirement, system-reboot, …) for `in_s` from then."""

    kind = "maintenance"
    code: str = "instance-retirement"
    in_s: float = 3600

    def _strike(self, world: World, machine: Instance) -> bool:
        world.happens(f"EC2 plans {self.code} of {machine.instance_id} in {self.in_s:.0f} s")
        world.fleet.plan(machine, self.code, self.in_s)
        return True


@dataclass(frozen=True, kw_only=True)
class FunctionSleeps(TimedFault):
    """The clock does not wake `function` (reconciler or scheduler) for `for_s`."""

    kind = "asleep"
    function: str = "reconciler"
    for_s: float = 600

    def strike(self, world: World) -> bool:
        world.asleep[self.function] = world.timeline.now + timedelta(seconds=self.for_s)
        return True


@dataclass(frozen=True, kw_only=True)
class JobCanceled(TimedFault):
    """A person cancels the job that was submitted as number `job`."""

    kind = "cancel"
    job: int = 0

    def strike(self, world: World) -> bool:
        jobs = sorted(world.jobs(), key=lambda job: (job.queued_at, job.job_id))
        if not jobs or (chosen := jobs[self.job % len(jobs)]).status in TERMINAL:
            return False
        world.happens(f"a person cancels {chosen.job_id}")
        world.cancel(chosen.job_id)
        return True


@dataclass(frozen=True, kw_only=True)
class Released(TimedFault):
    """A person vouches for the machine, in whatever state it is."""

    kind = "release"

    def _strike(self, world: World, machine: Instance) -> bool:
        if world.store.load_instance(machine.instance_id) is None:
            return False
        world.happens(f"a person releases {machine.instance_id}")
        world.release(machine)
        return True


@dataclass(frozen=True, kw_only=True)
class TakenOut(TimedFault):
    """A person takes the machine out of service."""

    kind = "quarantine"

    def _strike(self, world: World, machine: Instance) -> bool:
        if world.store.load_instance(machine.instance_id) is None:
            return False
        world.happens(f"a person quarantines {machine.instance_id}")
        order = QuarantineRequested(at=world.timeline.now, by="an operator", because="a fan is loud")
        world.lives.live("job_api", lambda: world.recovery.tell(machine.instance_id, order))
        return True


@dataclass(frozen=True, kw_only=True)
class HealthReported(TimedFault):
    """ECS finds the machine's GPUs `status`, IMPAIRED or OK, whatever is so."""

    kind = "health"
    status: str = "IMPAIRED"

    def _strike(self, world: World, machine: Instance) -> bool:
        reason = "XID_79" if self.status == "IMPAIRED" else None
        world.happens(f"ECS reports the GPUs of {machine.instance_id} {self.status}")
        world.fleet.say(watchers.report_health, machine, "ACCELERATED_COMPUTE", self.status, reason)
        return True


@dataclass(frozen=True, kw_only=True)
class RebalanceRecommended(TimedFault):
    """EC2 finds the machine more likely than usual to be interrupted."""

    kind = "rebalance"

    def _strike(self, world: World, machine: Instance) -> bool:
        world.fleet.say(watchers.recommend_rebalance, machine)
        return True


@dataclass(frozen=True, kw_only=True)
class RepairsPaused(TimedFault):
    """A person pauses all repairs for `for_s`."""

    kind = "pause"
    for_s: float = 900

    def strike(self, world: World) -> bool:
        world.happens("a person pauses all repairs")
        world.lives.live("job_api", lambda: braking.pause(world.recovery, "an operator", "to look into something"))
        world.timeline.after(self.for_s, _unpause, world)
        return True


def _unpause(world: World) -> None:
    world.lives.live("job_api", lambda: braking.unpause(world.recovery))


TIMED_FAULTS: dict[str, type[TimedFault]] = {
    one.kind: one
    for one in (
        GpuBreaks, RankExits, AgentFlaps, HostDies, SpotInterruption, StatusCheckFails, RebootsGoWrong, RebootedByHand,
        CheckHangs,
        CheckSays, RanksAreStuck, ClockIsWrong, MaintenancePlanned, FunctionSleeps, JobCanceled, Released, TakenOut,
        HealthReported, RebalanceRecommended, RepairsPaused,
    )
}  # fmt: skip
