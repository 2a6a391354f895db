"""Table of the Lambda functions, and the construct that creates them.

A row states the trigger, timeout, memory, permissions and variables of a function. Rules, queues, API, alarms and
tests read the table, so a new function needs only a new row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from aws_cdk import Aws, CfnCondition, Duration, Fn, IgnoreMode
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_lambda_event_sources as event_sources
from constructs import Construct

from infra.function_properties import function_name, function_properties
from infra.permissions import Permission as P
from infra.permissions import Reach
from infra.powertools import powertools_layer
from infra.queues import Queues
from infra.settings import DeploymentSettings

PACKAGE = Path(__file__).parent.parent / "lambdas"
"""Folder of the deployment package."""
SCHEDULER_BATCH = 10
"""Messages that one run of the scheduler receives at most. One run answers every waiting message."""


class Trigger(StrEnum):
    """Trigger of a function: an event rule, a schedule, a queue or a route of the HTTP API."""

    TRAINING_TASKS = "TrainingTasks"
    CHECK_TASKS = "CheckTasks"
    CONTAINER_INSTANCES = "ContainerInstances"
    SCHEDULE = "Schedule"
    SCHEDULER_QUEUE = "SchedulerQueue"
    HTTP = "Http"
    NODE_HTTP = "NodeHttp"

    @property
    def is_asynchronous(self) -> bool:
        """Whether Lambda queues the event itself. Then an error only causes retries and a message to `Failed`."""
        return self not in (Trigger.SCHEDULER_QUEUE, Trigger.HTTP, Trigger.NODE_HTTP)


@dataclass(frozen=True)
class FunctionRow:
    """A Lambda function.

    Args:
        name: name of the handler module; also the name of the function in this repository.
        trigger: what invokes the function.
        timeout_s: timeout in seconds, less than 120. The lease of a command (`command_lease_s`) is longer, so that a
            lease outlives the function that holds it.
        memory_mib: memory in MiB.
        permissions: permissions of the role.
        extra_environment: names of variables that the function gets besides those of every function.
        often: whether the function runs so often that Lambda's own log lines about each run would cost more than the
            runs. Then Lambda logs only warnings.
    """

    name: str
    trigger: Trigger
    timeout_s: int
    memory_mib: int
    permissions: frozenset[P]
    extra_environment: frozenset[str] = frozenset()
    often: bool = False

    @property
    def handler(self) -> str:
        """Handler in Lambda's form, `module.function`."""
        return f"{self.name}.handler"

    @property
    def construct_id(self) -> str:
        """Construct id: the name in camel case."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_DIAGNOSE = frozenset({P.DESCRIBE_TASK_DEFINITIONS, P.READ_TRAINING_LOGS})
_NOTIFY = frozenset({P.NOTIFY_OPERATORS, P.PUBLISH_EVENTS, P.WAKE_SCHEDULER, P.RECORD_ATTEMPTS})
# A function carries out the commands that follow from its event at once, so it also needs the permissions of the next
# steps. Examples: after the confirmed end of a rank the logs are read and checks begin; a refused launch stops the
# tasks that it had started.
_FOLLOW = (
    _NOTIFY
    | _DIAGNOSE
    | {
        P.WRITE_JOBS,
        P.WRITE_INSTANCES,
        P.DESCRIBE_TASKS,
        P.LIST_TASKS,
        P.STOP_TASKS,
        P.RUN_CHECKS,
    }
)
_ADOPT = frozenset({P.DESCRIBE_CONTAINER_INSTANCES})
_READMIT = frozenset({P.SET_CONTAINER_INSTANCE_STATE})
_REPAIR = frozenset(
    {
        P.READ_VERDICTS,
        P.DESCRIBE_CONTAINER_INSTANCES,
        P.SET_CONTAINER_INSTANCE_STATE,
        P.DEREGISTER_CONTAINER_INSTANCES,
        P.REBOOT_INSTANCES,
        P.REPLACE_INSTANCES,
        P.DESCRIBE_EC2_INSTANCES,
        P.DESCRIBE_EC2_STATUS,
    }
)
_LAUNCH = frozenset({P.RUN_TRAINING, P.DESCRIBE_EC2_INSTANCES})
_RESYNC = frozenset({P.DESCRIBE_CONTAINER_INSTANCES, P.LIST_CONTAINER_INSTANCES})
_SERVE = frozenset({P.READ_OPERATOR_TOKEN, P.READ_RAY_LOGS, P.REDRIVE})

_API_ENVIRONMENT = frozenset(
    {"OPERATOR_TOKEN_SECRET", "FAILED_QUEUE_URL", "UNDELIVERED_QUEUE_URL", "SCHEDULER_DEAD_LETTERS_URL"}
)
_NODE_ENVIRONMENT = frozenset({"NODE_ROLE_ARNS"})

FUNCTIONS = (
    # After the last rank's end a held instance is checked. The instance must be ACTIVE for the check.
    FunctionRow("ecs_task_handler", Trigger.TRAINING_TASKS, 110, 512, _FOLLOW | _ADOPT | _READMIT),
    FunctionRow("dcgm_task_monitor", Trigger.CHECK_TASKS, 110, 512, _FOLLOW | _REPAIR),
    FunctionRow("ecs_instance_monitor", Trigger.CONTAINER_INSTANCES, 110, 512, _FOLLOW | _REPAIR),
    # The reconciler carries out commands that any other function did not finish, so it needs all their permissions.
    FunctionRow("reconciler", Trigger.SCHEDULE, 110, 512, _FOLLOW | _REPAIR | _LAUNCH | _RESYNC),
    FunctionRow("scheduler", Trigger.SCHEDULER_QUEUE, 110, 512, _FOLLOW | _LAUNCH | {P.PLACE_JOBS}),
    # The job API cancels jobs: it stops their tasks, also unregistered ranks that a user started. It releases
    # instances: it runs a check, for which the instance must be ACTIVE. It repairs no instance.
    FunctionRow("job_api", Trigger.HTTP, 29, 512, _FOLLOW | _ADOPT | _READMIT | _SERVE, _API_ENVIRONMENT),
    # The node API delivers agent reports to jobs and instances. After a fault the instance is checked. A new boot id
    # ends the ranks of the earlier boot, which stops their gang, also unregistered ranks that a user started. The
    # reconciler carries out the commands that are not begun within seconds. The node API repairs no instance, does not
    # call EC2 and reads no secret. It has half the memory of the others: in a large fleet it runs hundreds of times a
    # second, mostly for one write.
    FunctionRow("node_api", Trigger.NODE_HTTP, 29, 256, _FOLLOW | _ADOPT | _READMIT, _NODE_ENVIRONMENT, often=True),
)
"""The functions of every deployment. `infra/ray_runner.py` adds another if there is a Ray cluster."""


def event_function_arns(settings: DeploymentSettings) -> list[str]:
    """Return the ARNs of the functions that Lambda invokes asynchronously with events."""
    names = [row.name for row in FUNCTIONS if row.trigger.is_asynchronous]
    return [function_arn(function_name(settings, name)) for name in names]


def function_arn(name: str) -> str:
    """Return the ARN of the function with this name in the account.

    The ARN is built from the name, because the role that refers to a function is created before the function.
    """
    return f"arn:{Aws.PARTITION}:lambda:{Aws.REGION}:{Aws.ACCOUNT_ID}:function:{name}"


class LambdaFunctions(Construct):
    """The Lambda functions of `FUNCTIONS`, each with a role of its own. `by_name` holds them by name."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: DeploymentSettings,
        *,
        reach: Reach,
        environment: Mapping[str, str],
        extra_environment: Mapping[str, str],
        queues: Queues,
    ) -> None:
        """Create the functions.

        Args:
            reach: the ARNs that the permissions apply to.
            environment: variables that every function gets.
            extra_environment: variables that a function gets only if its row names them.
            queues: the scheduler's queue, and the queue of failed events.
        """
        super().__init__(scope, construct_id)
        self._settings = settings
        self._reach = reach
        self._failed = queues.failed
        self._layer = powertools_layer(self, settings)
        self._is_traced = CfnCondition(
            self, "Traced", expression=Fn.condition_not(Fn.condition_equals(Aws.PARTITION, "aws-cn"))
        )
        # One asset for all functions, so that two versions of a state machine never run at the same time.
        self._code = lambda_.Code.from_asset(
            str(PACKAGE), exclude=["**/__pycache__/**", "**/*.pyc", "**/.*"], ignore_mode=IgnoreMode.GLOB
        )
        self.by_name = {
            row.name: self._function(
                row, {**environment, **{k: extra_environment[k] for k in sorted(row.extra_environment)}}
            )
            for row in FUNCTIONS
        }
        self.of(Trigger.SCHEDULER_QUEUE).add_event_source(
            event_sources.SqsEventSource(queues.scheduler, batch_size=SCHEDULER_BATCH)
        )

    @property
    def names(self) -> dict[str, str]:
        """Names of the functions in the account, by the name of the stack output."""
        return {f"{row.construct_id}FunctionName": self.by_name[row.name].function_name for row in FUNCTIONS}

    def of(self, trigger: Trigger) -> lambda_.Function:
        """Return the function that this trigger invokes. Each trigger has exactly one function."""
        (row,) = (row for row in FUNCTIONS if row.trigger is trigger)
        return self.by_name[row.name]

    def _function(self, row: FunctionRow, environment: Mapping[str, str]) -> lambda_.Function:
        scope = Construct(self, row.construct_id)
        properties = function_properties(
            scope,
            self._settings,
            name=row.name,
            permissions=row.permissions,
            reach=self._reach,
            timeout_s=row.timeout_s,
            memory_mib=row.memory_mib,
            environment=environment,
        )
        function = lambda_.Function(
            scope,
            "Function",
            **properties,
            handler=row.handler,
            code=self._code,
            runtime=lambda_.Runtime.PYTHON_3_13,
            layers=[self._layer] if self._layer else None,
            system_log_level_v2=lambda_.SystemLogLevel.WARN if row.often else None,
            tracing=lambda_.Tracing.ACTIVE,
            retry_attempts=2 if row.trigger.is_asynchronous else None,
            max_event_age=Duration.hours(1) if row.trigger.is_asynchronous else None,
            on_failure=destinations.SqsDestination(self._failed) if row.trigger.is_asynchronous else None,
        )
        # In China Lambda does not support X-Ray. PassThrough is the default of a function without a tracing mode.
        mode = {"Fn::If": [self._is_traced.logical_id, "Active", "PassThrough"]}
        resource = function.node.default_child
        assert isinstance(resource, lambda_.CfnFunction)
        resource.add_property_override("TracingConfig.Mode", mode)
        return function
