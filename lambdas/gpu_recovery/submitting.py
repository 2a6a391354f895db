"""Taking a job in: its specification checked, its task definition looked up, its record made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from . import wire
from .core.errors import SpecInvalid
from .core.job import machine as job
from .core.job.record import Job
from .core.job.spec import JobSpec, parse_spec
from .recovery import Recovery

NAMES_TRIED = 5
ACTIVE = "ACTIVE"
"""ECS still describes a revision that was deregistered, but runs no task of it."""


def submit(
    recovery: Recovery, document: Any, submitted: str, prefix: str, describe: Callable[[str], Mapping[str, Any] | None],
    random: Callable[[], str],
) -> Job:  # fmt: skip
    """The new job of a decoded `document`, whose text was `submitted`; SpecInvalid if it cannot be accepted.

    describe: an ECS task definition by its name, None if there is none.
    random:   four hexadecimal digits.
    """
    spec = parse_spec(document)
    spec = with_container(spec, describe(spec.task_definition))
    for _ in range(NAMES_TRIED):
        now = recovery.clock()
        decision = job.created(wire.job_id(spec.workload, prefix, now, random()), spec, recovery.policy, now)
        if recovery.create_job(decision, submitted):
            return decision.record
    raise SpecInvalid("workload", "every name tried for this job is taken; submit it again")


def with_container(spec: JobSpec, definition: Mapping[str, Any] | None) -> JobSpec:
    """`spec` with its container, once the task definition is known to suit a gang. SpecInvalid says what does not."""
    if definition is None or definition.get("status", ACTIVE) != ACTIVE:
        raise SpecInvalid("task_definition", f"ECS knows no active task definition {spec.task_definition}")
    if definition.get("networkMode") != "host":
        raise SpecInvalid("task_definition", "its network mode must be host: ranks find each other by instance address")
    containers = [one["name"] for one in definition["containerDefinitions"] if one.get("essential", True)]
    if not spec.container:
        return replace(spec, container=containers[0])
    if spec.container not in containers:
        raise SpecInvalid("container", f"the essential containers of the task definition are {', '.join(containers)}")
    return spec
