"""A permission that the deployment lacks: what AWS denied at a launch, and what an operator does about it."""

from __future__ import annotations

from gpu_recovery.core.identifiers import family_of
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

PASS_ROLE, RUN_TASK = "iam:PassRole", "ecs:RunTask"
EVERYWHERE = ""
"""Scope of a permission without which no task definition can be launched."""


_RESTORE = (
    "Compare the roles of the functions with docs/permissions.md (drift detection of CloudFormation shows what "
    "differs), and restore the statement that is missing."
)


@frozen_dataclass()
class MissingPermission:
    """A permission that AWS denied to the deployment when a job was launched. No job is at fault.

    action:     the denied IAM action.
    resource:   ARN of the role or task definition that AWS named; "" if it named none.
    everywhere: whether no task definition can be launched. Otherwise only that of the refused job is affected.
    forbidden:  whether a policy denies the action, or a policy that limits the role does not allow the action. Then a
                further permission of the role does not help.
    """

    action: str
    resource: str = ""
    everywhere: bool = False
    forbidden: bool = False

    @property
    def name(self) -> str:
        """The action and its resource. Operators are notified once for each name."""
        return f"{self.action} on {self.resource}" if self.resource else self.action

    def scope(self, task_definition: str) -> str:
        """Return which launches need the permission: those of the denied job's task definition, or EVERYWHERE."""
        return EVERYWHERE if self.everywhere else task_definition

    @property
    def remedy(self) -> str:
        """What an operator does."""
        if self.forbidden:
            return (
                f"Find the policy that denies or does not allow {self.action} (of the account, of the organization, or "
                "a permissions boundary), and allow the action there."
            )
        if self.action == PASS_ROLE:
            role = self.resource or "every task role and execution role of the task definition"
            return _added(role, "training_role_arns")
        if self.action == RUN_TASK and self.resource:
            return _added(family_of(self.resource), "training_task_families")
        return _RESTORE

    @property
    def remedy_for_checks(self) -> str:
        """What an operator does if the permission was denied to a health check. No setting grants that permission."""
        return self.remedy if self.forbidden else _RESTORE

    @property
    def setting(self) -> str:
        """The deployment setting that grants the permission; "" if none does."""
        if self.forbidden:
            return ""
        granted_by = {PASS_ROLE: "training_role_arns", RUN_TASK: "training_task_families" if self.resource else ""}
        return granted_by.get(self.action, "")


def _added(value: str, setting: str) -> str:
    return (
        f"Add {value} to the list {setting} in the settings file of the deployment, and run make deploy NAME=<name>. "
        f'Without a settings file, add it to "gpu-recovery:{setting}" in cdk.json, and deploy again with every -c '
        "option of the last deployment."
    )
