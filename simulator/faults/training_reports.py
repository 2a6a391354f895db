"""What ranks tell, and programs write, of what goes wrong: late, never, or what is not so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_recovery.core.diagnosis.observations import (
    Check,
    Delivery,
    EventReport,
    Observation,
    ProgressReport,
    StageReport,
)

from sandbox.cluster.model.records import ModelInstance, Task
from sandbox.cluster.model.statuses import ProcessState
from simulator.cloud.log_output import LogStory
from simulator.cloud.workloads import environment
from simulator.faults.schedule import InstanceFault

if TYPE_CHECKING:
    from simulator.world import World

REPORTS_EVERY_S = 60.0
"""How often a rank says how far it is."""


def _ranks_on(world: World, machine: ModelInstance) -> list[Task]:
    """The ranks of jobs that run there and say whose they are."""
    here = [task for task in world.fleet.running() if task.instance_id == machine.instance_id]
    return [task for task in here if "CHECK_ID" not in environment(task) and "JOB_ID" in environment(task)]


def _store(world: World, task: Task, attempt: int, report: Observation) -> None:
    world.store.add_observations(environment(task)["JOB_ID"], attempt, task.instance_id, (report,))


def _attempt(world: World, task: Task) -> int | None:
    """The attempt that the rank belongs to; None while the product does not know its job."""
    given = environment(task)
    job = world.store.load_job(given["JOB_ID"])
    return None if job is None else int(given.get("ATTEMPT", job.attempt))


@dataclass(frozen=True, kw_only=True)
class LogMisleads(InstanceFault):
    """The next rank that ends on the machine writes what `says` (a `LogStory`) speaks of, whatever is so."""

    kind = "log_says"
    says: str = LogStory.GPU

    def __post_init__(self) -> None:
        if self.says not in set(LogStory):
            raise ValueError(f"says must be one of {', '.join(LogStory)}, not {self.says!r}")

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        world.log_output.next[machine.instance_id] = LogStory(self.says)
        return True


@dataclass(frozen=True, kw_only=True)
class RankReports(InstanceFault):
    """Each rank on the machine tells, which is heard `late_s` later, of a notice that nobody acted on (`notice`) or of
    a GPU that fails its probe (`gpu`), whatever is so.
    """

    kind = "rank_tells"
    of: str = "notice"
    late_s: float = 0

    def __post_init__(self) -> None:
        if self.of not in ("notice", "gpu"):
            raise ValueError(f"of must be notice or gpu, not {self.of!r}")

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        told = False
        for task in _ranks_on(world, machine) if world.policy.diagnose else ():
            attempt = _attempt(world, task)
            if attempt is not None:
                world.transcript.happened(
                    f"a rank on {machine.instance_id} tells of a {self.of}, heard {self.late_s:.0f} s later"
                )
                world.timeline.after(self.late_s, _store, world, task, attempt, self._report(world, task))
                told = True
        return told

    def _report(self, world: World, task: Task) -> Observation:
        at_s, rank = world.timeline.now.timestamp(), int(environment(task)["RANK"])
        report_id, instance_id = f"{self.of}/{task.task_id}", task.instance_id
        if self.of == "gpu":
            return StageReport(
                report_id=report_id,
                at_s=at_s,
                instance_id=instance_id,
                rank=rank,
                stage="train_step",
                moment="after",
                gpu="0",
                probe=Check.FAILED,
                synchronised=True,
                error="CUDA error: unspecified launch failure",
            )
        return EventReport(
            report_id=report_id,
            at_s=at_s - 700,
            instance_id=instance_id,
            rank=rank,
            request_id="q",
            event="rollout_start",
            state=Delivery.FAILED,
            last_state=Delivery.DELIVERED,
        )


@dataclass(frozen=True, kw_only=True)
class GangStalls(InstanceFault):
    """The gang that has a rank on the machine does nothing more and ends by no error of its own.

    Its ranks still say how far they are. Without a diagnosis nobody would ever notice.
    """

    kind = "stalls"

    def _strike(self, world: World, machine: ModelInstance) -> bool:
        ranks = _ranks_on(world, machine) if world.policy.diagnose else []
        for rank in ranks:
            world.transcript.happened(f"{environment(rank)['JOB_ID']} does nothing more")
            for task in world.training.gang(rank):
                world.training.stalled.add(task.task_id)
                _say_progress(world, task, world.timeline.now.timestamp())
        return bool(ranks)


def _say_progress(world: World, task: Task, since_s: float) -> None:
    if task.process is not ProcessState.RUNNING:
        return
    now_s, attempt = world.timeline.now.timestamp(), _attempt(world, task)
    if attempt is not None and task.instance_id not in world.fleet.hung:
        report = ProgressReport(
            report_id=f"progress/{task.task_id}/{now_s:.0f}",
            at_s=now_s,
            instance_id=task.instance_id,
            rank=int(environment(task)["RANK"]),
            value=7.0,
            unchanged_s=now_s - since_s,
        )
        _store(world, task, attempt, report)
    world.timeline.after(REPORTS_EVERY_S, _say_progress, world, task, since_s)
