"""What a job is for Ray: the entrypoint, the environment and the resources of its driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import Job

ON_A_WORKER = {"worker_node": 1}
"""The head has no GPUs and runs no training: a driver takes one of this resource, which only workers have: seed 004."""
PATHS = ("working_dir", "py_modules")
FILES = ("pip", "uv", "conda")


@dataclass(frozen=True, slots=True)
class DriverSubmission:
    """What is submitted. `runtime_env` as Ray describes it; `metadata` for whoever looks at Ray's own list."""

    submission_id: str
    entrypoint: str
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


def submission_of(job: Job) -> DriverSubmission:
    """The order for the job's current attempt; the variables that every rank has are the driver's, too."""
    spec = job.spec
    runtime_env: dict[str, Any] = json.loads(spec.runtime_env) if spec.runtime_env else {}
    ours = {
        "JOB_ID": job.job_id,
        "ATTEMPT": str(job.attempt),
        "NNODES": str(spec.nnodes),
        "GPUS_PER_NODE": str(spec.gpus_per_node),
    }
    if spec.checkpoint_dir:
        ours["CHECKPOINT_DIR"] = spec.checkpoint_dir
    named = runtime_env.get("env_vars")
    runtime_env["env_vars"] = {**(named if isinstance(named, Mapping) else {}), **spec.env, **ours}
    if spec.image:
        runtime_env["image_uri"] = spec.image
    return DriverSubmission(
        submission_id=attempt_id(job.job_id, job.attempt),
        entrypoint=spec.entrypoint,
        runtime_env=runtime_env,
        resources=dict(spec.entrypoint_resources or ON_A_WORKER),
        metadata={"job_id": job.job_id, "attempt": str(job.attempt), "user": spec.user},
    )


def local_path_field(runtime_env: Mapping[str, Any]) -> str:
    """The first field that Ray's client would read from the disk of whoever submits, "" if there is none.

    The client packs and uploads a local `working_dir`, and opens a requirements file: on our side of the wire that
    would hand a user the files of a function. Only what the cluster fetches by itself may be named.
    """
    for name in PATHS:
        values = runtime_env.get(name) or []
        if not isinstance(values, str | list | tuple):
            return name
        for one in [values] if isinstance(values, str) else values:
            if not isinstance(one, str) or "://" not in one or one.startswith("file:"):
                return name
    for name in FILES:
        value = runtime_env.get(name)
        packages = value.get("packages") if isinstance(value, Mapping) else None
        if isinstance(packages, str):
            return name
        if isinstance(value, str) and (name != "conda" or "/" in value or value.endswith((".yml", ".yaml"))):
            return name
    return ""
