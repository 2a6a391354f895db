"""Specification of a job in a request: validate it by its model, expand its template, and check it as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.job import verl_template
from gpu_recovery.core.job.spec import (
    BESIDE_AN_IMAGE,
    COMMAND_AND_ENV_CHARACTERS_MAX,
    ON_ECS_ONLY,
    ON_RAY_ONLY,
    RUNTIME_ENV_CHARACTERS_MAX,
    SUSPEND_GRACE_S,
    Backend,
    JobSpec,
)
from gpu_recovery.core.policy import Preflight
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.job_api.validation import BodyInvalid, validated

if TYPE_CHECKING:
    from gpu_recovery.job_api.models import job_spec as models

TEMPLATE_HINT = "; write an option of verl into overrides"
"""What a client may do about an unknown field beside `template: verl`."""


def parse_spec(document: Any) -> JobSpec:
    """Return the specification of a decoded JSON `document`.

    A document of a template is validated, expanded, and validated again: the job that a template makes is subject to
    the rules of any job. All further rules and the result are about the validated model alone.

    Raises:
        SpecInvalid: the document breaks rules of the model (`BodyInvalid`, with all of them), or a rule of a template.
        BodyInvalid: fields do not fit each other.
    """
    from gpu_recovery.job_api.models.job_spec import JobSpec as JobSpecModel  # noqa: PLC0415

    has_template = isinstance(document, Mapping) and document.get("template") is not None
    body: models.JobSpec = validated(JobSpecModel, document, TEMPLATE_HINT if has_template else "")
    if has_template and not isinstance(body.nnodes, int):
        raise BodyInvalid([("nnodes", f"must be a whole number in the template {verl_template.VERL}")])
    if has_template:
        body = validated(JobSpecModel, _expanded(document))
    elif stray := [key for key in verl_template.FIELDS if getattr(body, key) is not None]:
        detail = "is a field of the template of verl: add the line template: verl"
        raise BodyInvalid([(key, detail) for key in stray])
    spec = _spec_of(body)
    if problems := [*_problems(spec, body)]:
        raise BodyInvalid(problems)
    return spec


def _expanded(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document of the job that a template makes of `document`."""
    job = verl_template.job_document(document)
    if len(job["entrypoint"]) > COMMAND_AND_ENV_CHARACTERS_MAX:
        raise SpecInvalid("overrides", f"result in a command of more than {COMMAND_AND_ENV_CHARACTERS_MAX} characters")
    return job


def _spec_of(body: models.JobSpec) -> JobSpec:
    """Return the specification that a validated model describes."""
    nodes = body.nnodes
    return JobSpec(
        workload=body.workload,
        nnodes=nodes if isinstance(nodes, int) else nodes.most,
        gpus_per_node=body.n_gpus_per_node,
        task_definition=body.task_definition or "",
        container=body.container or "",
        command=body.command or (),
        env=body.env or {},
        user=body.user or "",
        attempts_max=body.attempts_max,
        max_runtime_s=body.max_runtime_s,
        priority=Priority.NORMAL if body.priority is None else body.priority,
        group=body.group or "",
        suspend_grace_s=SUSPEND_GRACE_S if body.suspend_grace_s is None else body.suspend_grace_s,
        checkpoint_dir=body.checkpoint_dir or "",
        backend=Backend(body.backend or Backend.ECS),
        entrypoint=body.entrypoint or "",
        runtime_env="" if body.runtime_env is None else json.dumps(body.runtime_env.given),
        entrypoint_resources=body.entrypoint_resources or {},
        image=body.image or "",
        name=body.name or "",
        progress_timeout_s=body.progress_timeout_s,
        restart_in_place=body.restart_in_place,
        warm_spares=body.warm_spares,
        nnodes_min=None if isinstance(nodes, int) else nodes.least,
        preflight=None if body.preflight is None else Preflight(body.preflight),
        max_down_minutes=body.max_down_minutes,
        max_lost_minutes=body.max_lost_minutes,
        checkpoint_every_s=body.checkpoint_every_s,
        reports_progress=body.reports_progress,
    )


def _problems(spec: JobSpec, body: models.JobSpec) -> Iterator[tuple[str, str]]:
    """Return the fields that are missing, that belong to the other backend, or that do not fit each other."""
    needed, foreign = ("task_definition", ON_RAY_ONLY) if spec.backend is Backend.ECS else ("entrypoint", ON_ECS_ONLY)
    if not getattr(spec, needed):
        yield needed, f"is needed by a job on {spec.backend}"
    for key in foreign:
        if getattr(body, key) is not None:
            yield key, f"is not allowed in a job on {spec.backend}"
    if spec.nnodes_min is not None and spec.backend is Backend.RAY:
        yield "nnodes", "must be a whole number in a job on ray: a driver counts on a fixed number of nodes"
    given = {} if body.runtime_env is None else body.runtime_env.given
    others = sorted(set(given) - BESIDE_AN_IMAGE) if spec.image else []
    if others:
        yield "image", f"goes with env_vars and config in runtime_env, not with {', '.join(others)}: by Ray"
    if len(spec.runtime_env) > RUNTIME_ENV_CHARACTERS_MAX:
        yield "runtime_env", f"must have at most {RUNTIME_ENV_CHARACTERS_MAX} characters as JSON"
    down, lost = spec.max_down_minutes, spec.max_lost_minutes
    if down is not None and lost is not None and lost < down:
        yield "max_lost_minutes", "must not be less than max_down_minutes: the time that is lost includes the down time"
    if spec.checkpoint_dir and spec.env.get("CHECKPOINT_DIR", spec.checkpoint_dir) != spec.checkpoint_dir:
        yield "env.CHECKPOINT_DIR", "must be left out, or equal checkpoint_dir"
    pairs = [{"name": name, "value": value} for name, value in spec.env.items()]
    size = len(json.dumps([*spec.command, *pairs, spec.checkpoint_dir]))
    if size > COMMAND_AND_ENV_CHARACTERS_MAX:
        yield "env", f"command and env together may have {COMMAND_AND_ENV_CHARACTERS_MAX} characters, not {size}"
