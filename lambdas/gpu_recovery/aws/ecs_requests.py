"""Builders of RunTask requests, with the client token that makes a repeated launch idempotent.

The functions and the simulator use the same builders. Each request is a RunTask with the placement constraint
`memberOf(ec2InstanceId == ...)` and a client token. StartTask is not used, because it has neither. The same rank of the
same attempt has the same client token, so a repeated launch returns the task of the first launch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.identifiers import attempt_id, gpu_name
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.rank_overrides import pairs_of, rank_environment, rank_override
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.launch_signature import launch_signature, verdict_name
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import CHECK_MARGIN_S, CHECK_S_BY_LEVEL
from gpu_recovery.core.task import LAUNCH_SIGNATURE, VERDICT_KEY

CHECK_CONTAINER = "health-check"
"""Name of the container in the task definition of the health check."""
CHECK_S_MAX, FOCUS_MAX = 86_400, 64
"""Limits of the health check: the longest timeout in seconds, and the largest number of GPUs in FOCUS."""
PASSIVE_LEVEL = 0
"""Check level at which the health check only reads the kernel log and queries the driver."""
LASTING_FAILURES = ("ATTRIBUTE", "MISSING", "INACTIVE")
"""Failure reasons of RunTask that a repeated request cannot cure."""


def token(*parts: object) -> str:
    """Return a client token of 64 characters. The same parts give the same token."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:64]


def rank_request(cluster: str, job: Job, plan: Plan, rank: int, master_ip: str, key: str) -> dict[str, Any]:
    """Build the RunTask request of one rank on its instance. The client token names job, attempt and rank.

    The client token also depends on the launch key. So no other caller can use the same client token before.

    Args:
        cluster: the cluster's name.
        job: the job.
        plan: the plan of the attempt.
        rank: the rank.
        master_ip: the private IPv4 address of rank 0's instance.
        key: the launch key.
    """
    name = attempt_id(job.job_id, plan.attempt)
    signature = launch_signature(key, name, rank)
    override = rank_override(job.spec, rank_environment(job.spec, plan, rank, master_ip, signature))
    return _request(
        cluster,
        job.spec.task_definition,
        plan.instances[rank],
        override,
        started_by=name,
        client_token=token(signature) if plan.signed else token(job.job_id, plan.attempt, rank),
    )


@frozen_dataclass()
class CheckTask:
    """Parameters of health checks.

    task_definition: the ECS task definition (family, family:revision or ARN).
    bucket:          the S3 bucket of the verdict documents.
    level:           the DCGM run level, 1 to 4.
    reserve_gpus:    whether the task reserves the GPUs of the instance in ECS.
    timeout_s:       seconds after which the system gives the check up. The check itself stops CHECK_MARGIN_S earlier.
    """

    task_definition: str
    bucket: str
    level: int
    reserve_gpus: bool
    timeout_s: int


def check_request(
    cluster: str, check: CheckTask, instance: Instance, check_id: str, refusals: int, key: str
) -> dict[str, Any]:
    """Build the RunTask request of one health check. The client token names the check and the number of deferrals.

    A reservation of GPUs makes ECS mount the driver's libraries into the container. The request names the number of
    GPUs and not `ALL`, because `ALL` means all *available* GPUs: while a rank still holds some GPUs, the check would
    run on the rest and miss them. A passive check reserves no GPU, because jobs use the instance. It waits for no GPU
    and runs no diagnostic.

    Args:
        cluster: the cluster's name.
        check: the parameters of health checks.
        instance: the instance to check.
        check_id: the id of the check.
        refusals: how often the command was deferred so far (`PendingCommand.refusals`); part of the client token.
        key: the launch key, on which the launch signature, the key of the verdict and the client token depend.
    """
    signature = launch_signature(key, check_id) if instance.check is not None and instance.check.signed else ""
    passive = instance.check is not None and instance.check.passive
    level = instance.check.level if instance.check is not None else 0
    if level:
        timeout_s = max(check.timeout_s, CHECK_S_BY_LEVEL[level] + CHECK_MARGIN_S)
        check = replace(check, level=level, timeout_s=timeout_s)
    environment = {
        "CHECK_ID": check_id,
        "INSTANCE_ID": instance.instance_id,
        "VERDICT_BUCKET": check.bucket,
        VERDICT_KEY: verdict_key(check_id, verdict_name(key, check_id) if signature else ""),
        "CHECK_LEVEL": str(PASSIVE_LEVEL if passive else check.level),
        "EXPECTED_GPUS": str(instance.gpus_most),
        "CHECK_TIMEOUT_S": str(min(max(check.timeout_s - CHECK_MARGIN_S, CHECK_MARGIN_S), CHECK_S_MAX)),
    }
    if signature:
        environment[LAUNCH_SIGNATURE] = signature
    if instance.check is not None and instance.check.since is not None:
        environment["SINCE"] = instance.check.since.isoformat()
    names = [gpu_name(gpu) for gpu in instance.check.focus] if instance.check is not None else []
    if focus := list(dict.fromkeys(filter(None, names)))[:FOCUS_MAX]:
        environment["FOCUS"] = ",".join(focus)
    override: dict[str, Any] = {"name": CHECK_CONTAINER, "environment": pairs_of(environment)}
    if check.reserve_gpus and not passive:
        override["resourceRequirements"] = [{"type": "GPU", "value": str(instance.gpus or "ALL")}]
    return _request(
        cluster,
        check.task_definition,
        instance.instance_id,
        override,
        started_by=check_id,
        client_token=token(signature or check_id, refusals),
    )


def verdict_key(check_id: str, name: str) -> str:
    """Return the S3 key of a check's verdict document.

    Args:
        check_id: the check.
        name: the secret name of the document. "" for a check that an older release ordered: a repeated RunTask
            must be equal to the first one.
    """
    return f"verdicts/{check_id}/{name}.json" if name else f"verdicts/{check_id}.json"


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
