"""Adoption: recovery of training tasks that a user started without the queue.

The module holds the identity of such a task, the job template made from it, and the transitions of adopted jobs.
Such a user runs an ECS task for each rank and sets JOB_ID, RANK and WORLD_SIZE in its environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.job.completion import INCIDENT_CLOSED
from gpu_recovery.core.job.record import Job, JobStatus, Origin
from gpu_recovery.core.job.spec import NNODES_MAX, OUR_VARIABLES, JobSpec
from gpu_recovery.core.job.stop_timeout import longest_stop_timeout_s
from gpu_recovery.core.job.timeout_order import timeouts_in
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.notifications import jobs
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step
from gpu_recovery.core.task import TaskFact

JOB_ID = re.compile(r"[A-Za-z0-9_/-]{1,120}")
"""Pattern of the job ids that adoption accepts. A relaunch passes the id in its `startedBy`, and tables begin keys with
it."""
NUMBER = re.compile(r"[0-9]{1,9}")
"""Pattern of a rank or a world size: at most nine digits."""


class Adoption(StrEnum):
    """What the system does about training tasks that a user started without the queue."""

    OFF = "off"
    OBSERVE = "observe"
    RECOVER = "recover"


@frozen_dataclass()
class TaskIdentity:
    """The identity that a user's task carries in the environment of its overrides: job, rank and number of ranks."""

    job_id: str
    rank: int
    world_size: int


def task_identity(environment: Mapping[str, str] | None) -> TaskIdentity | None:
    """Return the identity that `environment` names, or None.

    None means that JOB_ID, RANK or WORLD_SIZE is missing or malformed, that the rank is not below the world size, or
    that the world size exceeds NNODES_MAX.
    """
    env = environment or {}
    job_id, rank, world = env.get("JOB_ID", ""), env.get("RANK", ""), env.get("WORLD_SIZE", "")
    if not (JOB_ID.fullmatch(job_id) and NUMBER.fullmatch(rank) and NUMBER.fullmatch(world)):
        return None
    if not int(rank) < int(world) <= NNODES_MAX:
        return None
    return TaskIdentity(job_id, int(rank), int(world))


def job_template(task: TaskFact, world: int, gpus: int, definition: Mapping[str, Any] | None = None) -> JobSpec:
    """Return the specification of an adopted job as its first task shows it. A relaunch runs this specification.

    Args:
        task: the first task that was seen.
        world: number of ranks.
        gpus: number of GPUs that the task holds.
        definition: the task definition as ECS describes it; None if ECS does not know it any more.
    """
    env = {k: v for k, v in (task.environment or {}).items() if k not in OUR_VARIABLES}
    containers = (definition or {}).get("containerDefinitions", ())
    container: Mapping[str, Any] = next((each for each in containers if each.get("name") == task.main_container), {})
    spec = JobSpec(
        workload="adopted",
        nnodes=world,
        gpus_per_node=gpus,
        task_definition=task.task_definition,
        container=task.main_container,
        command=task.command,
        env=env,
        user=task.started_by,
        task_stop_timeout_s=longest_stop_timeout_s(definition) if definition is not None else None,
    )
    return replace(spec, timeouts=timeouts_in(container, spec))


def newer_task(job: Job, event: events.NewerTaskSeen, context: DecisionContext) -> Step | Ignore:
    """Restart an ended adopted job for newer tasks of its user: next attempt, counters at zero."""
    if job.origin is not Origin.ADOPTED or event.created_at <= job.status_at:
        return Ignore("the task is not newer than the end of the job")
    changes = {
        "attempt": job.attempt + 1,
        "instances": ("",) * job.spec.nnodes,
        "attempts_counted": 0,
        "failure": None,
        "attempts_uncounted": {},
        **INCIDENT_CLOSED,
        "stop_purpose": None,
        "stop_cause": None,
        "stop_tries": 0,
        "stop_reason": "",
        "repairing": (),
        "repaired": {},
        "launched": False,
        "launch_ended": False,
        "in_line_at": None,
        "adopted_after": job.status_at,
        "claims_kept": False,
        "started_by_person": True,
        "to_leave": (),
        "silent": (),
        "found_dead": (),
        "heard": {},
        "running_at": None,
        "quick_ends": 0,
        "denied": None,
        "not_before": None,
        "repairs": 0,
        "first_ends": (),
        "suspicions": (),
        "avoided": (),
        "held": False,
        "suspended_for": "",
        "suspended_at": None,
        "suspensions": (),
        "ran_s": 0,
        "wished_at": None,
        "short_of": "",
        "passed_since": None,
    }
    notices = (jobs.started_again(job),) if job.incident_id is not None else ()
    return Step(JobStatus.SUBMITTED, "a user started it again", changes, notices)
