"""Which events wake which function.

Rules select by exact cluster ARN, by the family of the task definition and by `lastStatus`, and by nothing else: what
an event means is decided in code. A prefix of a cluster ARN would also admit `name-2`; an exact task definition ARN
would go blind at the next revision; a filter on exit codes never sees the codes that are missing.
"""

from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.cluster import Cluster
from infra.functions import Functions, Trigger
from infra.queues import Queues
from infra.settings import DeploymentSettings

SCHEDULER_MESSAGE_GROUP = "scheduler"


class EventRules(Construct):
    """Rules on the default bus, the only one ECS publishes to, and the two schedules."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: DeploymentSettings,
        *,
        cluster: Cluster,
        functions: Functions,
        queues: Queues,
    ) -> None:
        super().__init__(scope, construct_id)
        self._undelivered = queues.undelivered
        check_family = cluster.task_definition_prefix(settings.check_family)
        task, instance = "ECS Task State Change", "ECS Container Instance State Change"
        for trigger, detail_type, detail in (
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
                    source=["aws.ecs"], detail_type=[detail_type], detail={"clusterArn": [cluster.arn], **detail}
                ),
            )
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
        events.Rule(self, construct_id, event_pattern=pattern, schedule=schedule, targets=[target])

    def _function(self, functions: Functions, trigger: Trigger) -> targets.LambdaFunction:
        return targets.LambdaFunction(functions.of(trigger), **self._delivery())

    def _delivery(self) -> dict[str, Any]:
        # An hour of tries, then the dead letters: by then the reconciler has long seen for itself what the event told.
        return {"dead_letter_queue": self._undelivered, "retry_attempts": 24, "max_event_age": Duration.hours(1)}
