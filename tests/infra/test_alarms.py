"""What rings, on which metrics, when, and what it tells the person it wakes."""

import re
from importlib import import_module

import pytest
from gpu_recovery.core.metrics import NAMESPACE

from infra.functions import FUNCTIONS, Trigger
from tests.infra.deployment import Deployment
from tests.infra.watched_metrics import Named, alarms, expressions, of_alarm
from tests.markdown import ROOT

pytestmark = pytest.mark.slow

ALARMS_MAX = 30
METRICS_MAX = 10
"""Metrics of one alarm that CloudWatch accepts."""
AGAIN, ONCE = (3, 2), (1, 1)
"""Periods looked at, and how many of them must be bad: what fails once is retried and needs nobody."""
LATE = ("AWS/SQS", "ApproximateAgeOfOldestMessage", "Maximum", 300, 300, ONCE)
NOT_EMPTY = ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "Maximum", 60, 0, ONCE)
UNREACHED = ("AWS/SNS", "NumberOfNotificationsFailed", "Sum", 300, 0, ONCE)
ERRORS = ("AWS/Lambda", "Errors", "Sum", 300, 0, AGAIN)
FILLED = "SUM(FILL(METRICS(), 0))"
REFUSED = ("AWS/DynamoDB", "ReadThrottleEvents ThrottledRequests WriteThrottleEvents", "Sum", 300, 0, AGAIN)
KINDS = {
    "RecoveryOverdue": (NAMESPACE, "OverdueSeconds", "Maximum", 300, 900, (2, 2)),
    "BreakerOpen": (NAMESPACE, "BreakerOpenSeconds", "Maximum", 300, 0, ONCE),
    "RecoveryPaused": (NAMESPACE, "PausedSeconds", "Maximum", 300, 14_400, ONCE),
    "ManyReboots": (NAMESPACE, "Reboots", "Sum", 3600, 5, ONCE),
    "NoticesFailed": (NAMESPACE, "NoticesFailed", "Sum", 300, 0, AGAIN),
    "EventsNotSent": (NAMESPACE, "Unsaid", "Sum", 300, 0, AGAIN),
    "OperatorsDeliveryFailed": UNREACHED,
    "ReconcilerNotRunning": ("AWS/Lambda", "Invocations", "Sum", 300, 1, (2, 2)),
    "SchedulerLate": LATE,
    "RecursiveLoopStopped": ("AWS/Lambda", "RecursiveInvocationsDropped", "Sum", 300, 0, ONCE),
    "ApiFailing": ("AWS/ApiGateway", "5xx", "Sum", 300, 0, AGAIN),
    "FailedNotEmpty": NOT_EMPTY,
    "UndeliveredNotEmpty": NOT_EMPTY,
    "SchedulerDeadLettersNotEmpty": NOT_EMPTY,
    "FunctionEventsLost": ("AWS/Lambda", "DestinationDeliveryFailures", "Sum", 300, 0, ONCE),
    "RuleInvocationsFailed": ("AWS/Events", "FailedInvocations", "Sum", 300, 0, ONCE),
    "RuleEventsDeadLettered": ("AWS/Events", "InvocationsSentToDlq", "Sum", 300, 0, ONCE),
    "RuleEventsLost": ("AWS/Events", "InvocationsFailedToBeSentToDlq", "Sum", 300, 0, ONCE),
    "EventFunctionErrors": ERRORS,
    "ApiFunctionErrors": ERRORS,
    "ReconcilerErrors": ERRORS,
    "SchedulerErrors": (f"AWS/Lambda {NAMESPACE}", "Errors PlacementsFailed", *ERRORS[2:]),
    "FunctionsThrottled": ("AWS/Lambda", "Throttles", "Sum", 300, 0, AGAIN),
    "JobTableThrottled": REFUSED,
    "InstanceTableThrottled": REFUSED,
    "TablesFailing": ("AWS/DynamoDB", "SystemErrors", "Sum", 300, 0, AGAIN),
}
"""Namespace, metrics, statistic, period (s), threshold, and the periods, of the alarms of every deployment."""
CHAT = {"ChatDeliveryFailed": UNREACHED}
RAY = {"RayDeadLettersNotEmpty": NOT_EMPTY, "RayLate": LATE, "RayRunnerErrors": ERRORS}
"""The same of the alarms of the optional parts."""
ALONE = {"ReconcilerErrors", "SchedulerErrors", "RayRunnerErrors"}
"""Alarms on errors of a single function, which has no substitute: errors of others must not hide its own."""
TELL_THE_END = {"RecoveryOverdue", "BreakerOpen", "RecoveryPaused", "ReconcilerNotRunning"}
"""The alarms of states that end, and whose end somebody waits for."""


def called_for(deployment: Deployment) -> set[tuple[str, str]]:
    """(metric, dimensions) for everything in the templates that can fail, and each way in which it can."""
    consumed = {mapping["EventSourceArn"] for mapping in deployment.of_type("AWS::Lambda::EventSourceMapping").values()}
    asynchronous = {f"Functions{row.construct_id}Function" for row in FUNCTIONS if row.trigger.is_asynchronous}
    needed: set[tuple[str, str]] = set()
    for name in deployment.at_run_time("AWS::Lambda::Function"):
        acts = name != "FunctionsEventRecorderFunction"  # it sends nothing, and its events are repeated and then stored
        metrics = ["Errors", *(["Throttles", "RecursiveInvocationsDropped"] if acts else [])]
        metrics += ["DestinationDeliveryFailures"] if name in asynchronous else []
        needed |= {(metric, name) for metric in metrics}
    for name in deployment.of_type("AWS::SQS::Queue"):
        work = f"{name}.Arn" in consumed
        metric = "ApproximateAgeOfOldestMessage" if work else "ApproximateNumberOfMessagesVisible"
        needed.add((metric, f"{name}.QueueName"))
    for name, rule in deployment.at_run_time("AWS::Events::Rule").items():
        metrics = ("FailedInvocations", "InvocationsSentToDlq", "InvocationsFailedToBeSentToDlq")
        where = f"{rule['EventBusName']} {name}" if "EventBusName" in rule else name
        needed |= {(metric, where) for metric in metrics}
    for name in deployment.of_type("AWS::SNS::Topic"):
        needed.add(("NumberOfNotificationsFailed", f"{name}.TopicName"))
    for name in deployment.of_type("AWS::DynamoDB::Table"):
        needed |= {("ReadThrottleEvents", name), ("WriteThrottleEvents", name), ("ThrottledRequests", f"Query {name}")}
        needed |= {("SystemErrors", f"GetItem {name}"), ("SystemErrors", f"PutItem {name}")}
    return needed | {("5xx", name) for name in deployment.of_type("AWS::ApiGatewayV2::Api")}


def watching(deployment: Deployment) -> dict[tuple[str, str], list[str]]:
    """The alarms that watch each (metric, dimensions)."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, alarm in alarms(deployment).items():
        for metric in of_alarm(alarm):
            found.setdefault((metric.name, " ".join(value for _, value in metric.dimensions)), []).append(name)
    return found


@pytest.mark.parametrize("settings", ["deployment", "production", "with_ray"])
def test_whatever_can_go_wrong_rings_exactly_one_alarm(settings: str, request: pytest.FixtureRequest) -> None:
    """A function, rule, queue, topic or table without one would fail in silence; two alarms would say it twice."""
    deployment = request.getfixturevalue(settings)
    found = watching(deployment)
    assert {what: found.get(what) for what in called_for(deployment) if len(found.get(what, [])) != 1} == {}


def test_there_are_few_alarms(deployment: Deployment, production: Deployment, with_ray: Deployment) -> None:
    """Each of them by name, and not many even with every optional part: who gets seventy reads none."""
    assert set(alarms(deployment)) == set(KINDS)
    assert set(alarms(production)) == {*KINDS, *CHAT}
    assert set(alarms(with_ray)) == {*KINDS, *RAY}
    assert len({*alarms(production), *alarms(with_ray)}) <= ALARMS_MAX


def test_each_alarm_watches_the_metric_that_it_is_named_after(production: Deployment, with_ray: Deployment) -> None:
    """Metric, statistic, period and threshold: a wrong one never rings, and nobody notices."""
    for name, alarm in (alarms(production) | alarms(with_ray)).items():
        metrics = of_alarm(alarm)
        names = " ".join(sorted({metric.name for metric in metrics}))
        namespaces = " ".join(sorted({metric.namespace for metric in metrics}))
        (shape,) = {(namespaces, metric.statistic, metric.period) for metric in metrics}
        periods = (alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"])
        found = (shape[0], names, *shape[1:], alarm["Threshold"], periods)
        assert found == (KINDS | CHAT | RAY)[name], name


def test_an_alarm_over_several_adds_them_up(production: Deployment, with_ray: Deployment) -> None:
    """As many as CloudWatch accepts at most, of which only the sum is compared, so that one failure of any rings."""
    for name, alarm in (alarms(production) | alarms(with_ray)).items():
        single = len(of_alarm(alarm)) == 1 and not expressions(alarm)
        assert single or expressions(alarm) in (["SUM(METRICS())"], [FILLED]), name
        assert len(of_alarm(alarm)) <= METRICS_MAX, name
        returned = [query["Id"] for query in alarm.get("Metrics", []) if query.get("ReturnData", True)]
        assert len(returned) == (0 if single else 1), name


def test_only_alarms_on_tables_count_missing_data_as_zero(production: Deployment, with_ray: Deployment) -> None:
    """CloudWatch ignores missing data of DynamoDB, so only zeros end such an alarm. A late data point must still count.

    FILL takes a late data point for 0. An alarm that reads only the newest period would miss it.
    """
    for name, alarm in (alarms(production) | alarms(with_ray)).items():
        on_tables = {metric.namespace for metric in of_alarm(alarm)} == {"AWS/DynamoDB"}
        assert (expressions(alarm) == [FILLED]) == on_tables, name
        assert not on_tables or (alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]) == AGAIN, name


def test_a_sum_of_more_metrics_than_cloudwatch_accepts_is_refused() -> None:
    """At synthesis, by name: CloudFormation would say so only in the middle of a deployment."""
    total = import_module("infra.metrics").total  # the CDK takes a second

    with pytest.raises(ValueError, match="10 metrics, not 11: F0, F1"):
        total(dict.fromkeys((f"F{number}" for number in range(METRICS_MAX + 1)), None))


def test_what_has_no_substitute_shares_its_alarm_with_nothing(with_ray: Deployment) -> None:
    """An alarm that rings already says nothing more: errors of another function would hide those of the reconciler."""
    errors = {name: alarm for name, alarm in alarms(with_ray).items() if name.endswith("Errors")}
    counted = {name: [each for each in of_alarm(alarm) if each.name == "Errors"] for name, alarm in errors.items()}
    assert {name for name, metrics in counted.items() if len(metrics) == 1} == ALONE
    for row in FUNCTIONS:
        (name,) = watching(with_ray)["Errors", f"Functions{row.construct_id}Function"]
        is_api = row.trigger in (Trigger.HTTP, Trigger.NODE_HTTP)
        assert (name == "ApiFunctionErrors") == is_api, row.name
        assert name in (f"{row.construct_id}Errors", "ApiFunctionErrors", "EventFunctionErrors"), row.name


def test_an_alarm_on_errors_names_its_functions(with_ray: Deployment) -> None:
    """The e-mail of an expression says which sum is too high, and not of what."""
    for name, alarm in alarms(with_ray).items():
        if name.endswith("Errors"):
            metrics = [metric for metric in of_alarm(alarm) if metric.name == "Errors"]
            functions = [dict(metric.dimensions)["FunctionName"] for metric in metrics]
            for function in functions:
                assert function.removeprefix("Functions").removesuffix("Function") in alarm["AlarmDescription"], name


def test_every_metric_that_rings_is_sent_by_somebody(production: Deployment) -> None:
    """An alarm on a misspelt metric is silent for ever."""
    ringing: list[Named] = [metric for alarm in alarms(production).values() for metric in of_alarm(alarm)]
    assert not [metric for metric in ringing if not metric.exists]


def test_only_the_reconcilers_silence_rings(deployment: Deployment) -> None:
    """Counts of failures are sent only when there are any: no data is good news, but for what must run every minute."""
    found = alarms(deployment)
    assert {name for name, alarm in found.items() if alarm["TreatMissingData"] == "breaching"} == {
        "ReconcilerNotRunning"
    }
    assert {alarm["TreatMissingData"] for alarm in found.values()} == {"breaching", "notBreaching"}
    below = {name for name, alarm in found.items() if alarm["ComparisonOperator"] == "LessThanThreshold"}
    assert below == {"ReconcilerNotRunning"}


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
        (sentence,) = re.findall(r"[^.]*e-mail (?:that|when) they are over[^.]*\.", text)
        assert set(re.findall(r"`(\w+)`", sentence)) == TELL_THE_END, page


def test_an_alarm_says_what_is_wrong_and_where_its_runbook_is(deployment: Deployment) -> None:
    """One sentence, and then what to read: the description is all that the e-mail has."""
    for name, alarm in alarms(deployment).items():
        assert re.fullmatch(r"[A-Z][^.]{20,110}\. Runbook: docs/runbooks/[a-z-]+\.md", alarm["AlarmDescription"]), name
