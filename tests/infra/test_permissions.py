"""What each function may do, action by action, against a table written by hand.

The table repeats the intention, not the code: a permission that moves in `infra/` fails here until someone has
looked at it.
"""

from typing import Any

import pytest

from infra.functions import FUNCTIONS
from infra.permissions import WITHOUT_RESOURCE_LEVEL
from tests.infra.deployment import ACCOUNT, Deployment, listed

pytestmark = pytest.mark.slow

ECS = f"arn:aws:ecs:us-east-1:{ACCOUNT}"
CLUSTER = f"{ECS}:cluster/nwcd-gpu-testing"
IN_CLUSTER = {"ArnEquals": {"ecs:cluster": CLUSTER}}
TO_TASKS = {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}}
MANAGED = {"StringEquals": {"aws:ResourceTag/gpu-recovery:managed": "true"}}
ANYWHERE: dict[str, Any] = {}
CHECK_ROLES = ["HealthCheckTaskRole.Arn", "HealthCheckExecutionRole.Arn"]

READ = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"]
WRITE = [*READ, "dynamodb:PutItem", "dynamodb:UpdateItem"]


def _table(name: str, actions: list[str]) -> set[tuple]:
    return _may(actions, [f"Tables{name}.Arn", f"Tables{name}.Arn/index/*"])


def _may(actions: str | list[str], resources: str | list[str], condition: dict[str, Any] = ANYWHERE) -> set[tuple]:
    return {(action, resource, repr(condition)) for action in listed(actions) for resource in listed(resources)}


TASK = f"{ECS}:task/nwcd-gpu-testing/*"
CONTAINER_INSTANCE = f"{ECS}:container-instance/nwcd-gpu-testing/*"
RUN_CHECKS = _may("ecs:RunTask", f"{ECS}:task-definition/gpu-health-check:*", IN_CLUSTER) | _may(
    "iam:PassRole", CHECK_ROLES, TO_TASKS
)
RUN_TRAINING = _may("ecs:RunTask", f"{ECS}:task-definition/gpu-training:*", IN_CLUSTER)
TELL = (
    _may("sns:Publish", "OperatorsTopic")
    | _may(["kms:GenerateDataKey", "kms:Decrypt"], "OperatorsKey.Arn")
    | _may("events:PutEvents", "EventsBus.Arn")
    | _may("sqs:SendMessage", "QueuesScheduler.Arn")
)
VERDICTS = _may("s3:GetObject", "VerdictsBucket.Arn/verdicts/*") | _may("s3:ListBucket", "VerdictsBucket.Arn")
STOP = _may("ecs:StopTask", TASK)
LIST = _may("ecs:ListTasks", "*", IN_CLUSTER)
DESCRIBE_TASKS = _may("ecs:DescribeTasks", TASK)
DESCRIBE_MACHINES = _may("ecs:DescribeContainerInstances", CONTAINER_INSTANCE)
SET_STATE = _may("ecs:UpdateContainerInstancesState", CONTAINER_INSTANCE)
REBOOT = _may("ec2:RebootInstances", f"arn:aws:ec2:us-east-1:{ACCOUNT}:instance/*", MANAGED)
EC2 = _may("ec2:DescribeInstances", "*")
BOTH_TABLES = _table("Jobs", WRITE) | _table("Instances", WRITE)
FAIL = _may(["sqs:SendMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"], "QueuesFailed.Arn")
FOLLOW = BOTH_TABLES | TELL | RUN_CHECKS | STOP | LIST | DESCRIBE_TASKS
REPAIR = SET_STATE | REBOOT | VERDICTS
RECEIVE = _may(
    [
        "sqs:ReceiveMessage",
        "sqs:ChangeMessageVisibility",
        "sqs:GetQueueUrl",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
    ],
    "QueuesScheduler.Arn",
)
TRACE = _may(["xray:PutTraceSegments", "xray:PutTelemetryRecords"], "*")

ALLOWED = {
    "EcsTaskHandler": FOLLOW | FAIL | DESCRIBE_MACHINES,
    "DcgmTaskMonitor": FOLLOW | FAIL | REPAIR,
    "EcsInstanceMonitor": FOLLOW | FAIL | SET_STATE,
    "Reconciler": (
        FOLLOW | FAIL | REPAIR | RUN_TRAINING | EC2 | DESCRIBE_MACHINES | _may("ecs:ListContainerInstances", CLUSTER)
    ),
    "Scheduler": FOLLOW | RUN_TRAINING | EC2 | RECEIVE,
    "JobApi": (
        FOLLOW
        | SET_STATE
        | _may("ecs:DescribeTaskDefinition", "*")
        | _may("secretsmanager:GetSecretValue", "OperatorTokenSecret.Id")
    ),
}


def _granted(deployment: Deployment, role: str) -> set[tuple]:
    """(action, resource, condition) of every statement of the role's own policies."""
    granted = set()
    for policy in deployment.of_type("AWS::IAM::Policy").values():
        if role in policy["Roles"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                assert statement["Effect"] == "Allow"
                granted |= _may(statement["Action"], statement["Resource"], statement.get("Condition", ANYWHERE))
    return granted


@pytest.mark.parametrize("function", ALLOWED)
def test_a_function_may_do_what_the_table_says_and_nothing_else(deployment: Deployment, function: str) -> None:
    """Every action with its resources and its condition."""
    logs = _may(["logs:CreateLogStream", "logs:PutLogEvents"], f"Functions{function}Logs.Arn")
    assert _granted(deployment, f"Functions{function}Role") == ALLOWED[function] | logs | TRACE


def test_every_function_has_a_role_of_its_own_without_managed_policies(deployment: Deployment) -> None:
    """A shared role, or AWS's broad ones, would undo the table."""
    functions = deployment.of_type("AWS::Lambda::Function")
    assert {function["Role"] for function in functions.values()} == {
        f"Functions{row.construct_id}Role.Arn" for row in FUNCTIONS
    }
    for name, role in deployment.of_type("AWS::IAM::Role").items():
        assert "ManagedPolicyArns" not in role, name


def test_no_statement_allows_a_wildcard_action(deployment: Deployment, production: Deployment) -> None:
    """Except two in the encryption key's own policy: its owner's, and the prefix KMS documents for alarms."""
    for where in (deployment, production):
        for kind, name, statement in where.allow_statements():
            wild = {action for action in listed(statement["Action"]) if "*" in action}
            assert wild <= ({"kms:*", "kms:GenerateDataKey*"} if kind == "AWS::KMS::Key" else set()), name


def test_a_star_resource_is_only_for_actions_without_resource_level(
    deployment: Deployment, production: Deployment
) -> None:
    """The list of exceptions gives AWS's reason for each; a key's own policy can only say `*`."""
    for where in (deployment, production):
        for kind, name, statement in where.allow_statements():
            if "*" in listed(statement.get("Resource", [])) and kind != "AWS::KMS::Key":
                assert set(listed(statement["Action"])) <= WITHOUT_RESOURCE_LEVEL.keys(), name


def test_no_exception_is_kept_that_nothing_needs(deployment: Deployment) -> None:
    """A reason without a use is a hole waiting for a user."""
    used = {
        action
        for kind, _, statement in deployment.allow_statements()
        if "*" in listed(statement.get("Resource", [])) and kind != "AWS::KMS::Key"
        for action in listed(statement["Action"])
    }
    assert used == set(WITHOUT_RESOURCE_LEVEL)


def test_training_may_be_run_of_the_configured_families_with_the_configured_roles(production: Deployment) -> None:
    """Settings widen exactly this, and the tag of the settings guards the reboot."""
    granted = _granted(production, "FunctionsReconcilerRole")
    run = {resource for action, resource, _ in granted if action == "ecs:RunTask"}
    assert run == {f"{ECS}:task-definition/{family}:*" for family in ("llm", "vision", "gpu-health-check")}
    passed = {(resource, condition) for action, resource, condition in granted if action == "iam:PassRole"}
    assert passed == {(role, repr(TO_TASKS)) for role in (*CHECK_ROLES, "arn:aws:iam::111122223333:role/training-task")}
    tagged = {"StringEquals": {"aws:ResourceTag/team:healed": "true"}}
    assert [condition for action, _, condition in granted if action == "ec2:RebootInstances"] == [repr(tagged)]


def test_every_arn_follows_the_partition(china: Deployment) -> None:
    """A hard-coded `arn:aws:` would deploy in China and allow nothing."""
    for kind, name, statement in china.allow_statements():
        for resource in listed(statement.get("Resource", [])):
            assert not resource.startswith("arn:aws:"), (kind, name, resource)
