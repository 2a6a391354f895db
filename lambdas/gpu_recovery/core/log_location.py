"""Log location of a container: the CloudWatch Logs stream that the awslogs driver writes to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.core.lazy_dataclass import frozen_dataclass


@frozen_dataclass()
class LogPlace:
    """A stream of CloudWatch Logs. `region` is "" if the task definition names none."""

    group: str
    stream: str
    region: str


@frozen_dataclass()
class LogPage:
    """A page of a log: lines as (time, text), and the position of the next page (None at the end of the log).

    A time is None if the log has no times: Ray keeps the lines of drivers without their times.
    """

    lines: tuple[tuple[datetime | None, str], ...]
    next_place: str | None


def place_of(definition: Mapping[str, Any], container: str, task_id: str) -> LogPlace | str:
    """Return the log stream of `container` of a task, or a sentence that says why there is none to read.

    Args:
        definition: the task definition as ECS describes it.
        container: name of the container.
        task_id: id of the ECS task.
    """
    options: Mapping[str, Any] = {}
    for container_definition in definition.get("containerDefinitions", []):
        logging = container_definition.get("logConfiguration") or {}
        if container_definition["name"] == container and logging.get("logDriver") == "awslogs":
            options = logging.get("options") or {}
    group, prefix = options.get("awslogs-group"), options.get("awslogs-stream-prefix")
    if not group or not prefix:
        return f"container {container} does not log by awslogs to a named group and prefix"
    return LogPlace(str(group), f"{prefix}/{container}/{task_id}", str(options.get("awslogs-region", "")))
