"""What a function may be allowed to do, by name. A function's role is the list of names in its row, nothing else.

Each name stands for the narrowest statements AWS lets us write. `Reach` holds the ARNs they speak of.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from aws_cdk import aws_iam as iam


class Permission(StrEnum):
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
    DESCRIBE_EC2_INSTANCES = "DescribeEc2Instances"
    DESCRIBE_EC2_STATUS = "DescribeEc2Status"
    NOTIFY_OPERATORS = "NotifyOperators"
    PUBLISH_EVENTS = "PublishEvents"
    WAKE_SCHEDULER = "WakeScheduler"
    READ_VERDICTS = "ReadVerdicts"
    RECORD_ATTEMPTS = "RecordAttempts"
    READ_OPERATOR_TOKEN = "ReadOperatorToken"
    READ_RAY_LOGS = "ReadRayLogs"
    REDRIVE = "Redrive"
    READ_TRAINING_LOGS = "ReadTrainingLogs"


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The ARNs that permissions speak of; lists hold patterns such as `…:task-definition/gpu-training:*`."""

    job_table: str
    instance_table: str
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
    may_replace: bool
    topic: str
    chat_topic: str  # empty: there is none
    topic_key: str
    bus: str
    scheduler_queue: str
    ray_queue: str  # empty: there is none
    ray_function: str  # likewise
    dead_letter_queues: list[str]
    event_functions: list[str]
    verdict_bucket: str
    verdicts: str
    records: str  # empty: none are kept
    operator_token: str
    training_log_streams: list[str]


# A `*` resource needs a reason that AWS gives: the key is the action, and the tests accept no other.
WITHOUT_RESOURCE_LEVEL = {
    "ec2:DescribeInstances": "EC2 describes have no resource level",
    "ec2:DescribeInstanceStatus": "EC2 describes have no resource level",
    "ecs:DescribeTaskDefinition": "the action has no resource level",
    "ecs:ListTasks": "listing by startedBy names no container instance; the cluster condition is the fence",
    "xray:PutTraceSegments": "traces have no resource level",
    "xray:PutTelemetryRecords": "traces have no resource level",
    "ecr:GetAuthorizationToken": "a registry login has no resource level",
}

# A transaction of puts and updates is allowed by these; a ConditionCheck in one would need an action of its own.
_READ_ITEMS = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"]  # no Scan, on purpose
_WRITE_ITEMS = [*_READ_ITEMS, "dynamodb:PutItem", "dynamodb:UpdateItem"]


def statements(permission: Permission, reach: Reach) -> list[iam.PolicyStatement]:
    return _STATEMENTS[permission](reach)


def _allow(
    actions: str | list[str], resources: str | list[str], conditions: dict[str, dict[str, str]] | None = None
) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        actions=[actions] if isinstance(actions, str) else actions,
        resources=[resources] if isinstance(resources, str) else resources,
        conditions=conditions,
    )


def _table(arn: str, actions: list[str]) -> list[iam.PolicyStatement]:
    return [_allow(actions, [arn, f"{arn}/index/*"])]


def _run_tasks(reach: Reach, task_definitions: str | list[str], roles: list[str]) -> list[iam.PolicyStatement]:
    run = _allow("ecs:RunTask", task_definitions, _in_cluster(reach))
    to_tasks_only = {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}}
    return [run, _allow("iam:PassRole", roles, to_tasks_only)] if roles else [run]


def _in_cluster(reach: Reach) -> dict[str, dict[str, str]]:
    return {"ArnEquals": {"ecs:cluster": reach.cluster}}


def _handed_over(reach: Reach) -> dict[str, dict[str, str]]:
    key, value = reach.managed_tag  # the opt-in tag: IAM itself refuses a machine nobody handed over
    return {"StringEquals": {f"aws:ResourceTag/{key}": value}}


def _reboot(reach: Reach) -> list[iam.PolicyStatement]:
    return [_allow("ec2:RebootInstances", reach.ec2_instances, _handed_over(reach))]


def _replace(reach: Reach) -> list[iam.PolicyStatement]:
    """Nothing at all unless the deployment says so. The group's own tag is asked, not that of the instance in it."""
    if not reach.may_replace:
        return []
    return [
        _allow("autoscaling:TerminateInstanceInAutoScalingGroup", reach.auto_scaling_groups, _handed_over(reach)),
        _allow(["ec2:StopInstances", "ec2:StartInstances"], reach.ec2_instances, _handed_over(reach)),
    ]


def _redrive(reach: Reach) -> list[iam.PolicyStatement]:
    # Not StartMessageMoveTask: it moves between queues only, and these messages came from no queue.
    return [
        _allow(["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"], reach.dead_letter_queues),
        _allow("lambda:InvokeFunction", reach.event_functions),
    ]


def _read_verdicts(reach: Reach) -> list[iam.PolicyStatement]:
    # Without ListBucket a verdict that was never written looks like a missing permission (403) instead of 404.
    return [_allow("s3:GetObject", reach.verdicts), _allow("s3:ListBucket", reach.verdict_bucket)]


def _notify(reach: Reach) -> list[iam.PolicyStatement]:
    topics = [reach.topic, *([reach.chat_topic] if reach.chat_topic else [])]
    return [_allow("sns:Publish", topics), _allow(["kms:GenerateDataKey", "kms:Decrypt"], reach.topic_key)]


def _read_logs(reach: Reach) -> list[iam.PolicyStatement]:
    return [_allow("logs:GetLogEvents", reach.training_log_streams)] if reach.training_log_streams else []


_STATEMENTS: dict[Permission, Callable[[Reach], list[iam.PolicyStatement]]] = {
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
    # Its resource is the cluster, not the container instance.
    Permission.DEREGISTER_CONTAINER_INSTANCES: lambda reach: [_allow("ecs:DeregisterContainerInstance", reach.cluster)],
    Permission.DESCRIBE_TASK_DEFINITIONS: lambda reach: [_allow("ecs:DescribeTaskDefinition", "*")],
    Permission.REBOOT_INSTANCES: _reboot,
    Permission.REPLACE_INSTANCES: _replace,
    Permission.DESCRIBE_EC2_INSTANCES: lambda reach: [_allow("ec2:DescribeInstances", "*")],
    Permission.DESCRIBE_EC2_STATUS: lambda reach: [_allow("ec2:DescribeInstanceStatus", "*")],
    Permission.NOTIFY_OPERATORS: _notify,
    Permission.PUBLISH_EVENTS: lambda reach: [_allow("events:PutEvents", reach.bus)],
    Permission.WAKE_SCHEDULER: lambda reach: [
        _allow("sqs:SendMessage", [reach.scheduler_queue, *([reach.ray_queue] if reach.ray_queue else [])])
    ],
    Permission.RECORD_ATTEMPTS: lambda reach: [_allow("s3:PutObject", reach.records)] if reach.records else [],
    Permission.READ_VERDICTS: _read_verdicts,
    Permission.READ_OPERATOR_TOKEN: lambda reach: [_allow("secretsmanager:GetSecretValue", reach.operator_token)],
    Permission.REDRIVE: _redrive,
    Permission.READ_RAY_LOGS: lambda reach: (
        [_allow("lambda:InvokeFunction", reach.ray_function)] if reach.ray_function else []
    ),
    Permission.READ_TRAINING_LOGS: _read_logs,
}
