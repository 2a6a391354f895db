"""Names of the resources of a deployment: which exist already in the account, and names that are free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpu_recovery_client.account.access import Account, Refused
from gpu_recovery_client.account.deployment import existing_stack
from gpu_recovery_client.account.findings import DEFAULTS, Finding, Settings

NAMES = (
    *("stack_name", "function_name_prefix", "check_family", "topic_name", "bus_name"),
    *("job_table_name", "instance_table_name", "event_history_table_name"),
)
"""Settings with names that no two deployments of an account and region may share."""
MISSING = ("ResourceNotFoundException", "NotFound", "NotFoundException")
WITHOUT_RESOURCES = ("REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE", "DELETE_COMPLETE")
"""Statuses of a stack that owns no resources: its creation has not begun or has failed, or it was deleted."""
PARTITIONS = {"cn": "aws-cn", "us-gov": "aws-us-gov"}


def suffixed(name: str, suffix: str) -> str:
    """Return the name of a setting's default for a deployment that shares the account with another."""
    default = str(DEFAULTS[name])
    return f"{default}{suffix}-" if name == "function_name_prefix" else f"{default}-{suffix}"


def existing(account: Account, names: Mapping[str, str]) -> dict[str, str]:
    """Return the settings whose named resource exists in the account: stack, tables, topic and bus."""
    found = {"stack_name": names["stack_name"]} if existing_stack(account, names["stack_name"]) else {}
    partition = next((p for begin, p in PARTITIONS.items() if account.region.startswith(begin)), "aws")
    arn = f"arn:{partition}:sns:{account.region}:{account.account_id}:{names['topic_name']}"
    looks: Mapping[str, tuple[str, str, dict[str, str]]] = {
        "topic_name": ("sns", "get_topic_attributes", {"TopicArn": arn}),
        "bus_name": ("events", "describe_event_bus", {"Name": names["bus_name"]}),
        **{
            name: ("dynamodb", "describe_table", {"TableName": names[name]})
            for name in ("job_table_name", "instance_table_name", "event_history_table_name")
        },
    }
    for name, (service, operation, parameters) in looks.items():
        try:
            account.call(service, operation, **parameters)
        except Refused as error:
            if error.code not in MISSING:
                raise
        else:
            found[name] = names[name]
    return found


def check_names(account: Account, settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each name that is taken in the account, before the first deployment.

    If the state stack exists, the first deployment has failed after that stack, and the names are the deployment's own.
    """
    state = existing_stack(account, f"{settings['stack_name']}State")
    if state is not None and state["StackStatus"] not in WITHOUT_RESOURCES:
        return
    for name, value in existing(account, {each: settings[each] for each in NAMES}).items():
        yield Finding(
            "names",
            value,
            f"the name exists already in {account.region}, and {settings['stack_name']} is not deployed",
            "CloudFormation refuses to create a resource whose name is taken, and the deployment is rolled back",
            settings.change(name, f'"{value}-2"'),
        )
