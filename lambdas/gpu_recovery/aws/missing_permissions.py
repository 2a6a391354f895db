"""Recognition of errors of RunTask that say which permission the deployment lacks."""

from __future__ import annotations

import re

from gpu_recovery.core.missing_permission import PASS_ROLE, RUN_TASK, MissingPermission

DENIED = ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation")
"""Error codes with which AWS denies a call for lack of a permission."""
ECS = "ecs-tasks.amazonaws.com"
"""The service that the trust policy of a task's role names, in every partition."""
_ACTION = re.compile(r"not authorized to perform: ?(?P<action>[a-z0-9-]+:\w+)")
_FORBIDDEN = re.compile(r"explicit deny|because no (?!identity-based |policy )")
"""The denial is not for lack of a policy of the function's role: another policy denies or does not allow the action.

AWS names the kind of that policy: service control policy, permissions boundary, session policy, resource-based policy.
"""
_RESOURCE = re.compile(r"on resource: ?(?P<resource>arn:[^\s,\"']+)")
_ROLE = re.compile(r"arn:[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]*[\w+=@/-]")
_UNPASSED_ROLE = ("iam:PassRole", "pass the role")
"""Texts of a ClientException about a role of the task definition that the deployment may not pass to ECS."""
_UNASSUMED_ROLE = "unable to assume the role"
"""Text of a ClientException about a role of the task definition with a trust policy that does not name ECS."""


def missing_permission(code: str, message: str) -> MissingPermission | None:
    """Return the permission that an error of RunTask says is missing; None if the error says something else.

    The message decides how many launches are affected. `iam:PassRole`, and `ecs:RunTask` on one task definition, affect
    that task definition, under any denying policy. `ecs:RunTask` without a task definition affects every launch.

    Args:
        code: the error code.
        message: the message of AWS.
    """
    forbidden = _FORBIDDEN.search(message) is not None
    if code == "ClientException" and any(text in message for text in _UNPASSED_ROLE):
        role = _ROLE.search(message)
        return MissingPermission(PASS_ROLE, role[0] if role else "", forbidden=forbidden)
    if code not in DENIED:
        return None
    named, on = _ACTION.search(message), _RESOURCE.search(message)
    action, resource = named["action"] if named else RUN_TASK, on["resource"] if on else ""
    everywhere = named is not None and action == RUN_TASK and ":task-definition/" not in resource
    return MissingPermission(action, resource, everywhere, forbidden)


def unassumed_role(code: str, message: str) -> str:
    """Return the sentence about a role of the task definition that ECS cannot assume; "" if the error is another.

    The owner of the role fixes its trust policy. No permission of the deployment is missing.
    """
    if code != "ClientException" or _UNASSUMED_ROLE not in message:
        return ""
    role = _ROLE.search(message)
    return (
        f"ECS cannot assume {role[0] if role else 'a role of the task definition'}: its trust policy must allow {ECS}"
    )
