"""Construct that creates the Lambda functions of the table in `infra/functions.py`."""

from collections.abc import Mapping

from aws_cdk import Aws, Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_lambda_event_sources as event_sources
from constructs import Construct

from infra.function_code import code_of
from infra.function_properties import (
    allow_loops,
    function_name,
    function_properties,
    log_as_json,
    resource_of,
    start_from_snapshot,
)
from infra.functions import FUNCTIONS, PACKAGE, SCHEDULER_BATCH, FunctionRow, Trigger
from infra.partition import Feature, where_available
from infra.permissions import Permission, Reach
from infra.powertools import powertools_layer
from infra.queues import Queues
from infra.settings import DeploymentSettings


def event_function_arns(settings: DeploymentSettings) -> list[str]:
    """Return the ARNs of the functions that Lambda invokes asynchronously with events."""
    names = [row.name for row in FUNCTIONS if row.trigger.is_asynchronous]
    return [function_arn(function_name(settings, name)) for name in names]


def executor_name(settings: DeploymentSettings) -> str:
    """Return the name of the function that executes the commands which the two API functions leave in records."""
    return _name_of(settings, Trigger.LEFT_COMMANDS)


def recorder_name(settings: DeploymentSettings) -> str:
    """Return the name of the function that writes the event history."""
    return _name_of(settings, Trigger.RECORDED_EVENTS)


def _name_of(settings: DeploymentSettings, trigger: Trigger) -> str:
    (row,) = (row for row in FUNCTIONS if row.trigger is trigger)
    return function_name(settings, row.name)


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
        # One asset for all functions, so that two versions of a state machine never run at the same time.
        self._code = code_of(PACKAGE, "/var/task")
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

    @property
    def by_alarm_group(self) -> dict[str, dict[str, lambda_.Function]]:
        """The functions by construct id, by the group that shares an alarm on errors."""
        groups: dict[str, dict[str, lambda_.Function]] = {}
        for row in FUNCTIONS:
            groups.setdefault(row.alarm_group, {})[row.construct_id] = self.by_name[row.name]
        return groups

    @property
    def served(self) -> lambda_.IFunction:
        """The job API as API Gateway invokes it: an alias of a version if it starts from snapshots."""
        function = self.of(Trigger.HTTP)
        if not self._settings.snap_start:
            return function
        return lambda_.Alias(self, "Served", alias_name="served", version=function.current_version)

    def add_to_notifiers(self, variables: Mapping[str, str]) -> None:
        """Add variables to the functions that notify operators."""
        for row in FUNCTIONS:
            if Permission.NOTIFY_OPERATORS in row.permissions:
                for name, value in variables.items():
                    self.by_name[row.name].add_environment(name, value)

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
            layers=[self._layer],
            tracing=lambda_.Tracing.ACTIVE,
            retry_attempts=2 if row.trigger.is_asynchronous else None,
            max_event_age=Duration.hours(1) if row.trigger.is_asynchronous else None,
            reserved_concurrent_executions=(self._settings.reserved_concurrency or None) if row.is_central else None,
            on_failure=destinations.SqsDestination(self._failed) if row.trigger.is_asynchronous else None,
        )
        log_as_json(function, self._settings, system_level="WARN" if row.often else "")
        # PassThrough is the default of a function without a tracing mode.
        tracing = where_available(self, Feature.X_RAY, "Active", "PassThrough")
        resource_of(function).add_property_override("TracingConfig.Mode", tracing)
        if row.trigger is Trigger.SCHEDULER_QUEUE:
            allow_loops(function)
        if row.trigger is Trigger.HTTP and self._settings.snap_start:
            start_from_snapshot(function)
        return function
