"""Which events wake which function.

Rules select by exact cluster ARN, by the family of the task definition and by `lastStatus`, and by nothing else: what
an event means is decided in code. A prefix of a cluster ARN would also admit `name-2`; an exact task definition ARN
would go blind at the next revision; a filter on exit codes never sees the codes that are missing.

EC2, AWS Health and CloudWatch know no cluster: their events of every machine of the account arrive, and the function
that gets them looks whether it holds a record of that machine.
"""

from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.cluster import ClusterArns
from infra.functions import LambdaFunctions, Trigger
from infra.queues import Queues
from infra.settings import DeploymentSettings

SCHEDULER_MESSAGE_GROUP = "scheduler"
_MACHINES = {
    "Machines": events.EventPattern(
        source=["aws.ec2"],
        detail_type=[
            "EC2 Instance State-change Notification",
            "EC2 Spot Instance Interruption Warning",
            "EC2 Capacity Reservation Instance Interruption Warning",
            "EC2 Instance Rebalance Recommendation",
        ],
    ),
    "MachinePlans": events.EventPattern(
        source=["aws.health"], detail_type=["AWS Health Event"], detail={"service": ["EC2"]}
    ),
    # An account may have thousands of alarms; those on EC2's status checks are told by their metric.
    "StatusChecks": events.EventPattern(
        source=["aws.cloudwatch"],
        detail_type=["CloudWatch Alarm State Change"],
        detail={
            "configuration": {
                "metrics": {
                    "metricStat": {
                        "metric": {"namespace": ["AWS/EC2"], "name": [{"prefix": "StatusCheckFailed"}]},
                    }
                }
            }
        },
    ),
}
"""What EC2, AWS Health and CloudWatch say of machines, by the name of its rule."""


class EventRules(Construct):
    """Rules on the default bus, the only one ECS publishes to, and the two schedules."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: DeploymentSettings,
        *,
        cluster: ClusterArns,
        functions: LambdaFunctions,
        queues: Queues,
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
                pattern=events.EventPattern(
                    source=["aws.ecs"], detail_type=detail_types, detail={"clusterArn": [cluster.arn], **detail}
                ),
            )
        for name, pattern in _MACHINES.items():
            self._rule(name, self._function(functions, Trigger.CONTAINER_INSTANCES), pattern=pattern)
        self._rule(
            "Reconcile", self._function(functions, Trigger.SCHEDULE), every_minutes=settings.reconcile_every_minutes
        )
        # No input of our own: a constant body would be taken for a duplicate of the one before and dropped.
        tick = targets.SqsQueue(queues.scheduler, message_group_id=SCHEDULER_MESSAGE_GROUP, **self._delivery())
        self._rule("Schedule", tick, every_minutes=settings.schedule_every_minutes)

    def _rule(
        self,
        construct_id: str,
        target: events.IRuleTarget,
        *,
        pattern: events.EventPattern | None = None,
        every_minutes: int | None = None,
    ) -> None:
        schedule = events.Schedule.rate(Duration.minutes(every_minutes)) if every_minutes else None
        self.by_name[construct_id] = events.Rule(
            self, construct_id, event_pattern=pattern, schedule=schedule, targets=[target]
        )

    def _function(self, functions: LambdaFunctions, trigger: Trigger) -> targets.LambdaFunction:
        return targets.LambdaFunction(functions.of(trigger), **self._delivery())

    def _delivery(self) -> dict[str, Any]:
        # An hour of tries, then the dead letters: by then the reconciler has long seen for itself what the event told.
        return {"dead_letter_queue": self._undelivered, "retry_attempts": 24, "max_event_age": Duration.hours(1)}
