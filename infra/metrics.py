"""CloudWatch metrics that alarms and dashboard share, and the resources that both watch."""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from gpu_recovery.core.metrics import METRICS, NAMESPACE, SERVICE

FIVE_MINUTES, HOUR = Duration.minutes(5), Duration.hours(1)

ALARM_METRICS_MAX = 10
"""Metrics of one alarm on an expression, at most. CloudWatch refuses an alarm with more."""
OPERATIONS = ("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "TransactWriteItems")
"""The DynamoDB operations that the stores call."""


@dataclass(frozen=True)
class MonitoredResources:
    """The resources that alarms and dashboard watch, by the name that both show.

    Args:
        functions: every function.
        function_groups: the same functions by the name of their group. Functions of a group share an alarm on errors.
        asynchronous: the functions that Lambda invokes asynchronously.
        reconciler: the function that must run every few minutes.
        dead_letter_queues: queues that are empty unless a message could not be handled.
        work_queues: queues whose messages wake a function. The age of the oldest shows how late the function is.
        rules: the rules.
        tables: the tables.
        topics: the topics for operators.
        api: the HTTP API.
    """

    functions: Mapping[str, lambda_.Function]
    function_groups: Mapping[str, Mapping[str, lambda_.Function]]
    asynchronous: Mapping[str, lambda_.Function]
    reconciler: lambda_.Function
    dead_letter_queues: Mapping[str, sqs.Queue]
    work_queues: Mapping[str, sqs.Queue]
    rules: Mapping[str, events.Rule]
    tables: Mapping[str, dynamodb.Table]
    topics: Mapping[str, sns.ITopic]
    api: apigatewayv2.HttpApi


def our_metric(
    name: str, statistic: str, period: Duration = FIVE_MINUTES, label: str | None = None
) -> cloudwatch.Metric:
    """Return a metric of gpu-recovery itself.

    Args:
        name: name of the metric in `METRICS`.
        statistic: the statistic, such as `Sum` or `p90`.
        period: period of the data points.
        label: label in a widget. None: the name.

    Raises:
        KeyError: `METRICS` does not hold the name, so no function sends the metric.
    """
    _ = METRICS[name]
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=name,
        dimensions_map={"service": SERVICE},
        statistic=statistic,
        period=period,
        label=label,
    )


def of_rule(rule: events.Rule, name: str, label: str | None = None) -> cloudwatch.Metric:
    """Return a count of a rule. The dimensions are its name and, on another bus than the default, the bus."""
    resource = rule.node.default_child
    assert isinstance(resource, events.CfnRule)
    bus = resource.event_bus_name
    return cloudwatch.Metric(
        namespace="AWS/Events",
        metric_name=name,
        dimensions_map={"RuleName": rule.rule_name, **({"EventBusName": bus} if bus else {})},
        statistic="Sum",
        period=FIVE_MINUTES,
        label=label,
    )


def total(metrics: Mapping[str, cloudwatch.IMetric], *, filled: bool = False) -> cloudwatch.MathExpression:
    """Return the sum of metrics of five minutes. SUM adds the metrics that have a data point.

    Args:
        metrics: metrics by name. The names become ids in the expression.
        filled: count missing data points as 0. A data point that arrives late counts as 0 until it arrives. So only an
            alarm that reads several periods may use a filled sum: its next evaluation reads the late data point.

    Raises:
        ValueError: there are more metrics than an alarm accepts.
    """
    if len(metrics) > ALARM_METRICS_MAX:
        raise ValueError(f"an alarm accepts {ALARM_METRICS_MAX} metrics, not {len(metrics)}: {', '.join(metrics)}")
    # CloudWatch accepts ids that begin with a small letter.
    by_id = {name[0].lower() + name[1:]: metric for name, metric in metrics.items()}
    expression = "SUM(FILL(METRICS(), 0))" if filled else "SUM(METRICS())"
    return cloudwatch.MathExpression(expression=expression, using_metrics=by_id, period=FIVE_MINUTES)


def undelivered(topic: sns.ITopic, label: str | None = None) -> cloudwatch.Metric:
    """Return the number of messages of the topic that SNS could not deliver to a subscriber after all retries."""
    return topic.metric_number_of_notifications_failed(period=FIVE_MINUTES, statistic="Sum", label=label)


def of_table(table: dynamodb.Table, name: str, operation: str = "", label: str | None = None) -> cloudwatch.Metric:
    """Return a count of a table.

    Without `operation` it is a count of the table without its indexes. With `operation` it is a count of that operation
    on the table and its indexes. DynamoDB counts throttled events (`ReadThrottleEvents`) by table or index, and
    throttled requests (`ThrottledRequests`) and its own errors (`SystemErrors`) by operation.
    """
    return cloudwatch.Metric(
        namespace="AWS/DynamoDB",
        metric_name=name,
        dimensions_map={"TableName": table.table_name, **({"Operation": operation} if operation else {})},
        statistic="Sum",
        period=FIVE_MINUTES,
        label=label,
    )
