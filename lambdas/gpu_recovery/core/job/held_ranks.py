"""Held ranks: the process of a rank ends, and its container waits for the next attempt.

`keeps_containers` is the only place that decides at a stop whether the containers are kept. After every process has
ended, `in_place.py` decides whether the next attempt uses them. Any other step of the job ends the held tasks in ECS.
"""

from __future__ import annotations

from typing import Any

from gpu_recovery.core import commands
from gpu_recovery.core.job.record import Job, JobStatus, Origin, StopPurpose
from gpu_recovery.core.job.spec import Backend, JobSpec
from gpu_recovery.core.job.stop_timeout import stop_step_s
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.state_machine import DecisionContext, Step

_MAY_HOLD = (JobStatus.SUBMITTED, JobStatus.RUNNING)
"""Statuses in which the launch is over and the node agents are not known to be silent."""


def container_hold_s(spec: JobSpec, policy: RecoveryPolicy) -> int:
    """Return the seconds for which the container of a failed rank waits for the next attempt; 0 if it does not wait."""
    wanted = policy.restart_in_place if spec.restart_in_place is None else spec.restart_in_place
    possible = spec.backend is Backend.ECS and policy.diagnose and not policy.relaunch_on_same_instances
    return policy.container_hold_s if wanted and possible and not policy.observe_only else 0


def keeps_containers(job: Job, purpose: StopPurpose, policy: RecoveryPolicy, leaving: str = "") -> bool:
    """Return whether the stop for `purpose` ends only the processes, so that the next attempt may use the containers.

    Only a stop for a diagnosis that another attempt may follow, or because one instance leaves the job. Ranks that
    cannot be held are stopped in ECS.

    Args:
        job: the job before the stop.
        purpose: the purpose of the stop.
        policy: the policy.
        leaving: the instance that the job must leave; "" for any other cause of the stop.
    """
    if purpose is StopPurpose.RELAUNCH:
        may_follow = leaving in job.instances and len(set(job.instances)) > 1
    else:
        may_follow = purpose is StopPurpose.DIAGNOSE and job.attempts_left(policy)
    if job.status not in _MAY_HOLD or not may_follow:
        return False
    ours = job.origin is Origin.SUBMITTED and not job.started_by_person and not job.is_observed(policy)
    return ours and container_hold_s(job.spec, policy) > 0


def stop_containers(job: Job, reason: str, context: DecisionContext) -> Step:
    """Order ECS to stop every task of the attempt, because its containers are not used again."""
    changes: dict[str, Any] = {
        "holding": False,
        "held_attempt": 0,
        "deadline_at": context.now + duration(stop_step_s(job.spec, context.policy)),
    }
    return Step(JobStatus.STOPPING, reason, changes, (commands.StopAttempt(job.attempt),))


def kept_instances(job: Job) -> tuple[str, ...]:
    """Return the instances of the last attempt whose containers the next attempt may use again."""
    if job.status is not JobStatus.RECOVERING or not job.held_attempt or job.held_attempt != job.attempt:
        return ()
    return tuple(instance for instance in job.instances if instance and instance not in job.let_go)
