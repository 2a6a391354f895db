"""Alarms, all to the operators' topic: when one of these rings, the stack cannot be trusted to heal by itself."""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.functions import FUNCTIONS, Functions, Trigger
from infra.queues import Queues

_FIVE_MINUTES = Duration.minutes(5)


class Alarms(Construct):
    def __init__(
        self, scope: Construct, construct_id: str, *, topic: sns.ITopic, functions: Functions, queues: Queues
    ) -> None:
        super().__init__(scope, construct_id)
        self._action = actions.SnsAction(topic)
        self._dead_ends(queues.dead_ends)
        self._errors({row.construct_id: functions.by_name[row.name] for row in FUNCTIONS})
        self._reconciler(functions.of(Trigger.SCHEDULE))
        self._scheduler(queues.scheduler)

    def _dead_ends(self, queues: Mapping[str, sqs.Queue]) -> None:
        for name, queue in queues.items():
            self._alarm(
                f"{name}NotEmpty",
                queue.metric_approximate_number_of_messages_visible(period=Duration.minutes(1), statistic="Maximum"),
                description=f"Messages nobody could handle wait in {queue.queue_name}",
            )

    def _errors(self, functions: Mapping[str, lambda_.Function]) -> None:
        for name, function in functions.items():
            self._alarm(
                f"{name}Errors",
                function.metric_errors(period=_FIVE_MINUTES),
                description=f"{name} failed; its events are retried, then kept in the queue of failed events",
            )

    def _reconciler(self, function: lambda_.Function) -> None:
        # Nothing arrives when nothing runs: silence itself is the alarm.
        self._alarm(
            "ReconcilerSilent",
            function.metric_invocations(period=_FIVE_MINUTES),
            below=1,
            evaluations=2,
            missing=cloudwatch.TreatMissingData.BREACHING,
            description="The reconciler has not run for ten minutes: deadlines pass unnoticed",
        )

    def _scheduler(self, queue: sqs.Queue) -> None:
        self._alarm(
            "SchedulerLate",
            queue.metric_approximate_age_of_oldest_message(period=_FIVE_MINUTES, statistic="Maximum"),
            above=300,
            description="A message for the scheduler is older than five minutes: jobs are not placed",
        )

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        *,
        description: str,
        above: int = 0,
        below: int | None = None,
        evaluations: int = 1,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        compare = cloudwatch.ComparisonOperator
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            alarm_description=description,
            evaluation_periods=evaluations,
            threshold=above if below is None else below,
            treat_missing_data=missing,
            comparison_operator=compare.GREATER_THAN_THRESHOLD if below is None else compare.LESS_THAN_THRESHOLD,
        )
        alarm.add_alarm_action(self._action)
        alarm.add_ok_action(self._action)
