"""The table of functions, and the construct that makes Lambda functions of it.

A row says all there is to say about a function: what wakes it, how long it may take, what it may do. Rules, queues,
API, alarms and tests read this table; a new function is a new row.
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
SCHEDULER_BATCH = 10  # one run of the scheduler answers every message that waits


class Trigger(StrEnum):
    TRAINING_TASKS = "TrainingTasks"
    CHECK_TASKS = "CheckTasks"
    CONTAINER_INSTANCES = "ContainerInstances"
    SCHEDULE = "Schedule"
    SCHEDULER_QUEUE = "SchedulerQueue"
    HTTP = "Http"
    NODE_HTTP = "NodeHttp"

    @property
    def is_asynchronous(self) -> bool:
        """Lambda queues the event itself: an error is seen only by its retries and its failure destination."""
        return self not in (Trigger.SCHEDULER_QUEUE, Trigger.HTTP, Trigger.NODE_HTTP)


@dataclass(frozen=True)
class FunctionRow:
    """One function. `timeout_s` stays under 120: the core's claims last 180 s, and a claim must outlive its holder.

    often: it runs so often that Lambda's own lines about each run would cost more than the runs.
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
        return f"{self.name}.handler"

    @property
    def construct_id(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


_DIAGNOSE = frozenset({P.DESCRIBE_TASK_DEFINITIONS, P.READ_TRAINING_LOGS})
_TELL = frozenset({P.NOTIFY_OPERATORS, P.PUBLISH_EVENTS, P.WAKE_SCHEDULER, P.RECORD_ATTEMPTS})
# A function acts at once on what follows from its event, so it may need the calls of a step or two further on: a rank
# that is confirmed to have ended has the logs read and the checks begin, a launch that was refused stops what it had
# started.
_FOLLOW = (
    _TELL
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
_COMPARE = frozenset({P.DESCRIBE_CONTAINER_INSTANCES, P.LIST_CONTAINER_INSTANCES})
_SERVE = frozenset({P.READ_OPERATOR_TOKEN, P.READ_RAY_LOGS, P.REDRIVE})

_API_ENVIRONMENT = frozenset(
    {"OPERATOR_TOKEN_SECRET", "FAILED_QUEUE_URL", "UNDELIVERED_QUEUE_URL", "SCHEDULER_DEAD_LETTERS_URL"}
)
_NODE_ENVIRONMENT = frozenset({"NODE_ROLE_ARNS"})

FUNCTIONS = (
    # The last rank's end has a held instance checked, which must be ACTIVE for it.
    FunctionRow("ecs_task_handler", Trigger.TRAINING_TASKS, 110, 512, _FOLLOW | _ADOPT | _READMIT),
    FunctionRow("dcgm_task_monitor", Trigger.CHECK_TASKS, 110, 512, _FOLLOW | _REPAIR),
    FunctionRow("ecs_instance_monitor", Trigger.CONTAINER_INSTANCES, 110, 512, _FOLLOW | _REPAIR),
    # The reconciler finishes what any other left undone, so it may do what any of them may.
    FunctionRow("reconciler", Trigger.SCHEDULE, 110, 512, _FOLLOW | _REPAIR | _LAUNCH | _COMPARE),
    FunctionRow("scheduler", Trigger.SCHEDULER_QUEUE, 110, 512, _FOLLOW | _LAUNCH | {P.PLACE_JOBS}),
    # It cancels (stops tasks, ranks of a person that nobody saw among them) and releases (runs a check on an instance
    # that must be ACTIVE for it); it never repairs.
    FunctionRow("job_api", Trigger.HTTP, 29, 512, _FOLLOW | _ADOPT | _READMIT | _SERVE, _API_ENVIRONMENT),
    # What agents report is told to jobs and instances: a fault has the instance checked, another boot ends the ranks of
    # the one before, which stops their gang, ranks of a person that nobody saw among them. What it has not begun within
    # seconds the reconciler does. It repairs nothing, asks EC2 nothing, and reads no secret. Half the memory
    # of the others: in a large fleet it runs hundreds of times a second, mostly for one write.
    FunctionRow("node_api", Trigger.NODE_HTTP, 29, 256, _FOLLOW | _ADOPT | _READMIT, _NODE_ENVIRONMENT, often=True),
)


def event_function_arns(settings: DeploymentSettings) -> list[str]:
    """The functions that take events."""
    names = [row.name for row in FUNCTIONS if row.trigger.is_asynchronous]
    return [function_arn(function_name(settings, name)) for name in names]


def function_arn(name: str) -> str:
    """The function of this name: a role that speaks of functions is made before they are."""
    return f"arn:{Aws.PARTITION}:lambda:{Aws.REGION}:{Aws.ACCOUNT_ID}:function:{name}"


class LambdaFunctions(Construct):
    """One Lambda function per row, each with a role of its own. `by_name` finds them."""

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
        """`extra_environment` holds variables that only rows naming them get."""
        super().__init__(scope, construct_id)
        self._settings = settings
        self._reach = reach
        self._failed = queues.failed
        self._layer = powertools_layer(self, settings)
        self._is_traced = CfnCondition(
            self, "Traced", expression=Fn.condition_not(Fn.condition_equals(Aws.PARTITION, "aws-cn"))
        )
        # The folder is the package: one asset for all, so that the state machine never runs in two versions at once.
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
        return {f"{row.construct_id}FunctionName": self.by_name[row.name].function_name for row in FUNCTIONS}

    def of(self, trigger: Trigger) -> lambda_.Function:
        """The one function that this trigger wakes."""
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
        # In China Lambda does not work with X-Ray; PassThrough is what a function has that says nothing.
        mode = {"Fn::If": [self._is_traced.logical_id, "Active", "PassThrough"]}
        resource = function.node.default_child
        assert isinstance(resource, lambda_.CfnFunction)
        resource.add_property_override("TracingConfig.Mode", mode)
        return function
