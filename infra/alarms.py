"""CloudWatch alarms of the stack. Every alarm notifies the operators' topic.

An alarm means that the stack may be unable to repair faults by itself. The first sentence of its description states the
problem, the second names the runbook.

There is one alarm for each cause that operators handle alike, over all functions, rules or tables concerned. The graphs
of the dashboard show which of them it is. An alarm notifies once until it is OK again. So each queue and each topic has
an alarm of its own. The reconciler and the scheduler share no alarm on errors, missing runs or delay. Both share the
alarms on throttling, on stopped loops and on undelivered events with the other functions.

Missing data: a count of failures is sent only if there are failures, so missing data is not breaching. There are two
exceptions. On invocations of the reconciler missing data is breaching. On metrics of DynamoDB CloudWatch ignores
missing data, whatever the alarm says, and the alarm keeps its state (PutMetricAlarm, TreatMissingData). So alarms on
tables count missing data points as 0 (`total`, `filled`).

Every alarm notifies when it enters ALARM. Operators wait for the end of a lasting state, so the alarms of such states
also notify when they return to OK. The other alarms do not: a new alarm becomes OK at its first evaluation, and a first
deployment would send dozens of e-mails.
"""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.metrics import FIVE_MINUTES, HOUR, MonitoredResources, of_rule, of_table, our_metric, total, undelivered

RUNBOOKS = "docs/runbooks"
OVERDUE_S_MAX = 900
"""Seconds past a deadline above which an alarm is raised.

The reconciler processes due records every few minutes. So nothing has acted on a deadline that is overdue by this time.
"""
PAUSED_S_MAX = 14_400
"""Seconds of a pause of all repairs above which an alarm is raised: four hours."""
SCHEDULER = "Scheduler"
"""Name of the group of the function that counts failures of single jobs instead of raising them."""
REBOOTS_PER_HOUR_MAX = 5
"""Reboots within an hour above which an alarm is raised."""
FOR_READERS = ("EventRecorder",)
"""Functions that only write for readers. They send nothing, so they cannot loop. If they are throttled, Lambda repeats
their events for an hour and then stores them in a dead-letter queue, which has an alarm."""
REFUSED_TOGETHER = {
    "JobTableThrottled": {"Jobs": "jobs"},
    "InstanceTableThrottled": {"Instances": "instances", "EventHistory": "events"},
}
"""Tables that share an alarm on throttled calls, with their names in its description, by the name of the alarm. The
event history has no alarm of its own, because recovery does not depend on it."""
MESSAGE_AGE_S_MAX = 300
"""Age in seconds of the oldest message for the scheduler above which an alarm is raised."""


class Alarms(Construct):
    """The alarms of the recovery stack.

    Args:
        topic: the operators' topic, which every alarm notifies.
        watched: the resources that the alarms watch.

    `all` holds every alarm, for the dashboard.
    """

    def __init__(self, scope: Construct, construct_id: str, *, topic: sns.ITopic, watched: MonitoredResources) -> None:
        super().__init__(scope, construct_id)
        self._action = actions.SnsAction(topic)
        self.all: list[cloudwatch.Alarm] = []
        self._recoveries()
        self._notifications(watched)
        self._dead_letters(watched)
        self._functions(watched)
        self._schedules(watched)
        self._services(watched)

    def _recoveries(self) -> None:
        self._alarm(
            "RecoveryOverdue",
            "recovery-overdue",
            our_metric("OverdueSeconds", "Maximum"),
            above=OVERDUE_S_MAX,
            evaluations=2,
            notify_ok=True,
            sentence=f"A job or an instance is more than {OVERDUE_S_MAX // 60} minutes past its deadline",
        )
        self._alarm(
            "BreakerOpen",
            "breaker-open",
            our_metric("BreakerOpenSeconds", "Maximum"),
            notify_ok=True,
            sentence="The circuit breaker is open: many instances are suspected at once, and no new repair begins",
        )
        self._alarm(
            "RecoveryPaused",
            "recovery-paused",
            our_metric("PausedSeconds", "Maximum"),
            above=PAUSED_S_MAX,
            notify_ok=True,
            sentence="Recovery has been paused for four hours: no instance is repaired",
        )
        self._alarm(
            "ManyReboots",
            "many-reboots",
            our_metric("Reboots", "Sum", HOUR),
            above=REBOOTS_PER_HOUR_MAX,
            sentence=f"More than {REBOOTS_PER_HOUR_MAX} instances were rebooted within an hour",
        )

    def _notifications(self, watched: MonitoredResources) -> None:
        for name, topic in watched.topics.items():
            self._alarm(
                f"{name}DeliveryFailed",
                "notifications-not-delivered",
                undelivered(topic),
                sentence=f"SNS could not deliver a message of the topic {name} to a subscriber",
            )
        self._alarm(
            "NoticesFailed",
            "notifications-not-delivered",
            our_metric("NoticesFailed", "Sum"),
            recurring=True,
            sentence="Messages to operators cannot be published; they stay saved and are tried again",
        )
        self._alarm(
            "EventsNotSent",
            "events-not-sent",
            our_metric("Unsaid", "Sum"),
            recurring=True,
            sentence="Events on the bus or wake-ups of functions cannot be sent; they stay saved and are tried again",
        )

    def _dead_letters(self, watched: MonitoredResources) -> None:
        for name, queue in watched.dead_letter_queues.items():
            depth = queue.metric_approximate_number_of_messages_visible(period=Duration.minutes(1), statistic="Maximum")
            sentence = f"The dead-letter queue {name} has messages"
            self._alarm(f"{name}NotEmpty", "dead-letters", depth, sentence=sentence)
        self._alarm(
            "FunctionEventsLost",
            "events-lost",
            total(_of_functions(watched.asynchronous, "DestinationDeliveryFailures")),
            sentence="An event was lost: a function failed on it, and the dead-letter queue did not accept it",
        )
        for name, metric, sentence in (
            ("RuleInvocationsFailed", "FailedInvocations", "EventBridge stopped trying to deliver events of a rule"),
            (
                "RuleEventsLost",
                "InvocationsFailedToBeSentToDlq",
                "EventBridge lost events of a rule: the dead-letter queue did not accept them",
            ),
        ):
            self._alarm(name, "events-lost", total(_of_rules(watched, metric)), sentence=sentence)
        self._alarm(
            "RuleEventsDeadLettered",
            "dead-letters",
            total(_of_rules(watched, "InvocationsSentToDlq")),
            sentence="EventBridge could not deliver events of a rule, and stored them in the dead-letter queue",
        )

    def _functions(self, watched: MonitoredResources) -> None:
        for name, functions in watched.function_groups.items():
            errors: dict[str, cloudwatch.IMetric] = {**_of_functions(functions, "Errors")}
            if name == SCHEDULER:
                # The scheduler counts failures of single jobs and does not raise them. Otherwise its message would
                # return to the FIFO queue and block all others.
                errors["placements"] = our_metric("PlacementsFailed", "Sum")
            self._alarm(
                f"{name}Errors",
                "function-errors",
                total(errors),
                recurring=True,
                sentence=f"Repeated errors of {', '.join(functions)}",
            )
        acting = {name: function for name, function in watched.functions.items() if name not in FOR_READERS}
        self._alarm(
            "FunctionsThrottled",
            "function-throttled",
            total(_of_functions(acting, "Throttles")),
            recurring=True,
            sentence="Lambda throttles functions: the concurrency limit of the account or of the function is reached",
        )
        # Lambda sends this metric only where its detection of recursive loops is on: not in every region, and by the
        # template not for the two functions that wake themselves.
        self._alarm(
            "RecursiveLoopStopped",
            "recursive-loop-stopped",
            total(_of_functions(acting, "RecursiveInvocationsDropped")),
            sentence="Lambda has stopped a function, because it counts a chain of messages as a recursive loop",
        )

    def _schedules(self, watched: MonitoredResources) -> None:
        # A reconciler that does not run sends no data points, so missing data is breaching.
        self._alarm(
            "ReconcilerNotRunning",
            "reconciler-not-running",
            watched.reconciler.metric_invocations(period=FIVE_MINUTES),
            below=1,
            evaluations=2,
            missing=cloudwatch.TreatMissingData.BREACHING,
            notify_ok=True,
            sentence="The reconciler has not run for ten minutes: deadlines pass without action",
        )
        for name, sentence in (
            ("Scheduler", "A message for the scheduler is older than five minutes: jobs are not placed"),
            ("Ray", "A message for the Ray runner is older than five minutes: jobs on Ray are not submitted"),
        ):
            if name in watched.work_queues:
                age = watched.work_queues[name].metric_approximate_age_of_oldest_message(
                    period=FIVE_MINUTES, statistic="Maximum"
                )
                self._alarm(f"{name}Late", f"{name.lower()}-late", age, above=MESSAGE_AGE_S_MAX, sentence=sentence)

    def _services(self, watched: MonitoredResources) -> None:
        # ReadThrottleEvents and WriteThrottleEvents count the table without its indexes. Throttled reads of an index
        # are among ThrottledRequests of Query, because indexes are read by Query.
        for name, tables in REFUSED_TOGETHER.items():
            refused = {
                f"{table}{what}": of_table(watched.tables[table], metric, operation)
                for table in tables
                for what, metric, operation in (
                    ("Reads", "ReadThrottleEvents", ""),
                    ("Writes", "WriteThrottleEvents", ""),
                    ("Queries", "ThrottledRequests", "Query"),
                )
            }
            self._alarm(
                name,
                "dynamodb-throttled",
                total(refused, filled=True),
                recurring=True,
                sentence=f"DynamoDB throttles the table of {' or of '.join(tables.values())}",
            )
        # A decision begins with a GetItem and ends with a PutItem. Other throttled or failed operations make a function
        # fail, which the alarms on function errors show.
        failing = {
            f"{name}{operation}": of_table(table, "SystemErrors", operation)
            for name, table in watched.tables.items()
            for operation in ("GetItem", "PutItem")
        }
        self._alarm(
            "TablesFailing",
            "dynamodb-throttled",
            total(failing, filled=True),
            recurring=True,
            sentence="DynamoDB answers reads or writes with its own errors (5xx)",
        )
        self._alarm(
            "ApiFailing",
            "api-failing",
            watched.api.metric_server_error(period=FIVE_MINUTES, statistic="Sum"),
            recurring=True,
            sentence="The API answers with server errors (5xx)",
        )

    def _alarm(
        self,
        name: str,
        runbook: str,
        metric: cloudwatch.IMetric,
        *,
        sentence: str,
        above: int = 0,
        below: int | None = None,
        evaluations: int = 1,
        recurring: bool = False,
        notify_ok: bool = False,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        """Add one alarm that notifies the operators' topic.

        Args:
            name: construct id.
            runbook: file name of the runbook, without folder and suffix.
            metric: the metric that is compared with the threshold.
            sentence: what is wrong; first sentence of the description.
            above: threshold; a greater value is breaching. Ignored if `below` is given.
            below: threshold; a smaller value is breaching.
            evaluations: consecutive breaching periods that raise the alarm.
            recurring: raise the alarm at the second breaching period of three. A single failure is retried and needs
                no operator.
            notify_ok: notify also when the alarm returns to OK. A new alarm does so once, at its first evaluation.
            missing: how missing data is treated.
        """
        compare = cloudwatch.ComparisonOperator
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            alarm_description=f"{sentence}. Runbook: {RUNBOOKS}/{runbook}.md",
            evaluation_periods=3 if recurring else evaluations,
            datapoints_to_alarm=2 if recurring else evaluations,
            threshold=above if below is None else below,
            treat_missing_data=missing,
            comparison_operator=compare.GREATER_THAN_THRESHOLD if below is None else compare.LESS_THAN_THRESHOLD,
        )
        alarm.add_alarm_action(self._action)
        if notify_ok:
            alarm.add_ok_action(self._action)
        self.all.append(alarm)


def _of_functions(functions: Mapping[str, lambda_.Function], name: str) -> dict[str, cloudwatch.Metric]:
    return {each: function.metric(name, period=FIVE_MINUTES, statistic="Sum") for each, function in functions.items()}


def _of_rules(watched: MonitoredResources, name: str) -> dict[str, cloudwatch.Metric]:
    return {each: of_rule(rule, name) for each, rule in watched.rules.items()}
