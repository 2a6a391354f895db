"""EventBridge rules and schedules, each with the function that it invokes. One rule is on our own bus.

Rules for ECS events select only by exact cluster ARN, by task definition family and by `lastStatus`. Code decides what
an event means. Other filters would be wrong:

- A prefix of a cluster ARN would also match the cluster `name-2`.
- An exact task definition ARN would match no event of the next revision.
- A filter on exit codes would miss events without an exit code.

Every rule names the account and the region of the deployment. Others may forward their events to our bus.

Events of EC2, AWS Health and CloudWatch name no cluster. So the events of every instance of the account arrive, and the
function ignores an instance of which there is no record.
"""

from typing import Any

from aws_cdk import Aws, Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct
from gpu_recovery.core.event_origin import OWN_SOURCE
from gpu_recovery.core.health_signals import CAPACITY_BLOCK_WARNINGS

from infra.cluster import ClusterArns
from infra.functions import Trigger
from infra.lambda_functions import LambdaFunctions
from infra.queues import Queues
from infra.settings import DeploymentSettings

SCHEDULER_MESSAGE_GROUP = "scheduler"
"""The only message group of the scheduler's FIFO queue, so that at most one run of the scheduler is active."""
_INSTANCE_EVENTS: dict[str, dict[str, Any]] = {
    "Machines": {
        "source": ["aws.ec2"],
        "detail_type": [
            "EC2 Instance State-change Notification",
            "EC2 Spot Instance Interruption Warning",
            "EC2 Capacity Reservation Instance Interruption Warning",
            "EC2 Instance Rebalance Recommendation",
            *CAPACITY_BLOCK_WARNINGS,
        ],
    },
    "MachinePlans": {"source": ["aws.health"], "detail_type": ["AWS Health Event"], "detail": {"service": ["EC2"]}},
    # An account may have thousands of alarms. The metric selects the alarms on EC2 status checks.
    "StatusChecks": {
        "source": ["aws.cloudwatch"],
        "detail_type": ["CloudWatch Alarm State Change"],
        "detail": {
            "configuration": {
                "metrics": {
                    "metricStat": {
                        "metric": {"namespace": ["AWS/EC2"], "name": [{"prefix": "StatusCheckFailed"}]},
                    }
                }
            }
        },
    },
}
"""Patterns for events of EC2, AWS Health and CloudWatch about instances, by the name of the rule."""


class EventRules(Construct):
    """Rules on the default bus, which is the only bus that ECS publishes to, a rule on our bus, and the two schedules.

    Args:
        bus: the bus of our own events, which the event recorder writes into the event history.
        cluster: ARNs of the watched cluster.
        functions: the functions that the rules invoke.
        queues: the scheduler's queue, and the dead-letter queue of the rules.

    `by_name` holds every rule.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: DeploymentSettings,
        *,
        cluster: ClusterArns,
        functions: LambdaFunctions,
        queues: Queues,
        bus: events.IEventBus,
    ) -> None:
        super().__init__(scope, construct_id)
        self._undelivered = queues.undelivered
        self.by_name: dict[str, events.Rule] = {}
        check_family = cluster.task_definition_prefix(settings.check_family)
        task = ["ECS Task State Change"]
        instance = ["ECS Container Instance State Change", "ECS Container Instance Health Change"]
        for trigger, detail_types, detail in (
            (
                Trigger.TRAINING_TASKS,
                task,
                {
                    "taskDefinitionArn": [{"anything-but": {"prefix": check_family}}],
                    "lastStatus": ["RUNNING", "STOPPED"],
                },
            ),
            (Trigger.CHECK_TASKS, task, {"taskDefinitionArn": [{"prefix": check_family}], "lastStatus": ["STOPPED"]}),
            (Trigger.CONTAINER_INSTANCES, instance, {}),
        ):
            self._rule(
                trigger.value,
                self._function(functions, trigger),
                pattern={
                    "source": ["aws.ecs"],
                    "detail_type": detail_types,
                    "detail": {"clusterArn": [cluster.arn], **detail},
                },
            )
        for name, pattern in _INSTANCE_EVENTS.items():
            self._rule(name, self._function(functions, Trigger.CONTAINER_INSTANCES), pattern=pattern)
        self._rule(
            "Reconcile", self._function(functions, Trigger.SCHEDULE), every_minutes=settings.reconcile_every_minutes
        )
        # The body is the event itself. A constant body would have the same de-duplication id each time, and SQS would
        # drop the message as a duplicate.
        tick = targets.SqsQueue(queues.scheduler, message_group_id=SCHEDULER_MESSAGE_GROUP, **self._delivery())
        self._rule("Schedule", tick, every_minutes=settings.schedule_every_minutes)
        recorder = self._function(functions, Trigger.RECORDED_EVENTS)
        self._rule("RecordedEvents", recorder, pattern={"source": [OWN_SOURCE]}, bus=bus)

    def _rule(
        self,
        construct_id: str,
        target: events.IRuleTarget,
        *,
        pattern: dict[str, Any] | None = None,
        every_minutes: int | None = None,
        bus: events.IEventBus | None = None,
    ) -> None:
        event_pattern = (
            events.EventPattern(account=[Aws.ACCOUNT_ID], region=[Aws.REGION], **pattern) if pattern else None
        )
        schedule = events.Schedule.rate(Duration.minutes(every_minutes)) if every_minutes else None
        self.by_name[construct_id] = events.Rule(
            self, construct_id, event_bus=bus, event_pattern=event_pattern, schedule=schedule, targets=[target]
        )

    def _function(self, functions: LambdaFunctions, trigger: Trigger) -> targets.LambdaFunction:
        return targets.LambdaFunction(functions.of(trigger), **self._delivery())

    def _delivery(self) -> dict[str, Any]:
        # EventBridge retries for an hour, then moves the event to the dead-letter queue. By then the reconciler has
        # long found the same fact by polling.
        return {"dead_letter_queue": self._undelivered, "retry_attempts": 24, "max_event_age": Duration.hours(1)}
