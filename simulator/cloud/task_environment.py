"""Environment variables of a task, from its overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.cluster.model.records import Task

_READ: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {}
_READ_MAX = 50_000
"""Upper bound of the environments in `_READ`, which are keyed by task id.

Each entry has the overrides that it was read from, because two worlds may have tasks with the same id.
"""


def environment(task: Task) -> Mapping[str, str]:
    """Return the environment variables in the container overrides of the task. Overrides never change: read once."""
    read = _READ.get(task.task_id)
    if read is not None and read[0] is task.overrides:
        return read[1]
    container_overrides = task.overrides.get("containerOverrides", [])
    variables = {
        variable["name"]: variable["value"]
        for container in container_overrides
        for variable in container.get("environment", [])
    }
    if len(_READ) >= _READ_MAX:
        _READ.clear()
    _READ[task.task_id] = task.overrides, variables
    return variables
