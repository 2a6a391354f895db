"""The metrics that alarms and dashboard name, as the templates say them, and those that exist."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpu_recovery.core.metrics import METRICS, NAMESPACE, SERVICE

from tests.infra.deployment import Deployment

OF_AWS = {
    "AWS/Lambda": {
        "Errors",
        "Throttles",
        "Invocations",
        "Duration",
        "DestinationDeliveryFailures",
        "RecursiveInvocationsDropped",
    },
    "AWS/SQS": {"ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"},
    "AWS/Events": {"FailedInvocations", "InvocationsSentToDlq", "InvocationsFailedToBeSentToDlq"},
    "AWS/SNS": {"NumberOfNotificationsFailed"},
    "AWS/DynamoDB": {"ReadThrottleEvents", "WriteThrottleEvents", "ThrottledRequests", "SystemErrors"},
    "AWS/ApiGateway": {"4xx", "5xx", "Latency"},
}
"""From the services' own lists of metrics; HTTP APIs spell theirs in small letters, REST APIs do not."""
DIMENSIONS = {
    "AWS/Lambda": {"FunctionName"},
    "AWS/SQS": {"QueueName"},
    "AWS/Events": {"RuleName"},
    "AWS/SNS": {"TopicName"},
    "AWS/ApiGateway": {"ApiId"},
}
"""A metric is found only under exactly the dimensions that it is sent with."""


@dataclass(frozen=True)
class Named:
    """One metric as it is asked for."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str
    period: int

    @property
    def exists(self) -> bool:
        """Whether somebody sends it."""
        dimensions = dict(self.dimensions)
        if self.namespace == NAMESPACE:
            return self.name in METRICS and dimensions == {"service": SERVICE}
        if self.namespace == "AWS/DynamoDB":
            by_operation = self.name in ("SystemErrors", "ThrottledRequests")
            expected = {"TableName", "Operation"} if by_operation else {"TableName"}
        else:
            expected = DIMENSIONS.get(self.namespace, set())
            if self.namespace == "AWS/Events" and dimensions.get("RuleName") == "RulesRecordedEvents":
                expected = expected | {"EventBusName"}  # the one rule on our own bus
        return self.name in OF_AWS.get(self.namespace, set()) and set(dimensions) == expected


def of_alarm(alarm: dict[str, Any]) -> list[Named]:
    """The metrics of an alarm: one, or those of its expression."""
    return [
        Named(
            stat["Metric"]["Namespace"],
            stat["Metric"]["MetricName"],
            tuple((one["Name"], one["Value"]) for one in stat["Metric"]["Dimensions"]),
            stat["Stat"],
            stat["Period"],
        )
        for stat in (query["MetricStat"] for query in _queries(alarm) if "MetricStat" in query)
    ]


def expressions(alarm: dict[str, Any]) -> list[str]:
    """The expressions of an alarm: none if it watches one metric."""
    return [query["Expression"] for query in _queries(alarm) if "Expression" in query]


def _queries(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    metric = {"Namespace": alarm.get("Namespace"), "MetricName": alarm.get("MetricName")}
    stat = {"Metric": {**metric, "Dimensions": alarm.get("Dimensions")}, "Stat": alarm.get("Statistic")}
    return list(alarm.get("Metrics") or [{"MetricStat": {**stat, "Period": alarm.get("Period")}}])


def alarms(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Every alarm, by the name it has in its construct."""
    found = deployment.of_type("AWS::CloudWatch::Alarm")
    return {name.removeprefix("Alarms"): properties for name, properties in found.items()}


def widgets(deployment: Deployment) -> list[dict[str, Any]]:
    """The widgets of the dashboard."""
    body = json.loads(deployment.only("AWS::CloudWatch::Dashboard")["DashboardBody"])
    return list(body["widgets"])


def of_widgets(found: list[dict[str, Any]]) -> Iterator[Named]:
    """Every metric of every graph; the lines of expressions are none."""
    for widget in found:
        for line in widget["properties"].get("metrics", []):
            *path, options = line
            if not path:
                continue
            pairs = tuple(zip(path[2::2], path[3::2], strict=True))
            yield Named(path[0], path[1], pairs, options.get("stat", "Average"), options.get("period", 300))
