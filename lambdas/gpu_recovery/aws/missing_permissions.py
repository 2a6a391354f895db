"""Recognition of errors of RunTask that say which permission the deployment lacks."""

from __future__ import annotations

import re

from gpu_recovery.core.missing_permission import PASS_ROLE, RUN_TASK, MissingPermission

DENIED = ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation")
"""Error codes with which AWS denies a call for lack of a permission."""
_ACTION = re.compile(r"not authorized to perform: ?(?P<action>[a-z0-9-]+:\w+)")
_RESOURCE = re.compile(r"on resource: ?(?P<resource>arn:[^\s,\"']+)")
_ROLE = re.compile(r"arn:[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]*[\w+=@/-]")
_UNUSABLE_ROLE = ("iam:PassRole", "pass the role", "permissions to pass this role", "unable to assume the role")
"""Texts of a ClientException about a role of the task definition that ECS may not be given or cannot use."""


def missing_permission(code: str, message: str) -> MissingPermission | None:
    """Return the permission that an error of RunTask says is missing; None if the error says something else.

    The message decides how many launches are affected. `iam:PassRole`, and `ecs:RunTask` on one task definition, affect
    that task definition. `ecs:RunTask` without a task definition, or explicitly denied, affects every launch.

    Args:
        code: the error code.
        message: the message of AWS.
    """
    if code == "ClientException" and any(text in message for text in _UNUSABLE_ROLE):
        role = _ROLE.search(message)
        return MissingPermission(PASS_ROLE, role[0] if role else "", forbidden="explicit deny" in message)
    if code not in DENIED:
        return None
    named, on = _ACTION.search(message), _RESOURCE.search(message)
    action, resource = named["action"] if named else RUN_TASK, on["resource"] if on else ""
    forbidden = "explicit deny" in message
    everywhere = named is not None and action == RUN_TASK and (forbidden or ":task-definition/" not in resource)
    return MissingPermission(action, resource, everywhere, forbidden)
