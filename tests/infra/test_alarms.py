"""What rings, on which metric, when, and what it tells the person it wakes."""

import re

import pytest
from gpu_recovery.core.metrics import NAMESPACE

from infra.functions import FUNCTIONS
from tests.infra.deployment import Deployment
from tests.infra.watched_metrics import alarms, of_alarm
from tests.markdown import ROOT

pytestmark = pytest.mark.slow

ASYNCHRONOUS = [row.construct_id for row in FUNCTIONS if row.trigger.is_asynchronous]
AGAIN, ONCE = (3, 2), (1, 1)
"""Periods looked at, and how many of them must be bad: what fails once is retried and needs nobody."""
SINGLE = {
    "RecoveryOverdue": (NAMESPACE, "OverdueSeconds", "Maximum", 300, 900, (2, 2)),
    "BreakerOpen": (NAMESPACE, "BreakerOpenSeconds", "Maximum", 300, 0, ONCE),
    "RecoveryPaused": (NAMESPACE, "PausedSeconds", "Maximum", 300, 14_400, ONCE),
    "RebootsMany": (NAMESPACE, "Reboots", "Sum", 3600, 5, ONCE),
    "NoticesFailed": (NAMESPACE, "NoticesFailed", "Sum", 300, 0, AGAIN),
    "WordsUnsaid": (NAMESPACE, "Unsaid", "Sum", 300, 0, AGAIN),
    "OperatorsUnreached": ("AWS/SNS", "NumberOfNotificationsFailed", "Sum", 300, 0, ONCE),
    "ReconcilerSilent": ("AWS/Lambda", "Invocations", "Sum", 300, 1, (2, 2)),
    "SchedulerLate": ("AWS/SQS", "ApproximateAgeOfOldestMessage", "Maximum", 300, 300, ONCE),
    "SchedulerStopped": ("AWS/Lambda", "RecursiveInvocationsDropped", "Sum", 300, 0, ONCE),
    "ApiFailing": ("AWS/ApiGateway", "5xx", "Sum", 300, 0, AGAIN),
}
"""Namespace, metric, statistic, period (s), threshold, and the periods."""
OF_EACH = {
    "NotEmpty": ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "Maximum", 60, 0, ONCE),
    "EventsLost": ("AWS/Lambda", "DestinationDeliveryFailures", "Sum", 300, 0, ONCE),
    "RuleFailed": ("AWS/Events", "FailedInvocations", "Sum", 300, 0, ONCE),
    "RuleDeadLettered": ("AWS/Events", "InvocationsSentToDlq", "Sum", 300, 0, ONCE),
    "RuleLost": ("AWS/Events", "InvocationsFailedToBeSentToDlq", "Sum", 300, 0, ONCE),
    "Errors": ("AWS/Lambda", "Errors", "Sum", 300, 0, AGAIN),
    "Throttled": ("AWS/Lambda", "Throttles", "Sum", 300, 0, AGAIN),
}
"""The same of the alarms that there is one of for each queue, function or rule, by how their names end."""
OF_TABLE = {
    "ReadsRefused": ("ReadThrottleEvents", ""),
    "WritesRefused": ("WriteThrottleEvents", ""),
    "QueriesRefused": ("ThrottledRequests", "Query"),
    "ReadsFailing": ("SystemErrors", "GetItem"),
    "WritesFailing": ("SystemErrors", "PutItem"),
}
"""Metric and operation of the alarms on a table."""
TABLES = ("Jobs", "Instances")
TELL_THE_END = {"RecoveryOverdue", "BreakerOpen", "RecoveryPaused", "ReconcilerSilent"}
"""The alarms of states that end, and whose end somebody waits for."""


def rules(deployment: Deployment) -> list[str]:
    """The names of the rules of the deployment."""
    return [name.removeprefix("Rules") for name in deployment.of_type("AWS::Events::Rule")]


def expected(deployment: Deployment) -> set[str]:
    """Every alarm that the deployment's own parts call for."""
    return {
        *SINGLE,
        *(f"{queue}NotEmpty" for queue in ("Failed", "Undelivered", "SchedulerDeadLetters")),
        *(f"{function}EventsLost" for function in ASYNCHRONOUS),
        *(f"{rule}{kind}" for rule in rules(deployment) for kind in ("RuleFailed", "RuleDeadLettered", "RuleLost")),
        *(f"{row.construct_id}{kind}" for row in FUNCTIONS for kind in ("Errors", "Throttled")),
        *(f"{table}{kind}" for table in TABLES for kind in OF_TABLE),
    }


def test_whatever_can_go_wrong_has_its_alarm(deployment: Deployment) -> None:
    """A rule or a function that is added without one would fail in silence."""
    assert set(alarms(deployment)) == expected(deployment)


def test_the_chat_topic_is_watched_where_there_is_one(production: Deployment) -> None:
    """A subscriber that is not reached is no better for being a chat."""
    assert set(alarms(production)) == expected(production) | {"ChatUnreached"}


def test_each_alarm_watches_the_metric_that_it_is_named_after(deployment: Deployment) -> None:
    """Metric, statistic, period and threshold: a wrong one never rings, and nobody notices."""
    for name, alarm in alarms(deployment).items():
        if name.endswith(tuple(OF_TABLE)):
            continue
        metric = of_alarm(alarm)
        kind = SINGLE.get(name) or next(kind for suffix, kind in OF_EACH.items() if name.endswith(suffix))
        periods = (alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"])
        found = (metric.namespace, metric.name, metric.statistic, metric.period, alarm["Threshold"], periods)
        assert found == kind, name


def test_each_alarm_watches_its_own(deployment: Deployment) -> None:
    """The queue, function or rule that it is named after, and no neighbour."""
    owned = {"QueueName": "Queues{}.QueueName", "FunctionName": "Functions{}Function", "RuleName": "Rules{}"}
    by_hand = {"ReconcilerSilent": "Reconciler", "SchedulerLate": "Scheduler", "SchedulerStopped": "Scheduler"}
    seen = set()
    for name, alarm in alarms(deployment).items():
        for dimension, value in of_alarm(alarm).dimensions:
            if dimension in owned:
                what = by_hand.get(name) or re.sub("|".join(f"{end}$" for end in OF_EACH), "", name)
                assert value == owned[dimension].format(what), name
                seen.add(name)
    assert seen == {name for name in alarms(deployment) if name.endswith(tuple(OF_EACH))} | set(by_hand)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_rings_when_it_refuses_and_when_it_fails(deployment: Deployment, table: str) -> None:
    """Refusals by the table, by an index to whoever asks it, and DynamoDB's own errors."""
    found = alarms(deployment)
    asked = {kind: of_alarm(found[f"{table}{kind}"]) for kind in OF_TABLE}
    assert {kind: metric.name for kind, metric in asked.items()} == {kind: name for kind, (name, _) in OF_TABLE.items()}
    for kind, metric in asked.items():
        dimensions = {"TableName": f"Tables{table}"} | ({"Operation": OF_TABLE[kind][1]} if OF_TABLE[kind][1] else {})
        assert dict(metric.dimensions) == dimensions, kind
        assert (found[f"{table}{kind}"]["EvaluationPeriods"], found[f"{table}{kind}"]["DatapointsToAlarm"]) == AGAIN


def test_no_alarm_needs_metric_math(production: Deployment) -> None:
    """Each metric of an expression is paid for as an alarm is, and the sandbox's CloudWatch has no expressions."""
    assert not {name for name, alarm in alarms(production).items() if "Metrics" in alarm}


def test_every_metric_that_rings_is_sent_by_somebody(production: Deployment) -> None:
    """An alarm on a misspelt metric is silent for ever."""
    ringing = {name: of_alarm(alarm) for name, alarm in alarms(production).items()}
    assert not {name: metric for name, metric in ringing.items() if not metric.exists}


def test_only_the_reconcilers_silence_rings(deployment: Deployment) -> None:
    """Counts of failures are sent only when there are any: no data is good news, but for what must run every minute."""
    found = alarms(deployment)
    assert {name for name, alarm in found.items() if alarm["TreatMissingData"] == "breaching"} == {"ReconcilerSilent"}
    assert {alarm["TreatMissingData"] for alarm in found.values()} == {"breaching", "notBreaching"}
    below = {name for name, alarm in found.items() if alarm["ComparisonOperator"] == "LessThanThreshold"}
    assert below == {"ReconcilerSilent"}


def test_every_alarm_tells_operators_when_it_rings(production: Deployment) -> None:
    """By the topic that they have subscribed to."""
    assert {tuple(alarm["AlarmActions"]) for alarm in alarms(production).values()} == {("OperatorsTopic",)}


def test_only_the_end_of_a_state_is_told(production: Deployment) -> None:
    """A new alarm becomes OK once: if each told that, a deployment would begin with dozens of mails about nothing."""
    told = {name: alarm["OKActions"] for name, alarm in alarms(production).items() if alarm.get("OKActions")}
    assert told == {name: ["OperatorsTopic"] for name in TELL_THE_END}


def test_the_pages_name_the_alarms_whose_end_is_told() -> None:
    """Whoever waits for a mail that never comes would think that it still rings."""
    for page in ("docs/deploy.md", "docs/runbooks/README.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        (sentence,) = re.findall(r"[^.]*that they are over[^.]*\.", text)
        assert set(re.findall(r"`(\w+)`", sentence)) == TELL_THE_END, page


def test_an_alarm_says_what_is_wrong_and_where_its_runbook_is(deployment: Deployment) -> None:
    """One sentence, and then what to read: the description is all that the e-mail has."""
    for name, alarm in alarms(deployment).items():
        assert re.fullmatch(r"[A-Z][^.]{20,110}\. Runbook: docs/runbooks/[a-z-]+\.md", alarm["AlarmDescription"]), name
