"""The submission of a job to Ray: entrypoint, environment and resources of its driver."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import IMAGE

ON_A_WORKER = {"worker_node": 1}
"""Default resources of a driver. The head has no GPUs and runs no training, so a driver takes this resource, which only
workers have."""
URI_SCHEMES = ("https", "s3", "gs", "azure", "abfss")
"""Schemes of addresses that Ray documents as remote and that the workers fetch by themselves.

`http` is missing because code would travel unprotected. `file`, `local` and `gcs` name files that are unknown here.
"""
URI = re.compile(rf"(?:{'|'.join(URI_SCHEMES)})://[A-Za-z0-9][!-Z^-~]*")
"""Pattern of such an address: visible ASCII characters without brackets and backslashes.

Ray's client reads an address that it cannot parse as a local path.
"""
PACKAGE_LISTS = ("pip", "uv")
"""Fields of a `runtime_env` that list packages, or name a requirements file."""
URI_LISTS = ("py_modules", "java_jars")
"""Fields of a `runtime_env` that list addresses, or local modules."""
CONDA_NAME = re.compile(r"(?!.*\.ya?ml$)[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}", re.IGNORECASE)
"""Pattern of the name of a conda environment. Ray reads any other text as a path or as a YAML file."""
MUST_BE_A_URI = f"must be an address that the cluster itself fetches: {', '.join(f'{name}://' for name in URI_SCHEMES)}"


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


class RefusedField(NamedTuple):
    """A field of a `runtime_env` that no job may have in this form. `detail` says what the field must be."""

    name: str
    detail: str


def refused_field(runtime_env: Mapping[str, Any]) -> RefusedField | None:
    """Return the first field of a `runtime_env` that is refused; None if the whole is accepted.

    Ray's client packs and uploads a local `working_dir`, where an empty text is the present directory. It also opens
    requirements files. In this system the client runs in a function, so that would give a user the files of the
    function. Only sources that the cluster fetches by itself are allowed.

    A container with options of its own is refused as well. The options can give it the host's file system.
    """
    # Ray treats a field with None as absent.
    given = {name: value for name, value in runtime_env.items() if value is not None}
    for name, value in given.items():
        detail = _refusal(name, value)
        if detail:
            return RefusedField(name, detail)
    return None


def _refusal(name: str, value: Any) -> str:
    """Return what the field must be, "" if its value is accepted."""
    if name == "working_dir":
        return "" if _is_uri(value) else MUST_BE_A_URI
    if name in URI_LISTS:
        is_accepted = isinstance(value, list) and all(map(_is_uri, value))
        return "" if is_accepted else f"must be a list, and each item {MUST_BE_A_URI}"
    if name in PACKAGE_LISTS:
        packages = value.get("packages") if isinstance(value, Mapping) else value
        is_accepted = isinstance(packages, list) and all(isinstance(package, str) for package in packages)
        return "" if is_accepted else "must list packages: a requirements file of the submitter cannot be read"
    if name == "conda":
        is_accepted = isinstance(value, Mapping) or (isinstance(value, str) and CONDA_NAME.fullmatch(value) is not None)
        return "" if is_accepted else "must be the name of an environment or its description, not a path or a YAML file"
    if name == "container":
        return "is not accepted, because its run_options may open the host to the container: use the job's field image"
    if name == "image_uri":
        is_accepted = isinstance(value, str) and IMAGE.fullmatch(value) is not None
        return "" if is_accepted else "must be a container image without options: registry/repository:tag or @digest"
    return ""


def _is_uri(value: Any) -> bool:
    return isinstance(value, str) and URI.fullmatch(value) is not None
