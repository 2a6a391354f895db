"""Evidence about a LOST job: later heartbeats, and findings of ECS and EC2."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_recovery.core import events
from gpu_recovery.core.attempt import AttemptProgress
from gpu_recovery.core.health_signals import Ec2InstanceState, HealthStatus
from gpu_recovery.core.heartbeat import RankHeartbeat, running_log_id
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.liveness import is_fresh
from gpu_recovery.ports.values import Ec2InstanceStatus
from gpu_recovery.recovery import Recovery


def contact_restored_event(recovery: Recovery, job: Job, progress: AttemptProgress | None) -> events.RankHeard | None:
    """Return the event that restores contact with a LOST job, or None.

    The event is due if a rank on a lost instance was last seen after the loss, or has ended.
    """
    now = recovery.clock()
    ended = progress.stopped if progress is not None else frozenset()
    for instance_id in job.silent:
        if job.instances.index(instance_id) in ended:
            return events.RankHeard(at=now, attempt=job.attempt, instance_id=instance_id)
    for instance_id, beat in recovery.store.load_heartbeats(job.silent).items():
        rank = beat.ranks.get(str(running_log_id(job.job_id, job.attempt, job.instances.index(instance_id))))
        if rank is not None and is_fresh(rank.seen_at, now, recovery.policy) and _is_later(job, instance_id, rank):
            return events.RankHeard(at=rank.seen_at, attempt=job.attempt, instance_id=instance_id)
    return None


def _is_later(job: Job, instance_id: str, rank: RankHeartbeat) -> bool:
    """Return whether the rank was last seen after the time at which the job lost contact."""
    return instance_id not in job.heard or rank.seen_at > job.heard[instance_id]


def evidence_of_death(recovery: Recovery, job: Job) -> tuple[Mapping[str, str], tuple[str, ...], str]:
    """Collect what ECS and EC2 know of the lost instances of a LOST job.

    Returns:
        (dead, unsure, outage). `dead` maps each instance that ECS or EC2 finds dead to the findings. `unsure` are the
        instances of `dead` for which the only finding is a disconnected ECS agent. `outage` is why missing heartbeats
        do not count now, "" if they count.
    """
    fleet = recovery.store.load_fleet()
    statuses = recovery.actions.describe_ec2_status(job.silent)
    beats, now = recovery.store.load_heartbeats(job.silent), recovery.clock()
    dead: dict[str, str] = {}
    unsure: list[str] = []
    for instance_id in job.silent:
        findings = _ec2_findings(statuses.get(instance_id))
        record = recovery.store.load_instance(instance_id)
        if record is None or record.status is InstanceStatus.GONE:
            findings.append("it has left the cluster")
        elif instance_id in beats and is_fresh(beats[instance_id].seen_at, now, recovery.policy):
            pass  # the instance reports, although this rank does not: it is alive
        elif not _is_connected(recovery, record):
            unsure += [] if findings else [instance_id]
            findings.append("the agent of ECS is not connected")
        if findings:
            dead[instance_id] = " and ".join(findings)
    return dead, tuple(unsure), fleet.deaf.sentence if fleet.deaf is not None else ""


def _ec2_findings(status: Ec2InstanceStatus | None) -> list[str]:
    """Return what EC2 shows against the instance, as phrases; empty if it shows no fault or no instance."""
    if status is None:
        return []
    state = [] if status.state is Ec2InstanceState.RUNNING else [f"EC2 shows it {status.state}"]
    impaired = [
        f"{signal.kind} is {signal.status}" for signal in status.health if signal.status is HealthStatus.IMPAIRED
    ]
    return state + impaired


def _is_connected(recovery: Recovery, record: Instance) -> bool:
    """Return whether the ECS agent of the instance is connected."""
    described = recovery.actions.describe_instance(record.container_instance_id)
    return described is not None and described[1].agent_connected
