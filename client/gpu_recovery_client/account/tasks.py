"""Checks of the training task definitions: network mode, log groups, roles, and the architecture of the images."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from gpu_recovery_client.account.access import Account, Described, Refused
from gpu_recovery_client.account.findings import Finding, Settings
from gpu_recovery_client.account.images import check_image
from gpu_recovery_client.account.instances import ARCHITECTURES, Fleet

TASK_SERVICE = "ecs-tasks.amazonaws.com"
"""The service that takes the roles of tasks."""
NO_ROLE = ("NoSuchEntity", "NoSuchEntityException")
NO_DEFINITION = ("ClientException",)


def roles_of(definition: Described) -> list[str]:
    """Return the ARNs of the roles that a task definition names."""
    return [definition[name] for name in ("executionRoleArn", "taskRoleArn") if definition.get(name)]


def log_groups_of(definition: Described) -> list[str]:
    """Return the log groups into which the containers of a task definition write with `awslogs`, without repetition."""
    options = [_logging(container)[1] for container in definition.get("containerDefinitions", ())]
    return list(dict.fromkeys(one["awslogs-group"] for one in options if one.get("awslogs-group")))


def needs_gpus(definition: Described) -> bool:
    """Return whether a container of a task definition requires GPUs."""
    return any(
        requirement.get("type") == "GPU"
        for container in definition.get("containerDefinitions", ())
        for requirement in container.get("resourceRequirements", ())
    )


def definitions(account: Account, families: Sequence[str]) -> dict[str, Described | None]:
    """Return the newest active task definition of each family; None for a family without any."""
    found: dict[str, Described | None] = {}
    for family in families:
        try:
            found[family] = account.call("ecs", "describe_task_definition", taskDefinition=family)["taskDefinition"]
        except Refused as error:
            if error.code not in NO_DEFINITION:
                raise
            found[family] = None
    return found


def check_tasks(account: Account, settings: Settings, fleet: Fleet) -> Iterator[Finding]:
    """Yield findings about the training task definitions."""
    for family, definition in definitions(account, settings["training_task_families"]).items():
        if definition is None:
            yield Finding(
                "tasks",
                family,
                "there is no active task definition of this family",
                "a job that names the family is refused at submission",
                f"aws ecs register-task-definition --family {family} --cli-input-json file://{family}.json",
            )
            continue
        yield from _network(family, definition)
        yield from _architecture(family, definition, fleet)
        yield from _logs(account, family, definition, settings)
        for container in definition.get("containerDefinitions", ()):
            where = f"{family}, container {container['name']}"
            yield from check_image(account, container["image"], fleet.architectures, "tasks", where)


def check_roles(account: Account, settings: Settings) -> Iterator[Finding]:
    """Yield findings about the roles of the training tasks: not passed, missing, or not trusted."""
    passed = settings["training_role_arns"]
    named: list[str] = []
    for family, definition in definitions(account, settings["training_task_families"]).items():
        for role in roles_of(definition or {}):
            named.append(role)
            if role not in passed:
                yield Finding(
                    "roles",
                    family,
                    f"the role {role} is not in training_role_arns",
                    "the stack may not pass the role (iam:PassRole), so the API refuses the jobs of this family",
                    settings.add("training_role_arns", role),
                )
    for role in dict.fromkeys((*passed, *named)):
        yield from _role(account, role)


def _network(family: str, definition: Described) -> Iterator[Finding]:
    mode = definition.get("networkMode")
    if mode != "host":
        yield Finding(
            "tasks",
            family,
            f"the network mode is {mode or 'bridge, the default'}, not host",
            "ranks find each other by the address of their instance, so the API refuses the jobs of this family",
            f'set "networkMode": "host" in the task definition, then aws ecs register-task-definition '
            f"--cli-input-json file://{family}.json",
        )


def _architecture(family: str, definition: Described, fleet: Fleet) -> Iterator[Finding]:
    wanted = (definition.get("runtimePlatform") or {}).get("cpuArchitecture")
    kind = ARCHITECTURES.get(str(wanted).lower())
    if kind and fleet.architectures and kind not in fleet.architectures:
        found = ", ".join(fleet.architectures)
        yield Finding(
            "tasks",
            family,
            f"the task definition is for {kind}, the GPU instances are {found}",
            "ECS places no task on an instance of another architecture",
            f"set runtimePlatform.cpuArchitecture to {found.upper()}, then aws ecs register-task-definition "
            f"--cli-input-json file://{family}.json",
        )


def _logs(account: Account, family: str, definition: Described, settings: Settings) -> Iterator[Finding]:
    allowed = settings["training_log_groups"]
    for container in definition.get("containerDefinitions", ()):
        driver, options = _logging(container)
        group = options.get("awslogs-group", "")
        if driver != "awslogs":
            if allowed:
                yield Finding(
                    "tasks",
                    family,
                    f"the container {container['name']} logs with {driver or 'no driver'}, not with awslogs",
                    "training_log_groups names log groups, so the API refuses jobs that log elsewhere",
                    f"log with awslogs to {allowed[0]}, or {settings.change('training_log_groups', '[]')}",
                )
            continue
        if allowed and group not in allowed:
            yield Finding(
                "tasks",
                family,
                f"the log group {group} is not in training_log_groups",
                "the API may not read the logs of the jobs, and refuses the jobs of this family",
                settings.add("training_log_groups", group),
            )
        if options.get("awslogs-create-group") != "true" and not _group_exists(account, group):
            yield Finding(
                "tasks",
                family,
                f"the log group {group} does not exist",
                "ECS does not start a task whose log group is missing",
                f"aws logs create-log-group --log-group-name {group}",
            )


def _group_exists(account: Account, name: str) -> bool:
    return any(
        group["logGroupName"] == name
        for group in account.items("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=name)
    )


def _logging(container: Described) -> tuple[str, Described]:
    configuration = container.get("logConfiguration") or {}
    return configuration.get("logDriver", ""), configuration.get("options", {})


def _role(account: Account, arn: str) -> Iterator[Finding]:
    name = arn.rsplit("/", 1)[-1]
    try:
        role = account.call("iam", "get_role", RoleName=name)["Role"]
    except Refused as error:
        if error.code not in NO_ROLE:
            raise
        yield Finding(
            "roles",
            arn,
            "there is no such role in this account",
            "ECS refuses to launch a task with a role that does not exist",
            f"aws iam list-roles --query \"Roles[?contains(RoleName, '{name[:8]}')].Arn\"",
        )
        return
    if not trusts(role.get("AssumeRolePolicyDocument"), TASK_SERVICE):
        policy = {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Principal": {"Service": TASK_SERVICE}, "Action": "sts:AssumeRole"},
            ],
        }
        yield Finding(
            "roles",
            arn,
            f"the role does not trust {TASK_SERVICE}",
            "ECS cannot take the role, so no task with it starts. The command replaces the present trust policy",
            f"aws iam update-assume-role-policy --role-name {name} --policy-document '{json.dumps(policy)}'",
        )


def trusts(document: Any, service: str) -> bool:
    """Return whether a trust policy lets a service take the role.

    Args:
        document: the policy as botocore returns it: a mapping, or JSON text, perhaps URL-encoded.
        service: the service principal.
    """
    policy = json.loads(unquote(document)) if isinstance(document, str) else document or {}
    return any(
        statement.get("Effect") == "Allow"
        and {"sts:AssumeRole", "sts:*", "*"} & set(_listed(statement.get("Action")))
        and service in _services(statement.get("Principal"))
        for statement in _listed(policy.get("Statement"))
    )


def _services(principal: Any) -> list[Any]:
    return _listed(principal.get("Service")) if isinstance(principal, dict) else []


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | dict) else [value]
