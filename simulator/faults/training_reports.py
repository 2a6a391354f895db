"""Faults in the reports and logs of ranks: late, missing or false evidence."""

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
from simulator.cloud.task_environment import environment
from simulator.faults.schedule import InstanceFault

if TYPE_CHECKING:
    from simulator.world import World

REPORTS_EVERY_S = 60.0
"""Seconds between two progress reports of a rank."""


def _ranks_on(world: World, instance: ModelInstance) -> list[Task]:
    """Return the running ranks on the instance that name their job."""
    tasks = [task for task in world.fleet.running() if task.instance_id == instance.instance_id]
    return [task for task in tasks if "CHECK_ID" not in environment(task) and "JOB_ID" in environment(task)]


def _store(world: World, task: Task, attempt: int, report: Observation) -> None:
    world.store.add_observations(environment(task)["JOB_ID"], attempt, task.instance_id, (report,))


def _attempt(world: World, task: Task) -> int | None:
    """Return the attempt that the rank belongs to; None if the product has no record of its job."""
    variables = world.fleet.ranks.environment(task)
    job = world.store.load_job(variables["JOB_ID"])
    return None if job is None else int(variables.get("ATTEMPT", job.attempt))


@dataclass(frozen=True, kw_only=True)
class LogMisleads(InstanceFault):
    """The log of the next rank that ends on the instance shows `says` (a `LogStory`), independent of the true cause."""

    kind = "log_says"
    says: str = LogStory.GPU

    def __post_init__(self) -> None:
        if self.says not in set(LogStory):
            raise ValueError(f"says must be one of {', '.join(LogStory)}, not {self.says!r}")

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        world.log_output.next[instance.instance_id] = LogStory(self.says)
        return True


@dataclass(frozen=True, kw_only=True)
class RankReports(InstanceFault):
    """Each rank on the instance sends a false report.

    of:     notice (an event that its receiver did not act on) or gpu (a GPU that fails its probe).
    late_s: the seconds until the report is received.
    """

    kind = "rank_tells"
    of: str = "notice"
    late_s: float = 0

    def __post_init__(self) -> None:
        if self.of not in ("notice", "gpu"):
            raise ValueError(f"of must be notice or gpu, not {self.of!r}")

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        reported = False
        for task in _ranks_on(world, instance) if world.policy.diagnose else ():
            attempt = _attempt(world, task)
            if attempt is not None:
                world.transcript.happened(
                    f"a rank on {instance.instance_id} tells of a {self.of}, heard {self.late_s:.0f} s later"
                )
                world.timeline.after(self.late_s, _store, world, task, attempt, self._report(world, task))
                reported = True
        return reported

    def _report(self, world: World, task: Task) -> Observation:
        at_s, rank = world.timeline.now.timestamp(), int(world.fleet.ranks.environment(task)["RANK"])
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
    """The gang that has a rank on the instance hangs and does not end by an error of its own.

    Its ranks continue to report their progress. Without a diagnosis the hang stays undetected.
    """

    kind = "stalls"

    def _strike(self, world: World, instance: ModelInstance) -> bool:
        ranks = _ranks_on(world, instance) if world.policy.diagnose else []
        for rank in ranks:
            world.transcript.happened(f"{environment(rank)['JOB_ID']} does nothing more")
            for task in world.training.gang(rank):
                world.training.stalled.add(task.task_id)
                _report_progress(world, task, world.timeline.now.timestamp())
        return bool(ranks)


def _report_progress(world: World, task: Task, since_s: float) -> None:
    if task.process is not ProcessState.RUNNING:
        return
    now_s, attempt = world.timeline.now.timestamp(), _attempt(world, task)
    if attempt is not None and task.instance_id not in world.fleet.hung:
        report = ProgressReport(
            report_id=f"progress/{task.task_id}/{now_s:.0f}",
            at_s=now_s,
            instance_id=task.instance_id,
            rank=int(world.fleet.ranks.environment(task)["RANK"]),
            value=7.0,
            unchanged_s=now_s - since_s,
        )
        _store(world, task, attempt, report)
    world.timeline.after(REPORTS_EVERY_S, _report_progress, world, task, since_s)
