"""Check of a submitted job's task definition: it suits a gang, and the deployment may launch it and read its logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.job.stop_timeout import DEFAULT_S, longest_stop_timeout_s, too_long
from gpu_recovery.core.job.timeout_order import refused, timeout_problems, timeouts_in
from gpu_recovery.core.job.timeout_variables import SET_AT_LAUNCH
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.log_location import place_of
from gpu_recovery.core.policy import RecoveryPolicy

ACTIVE = "ACTIVE"
"""Status of a usable task definition. ECS also describes a deregistered revision, but runs no new task of it."""
_ROLES = {"taskRoleArn": "task role", "executionRoleArn": "execution role"}


@frozen_dataclass()
class TaskDefinitionRules:
    """What the settings of the deployment demand of the task definition of a job.

    families:   ECS families that may be launched.
    roles:      ARNs of the roles that the deployment may pass to tasks.
    log_groups: log groups that the deployment may read. Empty: it reads no logs, and a job may log anywhere.
    """

    families: Collection[str]
    roles: Collection[str] = ()
    log_groups: Collection[str] = ()

    def check_family(self, spec: JobSpec) -> None:
        """Check the family without a call of ECS, so the answer does not say whether another family exists.

        Raises:
            SpecInvalid: the family may not be launched.
        """
        if spec.task_definition.partition(":")[0] not in self.families:
            raise SpecInvalid(
                "task_definition",
                "must be of a family in the setting training_task_families of this deployment: "
                f"{_listed(self.families)}",
            )

    def check(self, spec: JobSpec, definition: Mapping[str, Any]) -> None:
        """Check the roles and the log of the job's container, which `spec` names.

        Raises:
            SpecInvalid: ECS would refuse the launch, or the deployment could not read the log.
        """
        for key, name in _ROLES.items():
            role = str(definition.get(key) or "")
            if role and not self._may_pass(role):
                raise SpecInvalid(
                    "task_definition",
                    f"its {name} {role} is not in the setting training_role_arns of this deployment, "
                    f"so ECS would refuse the launch: {_listed(self.roles)}",
                )
        place = place_of(definition, spec.container, "") if self.log_groups else None
        if isinstance(place, str):
            raise SpecInvalid(
                "task_definition",
                f"{place}, and this deployment reads the logs of jobs "
                f"(setting training_log_groups: {_listed(self.log_groups)})",
            )
        if place is not None and place.group not in self.log_groups:
            raise SpecInvalid(
                "task_definition",
                f"container {spec.container} logs to {place.group}, which is not in the setting training_log_groups "
                f"of this deployment: {_listed(self.log_groups)}",
            )

    def _may_pass(self, role: str) -> bool:
        """Return whether the role may be passed. A task definition may name a role of the account without its ARN."""
        return role in self.roles or (":" not in role and role in {arn.rpartition("/")[2] for arn in self.roles})


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def with_container(spec: JobSpec, definition: Mapping[str, Any] | None, policy: RecoveryPolicy) -> JobSpec:
    """Return `spec` with its container and stop timeout, after the checks that the task definition suits a gang.

    Args:
        spec: the specification. Without a container it gets the first essential container.
        definition: the task definition as ECS describes it; None if there is none.
        policy: gives the longest `stopTimeout`.

    Raises:
        SpecInvalid: the task definition is not active, or its network mode, container, stop timeout or image does not
            suit the job; or timeouts do not fit each other, and the policy refuses such jobs.
    """
    if definition is None or definition.get("status", ACTIVE) != ACTIVE:
        raise SpecInvalid("task_definition", f"ECS has no active task definition {spec.task_definition}")
    if definition.get("networkMode") != "host":
        raise SpecInvalid(
            "task_definition", "its network mode must be host: ranks connect to the address of the instance"
        )
    if longest := too_long(definition, policy):
        raise SpecInvalid("task_definition", longest)
    containers = [container for container in definition["containerDefinitions"] if container.get("essential", True)]
    names = [container["name"] for container in containers]
    if spec.container and spec.container not in names:
        raise SpecInvalid("container", f"the essential containers of the task definition are {', '.join(names)}")
    chosen = next(container for container in containers if spec.container in ("", container["name"]))
    stops_within = chosen.get("stopTimeout", DEFAULT_S)
    if spec.suspend_grace_s > stops_within:
        detail = f"must be at most {stops_within}: the stopTimeout of container {chosen['name']} ends it after that"
        raise SpecInvalid("suspend_grace_s", detail)
    spec = _with_image(spec, definition, str(chosen.get("image", "")))
    spec = replace(
        spec,
        container=chosen["name"],
        stop_timeout_s=int(stops_within),
        task_stop_timeout_s=longest_stop_timeout_s(definition),
        timeouts={name: value for name, value in timeouts_in(chosen, spec).items() if name not in SET_AT_LAUNCH},
    )
    if (problem := refused(timeout_problems(spec, policy), policy)) is not None:
        raise SpecInvalid(problem.field, problem.sentence)
    return spec


def _with_image(spec: JobSpec, definition: Mapping[str, Any], image: str) -> JobSpec:
    """Return `spec` with the revision of its task definition fixed, if the specification names an image.

    A later revision may have another image. A specification without an image is returned as it is.

    Args:
        spec: the specification.
        definition: the task definition as ECS describes it.
        image: image of the job's container in this task definition.

    Raises:
        SpecInvalid: the specification names another image.
    """
    if not spec.image:
        return spec
    family, revision = definition.get("family", spec.task_definition.partition(":")[0]), definition.get("revision")
    if spec.image != image:
        present = f"{family}:{revision}" if revision else family
        detail = f"is {image} in {present}: register a revision of {family} with this image, and submit again"
        raise SpecInvalid("image", detail)
    return replace(spec, task_definition=f"{family}:{revision}") if revision else spec
