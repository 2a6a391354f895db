"""Alarms, all to the operators' topic: when one of these rings, the stack cannot be trusted to heal by itself.

Each says in one sentence what is wrong and names its runbook, which says what to do. Where no data is no trouble
(counts of failures are sent only when there are any) missing data is good news; where silence is the trouble it rings.

All of them tell when they ring. Only those of a state whose end somebody waits for tell that, too: a new alarm becomes
OK as soon as it is evaluated, and a first deployment would begin with dozens of mails about nothing.
"""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.metrics import FIVE_MINUTES, HOUR, MonitoredResources, of_rule, of_table, our_metric, undelivered

RUNBOOKS = "docs/runbooks"
OVERDUE_S_MAX = 900
"""The reconciler opens what is due every few minutes: a deadline missed by this much has not been acted on."""
PAUSED_S_MAX = 14_400
REBOOTS_PER_HOUR_MAX = 5
MESSAGE_AGE_S_MAX = 300


class Alarms(Construct):
    """`all` holds every alarm, for the dashboard."""

    def __init__(self, scope: Construct, construct_id: str, *, topic: sns.ITopic, watched: MonitoredResources) -> None:
        super().__init__(scope, construct_id)
        self._action = actions.SnsAction(topic)
        self.all: list[cloudwatch.Alarm] = []
        self._recoveries()
        self._words(watched)
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
            tells_end=True,
            says="A job or an instance is long past its deadline and nothing moves it",
        )
        self._alarm(
            "BreakerOpen",
            "breaker-open",
            our_metric("BreakerOpenSeconds", "Maximum"),
            tells_end=True,
            says="So many instances look bad at once that no repair begins",
        )
        self._alarm(
            "RecoveryPaused",
            "recovery-paused",
            our_metric("PausedSeconds", "Maximum"),
            above=PAUSED_S_MAX,
            tells_end=True,
            says="Recovery has been paused for four hours: faults are not healed",
        )
        self._alarm(
            "RebootsMany",
            "reboots-many",
            our_metric("Reboots", "Sum", HOUR),
            above=REBOOTS_PER_HOUR_MAX,
            says=f"More than {REBOOTS_PER_HOUR_MAX} instances were rebooted within an hour",
        )

    def _words(self, watched: MonitoredResources) -> None:
        for name, topic in watched.topics.items():
            self._alarm(
                f"{name}Unreached",
                "notices-lost",
                undelivered(topic),
                says=f"SNS could not deliver a message of the topic {name} to a subscriber",
            )
        self._alarm(
            "NoticesFailed",
            "notices-lost",
            our_metric("NoticesFailed", "Sum"),
            again=True,
            says="Messages to operators cannot be published; they are kept and tried again",
        )
        self._alarm(
            "WordsUnsaid",
            "words-unsaid",
            our_metric("Unsaid", "Sum"),
            again=True,
            says="Events on the bus or calls for the scheduler cannot be sent; they are kept and tried again",
        )

    def _dead_letters(self, watched: MonitoredResources) -> None:
        for name, queue in watched.dead_letter_queues.items():
            depth = queue.metric_approximate_number_of_messages_visible(period=Duration.minutes(1), statistic="Maximum")
            self._alarm(f"{name}NotEmpty", "dead-letters", depth, says=f"Messages that nobody could handle: {name}")
        for name, function in watched.asynchronous.items():
            lost = function.metric("DestinationDeliveryFailures", period=FIVE_MINUTES, statistic="Sum")
            self._alarm(
                f"{name}EventsLost",
                "events-lost",
                lost,
                says=f"{name} gave up an event, and not even the queue of failed events could take it",
            )
        for name, rule in watched.rules.items():
            self._alarm(
                f"{name}RuleFailed",
                "events-lost",
                of_rule(rule, "FailedInvocations"),
                says=f"EventBridge gave up events of the rule {name} for good",
            )
            self._alarm(
                f"{name}RuleDeadLettered",
                "dead-letters",
                of_rule(rule, "InvocationsSentToDlq"),
                says=f"EventBridge could not deliver events of the rule {name} and has put them aside",
            )
            self._alarm(
                f"{name}RuleLost",
                "events-lost",
                of_rule(rule, "InvocationsFailedToBeSentToDlq"),
                says=f"EventBridge could put events of the rule {name} nowhere, and they are gone",
            )

    def _functions(self, watched: MonitoredResources) -> None:
        for name, function in watched.functions.items():
            self._alarm(
                f"{name}Errors",
                "function-errors",
                function.metric_errors(period=FIVE_MINUTES),
                again=True,
                says=f"{name} fails again and again",
            )
            self._alarm(
                f"{name}Throttled",
                "function-throttled",
                function.metric_throttles(period=FIVE_MINUTES),
                again=True,
                says=f"Lambda refuses to run {name}: the account has no concurrency left",
            )

    def _schedules(self, watched: MonitoredResources) -> None:
        # Nothing arrives when nothing runs: silence itself is the alarm.
        self._alarm(
            "ReconcilerSilent",
            "reconciler-silent",
            watched.reconciler.metric_invocations(period=FIVE_MINUTES),
            below=1,
            evaluations=2,
            missing=cloudwatch.TreatMissingData.BREACHING,
            tells_end=True,
            says="The reconciler has not run for ten minutes: deadlines pass unnoticed",
        )
        age = watched.scheduler_queue.metric_approximate_age_of_oldest_message(period=FIVE_MINUTES, statistic="Maximum")
        self._alarm(
            "SchedulerLate",
            "scheduler-late",
            age,
            above=MESSAGE_AGE_S_MAX,
            says="A message for the scheduler is older than five minutes: jobs are not placed",
        )

    def _services(self, watched: MonitoredResources) -> None:
        for name, table in watched.tables.items():
            # One metric each. The counts of refused events are of the table without its indexes. What an index refuses
            # to a reader is found among the refused requests, by operation: indexes are read by Query. A decision
            # begins with a GetItem and ends with a PutItem. What is refused or fails elsewhere, functions fail on.
            for kind, metric, says in (
                ("ReadsRefused", of_table(table, "ReadThrottleEvents"), "refuses reads of"),
                ("WritesRefused", of_table(table, "WriteThrottleEvents"), "refuses writes to"),
                ("QueriesRefused", of_table(table, "ThrottledRequests", "Query"), "refuses queries of"),
                ("ReadsFailing", of_table(table, "SystemErrors", "GetItem"), "itself fails to read"),
                ("WritesFailing", of_table(table, "SystemErrors", "PutItem"), "itself fails to write"),
            ):
                sentence = f"DynamoDB {says} the table of {name.lower()}"
                self._alarm(f"{name}{kind}", "tables", metric, again=True, says=sentence)
        self._alarm(
            "ApiFailing",
            "api-failing",
            watched.api.metric_server_error(period=FIVE_MINUTES, statistic="Sum"),
            again=True,
            says="The job API answers with errors of its own (5xx)",
        )

    def _alarm(
        self,
        name: str,
        runbook: str,
        metric: cloudwatch.IMetric,
        *,
        says: str,
        above: int = 0,
        below: int | None = None,
        evaluations: int = 1,
        again: bool = False,
        tells_end: bool = False,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        """`again`: it rings at the second bad period of three, because what fails once is retried and needs nobody.
        `tells_end`: it also says when it is over, which it does once when it is new."""
        compare = cloudwatch.ComparisonOperator
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            alarm_description=f"{says}. Runbook: {RUNBOOKS}/{runbook}.md",
            evaluation_periods=3 if again else evaluations,
            datapoints_to_alarm=2 if again else evaluations,
            threshold=above if below is None else below,
            treat_missing_data=missing,
            comparison_operator=compare.GREATER_THAN_THRESHOLD if below is None else compare.LESS_THAN_THRESHOLD,
        )
        alarm.add_alarm_action(self._action)
        if tells_end:
            alarm.add_ok_action(self._action)
        self.all.append(alarm)
