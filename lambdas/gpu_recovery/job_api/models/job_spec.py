"""Model of the specification of a job. The rules between its fields are in `job_api/job_spec.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, PrivateAttr, model_validator

from gpu_recovery.core.job import verl_template
from gpu_recovery.core.job.spec import (
    CHECKPOINT_EVERY_S_MAX,
    COMMAND_AND_ENV_CHARACTERS_MAX,
    CONTRACT_MINUTES_MAX,
    FAMILY,
    GROUP,
    IMAGE,
    JOB_NAME,
    NAME,
    NNODES_MAX,
    RESERVED_PREFIXES,
    RESERVED_VARIABLES,
    RESOURCE_MAX,
    RESOURCE_NAME_CHARACTERS_MAX,
    RESOURCES_MAX,
    SUSPEND_GRACE_S,
    SUSPEND_GRACE_S_MAX,
    VARIABLE,
    VARIABLES_OF_PROGRAMS,
    WARM_SPARES_MAX,
    Backend,
)
from gpu_recovery.core.policy import Preflight
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.job_api.models.rules import Checked, Choice, Line, Matching, Name, Read, RequestModel, Whole, refusal

_NO_NUL = "must have no NUL character"
_PRIORITIES = [priority.name for priority in Priority]


def _variable_name(name: str) -> str:
    if name in RESERVED_VARIABLES:
        raise refusal("is set by gpu-recovery on every rank and cannot be given")
    if name.startswith(RESERVED_PREFIXES) and name not in VARIABLES_OF_PROGRAMS:
        raise refusal(f"cannot be given: the prefixes {', '.join(RESERVED_PREFIXES)} belong to gpu-recovery and to ECS")
    return name


def _variable_value(value: Any) -> str:
    if not isinstance(value, str):
        quoted = f"; write {json.dumps(json.dumps(value))}" if isinstance(value, int | float) else ""
        raise refusal(f"must be a text{quoted}")
    return _without_nul(value)


def _without_nul(text: str) -> str:
    """Return a text of a process. No argument and no variable of a process can have a NUL character."""
    if "\0" in text:
        raise refusal(_NO_NUL)
    return text


def _command(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise refusal("must be a list of texts")
    return tuple(_without_nul(word) for word in value)


def _entrypoint(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= COMMAND_AND_ENV_CHARACTERS_MAX:
        raise refusal(f"must be a shell command of 1 to {COMMAND_AND_ENV_CHARACTERS_MAX} characters")
    return _without_nul(value)


def _priority(value: Any) -> Priority:
    """Read a priority by its name in any case, or by its number: clients send both."""
    if isinstance(value, str) and value.upper() in Priority.__members__:
        return Priority[value.upper()]
    if isinstance(value, int) and not isinstance(value, bool) and value in tuple(Priority):
        return Priority(value)
    raise refusal(f"must be one of {', '.join(f'{priority.name} ({priority.value})' for priority in Priority)}")


def _absolute(path: str) -> str:
    if path and not path.startswith("/"):
        raise refusal("must be an absolute path, as the ranks see it")
    return path


def _resources(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping) or len(value) > RESOURCES_MAX:
        raise refusal(f"must be an object of at most {RESOURCES_MAX} resources")
    if not all(
        len(name) <= RESOURCE_NAME_CHARACTERS_MAX
        and name.isprintable()
        and type(number) is int
        and 0 < number <= RESOURCE_MAX
        for name, number in value.items()
    ):
        raise refusal(f"must be an object whose values are whole numbers from 1 to {RESOURCE_MAX}")
    return dict(value)


def _bounded(options: list[str]) -> list[str]:
    if len(options) > verl_template.OVERRIDES_MAX:
        raise refusal(f"must be a list of at most {verl_template.OVERRIDES_MAX} options of verl")
    return options


_Variables = dict[
    Annotated[
        str,
        Name(VARIABLE, "must name variables with letters, digits and _, the first no digit"),
        Checked(_variable_name),
    ],
    Annotated[str, Read(_variable_value, {"type": "string"})],
]
_Place = Annotated[str, Matching(verl_template.PLACE, "a path or a name of letters, digits and _.:/@+-, at most 255")]
_Override = Annotated[
    str, Matching(verl_template.OVERRIDE, "options of verl, each written key=value, or ~key to delete key")
]
_Count = Annotated[int, Whole(1, verl_template.NUMBER_MAX)]
_Frequency = Annotated[int, Whole(-1, verl_template.NUMBER_MAX)]


class RuntimeEnv(BaseModel):
    """Ray's description of the environment of a driver. Only Ray interprets the fields except for `env_vars`."""

    model_config = ConfigDict(extra="allow")
    env_vars: _Variables | None = None
    _given: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, value: Any, handler: ModelWrapValidatorHandler[RuntimeEnv]) -> RuntimeEnv:
        """Validate an object and keep it, because Ray gets its fields in the order in which the client sent them."""
        env = handler(value)
        env._given = value
        return env

    @property
    def given(self) -> Mapping[str, Any]:
        """Return the object as the client sent it."""
        return self._given


class NodeRange(NamedTuple):
    """The smallest and the largest number of instances of an elastic job."""

    least: int
    most: int


def _nodes(value: Any) -> int | NodeRange:
    """Read the number of instances: a whole number, or the object `{min, max}` of an elastic job."""
    if isinstance(value, Mapping):
        if set(value) != {"min", "max"}:
            raise refusal(f"must be {_NODES}, and with no other field")
        least, most = value["min"], value["max"]
        if not (_is_node_count(least) and _is_node_count(most)):
            raise refusal(f"must be a range with whole numbers from 1 to {NNODES_MAX} as min and max")
        if least >= most:
            raise refusal(f"must be a range whose min is smaller than its max, not {least} and {most}")
        return NodeRange(least, most)
    if not _is_node_count(value):
        raise refusal(f"must be {_NODES}")
    return int(value)


def _is_node_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= NNODES_MAX


_NODES = f"a whole number from 1 to {NNODES_MAX}, or an object with min and max"
_NODE_COUNT = {"type": "integer", "minimum": 1, "maximum": NNODES_MAX}


class JobSpec(RequestModel):
    """A training job: `nnodes` instances with `n_gpus_per_node` GPUs each, and a rank on every instance."""

    workload: Annotated[
        str, Matching(NAME, "lower-case letters, digits and dashes, at most 40, beginning with a letter")
    ]
    name: (
        Annotated[
            str,
            Matching(JOB_NAME, "letters, digits, dots, dashes and underscores, at most 63, first a letter or digit"),
        ]
        | None
    ) = None
    nnodes: Annotated[
        int | NodeRange,
        Read(
            _nodes,
            {
                "oneOf": [
                    _NODE_COUNT,
                    {
                        "type": "object",
                        "properties": {"min": _NODE_COUNT, "max": _NODE_COUNT},
                        "required": ["min", "max"],
                        "additionalProperties": False,
                    },
                ]
            },
        ),
    ]
    n_gpus_per_node: Annotated[int, Whole(1, 16)]
    task_definition: Annotated[str, Matching(FAMILY, "an ECS task definition: family or family:revision")] | None = None
    container: Annotated[str, Line(255)] | None = None
    command: Annotated[tuple[str, ...], Read(_command, {"type": "array", "items": {"type": "string"}})] | None = None
    env: _Variables | None = None
    user: Annotated[str, Line(255)] | None = None
    attempts_max: Annotated[int, Whole(1, 20)] | None = None
    max_runtime_s: Annotated[int, Whole(60, 90 * 86_400)] | None = None
    progress_timeout_s: Annotated[int, Whole(10, 86_400)] | None = None
    priority: (
        Annotated[
            Priority,
            Read(
                _priority,
                {
                    "oneOf": [
                        {"type": "string", "enum": _PRIORITIES},
                        {"type": "integer", "enum": [priority.value for priority in Priority]},
                    ]
                },
            ),
        ]
        | None
    ) = None
    group: Annotated[str, Matching(GROUP, "letters, digits, dots, dashes and underscores, at most 63")] | None = None
    suspend_grace_s: Annotated[int, Whole(1, SUSPEND_GRACE_S_MAX)] | None = SUSPEND_GRACE_S
    checkpoint_dir: Annotated[str, Line(255), Checked(_absolute)] | None = None
    backend: Annotated[str, Choice(Backend)] | None = None
    entrypoint: (
        Annotated[
            str,
            Read(_entrypoint, {"type": "string", "minLength": 1, "maxLength": COMMAND_AND_ENV_CHARACTERS_MAX}),
        ]
        | None
    ) = None
    runtime_env: RuntimeEnv | None = None
    entrypoint_resources: (
        Annotated[
            dict[str, int],
            Read(
                _resources,
                {
                    "type": "object",
                    "maxProperties": RESOURCES_MAX,
                    "additionalProperties": {"type": "integer", "minimum": 1, "maximum": RESOURCE_MAX},
                },
            ),
        ]
        | None
    ) = None
    restart_in_place: bool | None = None
    warm_spares: Annotated[int, Whole(0, WARM_SPARES_MAX)] | None = None
    preflight: Annotated[str, Choice(Preflight)] | None = None
    max_down_minutes: Annotated[int, Whole(1, CONTRACT_MINUTES_MAX)] | None = None
    max_lost_minutes: Annotated[int, Whole(1, CONTRACT_MINUTES_MAX)] | None = None
    checkpoint_every_s: Annotated[int, Whole(1, CHECKPOINT_EVERY_S_MAX)] | None = None
    reports_progress: bool | None = None
    image: Annotated[str, Matching(IMAGE, "a container image: registry/repository:tag or @digest")] | None = None
    template: (
        Annotated[str, Choice([verl_template.VERL], f"is unknown; the only template is {verl_template.VERL}")] | None
    ) = None
    code_path: _Place | None = None
    model_id: _Place | None = None
    train_file: _Place | None = None
    val_file: _Place | None = None
    total_epochs: _Count | None = None
    total_training_steps: _Count | None = None
    save_freq: _Frequency | None = None
    test_freq: _Frequency | None = None
    overrides: Annotated[list[_Override], Checked(_bounded)] | None = None
