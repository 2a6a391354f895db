"""Where ECS keeps what a container writes, as the awslogs driver names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A stream of CloudWatch Logs; `region` is "" where the task definition names none."""

    group: str
    stream: str
    region: str


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some lines of a log as (time, text), and where the next begin; None where nothing more will come.

    A time is None where nobody kept it: Ray keeps what drivers write, and not when.
    """

    lines: tuple[tuple[datetime | None, str], ...]
    next_place: str | None


def place_of(definition: Mapping[str, Any], container: str, task_id: str) -> LogPlace | str:
    """Where `container` of a task writes, or why that is nowhere we could look, in a sentence."""
    options: Mapping[str, Any] = {}
    for one in definition.get("containerDefinitions", []):
        logging = one.get("logConfiguration") or {}
        if one["name"] == container and logging.get("logDriver") == "awslogs":
            options = logging.get("options") or {}
    group, prefix = options.get("awslogs-group"), options.get("awslogs-stream-prefix")
    if not group or not prefix:
        return f"container {container} does not log by awslogs to a named group and prefix"
    return LogPlace(str(group), f"{prefix}/{container}/{task_id}", str(options.get("awslogs-region", "")))
