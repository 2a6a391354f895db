"""The ECS requests we make, built apart from making them: the same builders serve the functions and the simulator.

RunTask with `memberOf(ec2InstanceId == ...)` and a client token, never StartTask, which has neither: the same rank of
the same attempt is the same token, so a repeated launch finds the task it started the first time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.heartbeat import running_log_id
from gpu_recovery.core.identifiers import attempt_id, gpu_name
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.policy import CHECK_MARGIN_S

MASTER_PORT = 2222
CHECK_CONTAINER = "health-check"
"""The container's name in the task definition of the health check."""
CHECK_S_MAX, FOCUS_MAX = 86_400, 64
"""Limits of the health check: the longest timeout in seconds, and the most GPUs that FOCUS may name."""
PASSIVE_LEVEL = 0
"""The level at which the check only reads the kernel's log and asks the driver."""
LASTING_FAILURES = ("ATTRIBUTE", "MISSING", "INACTIVE")
"""Failure reasons of RunTask that asking again does not mend."""


def token(*parts: object) -> str:
    """A client token (64 characters at most) that is the same for the same parts."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:64]


def rank_environment(job: Job, plan: Plan, rank: int, master_ip: str) -> dict[str, str]:
    """What every rank is told. WORLD_SIZE and RANK count instances, as seed 003 has them."""
    world = str(len(plan.instances))
    stops_s = job.spec.stop_timeout_s
    return {
        **({"GPU_RECOVERY_STOP_TIMEOUT_S": str(stops_s)} if stops_s is not None else {}),
        **job.spec.env,
        "JOB_ID": job.job_id,
        "ATTEMPT": str(plan.attempt),
        "RANK": str(rank),
        "WORLD_SIZE": world,
        "NODE_RANK": str(rank),
        "NNODES": world,
        "GPUS_PER_NODE": str(job.spec.gpus_per_node),
        "MASTER_IP": master_ip,
        "MASTER_ADDR": master_ip,
        "MASTER_PORT": str(MASTER_PORT + plan.port_offset),
        "INSTANCE_ID": plan.instances[rank],
        "SUSPEND_GRACE_S": str(job.spec.suspend_grace_s),
        **({"CHECKPOINT_DIR": job.spec.checkpoint_dir} if job.spec.checkpoint_dir else {}),
        "RUNNING_LOG_ID": str(running_log_id(job.job_id, plan.attempt, rank)),
        **({"EPOCH": str(plan.epochs[rank])} if plan.epochs else {}),
    }


def rank_request(cluster: str, job: Job, plan: Plan, rank: int, master_ip: str) -> dict[str, Any]:
    """RunTask for one rank on its instance."""
    override: dict[str, Any] = {
        "name": job.spec.container,
        "environment": _pairs(rank_environment(job, plan, rank, master_ip)),
        "resourceRequirements": [{"type": "GPU", "value": str(job.spec.gpus_per_node)}],
    }
    if job.spec.command:
        override["command"] = list(job.spec.command)
    return _request(
        cluster,
        job.spec.task_definition,
        plan.instances[rank],
        override,
        started_by=attempt_id(job.job_id, plan.attempt),
        client_token=token(job.job_id, plan.attempt, rank),
    )


@dataclass(frozen=True, slots=True)
class CheckTask:
    """How health checks are run: the ECS task definition, where verdicts go, the DCGM run level, and for how long.

    timeout_s: when the control plane gives the check up; the check itself gives up `CHECK_MARGIN_S` before that.
    """

    task_definition: str
    bucket: str
    level: int
    reserve_gpus: bool
    timeout_s: int


def check_request(cluster: str, check: CheckTask, instance: Instance, check_id: str, refusals: int) -> dict[str, Any]:
    """RunTask for one health check.

    Reserving the GPUs makes ECS give the container the driver's libraries. Their number is asked for, not `ALL`: that
    means all *available* GPUs, and while a rank still holds some the check would run on the rest and miss them. Where
    others work a passive check takes none: it waits for no GPU, and runs no diagnostic.
    """
    passive = instance.check is not None and instance.check.passive
    environment = {
        "CHECK_ID": check_id,
        "INSTANCE_ID": instance.instance_id,
        "VERDICT_BUCKET": check.bucket,
        "VERDICT_KEY": verdict_key(check_id),
        "CHECK_LEVEL": str(PASSIVE_LEVEL if passive else check.level),
        "EXPECTED_GPUS": str(instance.gpus_most),
        "CHECK_TIMEOUT_S": str(min(max(check.timeout_s - CHECK_MARGIN_S, CHECK_MARGIN_S), CHECK_S_MAX)),
    }
    if instance.check is not None and instance.check.since is not None:
        environment["SINCE"] = instance.check.since.isoformat()
    named = [gpu_name(one) for one in instance.check.focus] if instance.check is not None else []
    if focus := list(dict.fromkeys(filter(None, named)))[:FOCUS_MAX]:
        environment["FOCUS"] = ",".join(focus)
    override: dict[str, Any] = {"name": CHECK_CONTAINER, "environment": _pairs(environment)}
    if check.reserve_gpus and not passive:
        override["resourceRequirements"] = [{"type": "GPU", "value": str(instance.gpus or "ALL")}]
    return _request(
        cluster,
        check.task_definition,
        instance.instance_id,
        override,
        started_by=check_id,
        client_token=token(check_id, refusals),
    )


def verdict_key(check_id: str) -> str:
    """Where in the bucket a check leaves its document."""
    return f"verdicts/{check_id}.json"


def _request(
    cluster: str,
    task_definition: str,
    instance_id: str,
    override: Mapping[str, Any],
    *,
    started_by: str,
    client_token: str,
) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "taskDefinition": task_definition,
        "count": 1,
        "launchType": "EC2",
        "placementConstraints": [{"type": "memberOf", "expression": f"ec2InstanceId == {instance_id}"}],
        "overrides": {"containerOverrides": [dict(override)]},
        "startedBy": started_by,
        "clientToken": client_token,
    }


def _pairs(environment: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in environment.items()]
