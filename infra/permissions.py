"""IAM permissions of the functions, by name, and the policy statements of each permission.

The role of a function has the permissions that the function's row names (`infra/functions.py`). The statements of a
permission are as narrow as IAM allows. `Reach` holds the ARNs that the statements apply to.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from gpu_recovery.core.repair_record import TAG_KEY


class Permission(StrEnum):
    """Name of a permission. `docs/permissions.md` lists the actions and the purpose of each."""

    WRITE_JOBS = "WriteJobs"
    PLACE_JOBS = "PlaceJobs"
    WRITE_INSTANCES = "WriteInstances"
    DESCRIBE_TASKS = "DescribeTasks"
    LIST_TASKS = "ListTasks"
    STOP_TASKS = "StopTasks"
    RUN_CHECKS = "RunChecks"
    RUN_TRAINING = "RunTraining"
    DESCRIBE_CONTAINER_INSTANCES = "DescribeContainerInstances"
    LIST_CONTAINER_INSTANCES = "ListContainerInstances"
    SET_CONTAINER_INSTANCE_STATE = "SetContainerInstanceState"
    DEREGISTER_CONTAINER_INSTANCES = "DeregisterContainerInstances"
    DESCRIBE_TASK_DEFINITIONS = "DescribeTaskDefinitions"
    REBOOT_INSTANCES = "RebootInstances"
    REPLACE_INSTANCES = "ReplaceInstances"
    TAG_INSTANCES = "TagInstances"
    DESCRIBE_EC2_INSTANCES = "DescribeEc2Instances"
    DESCRIBE_EC2_STATUS = "DescribeEc2Status"
    NOTIFY_OPERATORS = "NotifyOperators"
    PUBLISH_EVENTS = "PublishEvents"
    WAKE_SCHEDULER = "WakeScheduler"
    WAKE_COMMAND_EXECUTOR = "WakeCommandExecutor"
    READ_VERDICTS = "ReadVerdicts"
    READ_CONSOLE = "ReadConsole"
    WRITE_CONSOLE = "WriteConsole"
    RECORD_ATTEMPTS = "RecordAttempts"
    READ_OPERATOR_TOKEN = "ReadOperatorToken"
    READ_NODE_TOKEN_KEY = "ReadNodeTokenKey"
    READ_SIGNING_KEY = "ReadSigningKey"
    READ_RAY_LOGS = "ReadRayLogs"
    REDRIVE = "Redrive"
    READ_TRAINING_LOGS = "ReadTrainingLogs"
    WRITE_EVENT_HISTORY = "WriteEventHistory"
    READ_EVENT_HISTORY = "ReadEventHistory"
    WRITE_GAUGES = "WriteGauges"


@dataclass(frozen=True, kw_only=True)
class Reach:
    """ARNs, ARN patterns and conditions that permissions apply to. Example: `…:task-definition/gpu-training:*`."""

    job_table: str
    instance_table: str
    event_history_table: str
    keeps_gpu_history: bool
    cluster: str
    tasks: str
    container_instances: str
    training_task_definitions: list[str]
    training_roles: list[str]
    check_task_definitions: str
    check_roles: list[str]
    ec2_instances: str
    auto_scaling_groups: str
    managed_tag: tuple[str, str]
    """Key and value of the opt-in tag."""
    may_replace: bool
    """Whether the functions may terminate, stop and start instances."""
    may_tag: bool
    """Whether the functions may write the tag that says who ordered the last repair of an instance."""
    topic: str
    chat_topic: str
    """Empty if there is no chat topic."""
    topic_key: str
    bus: str
    scheduler_queue: str
    command_executor: str
    ray_queue: str
    """Empty if there is no Ray cluster."""
    ray_function: str
    """Empty if there is no Ray cluster."""
    dead_letter_queues: list[str]
    event_functions: list[str]
    verdict_bucket: str
    verdicts: str
    records: str
    """Job records in the verdict bucket. Empty if job records are not written."""
    console_snapshots: str
    """Console snapshots in the verdict bucket."""
    operator_token: str
    node_token_key: str
    signing_key: str
    training_log_streams: list[str]


WITHOUT_RESOURCE_LEVEL = {
    "ec2:DescribeInstances": "EC2 describes have no resource level",
    "ec2:DescribeInstanceStatus": "EC2 describes have no resource level",
    "ecs:DescribeTaskDefinition": "the action has no resource level",
    "ecs:ListTasks": "a list by startedBy names no container instance; the condition limits it to the cluster",
    "xray:PutTraceSegments": "traces have no resource level",
    "xray:PutTelemetryRecords": "traces have no resource level",
    "ecr:GetAuthorizationToken": "a registry login has no resource level",
}
"""Actions that are allowed on the resource `*`, each with the reason. The tests accept `*` for no other action."""


@dataclass(frozen=True)
class Statement:
    """A policy statement that allows actions.

    Args:
        actions: the actions.
        resources: ARNs or ARN patterns.
        conditions: operands of each condition operator, by operator.
    """

    actions: list[str]
    resources: list[str]
    conditions: dict[str, dict[str, str]] = field(default_factory=dict)


# These actions allow a transaction of puts and updates. A ConditionCheck in a transaction needs an action of its own.
_READ_ITEMS = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"]  # without Scan: no table is scanned
_READ_HISTORY = ["dynamodb:BatchGetItem", "dynamodb:Query"]
_WRITE_ITEMS = [*_READ_ITEMS, "dynamodb:PutItem", "dynamodb:UpdateItem"]


def statements(permission: Permission, reach: Reach) -> list[Statement]:
    """Return the policy statements of a permission. The list is empty if the deployment lacks what it applies to."""
    return _STATEMENTS[permission](reach)


def _allow(
    actions: str | list[str], resources: str | list[str], conditions: dict[str, dict[str, str]] | None = None
) -> Statement:
    return Statement(
        actions=[actions] if isinstance(actions, str) else actions,
        resources=[resources] if isinstance(resources, str) else resources,
        conditions=conditions or {},
    )


def _table(arn: str, actions: list[str]) -> list[Statement]:
    return [_allow(actions, [arn, f"{arn}/index/*"])]


def _run_tasks(reach: Reach, task_definitions: str | list[str], roles: list[str]) -> list[Statement]:
    run = _allow("ecs:RunTask", task_definitions, _in_cluster(reach))
    to_tasks_only = {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}}
    return [run, _allow("iam:PassRole", roles, to_tasks_only)] if roles else [run]


def _in_cluster(reach: Reach) -> dict[str, dict[str, str]]:
    return {"ArnEquals": {"ecs:cluster": reach.cluster}}


def _has_opt_in_tag(reach: Reach) -> dict[str, dict[str, str]]:
    key, value = reach.managed_tag  # IAM itself refuses the action on an instance or group without the opt-in tag
    return {"StringEquals": {f"aws:ResourceTag/{key}": value}}


def _reboot(reach: Reach) -> list[Statement]:
    return [_allow("ec2:RebootInstances", reach.ec2_instances, _has_opt_in_tag(reach))]


def _replace(reach: Reach) -> list[Statement]:
    """Return the statements for replacements, or none if the settings do not allow replacements.

    For a termination IAM tests the tag of the Auto Scaling group, not the tag of the instance.
    """
    if not reach.may_replace:
        return []
    return [
        _allow("autoscaling:TerminateInstanceInAutoScalingGroup", reach.auto_scaling_groups, _has_opt_in_tag(reach)),
        _allow(["ec2:StopInstances", "ec2:StartInstances"], reach.ec2_instances, _has_opt_in_tag(reach)),
    ]


def _tag(reach: Reach) -> list[Statement]:
    """Return the statement for the tag of repairs alone, or none if the settings do not want the tag."""
    if not reach.may_tag:
        return []
    only_this_tag = {"ForAllValues:StringEquals": {"aws:TagKeys": TAG_KEY}}
    return [_allow("ec2:CreateTags", reach.ec2_instances, {**_has_opt_in_tag(reach), **only_this_tag})]


def _redrive(reach: Reach) -> list[Statement]:
    # StartMessageMoveTask does not help: it only moves messages between queues, and these came from no queue.
    return [
        _allow(["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"], reach.dead_letter_queues),
        _allow("lambda:InvokeFunction", reach.event_functions),
    ]


def _read_objects(reach: Reach, objects: str) -> list[Statement]:
    # Without ListBucket, S3 answers 403 instead of 404 for an object that does not exist.
    return [_allow("s3:GetObject", objects), _allow("s3:ListBucket", reach.verdict_bucket)]


def _write_gauges(reach: Reach) -> list[Statement]:
    """Return the statement for the GPU history: items may be put into the streams of gauges, and nothing be read."""
    gauges_only = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": "gauge#*"}}
    return [_allow("dynamodb:PutItem", reach.event_history_table, gauges_only)] if reach.keeps_gpu_history else []


def _notify(reach: Reach) -> list[Statement]:
    topics = [reach.topic, *([reach.chat_topic] if reach.chat_topic else [])]
    return [_allow("sns:Publish", topics), _allow(["kms:GenerateDataKey", "kms:Decrypt"], reach.topic_key)]


def _read_logs(reach: Reach) -> list[Statement]:
    return [_allow("logs:GetLogEvents", reach.training_log_streams)] if reach.training_log_streams else []


_STATEMENTS: dict[Permission, Callable[[Reach], list[Statement]]] = {
    Permission.WRITE_JOBS: lambda reach: _table(reach.job_table, _WRITE_ITEMS),
    Permission.PLACE_JOBS: lambda reach: [_allow("dynamodb:ConditionCheckItem", reach.job_table)],
    Permission.WRITE_INSTANCES: lambda reach: _table(reach.instance_table, _WRITE_ITEMS),
    Permission.DESCRIBE_TASKS: lambda reach: [_allow("ecs:DescribeTasks", reach.tasks)],
    Permission.LIST_TASKS: lambda reach: [_allow("ecs:ListTasks", "*", _in_cluster(reach))],
    Permission.STOP_TASKS: lambda reach: [_allow("ecs:StopTask", reach.tasks)],
    Permission.RUN_CHECKS: lambda reach: _run_tasks(reach, reach.check_task_definitions, reach.check_roles),
    Permission.RUN_TRAINING: lambda reach: _run_tasks(reach, reach.training_task_definitions, reach.training_roles),
    Permission.DESCRIBE_CONTAINER_INSTANCES: lambda reach: [
        _allow("ecs:DescribeContainerInstances", reach.container_instances)
    ],
    Permission.LIST_CONTAINER_INSTANCES: lambda reach: [_allow("ecs:ListContainerInstances", reach.cluster)],
    Permission.SET_CONTAINER_INSTANCE_STATE: lambda reach: [
        _allow("ecs:UpdateContainerInstancesState", reach.container_instances)
    ],
    # The resource of this action is the cluster, not the container instance.
    Permission.DEREGISTER_CONTAINER_INSTANCES: lambda reach: [_allow("ecs:DeregisterContainerInstance", reach.cluster)],
    Permission.DESCRIBE_TASK_DEFINITIONS: lambda reach: [_allow("ecs:DescribeTaskDefinition", "*")],
    Permission.REBOOT_INSTANCES: _reboot,
    Permission.REPLACE_INSTANCES: _replace,
    Permission.TAG_INSTANCES: _tag,
    Permission.DESCRIBE_EC2_INSTANCES: lambda reach: [_allow("ec2:DescribeInstances", "*")],
    Permission.DESCRIBE_EC2_STATUS: lambda reach: [_allow("ec2:DescribeInstanceStatus", "*")],
    Permission.NOTIFY_OPERATORS: _notify,
    Permission.PUBLISH_EVENTS: lambda reach: [_allow("events:PutEvents", reach.bus)],
    Permission.WAKE_SCHEDULER: lambda reach: [
        _allow("sqs:SendMessage", [reach.scheduler_queue, *([reach.ray_queue] if reach.ray_queue else [])])
    ],
    Permission.WAKE_COMMAND_EXECUTOR: lambda reach: [_allow("lambda:InvokeFunction", reach.command_executor)],
    Permission.RECORD_ATTEMPTS: lambda reach: [_allow("s3:PutObject", reach.records)] if reach.records else [],
    Permission.READ_VERDICTS: lambda reach: _read_objects(reach, reach.verdicts),
    Permission.READ_CONSOLE: lambda reach: _read_objects(reach, reach.console_snapshots),
    Permission.WRITE_CONSOLE: lambda reach: [_allow("s3:PutObject", reach.console_snapshots)],
    Permission.READ_OPERATOR_TOKEN: lambda reach: [_allow("secretsmanager:GetSecretValue", reach.operator_token)],
    Permission.READ_NODE_TOKEN_KEY: lambda reach: [_allow("secretsmanager:GetSecretValue", reach.node_token_key)],
    Permission.READ_SIGNING_KEY: lambda reach: [_allow("secretsmanager:GetSecretValue", reach.signing_key)],
    Permission.REDRIVE: _redrive,
    Permission.READ_RAY_LOGS: lambda reach: (
        [_allow("lambda:InvokeFunction", reach.ray_function)] if reach.ray_function else []
    ),
    Permission.READ_TRAINING_LOGS: _read_logs,
    Permission.WRITE_EVENT_HISTORY: lambda reach: [
        _allow([*_READ_HISTORY, "dynamodb:UpdateItem", "dynamodb:DeleteItem"], reach.event_history_table)
    ],
    Permission.READ_EVENT_HISTORY: lambda reach: [_allow(_READ_HISTORY, reach.event_history_table)],
    Permission.WRITE_GAUGES: _write_gauges,
}
