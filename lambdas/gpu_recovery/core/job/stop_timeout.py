"""Stop timeouts: how long ECS and the product wait for the end of a rank after SIGTERM.

ECS on EC2 documents no maximum of a container's `stopTimeout` (API reference, ContainerDefinition; 120 s is the maximum
of Fargate). So a rank may save a large checkpoint for many minutes, and the policy bounds that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.policy import RecoveryPolicy

DEFAULT_S = 30
"""Seconds of a container's `stopTimeout` if neither the container nor the instance's ECS agent sets another value."""
MARGIN_S = 60
"""Seconds after the `stopTimeout` within which ECS reports the end of a task."""


def longest_stop_timeout_s(definition: Mapping[str, Any]) -> int:
    """Return the longest `stopTimeout` of the containers of a task definition. The task ends with its last container.

    Args:
        definition: the task definition as ECS describes it.
    """
    containers = definition.get("containerDefinitions", ())
    return max((int(container.get("stopTimeout", DEFAULT_S)) for container in containers), default=DEFAULT_S)


def too_long(definition: Mapping[str, Any], policy: RecoveryPolicy) -> str:
    """Return a sentence with both numbers if a `stopTimeout` is above the limit of the policy; "" if none is."""
    longest, most = longest_stop_timeout_s(definition), policy.container_stop_timeout_max_s
    if longest <= most:
        return ""
    return (
        f"its longest stopTimeout is {longest} s, and this deployment waits at most {most} s for the end of a "
        "container (policy container_stop_timeout_max_s)"
    )


def stop_step_s(spec: JobSpec, policy: RecoveryPolicy) -> int:
    """Return the seconds of each of the first two steps of STOPPING: the containers of the job may need all of them."""
    containers_s = min(spec.task_stop_timeout_s or 0, policy.container_stop_timeout_max_s)
    return max(policy.stop_timeout_s, containers_s + MARGIN_S)
