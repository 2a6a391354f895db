"""What people do in between: they reboot, release and take out machines, cancel, suspend and resume jobs, and pause
repairs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_recovery import fleet_controls
from gpu_recovery.core.events import QuarantineRequested
from gpu_recovery.core.job.record import TERMINAL, JobStatus, Origin

from sandbox.cluster.model.instances import MANAGED_TAG
from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import ContainerInstanceStatus
from simulator.faults.schedule import InstanceFault, TimedFault

if TYPE_CHECKING:
    from simulator.world import World


@dataclass(frozen=True, kw_only=True)
class RebootedByHand(InstanceFault):
    """A person, or EC2, reboots the machine, whoever works there."""

    kind = "reboot_by_hand"

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.transcript.happened(f"somebody reboots {machine.instance_id}")
        world.fleet.reboot(machine.instance_id)
        return True


@dataclass(frozen=True, kw_only=True)
class OperatorInstanceAction(InstanceFault):
    """A person's order about a machine. It needs a record: nobody can name a machine that the product does not know."""

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        if world.store.load_instance(machine.instance_id) is None:
            return False
        self._act(world, machine)
        return True

    @abstractmethod
    def _act(self, world: World, machine: ModelInstance) -> None:
        """Give the order."""


@dataclass(frozen=True, kw_only=True)
class Released(OperatorInstanceAction):
    """A person vouches for the machine, in whatever state it is."""

    kind = "release"

    def _act(self, world: World, machine: ModelInstance) -> None:
        world.transcript.happened(f"a person releases {machine.instance_id}")
        world.release(machine)


@dataclass(frozen=True, kw_only=True)
class QuarantinedByHand(OperatorInstanceAction):
    """A person takes the machine out of service."""

    kind = "quarantine"

    def _act(self, world: World, machine: ModelInstance) -> None:
        world.transcript.happened(f"a person quarantines {machine.instance_id}")
        order = QuarantineRequested(at=world.timeline.now, by="an operator", because="a fan is loud")
        world.ask(lambda: world.recovery.handle(machine.instance_id, order))


@dataclass(frozen=True, kw_only=True)
class JobCanceled(TimedFault):
    """A person cancels the job that was submitted as number `job`; with `force` also what a failed one has left."""

    kind = "cancel"
    job: int = 0
    force: bool = False

    def strike(self, world: World) -> bool:
        jobs = sorted(world.jobs(), key=lambda job: (job.queued_at, job.job_id))
        if not jobs:
            return False
        chosen = jobs[self.job % len(jobs)]
        left = chosen.status is JobStatus.FAILED and self.force
        if chosen.status in TERMINAL and not left:
            return False
        world.transcript.happened(f"a person cancels {chosen.job_id}{' by force' if self.force else ''}")
        world.cancel(chosen.job_id, force=self.force)
        return True


@dataclass(frozen=True, kw_only=True)
class StartedAgain(TimedFault):
    """A person starts once more, on the first machines that have room, a gang of their own that has ended."""

    kind = "started_again"

    def strike(self, world: World) -> bool:
        over = [job for job in world.jobs() if job.status in TERMINAL and job.origin is Origin.ADOPTED]
        over = [job for job in over if not world.ranks(job.job_id)]
        if not over:
            return False
        job = min(over, key=lambda one: one.job_id)
        gpus = job.spec.gpus_per_node
        placeable = [
            one
            for one in world.model_instances()
            if one.agent_connected and one.status is ContainerInstanceStatus.ACTIVE
        ]
        free = [one for one in placeable if len(world.cluster.free_gpus(one)) >= gpus]
        if len(free) < job.spec.nnodes:
            return False
        world.transcript.happened(f"a person starts {job.job_id} again")
        for rank, machine in enumerate(free[: job.spec.nnodes]):
            world.start_by_hand(job.job_id, rank, job.spec.nnodes, machine, gpus=gpus)
        return True


@dataclass(frozen=True, kw_only=True)
class ManagedTagRemoved(InstanceFault):
    """The machine's owners take its tag off it for `for_s`: what nobody handed over is not repaired."""

    kind = "taken_back"
    for_s: float = 900

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        value = machine.tags.pop(MANAGED_TAG, None)
        if value is None:
            return False
        world.transcript.happened(f"the owners of {machine.instance_id} take its tag off it for {self.for_s:.0f} s")
        world.timeline.after(self.for_s, machine.tags.__setitem__, MANAGED_TAG, value)
        return True


@dataclass(frozen=True, kw_only=True)
class OperatorJobAction(TimedFault):
    """A person's wish about the job that was submitted as number `job`, in whatever status it is, ended or not."""

    job: int = 0

    def strike(self, world: World) -> bool:
        jobs = sorted(world.jobs(), key=lambda job: (job.queued_at, job.job_id))
        if jobs:
            self._request(world, jobs[self.job % len(jobs)].job_id)
        return bool(jobs)

    @abstractmethod
    def _request(self, world: World, job_id: str) -> None:
        """Say it."""


@dataclass(frozen=True, kw_only=True)
class JobSuspended(OperatorJobAction):
    """A person suspends the job: it is held until it is resumed."""

    kind = "suspend"

    def _request(self, world: World, job_id: str) -> None:
        world.transcript.happened(f"a person suspends {job_id}")
        world.suspend(job_id)


@dataclass(frozen=True, kw_only=True)
class JobResumed(OperatorJobAction):
    """A person resumes the job, whoever had suspended it."""

    kind = "resume"

    def _request(self, world: World, job_id: str) -> None:
        world.transcript.happened(f"a person resumes {job_id}")
        world.resume(job_id)


@dataclass(frozen=True, kw_only=True)
class RepairsPaused(TimedFault):
    """A person pauses all repairs for `for_s`."""

    kind = "pause"
    for_s: float = 900

    def strike(self, world: World) -> bool:
        world.transcript.happened("a person pauses all repairs")
        world.ask(lambda: fleet_controls.pause(world.recovery, "an operator", "to look into something"))
        world.timeline.after(self.for_s, _unpause, world)
        return True


def _unpause(world: World) -> None:
    world.ask(lambda: fleet_controls.unpause(world.recovery))
