"""IAM principals: who signed a request that API Gateway authorized, and which role the deployment gives to whom.

API Gateway names the signer in `requestContext.authorizer.iam.userArn`. A role's session has an ARN of STS without the
path of the role. So principals are compared without paths: names of roles and of users are unique in an account.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

_NAME = r"[\w+=,.@-]{1,64}"
_PRINCIPAL = re.compile(
    rf"arn:(?P<partition>aws[a-z-]*):iam::(?P<account>\d{{12}}):(?P<kind>role|user)/(?:[^/\s]+/)*(?P<name>{_NAME})",
    re.ASCII,
)
_SESSION = re.compile(
    rf"arn:(?P<partition>aws[a-z-]*):sts::(?P<account>\d{{12}}):assumed-role/(?P<role>{_NAME})/(?P<session>{_NAME})",
    re.ASCII,
)


@frozen_dataclass()
class Signer:
    """Who signed a request.

    principal: ARN of the role or the IAM user, without its path.
    name:      name of the role's session, or of the IAM user.
    """

    principal: str
    name: str


def user_arn(event: Mapping[str, Any]) -> str:
    """Return the ARN of the principal that API Gateway authorized by its signature; "" if there is none.

    Only API Gateway writes the context of a request. A client cannot set the context by a header.
    """
    authorizer = event["requestContext"].get("authorizer") or {}
    return (authorizer.get("iam") or {}).get("userArn") or ""


def signer_of(arn: str) -> Signer | None:
    """Return the signer that `userArn` names; None for other principals, such as a federated user."""
    if session := _SESSION.fullmatch(arn):
        return Signer(_arn(session["partition"], session["account"], "role", session["role"]), session["session"])
    user = _PRINCIPAL.fullmatch(arn)
    if user is None or user["kind"] != "user":
        return None
    return Signer(_arn(user["partition"], user["account"], "user", user["name"]), user["name"])


def without_path(arn: str) -> str | None:
    """Return the ARN of a role or of an IAM user without its path; None if `arn` is another ARN, or none."""
    match = _PRINCIPAL.fullmatch(arn)
    return None if match is None else _arn(*match.group("partition", "account", "kind", "name"))


def roles_by_principal(document: Mapping[str, object]) -> dict[str, Role]:
    """Return the role of each principal, by its ARN without its path.

    Args:
        document: role (`viewer`, `user` or `operator`) by the exact ARN of an IAM role or an IAM user.

    Raises:
        ValueError: an ARN or a role is malformed, or a principal is named twice.
    """
    roles: dict[str, Role] = {}
    for arn, role in document.items():
        principal = without_path(arn)
        if principal is None:
            raise ValueError(f"{arn!r} is not the ARN of an IAM role or an IAM user")
        if principal in roles:
            raise ValueError(f"{principal} is named twice: paths do not distinguish principals")
        if role not in tuple(Role):
            raise ValueError(f"the role of {arn} is {role!r}, none of {', '.join(Role)}")
        roles[principal] = Role(str(role))
    return roles


def _arn(partition: str, account: str, kind: str, name: str) -> str:
    return f"arn:{partition}:iam::{account}:{kind}/{name}"
