"""What a user asks for: the job specification, checked field by field before anything is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import SpecInvalid

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
FAMILY = re.compile(r"[A-Za-z0-9_-]{1,255}(:[0-9]+)?")
OUR_VARIABLES = frozenset({
    "JOB_ID", "ATTEMPT", "RANK", "WORLD_SIZE", "NODE_RANK", "NNODES", "GPUS_PER_NODE", "MASTER_IP", "MASTER_ADDR",
    "MASTER_PORT", "INSTANCE_ID", "RUNNING_LOG_ID", "EPOCH",
})  # fmt: skip
NNODES_MAX = 3_000
COMMAND_AND_ENV_CHARACTERS_MAX = 6_000
"""ECS allows 8,192 characters of overrides in all, as JSON; the rest is for the variables we add."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One training job: `nnodes` instances with `gpus_per_node` GPUs each, one rank (ECS task) on every instance.

    task_definition: ECS family or family:revision; host network mode is required and checked at submission.
    container:       the container whose exit decides; "" until the task definition has been looked up.
    command, env:    what the ranks run; an empty command keeps the task definition's own.
    max_runtime_s:   None for no limit.
    """

    workload: str
    nnodes: int
    gpus_per_node: int
    task_definition: str
    container: str = ""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    attempts_max: int | None = None
    max_runtime_s: int | None = None


def parse_spec(document: Any) -> JobSpec:
    """The specification of a decoded JSON `document`; SpecInvalid for the first field that is wrong."""
    if not isinstance(document, Mapping):
        raise SpecInvalid("body", "must be a JSON object")
    for key in document:
        if key not in _READERS:
            raise SpecInvalid(str(key), f"is not a field of a job; the fields are {', '.join(_READERS)}")
    values = {key: read(key, document.get(key)) for key, read in _READERS.items()}
    values["gpus_per_node"] = values.pop("n_gpus_per_node")
    spec = JobSpec(**values)
    pairs = [{"name": name, "value": value} for name, value in spec.env.items()]
    size = len(json.dumps([*spec.command, *pairs]))
    if size > COMMAND_AND_ENV_CHARACTERS_MAX:
        raise SpecInvalid(
            "env", f"command and env together may have {COMMAND_AND_ENV_CHARACTERS_MAX} characters, not {size}"
        )
    return spec


def _text(pattern: re.Pattern[str], what: str) -> Any:
    def read(key: str, value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise SpecInvalid(key, f"must be {what}")
        return value

    return read


def _whole(least: int, most: int, *, optional: bool = False) -> Any:
    def read(key: str, value: Any) -> int | None:
        if value is None and optional:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise SpecInvalid(key, f"must be a whole number from {least} to {most}")
        return value

    return read


def _optional_text(key: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > 255:
        raise SpecInvalid(key, "must be a text of at most 255 characters")
    return value


def _command(key: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise SpecInvalid(key, "must be a list of texts")
    return tuple(value)


def _env(key: str, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise SpecInvalid(key, "must be an object whose values are texts")
    for name in value:
        if name in OUR_VARIABLES:
            raise SpecInvalid(f"{key}.{name}", "is set by gpu-recovery on every rank and cannot be given")
    return dict(value)


_READERS: dict[str, Any] = {
    "workload": _text(NAME, "lower-case letters, digits and dashes, at most 40, beginning with a letter"),
    "nnodes": _whole(1, NNODES_MAX),
    "n_gpus_per_node": _whole(1, 16),
    "task_definition": _text(FAMILY, "an ECS task definition: family or family:revision"),
    "container": _optional_text,
    "command": _command,
    "env": _env,
    "user": _optional_text,
    "attempts_max": _whole(1, 20, optional=True),
    "max_runtime_s": _whole(60, 90 * 86_400, optional=True),
}
