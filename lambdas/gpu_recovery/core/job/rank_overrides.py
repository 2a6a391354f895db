"""Overrides of a rank's task: what each launch sets beyond the task definition, and how long it is.

ECS limits the overrides of a task. A gang whose overrides leave no room for the variables that we add can never be
launched by us. So it is refused when it is first seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.heartbeat import running_log_id
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.policy import Preflight
from gpu_recovery.core.task import LAUNCH_SIGNATURE, PREFLIGHT

HOLD_S = "GPU_RECOVERY_HOLD_S"
"""Variable with the seconds for which `gpu-recovery-run` keeps the container of a failed rank."""
WARM = "GPU_RECOVERY_WARM"
"""Variable that lets `gpu-recovery-run` wait for the start of a rank before it runs its command."""
IN_PLACE_VARIABLES = (
    "ATTEMPT",
    "RANK",
    "WORLD_SIZE",
    "NODE_RANK",
    "NNODES",
    "MASTER_IP",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RUNNING_LOG_ID",
    "EPOCH",
)
"""Variables that the next attempt sets anew in the container of a held rank. The wrapper accepts no others."""
MASTER_PORT = 2222
"""TCP port of the master process, to which the plan's `port_offset` is added."""
OVERRIDES_CHARACTERS_MAX = 8_192
"""Upper bound of the characters of all overrides of a task, as JSON: ECS API reference, RunTask."""
_LATE_ATTEMPT, _LATE_EPOCH, _PORT_OFFSET, _LONG_HOLD = 9_999, 999_999, 9_999, 9_999
_INSTANCE_ID, _ADDRESS, _SIGNATURE = "i-0123456789abcdef0", "255.255.255.255", "f" * 32
"""Long values of the variables of a launch that has not happened yet."""


def rank_environment(spec: JobSpec, plan: Plan, rank: int, master_ip: str, signature: str) -> dict[str, str]:
    """Return the environment variables of a rank's container.

    WORLD_SIZE and RANK count instances, not processes. The job's own variables may replace only
    GPU_RECOVERY_STOP_TIMEOUT_S; all other variables of the system replace the job's.

    Args:
        spec: the specification of the job.
        plan: the plan of the attempt.
        rank: the rank.
        master_ip: the private IPv4 address of rank 0's instance.
        signature: the launch signature of the rank.
    """
    world = str(len(plan.instances))
    stops_s = spec.stop_timeout_s
    return {
        **({"GPU_RECOVERY_STOP_TIMEOUT_S": str(stops_s)} if stops_s is not None else {}),
        **spec.env,
        "JOB_ID": plan.job_id,
        "ATTEMPT": str(plan.attempt),
        "RANK": str(rank),
        "WORLD_SIZE": world,
        "NODE_RANK": str(rank),
        "NNODES": world,
        "GPUS_PER_NODE": str(spec.gpus_per_node),
        "MASTER_IP": master_ip,
        "MASTER_ADDR": master_ip,
        "MASTER_PORT": str(MASTER_PORT + plan.port_offset),
        "INSTANCE_ID": plan.instances[rank],
        "SUSPEND_GRACE_S": str(spec.suspend_grace_s),
        **({"CHECKPOINT_DIR": spec.checkpoint_dir} if spec.checkpoint_dir else {}),
        "RUNNING_LOG_ID": str(running_log_id(plan.job_id, plan.attempt, rank)),
        **({"EPOCH": str(plan.epochs[rank])} if plan.epochs else {}),
        **({LAUNCH_SIGNATURE: signature} if plan.signed else {}),
        **({HOLD_S: str(plan.hold_s)} if plan.hold_s else {}),
        **({WARM: "1"} if plan.is_warm else {}),
        **({PREFLIGHT: Preflight.QUICK.value} if plan.preflight else {}),
    }


def in_place_environment(spec: JobSpec, plan: Plan, rank: int, master_ip: str) -> dict[str, str]:
    """Return the variables of a rank that differ from those of the attempt before in the same container."""
    environment = rank_environment(spec, plan, rank, master_ip, "")
    return {name: environment[name] for name in IN_PLACE_VARIABLES if name in environment}


def rank_override(spec: JobSpec, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the container override of a rank with these environment variables."""
    override: dict[str, Any] = {
        "name": spec.container,
        "environment": pairs_of(environment),
        "resourceRequirements": [{"type": "GPU", "value": str(spec.gpus_per_node)}],
    }
    return {**override, "command": list(spec.command)} if spec.command else override


def pairs_of(environment: Mapping[str, str]) -> list[dict[str, str]]:
    """Return environment variables in the form of ECS."""
    return [{"name": name, "value": value} for name, value in environment.items()]


def characters_of(overrides: Mapping[str, Any]) -> int:
    """Return the number of characters of a task's overrides as JSON."""
    return len(json.dumps(overrides))


def characters_of_launch(job_id: str, spec: JobSpec) -> int:
    """Return the largest number of characters that the overrides of a rank may have in any launch of the job."""
    last = spec.nnodes - 1
    instances, epochs = (_INSTANCE_ID,) * spec.nnodes, (_LATE_EPOCH,) * spec.nnodes
    plan = Plan(
        job_id,
        _LATE_ATTEMPT,
        instances,
        epochs,
        _PORT_OFFSET,
        signed=True,
        hold_s=0 if spec.restart_in_place is False else _LONG_HOLD,
        is_warm=spec.restart_in_place is not False,
        preflight=spec.preflight is not Preflight.OFF,
    )
    environment = rank_environment(spec, plan, last, _ADDRESS, _SIGNATURE)
    # A running log id is a number whose length differs from rank to rank.
    environment["RUNNING_LOG_ID"] = "9" * 19
    return characters_of({"containerOverrides": [rank_override(spec, environment)]})
