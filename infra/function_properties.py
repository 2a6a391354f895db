"""The properties that every Lambda function has: name, role, log group, size, environment, JSON logs."""

from collections.abc import Iterable, Mapping
from typing import TypedDict

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs_
from constructs import Construct

from infra.log_groups import log_group
from infra.permissions import Permission, Reach, statements
from infra.settings import DeploymentSettings


class FunctionProperties(TypedDict):
    """Parameters that `lambda_.Function` and `lambda_.DockerImageFunction` have in common."""

    function_name: str
    role: iam.Role
    architecture: lambda_.Architecture
    timeout: Duration
    memory_size: int
    environment: Mapping[str, str]
    log_group: logs_.LogGroup
    logging_format: lambda_.LoggingFormat


def function_name(settings: DeploymentSettings, name: str) -> str:
    """The function's name in the account; `name` is its name in this repository."""
    return f"{settings.function_name_prefix}{name}"


def function_properties(
    scope: Construct,
    settings: DeploymentSettings,
    *,
    name: str,
    permissions: Iterable[Permission],
    reach: Reach,
    timeout_s: int,
    memory_mib: int,
    environment: Mapping[str, str],
) -> FunctionProperties:
    """The common properties of the function `name`. Its log group and its role are made in `scope`.

    Args:
        permissions: what the role allows; `reach` has the ARNs that they speak of.
        environment: the function's variables.
    """
    logs = log_group(scope, "Logs", settings)
    role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    logs.grant_write(role)
    for permission in sorted(permissions):
        for statement in statements(permission, reach):
            role.add_to_policy(statement)
    return {
        "function_name": function_name(settings, name),
        "role": role,
        "architecture": lambda_.Architecture.ARM_64,
        "timeout": Duration.seconds(timeout_s),
        "memory_size": memory_mib,
        "environment": dict(environment),
        "log_group": logs,
        "logging_format": lambda_.LoggingFormat.JSON,
    }
