"""The job specification: what a user submits, validated field by field before it is saved."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.job import verl_template
from gpu_recovery.core.queue.priority import Priority

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""Pattern of a workload name."""
FAMILY = re.compile(r"[A-Za-z0-9_-]{1,255}(:[0-9]+)?")
"""Pattern of an ECS task definition: family or family:revision."""
OUR_VARIABLES = frozenset(
    {
        "JOB_ID",
        "ATTEMPT",
        "RANK",
        "WORLD_SIZE",
        "NODE_RANK",
        "NNODES",
        "GPUS_PER_NODE",
        "MASTER_IP",
        "MASTER_ADDR",
        "MASTER_PORT",
        "INSTANCE_ID",
        "RUNNING_LOG_ID",
        "EPOCH",
        "SUSPEND_GRACE_S",
    }
)
"""Environment variables that the system sets on every rank."""
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,511}")
"""Pattern of a container image."""
BESIDE_AN_IMAGE = frozenset({"env_vars", "config"})
"""Fields of a `runtime_env` that Ray allows together with `image_uri`."""
GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Pattern of a group name."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Pattern of the name of an environment variable, as POSIX shells read it. ECS refuses some other names at launch."""
RESERVED_VARIABLES = OUR_VARIABLES | {"LAUNCH_TAG"}
"""Variables that a specification may not set, because the system sets them."""
RESERVED_PREFIXES = ("GPU_RECOVERY_", "GPUTASKER_", "ECS_", "AWS_CONTAINER_")
"""Prefixes of variables that a specification may not set: those of our tools and those of the ECS agent."""
VARIABLES_OF_PROGRAMS = frozenset(
    {
        "GPU_RECOVERY_API_URL",
        "GPU_RECOVERY_TOKEN",
        "GPU_RECOVERY_WORKER",
        "GPU_RECOVERY_ROLE",
        "GPU_RECOVERY_FORWARD_SIGTERM",
        "GPU_RECOVERY_LAST_WORDS",
    }
)
"""Variables with a reserved prefix that a specification may set, because docs/training.md gives them to programs."""
NNODES_MAX = 3_000
"""Upper bound of the instances of a job."""
COMMAND_AND_ENV_CHARACTERS_MAX = 6_000
"""Upper bound of the characters of `command` and `env` as JSON. ECS allows 8,192 characters of overrides as JSON; the
rest is for the variables that we add."""
SUSPEND_GRACE_S, SUSPEND_GRACE_S_MAX = 5, 110
"""Default and upper bound of the suspend grace, in seconds. The grace must fit into the container's `stopTimeout`, too.

Another job waits for the end of the grace, so the bound is short. ECS on EC2 would allow any time."""
RUNTIME_ENV_CHARACTERS_MAX = 16_000
"""Upper bound of the characters of a `runtime_env` as JSON."""
RESOURCE_MAX, RESOURCES_MAX = 1_000_000, 16
"""Upper bounds of the amount of a Ray resource and of the number of resources."""
ON_RAY_ONLY = ("entrypoint", "runtime_env", "entrypoint_resources")
"""Fields that only a job on Ray may have."""
ON_ECS_ONLY = ("task_definition", "container", "command")
"""Fields that only a job on ECS may have."""


class Backend(StrEnum):
    """The system that runs a job."""

    ECS = "ecs"
    RAY = "ray"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A training job: `nnodes` instances with `gpus_per_node` GPUs each, and a rank (ECS task) on every instance.

    Attributes:
        task_definition: ECS family or family:revision; "" on Ray. Host network mode is required and checked at
            submission.
        container: the container that decides by its exit code; "" until the task definition has been read.
        stop_timeout_s: seconds that ECS gives that container between SIGTERM and SIGKILL; None if it was not read.
        task_stop_timeout_s: the longest such time of all containers of the task; None if it was not read.
        command: the command of the ranks; an empty command leaves that of the task definition.
        env: environment variables of the ranks.
        max_runtime_s: time limit in seconds, None for no limit. Placement takes it as the job's expected run time.
        group: the instances the job may run on, by their attribute `gpu-recovery.group`; "" for those without a group.
        suspend_grace_s: seconds that rank 0 has after the suspension notice to save its state and leave.
        checkpoint_dir: the directory of the ranks' checkpoints, as the ranks see it; "" if not stated.
        entrypoint: on Ray, the shell command of the driver.
        entrypoint_resources: on Ray, the resources that the driver itself takes.
        image: the container image. On ECS it must be that of the task definition's container. On Ray, driver and
            workers run in it.
        runtime_env: Ray's description of the driver's environment, as JSON text; "" for none.
    """

    workload: str
    nnodes: int
    gpus_per_node: int
    task_definition: str = ""
    container: str = ""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    attempts_max: int | None = None
    max_runtime_s: int | None = None
    priority: Priority = Priority.NORMAL
    group: str = ""
    suspend_grace_s: int = SUSPEND_GRACE_S
    stop_timeout_s: int | None = None
    task_stop_timeout_s: int | None = None
    checkpoint_dir: str = ""
    backend: Backend = Backend.ECS
    entrypoint: str = ""
    runtime_env: str = ""
    entrypoint_resources: Mapping[str, int] = field(default_factory=dict)
    image: str = ""


def parse_spec(document: Any) -> JobSpec:
    """Return the specification of a decoded JSON `document`. A document of a template is expanded first.

    Raises:
        SpecInvalid: the first field that is wrong.
    """
    if not isinstance(document, Mapping):
        raise SpecInvalid("body", "must be a JSON object")
    document = _without_template(document)
    for key in document:
        if key not in _READERS:
            raise SpecInvalid(str(key) or '""', f"is not a field of a job; the fields are {', '.join(_READERS)}")
    values = {key: read(key, document.get(key)) for key, read in _READERS.items()}
    values["gpus_per_node"] = values.pop("n_gpus_per_node")
    spec = JobSpec(**values)
    _fits_its_backend(spec, document)
    if spec.checkpoint_dir and spec.env.get("CHECKPOINT_DIR", spec.checkpoint_dir) != spec.checkpoint_dir:
        raise SpecInvalid("env.CHECKPOINT_DIR", "must be left out, or be what checkpoint_dir says")
    pairs = [{"name": name, "value": value} for name, value in spec.env.items()]
    size = len(json.dumps([*spec.command, *pairs, spec.checkpoint_dir]))
    if size > COMMAND_AND_ENV_CHARACTERS_MAX:
        raise SpecInvalid(
            "env", f"command and env together may have {COMMAND_AND_ENV_CHARACTERS_MAX} characters, not {size}"
        )
    return spec


def _without_template(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document that a template makes of `document`; `document` itself if it names no template."""
    template = document.get("template")
    if template is None:
        for key in verl_template.FIELDS:
            if document.get(key) is not None:
                raise SpecInvalid(key, "is a field of the template of verl: add the line template: verl")
        return {key: value for key, value in document.items() if key not in (*verl_template.FIELDS, "template")}
    if template != verl_template.VERL:
        raise SpecInvalid("template", f"is not known; there is {verl_template.VERL}")
    for key in document:
        if key not in (*_READERS, *verl_template.FIELDS, "template"):
            known = ", ".join((*verl_template.FIELDS, *_READERS))
            detail = (
                f"is not a field of the template verl; write an option of verl into overrides. The fields are {known}"
            )
            raise SpecInvalid(str(key) or '""', detail)
    job = verl_template.job_document(document)
    if len(job["entrypoint"]) > COMMAND_AND_ENV_CHARACTERS_MAX:
        raise SpecInvalid("overrides", f"make a command of more than {COMMAND_AND_ENV_CHARACTERS_MAX} characters")
    return job


def _fits_its_backend(spec: JobSpec, document: Mapping[str, Any]) -> None:
    """Raise SpecInvalid if a field that the backend needs is missing, or if a field belongs to the other backend."""
    needed, foreign = ("task_definition", ON_RAY_ONLY) if spec.backend is Backend.ECS else ("entrypoint", ON_ECS_ONLY)
    if not getattr(spec, needed):
        raise SpecInvalid(needed, f"is needed by a job on {spec.backend}")
    for key in foreign:
        if document.get(key) is not None:
            raise SpecInvalid(key, f"is not for a job on {spec.backend}")
    others = sorted(set(json.loads(spec.runtime_env or "{}")) - BESIDE_AN_IMAGE) if spec.image else []
    if others:
        raise SpecInvalid(
            "image", f"goes with env_vars and config in runtime_env, not with {', '.join(others)}: by Ray"
        )


def _text(pattern: re.Pattern[str], what: str, *, optional: bool = False) -> Any:
    def read(key: str, value: Any) -> str:
        if value is None and optional:
            return ""
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise SpecInvalid(key, f"must be {what}")
        return value

    return read


def _whole(least: int, most: int, *, optional: bool = False, default: int | None = None) -> Any:
    def read(key: str, value: Any) -> int | None:
        if value is None and (optional or default is not None):
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise SpecInvalid(key, f"must be a whole number from {least} to {most}")
        return value

    return read


def _optional_text(key: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > 255 or not value.isprintable():
        raise SpecInvalid(key, "must be a line of at most 255 characters")
    return value


def _command(key: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise SpecInvalid(key, "must be a list of texts")
    _refuse_nul(key, *value)
    return tuple(value)


def _refuse_nul(key: str, *texts: str) -> None:
    """Raise SpecInvalid if a text has a NUL character. No argument and no variable of a process can have one."""
    if any("\0" in text for text in texts):
        raise SpecInvalid(key, "must have no NUL character")


def _env(key: str, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise SpecInvalid(key, "must be an object whose values are texts")
    for name, text in value.items():
        if not VARIABLE.fullmatch(name):
            detail = f"must name variables with letters, digits and _, the first no digit, not {name[:40]!r}"
            raise SpecInvalid(key, detail)
        if name in RESERVED_VARIABLES:
            raise SpecInvalid(f"{key}.{name}", "is set by gpu-recovery on every rank and cannot be given")
        if name.startswith(RESERVED_PREFIXES) and name not in VARIABLES_OF_PROGRAMS:
            detail = f"cannot be given: the prefixes {', '.join(RESERVED_PREFIXES)} belong to gpu-recovery and to ECS"
            raise SpecInvalid(f"{key}.{name}", detail)
        _refuse_nul(f"{key}.{name}", text)
    return dict(value)


def _priority(key: str, value: Any) -> Priority:
    """Read a priority by name or by number: clients send both."""
    if value is None:
        return Priority.NORMAL
    if isinstance(value, str) and value in Priority.__members__:
        return Priority[value]
    if isinstance(value, int) and not isinstance(value, bool) and value in tuple(Priority):
        return Priority(value)
    raise SpecInvalid(
        key, f"must be one of {', '.join(f'{priority.name} ({priority.value})' for priority in Priority)}"
    )


def _backend(key: str, value: Any) -> Backend:
    if value is None:
        return Backend.ECS
    if value not in tuple(Backend):
        raise SpecInvalid(key, f"must be one of {', '.join(Backend)}")
    return Backend(value)


def _folder(key: str, value: Any) -> str:
    path = _optional_text(key, value)
    if path and not path.startswith("/"):
        raise SpecInvalid(key, "must be an absolute path, as the ranks see it")
    return path


def _entrypoint(key: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not 1 <= len(value) <= COMMAND_AND_ENV_CHARACTERS_MAX:
        raise SpecInvalid(key, f"must be a shell command of 1 to {COMMAND_AND_ENV_CHARACTERS_MAX} characters")
    _refuse_nul(key, value)
    return value


def _runtime_env(key: str, value: Any) -> str:
    """Read a `runtime_env` and return it as JSON text. Only Ray interprets its content, except the variables."""
    if value is None:
        return ""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise SpecInvalid(key, "must be an object, as Ray describes it")
    _env(f"{key}.env_vars", value.get("env_vars"))
    text = json.dumps(value)
    if len(text) > RUNTIME_ENV_CHARACTERS_MAX:
        raise SpecInvalid(key, f"must have at most {RUNTIME_ENV_CHARACTERS_MAX} characters as JSON")
    return text


def _resources(key: str, value: Any) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) > RESOURCES_MAX:
        raise SpecInvalid(key, f"must be an object of at most {RESOURCES_MAX} resources")
    if not all(
        isinstance(name, str)
        and len(name) <= 64
        and name.isprintable()
        and isinstance(n, int)
        and not isinstance(n, bool)
        and 0 < n <= RESOURCE_MAX
        for name, n in value.items()
    ):
        raise SpecInvalid(key, f"must be an object whose values are whole numbers from 1 to {RESOURCE_MAX}")
    return dict(value)


_READERS: dict[str, Any] = {
    "workload": _text(NAME, "lower-case letters, digits and dashes, at most 40, beginning with a letter"),
    "nnodes": _whole(1, NNODES_MAX),
    "n_gpus_per_node": _whole(1, 16),
    "task_definition": _text(FAMILY, "an ECS task definition: family or family:revision", optional=True),
    "container": _optional_text,
    "command": _command,
    "env": _env,
    "user": _optional_text,
    "attempts_max": _whole(1, 20, optional=True),
    "max_runtime_s": _whole(60, 90 * 86_400, optional=True),
    "priority": _priority,
    "group": _text(GROUP, "letters, digits, dots, dashes and underscores, at most 63", optional=True),
    "suspend_grace_s": _whole(1, SUSPEND_GRACE_S_MAX, default=SUSPEND_GRACE_S),
    "checkpoint_dir": _folder,
    "backend": _backend,
    "entrypoint": _entrypoint,
    "runtime_env": _runtime_env,
    "entrypoint_resources": _resources,
    "image": _text(IMAGE, "a container image: registry/repository:tag or @digest", optional=True),
}
