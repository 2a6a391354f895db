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
WRITE_CONSOLE = _may("s3:PutObject", "VerdictsBucket.Arn/console/*")
READ_CONSOLE = _may("s3:GetObject", "VerdictsBucket.Arn/console/*") | _may("s3:ListBucket", "VerdictsBucket.Arn")
RECORDS = _may("s3:PutObject", "VerdictsBucket.Arn/jobs/*")
TELL = (
    _may("sns:Publish", "OperatorsTopic")
    | _may(["kms:GenerateDataKey", "kms:Decrypt"], "OperatorsKey.Arn")
    | _may("events:PutEvents", "EventsBus.Arn")
    | _may("sqs:SendMessage", "QueuesScheduler.Arn")
    | RECORDS
)
WAKE = _may("lambda:InvokeFunction", f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:gpu-recovery-command_executor")
VERDICTS = _may("s3:GetObject", "VerdictsBucket.Arn/verdicts/*") | _may("s3:ListBucket", "VerdictsBucket.Arn")
STOP = _may("ecs:StopTask", TASK)
LIST = _may("ecs:ListTasks", "*", IN_CLUSTER)
DESCRIBE_TASKS = _may("ecs:DescribeTasks", TASK)
DESCRIBE_MACHINES = _may("ecs:DescribeContainerInstances", CONTAINER_INSTANCE)
SET_STATE = _may("ecs:UpdateContainerInstancesState", CONTAINER_INSTANCE)
MACHINES = f"arn:aws:ec2:us-east-1:{ACCOUNT}:instance/*"
GROUPS = f"arn:aws:autoscaling:us-east-1:{ACCOUNT}:autoScalingGroup:*:autoScalingGroupName/*"
REBOOT = _may("ec2:RebootInstances", MACHINES, MANAGED)
DEREGISTER = _may("ecs:DeregisterContainerInstance", CLUSTER)
EC2 = _may("ec2:DescribeInstances", "*")
EC2_STATUS = _may("ec2:DescribeInstanceStatus", "*")
BOTH_TABLES = _table("Jobs", WRITE) | _table("Instances", WRITE)
FAIL = _may(["sqs:SendMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"], "QueuesFailed.Arn")
DIAGNOSE = _may("ecs:DescribeTaskDefinition", "*") | _may(
    "logs:GetLogEvents", f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/ecs/gpu-training:log-stream:*"
)
FOLLOW = BOTH_TABLES | TELL | DIAGNOSE | RUN_CHECKS | STOP | LIST | DESCRIBE_TASKS | DESCRIBE_MACHINES
REPAIR = SET_STATE | DEREGISTER | REBOOT | EC2 | EC2_STATUS | VERDICTS
DEAD_ENDS = [f"Queues{name}.Arn" for name in ("SchedulerDeadLetters", "Undelivered", "Failed")]
EVENT_FUNCTIONS = [
    f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:gpu-recovery-{name}"
    for name in (
        "ecs_task_handler",
        "dcgm_task_monitor",
        "ecs_instance_monitor",
        "reconciler",
        "command_executor",
        "event_recorder",
    )
]
REDRIVE = _may(["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"], DEAD_ENDS) | _may(
    "lambda:InvokeFunction", EVENT_FUNCTIONS
)
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
READ_HISTORY = ["dynamodb:BatchGetItem", "dynamodb:Query"]
HISTORY = "TablesEventHistory.Arn"
GAUGES_ALONE = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": "gauge#*"}}
TRACE = _may(["xray:PutTraceSegments", "xray:PutTelemetryRecords"], "*")
NODE_TOKEN_KEY = _may("secretsmanager:GetSecretValue", "NodeTokenKeySecret.Id")

ALLOWED = {
    "EcsTaskHandler": FOLLOW | FAIL | SET_STATE,
    "DcgmTaskMonitor": FOLLOW | FAIL | REPAIR,
    "EcsInstanceMonitor": FOLLOW | FAIL | REPAIR,
    "Reconciler": (FOLLOW | FAIL | REPAIR | RUN_TRAINING | WRITE_CONSOLE | _may("ecs:ListContainerInstances", CLUSTER)),
    "Scheduler": (
        FOLLOW | RUN_TRAINING | EC2 | RECEIVE | WRITE_CONSOLE | _may("dynamodb:ConditionCheckItem", "TablesJobs.Arn")
    ),
    "CommandExecutor": FOLLOW | FAIL | REPAIR | RUN_TRAINING,
    "EventRecorder": _may([*READ_HISTORY, "dynamodb:UpdateItem", "dynamodb:DeleteItem"], HISTORY) | FAIL,
    "NodeApi": (
        BOTH_TABLES | (TELL - RECORDS) | WAKE | NODE_TOKEN_KEY | _may("dynamodb:PutItem", HISTORY, GAUGES_ALONE)
    ),
    "JobApi": (
        BOTH_TABLES
        | TELL
        | DIAGNOSE
        | WAKE
        | REDRIVE
        | NODE_TOKEN_KEY
        | _may(READ_HISTORY, HISTORY)
        | READ_CONSOLE
        | VERDICTS
        | _may("secretsmanager:GetSecretValue", "OperatorTokenSecret.Id")
        | _may("secretsmanager:GetSecretValue", "SigningKeySecret.Id")
    ),
}


REPLACE_ACTIONS = {"autoscaling:TerminateInstanceInAutoScalingGroup", "ec2:StopInstances", "ec2:StartInstances"}


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
    functions = deployment.at_run_time("AWS::Lambda::Function")
    assert {function["Role"] for function in functions.values()} == {
        "ConsoleRole.Arn",
        *(f"Functions{row.construct_id}Role.Arn" for row in FUNCTIONS),
    }
    for name, role in deployment.of_type("AWS::IAM::Role").items():
        assert "ManagedPolicyArns" not in role, name


def test_no_statement_allows_a_wildcard_action(
    deployment: Deployment, production: Deployment, with_ray: Deployment
) -> None:
    """Except two in the encryption key's own policy: its owner's, and the prefix KMS documents for alarms."""
    for where in (deployment, production, with_ray):
        for kind, name, statement in where.allow_statements():
            wild = {action for action in listed(statement["Action"]) if "*" in action}
            assert wild <= ({"kms:*", "kms:GenerateDataKey*"} if kind == "AWS::KMS::Key" else set()), name


def _denied_to_code(deployment: Deployment) -> set[tuple[str, str]]:
    """(role, action) of what a role has for Lambda itself and denies to the code of its function, on every resource."""
    denied = set()
    for policy in deployment.of_type("AWS::IAM::Policy").values():
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Deny" and statement["Resource"] == "*":
                ((operator, keys),) = statement["Condition"].items()
                assert (operator, list(keys)) == ("ArnEquals", ["lambda:SourceFunctionArn"])
                roles = {
                    function["Role"].split(".")[0]
                    for function in deployment.of_type("AWS::Lambda::Function").values()
                    if keys["lambda:SourceFunctionArn"].endswith(f":function:{function['FunctionName']}")
                }
                assert roles == set(policy["Roles"])
                denied |= {(role, action) for role in roles for action in listed(statement["Action"])}
    return denied


def test_a_star_resource_is_only_for_actions_without_resource_level(
    deployment: Deployment, production: Deployment, with_ray: Deployment
) -> None:
    """The list of exceptions gives AWS's reason for each; a key's own policy can only say `*`. Beside them stand the
    network interfaces of the function in a VPC, which Lambda itself makes: its code may not use the permission."""
    for where in (deployment, production, with_ray):
        for kind, name, statement in where.allow_statements():
            if "*" in listed(statement.get("Resource", [])) and kind != "AWS::KMS::Key":
                beyond = set(listed(statement["Action"])) - WITHOUT_RESOURCE_LEVEL.keys()
                roles = where.of_type(kind)[name].get("Roles", []) if beyond else []
                assert {(role, action) for role in roles for action in beyond} <= _denied_to_code(where), name
                assert roles or not beyond, name


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


def test_nothing_may_end_a_machine_unless_the_deployment_says_so(deployment: Deployment) -> None:
    """The switch for replacing is off by default, and then IAM refuses too."""
    for kind, name, statement in deployment.allow_statements():
        assert not REPLACE_ACTIONS & set(listed(statement["Action"])), (kind, name)


@pytest.mark.parametrize("function", ALLOWED)
def test_with_the_switch_on_four_functions_may_replace_what_was_handed_over(
    production: Deployment, function: str
) -> None:
    """Machines and groups with the opt-in tag only, by the functions that act on machines."""
    tagged = {"StringEquals": {"aws:ResourceTag/team:healed": "true"}}
    replace = _may("autoscaling:TerminateInstanceInAutoScalingGroup", GROUPS, tagged) | _may(
        ["ec2:StopInstances", "ec2:StartInstances"], MACHINES, tagged
    )
    granted = {each for each in _granted(production, f"Functions{function}Role") if each[0] in REPLACE_ACTIONS}
    assert granted == (
        replace if function in ("DcgmTaskMonitor", "EcsInstanceMonitor", "Reconciler", "CommandExecutor") else set()
    )


def test_the_second_topic_may_be_published_to_when_there_is_one(deployment: Deployment, production: Deployment) -> None:
    """By every function that tells operators; without the topic no statement speaks of it."""
    for where, topics in ((deployment, {"OperatorsTopic"}), (production, {"OperatorsTopic", "OperatorsChat"})):
        for row in FUNCTIONS:
            granted = _granted(where, f"Functions{row.construct_id}Role")
            expected = set() if row.name == "event_recorder" else topics
            assert {resource for action, resource, _ in granted if action == "sns:Publish"} == expected


def test_a_role_is_assumed_by_the_one_service_it_is_for(deployment: Deployment) -> None:
    """Functions by Lambda, the check's two roles by ECS, the build's by CodeBuild; no person and no other account."""
    expected = {f"Functions{row.construct_id}Role": "lambda.amazonaws.com" for row in FUNCTIONS}
    expected |= dict.fromkeys(("HealthCheckTaskRole", "HealthCheckExecutionRole"), "ecs-tasks.amazonaws.com")
    expected |= {
        "ConsoleRole": "lambda.amazonaws.com",
        "ImagesRole": "lambda.amazonaws.com",
        "ImagesHealthCheckRole": "codebuild.amazonaws.com",
    }
    trusted = {}
    for name, role in deployment.of_type("AWS::IAM::Role").items():
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        assert (statement["Effect"], statement["Action"]) == ("Allow", "sts:AssumeRole")
        trusted[name] = statement["Principal"]
    assert trusted == {name: {"Service": service} for name, service in expected.items()}


def test_a_function_is_invoked_by_its_own_rule_or_the_api_and_by_nobody_else(deployment: Deployment) -> None:
    """Each permission names the one resource that may use it: a rule whose target the function is."""
    callers = {
        (permission["FunctionName"], permission["Principal"], permission["SourceArn"])
        for permission in deployment.at_run_time("AWS::Lambda::Permission").values()
    }
    api = f"arn:aws:execute-api:us-east-1:{ACCOUNT}:JobApi/*/*/"
    targets = {
        (target["Arn"], "events.amazonaws.com", f"{rule}.Arn")
        for rule, properties in deployment.at_run_time("AWS::Events::Rule").items()
        for target in properties["Targets"]
        if target["Arn"].startswith("Functions")
    }
    assert len(targets) >= 4
    assert callers == targets | {
        (f"{function}Function.Arn", "apigateway.amazonaws.com", f"{api}{path}")
        for function, path in (
            ("FunctionsJobApi", "{proxy+}"),
            ("FunctionsJobApi", "api/v2/{proxy+}"),
            ("FunctionsJobApi", "api/v2/overview"),
            ("FunctionsJobApi", "api/v2/fleet/map"),
            ("FunctionsJobApi", "api/v2/fleet/members"),
            ("FunctionsJobApi", "api/v2/fleet/limits"),
            ("FunctionsJobApi", "api/v2/events"),
            ("FunctionsNodeApi", "api/v1/{proxy+}"),
            ("FunctionsNodeApi", "api/v1/signed/{proxy+}"),
            ("Console", ""),
            ("Console", "console"),
            ("Console", "console/{proxy+}"),
        )
    }


def test_a_queue_takes_messages_from_the_rules_that_end_in_it_only(deployment: Deployment) -> None:
    """Functions write by their roles; beyond that two queues admit EventBridge, each rule by name."""
    admitted = {}
    for name, policy in deployment.of_type("AWS::SQS::QueuePolicy").items():
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Allow":
                assert statement["Principal"] == {"Service": "events.amazonaws.com"}
                assert "ArnEquals" in statement["Condition"]
                admitted.setdefault(name, set()).update(listed(statement["Action"]))
    assert admitted.keys() == {"QueuesSchedulerPolicy", "QueuesUndeliveredPolicy"}
    assert admitted["QueuesUndeliveredPolicy"] == {"sqs:SendMessage"}
