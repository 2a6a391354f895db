"""Actions of operators: reboot, release, quarantine, cancel, suspend, resume, pause of repairs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_recovery import fleet_controls
from gpu_recovery.core.job.record import TERMINAL, JobStatus, Origin

from sandbox.cluster.model.instances import MANAGED_TAG
from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import ContainerInstanceStatus, Ec2State
from simulator.cloud.task_environment import environment
from simulator.faults.schedule import InstanceFault, TimedFault

if TYPE_CHECKING:
    from simulator.world import World


@dataclass(frozen=True, kw_only=True)
class RebootedByHand(InstanceFault):
    """An operator, or EC2, reboots the instance, even if ranks run there."""

    kind = "reboot_by_hand"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.transcript.happened(f"somebody reboots {instance.instance_id}")
        world.fleet.reboot(instance.instance_id)
        return True


@dataclass(frozen=True, kw_only=True)
class DeregisteredByHand(InstanceFault):
    """An operator deregisters the instance from ECS by force; its containers run on, unknown to ECS.

    The agent tries to register again every `registers_every_s` seconds, with an empty data directory. 0: it never does.
    """

    kind = "deregister_by_hand"
    registers_every_s: float = 120

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        if instance.status is ContainerInstanceStatus.INACTIVE:
            return False
        world.transcript.happened(f"a person deregisters {instance.instance_id} by force")
        world.fleet.deregister(instance)
        if self.registers_every_s:
            world.timeline.after(self.registers_every_s, _register_again, world, instance, self.registers_every_s)
        return True


def _register_again(world: World, instance: ModelInstance, every_s: float) -> None:
    world.fleet.register_again(instance)
    gone = instance.ec2_state in (Ec2State.TERMINATED, Ec2State.SHUTTING_DOWN)
    if instance.status is ContainerInstanceStatus.INACTIVE and not gone:
        world.timeline.after(every_s, _register_again, world, instance, every_s)


@dataclass(frozen=True, kw_only=True)
class DrainedByHand(InstanceFault):
    """An operator sets the instance to DRAINING in ECS, and to ACTIVE again after `for_s` seconds. 0: never."""

    kind = "drain_by_hand"
    for_s: float = 0

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        if instance.status is not ContainerInstanceStatus.ACTIVE:
            return False
        world.transcript.happened(f"a person drains {instance.instance_id}")
        world.fleet.set_state(instance, ContainerInstanceStatus.DRAINING)
        if self.for_s:
            world.timeline.after(self.for_s, world.fleet.set_state, instance, ContainerInstanceStatus.ACTIVE)
        return True


@dataclass(frozen=True, kw_only=True)
class RankStoppedByHand(InstanceFault):
    """An operator stops the rank on the instance with StopTask."""

    kind = "stop_by_hand"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        tasks = [task for task in world.fleet.running() if task.instance_id == instance.instance_id]
        ranks = [task for task in tasks if "CHECK_ID" not in environment(task)]
        for task in ranks:
            world.stop_by_hand(task, "maintenance")
        return bool(ranks)


@dataclass(frozen=True, kw_only=True)
class OperatorInstanceAction(InstanceFault):
    """An operator's request about an instance. Only an instance with a record can be named in a request."""

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        if world.store.load_instance(instance.instance_id) is None:
            return False
        self._act(world, instance)
        return True

    @abstractmethod
    def _act(self, world: World, instance: ModelInstance) -> None:
        """Make the request."""


@dataclass(frozen=True, kw_only=True)
class Released(OperatorInstanceAction):
    """An operator releases the instance, in any status."""

    kind = "release"

    def _act(self, world: World, instance: ModelInstance) -> None:
        world.transcript.happened(f"a person releases {instance.instance_id}")
        world.release(instance)


@dataclass(frozen=True, kw_only=True)
class QuarantinedByHand(OperatorInstanceAction):
    """An operator quarantines the instance."""

    kind = "quarantine"

    def _act(self, world: World, instance: ModelInstance) -> None:
        world.transcript.happened(f"a person quarantines {instance.instance_id}")
        world.quarantine(instance)


@dataclass(frozen=True, kw_only=True)
class JobCanceled(TimedFault):
    """An operator cancels the job that was submitted as number `job`.

    force: the node agents end the ranks, too. A forced request is also made for a failed job, to end remaining ranks.
    """

    kind = "cancel"
    job: int = 0
    force: bool = False

    def strike(self, world: World) -> bool:
        """Cancel the job; return False if there is none or the request does not apply to its status."""
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
    """An operator starts an own gang that has ended once more, on the first instances with free GPUs."""

    kind = "started_again"

    def strike(self, world: World) -> bool:
        """Start the gang; return False if no such gang has ended or too few instances are free."""
        ended = [job for job in world.jobs() if job.status in TERMINAL and job.origin is Origin.ADOPTED]
        ended = [job for job in ended if not world.ranks(job.job_id)]
        if not ended:
            return False
        job = min(ended, key=lambda candidate: candidate.job_id)
        gpus = job.spec.gpus_per_node
        placeable = [
            candidate
            for candidate in world.model_instances()
            if candidate.agent_connected and candidate.status is ContainerInstanceStatus.ACTIVE
        ]
        free = [candidate for candidate in placeable if len(world.cluster.free_gpus(candidate)) >= gpus]
        if len(free) < job.spec.nnodes:
            return False
        world.transcript.happened(f"a person starts {job.job_id} again")
        for rank, instance in enumerate(free[: job.spec.nnodes]):
            world.start_by_hand(job.job_id, rank, job.spec.nnodes, instance, gpus=gpus)
        return True


@dataclass(frozen=True, kw_only=True)
class ManagedTagRemoved(InstanceFault):
    """The owners remove the managed tag of the instance for `for_s` seconds: untagged instances are not repaired."""

    kind = "taken_back"
    for_s: float = 900

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        value = instance.tags.pop(MANAGED_TAG, None)
        if value is None:
            return False
        world.transcript.happened(f"the owners of {instance.instance_id} take its tag off it for {self.for_s:.0f} s")
        world.timeline.after(self.for_s, instance.tags.__setitem__, MANAGED_TAG, value)
        return True


@dataclass(frozen=True, kw_only=True)
class OperatorJobAction(TimedFault):
    """An operator's request about the job that was submitted as number `job`, in any status."""

    job: int = 0

    def strike(self, world: World) -> bool:
        """Make the request; return False if no job was submitted yet."""
        jobs = sorted(world.jobs(), key=lambda job: (job.queued_at, job.job_id))
        if jobs:
            self._request(world, jobs[self.job % len(jobs)].job_id)
        return bool(jobs)

    @abstractmethod
    def _request(self, world: World, job_id: str) -> None:
        """Make the request."""


@dataclass(frozen=True, kw_only=True)
class JobSuspended(OperatorJobAction):
    """An operator suspends the job: it stays suspended until it is resumed."""

    kind = "suspend"

    def _request(self, world: World, job_id: str) -> None:
        world.transcript.happened(f"a person suspends {job_id}")
        world.suspend(job_id)


@dataclass(frozen=True, kw_only=True)
class JobResumed(OperatorJobAction):
    """An operator resumes the job, also a job that the scheduler had suspended."""

    kind = "resume"

    def _request(self, world: World, job_id: str) -> None:
        world.transcript.happened(f"a person resumes {job_id}")
        world.resume(job_id)


@dataclass(frozen=True, kw_only=True)
class RepairsPaused(TimedFault):
    """An operator pauses all repairs for `for_s` seconds."""

    kind = "pause"
    for_s: float = 900

    def strike(self, world: World) -> bool:
        """Pause repairs, and schedule the end of the pause."""
        world.transcript.happened("a person pauses all repairs")
        world.ask(lambda: fleet_controls.pause(world.recovery, "an operator", "to look into something"))
        world.timeline.after(self.for_s, _unpause, world)
        return True


def _unpause(world: World) -> None:
    world.ask(lambda: fleet_controls.unpause(world.recovery))
