"""What is watched, and the metrics of it that alarms and dashboard share: one name and one dimension in one place."""

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

# The calls that the stores make.
OPERATIONS = ("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "TransactWriteItems")


@dataclass(frozen=True)
class MonitoredResources:
    """Everything that can go wrong, by the name that alarms and widgets give it."""

    functions: Mapping[str, lambda_.Function]
    asynchronous: Mapping[str, lambda_.Function]
    reconciler: lambda_.Function
    dead_letter_queues: Mapping[str, sqs.Queue]
    scheduler_queue: sqs.Queue
    rules: Mapping[str, events.Rule]
    tables: Mapping[str, dynamodb.Table]
    topics: Mapping[str, sns.ITopic]
    api: apigatewayv2.HttpApi


def our_metric(
    name: str, statistic: str, period: Duration = FIVE_MINUTES, label: str | None = None
) -> cloudwatch.Metric:
    """A metric of ours. KeyError for a name that is not in the table of measures: nobody would ever send it."""
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
    """A count of a rule on the default bus, whose metrics have no dimension but its name."""
    return cloudwatch.Metric(
        namespace="AWS/Events",
        metric_name=name,
        dimensions_map={"RuleName": rule.rule_name},
        statistic="Sum",
        period=FIVE_MINUTES,
        label=label,
    )


def undelivered(topic: sns.ITopic, label: str | None = None) -> cloudwatch.Metric:
    """Messages of the topic that a subscriber did not get, however often SNS tried."""
    return topic.metric_number_of_notifications_failed(period=FIVE_MINUTES, statistic="Sum", label=label)


def of_table(table: dynamodb.Table, name: str, operation: str = "", label: str | None = None) -> cloudwatch.Metric:
    """A count of the table without its indexes, or of one operation on the table and its indexes.

    DynamoDB counts refused events (`ReadThrottleEvents`) by table or by index, and refused requests
    (`ThrottledRequests`) and its own errors by operation.
    """
    return cloudwatch.Metric(
        namespace="AWS/DynamoDB",
        metric_name=name,
        dimensions_map={"TableName": table.table_name, **({"Operation": operation} if operation else {})},
        statistic="Sum",
        period=FIVE_MINUTES,
        label=label,
    )
