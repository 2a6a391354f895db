"""The submission of a job to Ray: entrypoint, environment and resources of its driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import Job

ON_A_WORKER = {"worker_node": 1}
"""Default resources of a driver. The head has no GPUs and runs no training, so a driver takes this resource, which only
workers have."""
PATHS = ("working_dir", "py_modules")
"""Fields of a `runtime_env` that name directories or modules."""
FILES = ("pip", "uv", "conda")
"""Fields of a `runtime_env` that may name a requirements file."""


@dataclass(frozen=True, slots=True)
class DriverSubmission:
    """A submission to Ray. `runtime_env` is in Ray's form; `metadata` is shown in Ray's own list of jobs."""

    submission_id: str
    entrypoint: str
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


def submission_of(job: Job) -> DriverSubmission:
    """Return the submission for the job's current attempt. The driver gets the variables that every rank gets."""
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
    """Return the first field that Ray's client would read from the local disk, or "".

    The client packs and uploads a local `working_dir`, and it opens a requirements file. In this system the client runs
    in a function, so that would give a user the files of the function. Only sources that the cluster fetches by itself
    are allowed.
    """
    for name in PATHS:
        values = runtime_env.get(name) or []
        if not isinstance(values, str | list | tuple):
            return name
        for path in [values] if isinstance(values, str) else values:
            if not isinstance(path, str) or "://" not in path or path.startswith("file:"):
                return name
    for name in FILES:
        value = runtime_env.get(name)
        packages = value.get("packages") if isinstance(value, Mapping) else None
        if isinstance(packages, str):
            return name
        if isinstance(value, str) and (name != "conda" or "/" in value or value.endswith((".yml", ".yaml"))):
            return name
    return ""
