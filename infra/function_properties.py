"""Properties of every Lambda function: name, role, size, environment, log."""

from collections.abc import Iterable, Mapping
from typing import TypedDict

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs_
from constructs import Construct

from infra.log_groups import log_group
from infra.partition import Feature, where_available
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


def function_name(settings: DeploymentSettings, name: str) -> str:
    """Return the name of the function in the account. `name` is its name in this repository."""
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
    """Create the log group and the role of a function, and return the properties of the function.

    Args:
        scope: the construct to which the log group and the role belong.
        settings: the settings of the deployment.
        name: name of the function in this repository.
        permissions: the permissions of the role.
        reach: the ARNs that the permissions apply to.
        timeout_s: timeout of the function, in seconds.
        memory_mib: memory of the function, in MiB.
        environment: environment variables of the function.
    """
    logs = log_group(scope, "Logs", settings)
    role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    logs.grant_write(role)
    for permission in sorted(permissions):
        for statement in statements(permission, reach):
            role.add_to_policy(
                iam.PolicyStatement(
                    actions=statement.actions, resources=statement.resources, conditions=statement.conditions or None
                )
            )
    return {
        "function_name": function_name(settings, name),
        "role": role,
        "architecture": lambda_.Architecture.ARM_64,
        "timeout": Duration.seconds(timeout_s),
        "memory_size": memory_mib,
        "environment": dict(environment),
        "log_group": logs,
    }


def resource_of(function: lambda_.Function) -> lambda_.CfnFunction:
    """Return the resource of a function, for properties that depend on the region."""
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    return resource


def log_as_json(function: lambda_.Function, settings: DeploymentSettings, *, system_level: str = "") -> None:
    """Let Lambda write its own lines as JSON and filter lines by their level, where it can.

    In GovCloud Lambda has only the format Text. There it stores every line as it is written. The functions need no
    help of Lambda: their logger writes JSON itself and obeys `POWERTOOLS_LOG_LEVEL`, and lines with metrics are JSON.

    Lambda counts a line without a level as INFO, and the lines with metrics have none. A stricter filter would drop all
    metrics, and alarms would stay silent. Lines below WARNING and ERROR are left out by the logger of the functions.

    Args:
        function: the function, which has its log group already.
        settings: gives the log level.
        system_level: lowest level of Lambda's own lines that are stored. Empty: Lambda's default.
    """
    level = "DEBUG" if settings.log_level == "DEBUG" else "INFO"
    properties = {"LogFormat": "JSON", "ApplicationLogLevel": level, "SystemLogLevel": system_level}
    resource = resource_of(function)
    for name, value in properties.items():
        if value:
            resource.add_property_override(f"LoggingConfig.{name}", where_available(function, Feature.JSON_LOGS, value))


def allow_loops(function: lambda_.Function) -> None:
    """Let a function wake itself by its own queue: Lambda would stop it after about 16 invocations in a row.

    The code ends each chain itself (`HOPS_MAX`), so nothing is lost where Lambda has neither the detection nor the
    property.
    """
    allowed = where_available(function, Feature.LOOP_DETECTION, "Allow")
    resource_of(function).add_property_override("RecursiveLoop", allowed)


def start_from_snapshot(function: lambda_.Function) -> None:
    """Let the published versions of a function start from a snapshot, where Lambda can."""
    snapshot = where_available(function, Feature.SNAP_START, {"ApplyOn": "PublishedVersions"})
    resource_of(function).add_property_override("SnapStart", snapshot)
