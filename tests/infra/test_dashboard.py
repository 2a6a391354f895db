"""The page for operators: nothing on it that nobody sends, and nothing measured that is neither shown nor rings."""

import re

import pytest
from gpu_recovery.core.metrics import METRICS, NAMESPACE, SERVICE, TOTALS

from infra.functions import FUNCTIONS
from tests.infra.deployment import Deployment
from tests.infra.watched_metrics import Named, alarms, expressions, of_alarm, of_widgets, widgets

pytestmark = pytest.mark.slow

GAUGES = {"UnderRepair", *TOTALS.values()}
"""Counts of what there is at a time, which must not be added up over time."""
UNSHOWN: dict[str, str] = {}
"""Measures that are neither shown nor alarmed, and why."""


@pytest.fixture(scope="module")
def shown(deployment: Deployment) -> list[Named]:
    """Every metric on the page."""
    return list(of_widgets(widgets(deployment)))


def test_every_metric_on_the_page_is_sent_by_somebody(shown: list[Named]) -> None:
    """A graph of a misspelt metric is empty, and an empty graph looks like good news."""
    assert len(shown) > len(METRICS)
    assert not [metric for metric in shown if not metric.exists]


def test_every_measure_is_shown_or_rings(shown: list[Named], deployment: Deployment) -> None:
    """What is measured is paid for: it is looked at, or there is a reason."""
    ringing = [metric for alarm in alarms(deployment).values() for metric in of_alarm(alarm)]
    used = {metric.name for metric in (*shown, *ringing) if metric.namespace == NAMESPACE}
    assert used | set(UNSHOWN) == set(METRICS)
    assert not used & set(UNSHOWN)


@pytest.mark.parametrize("name", ["RecoverySeconds", "DetectionSeconds"])
def test_times_are_shown_as_percentiles(shown: list[Named], name: str) -> None:
    """An average hides the night on which everything took an hour."""
    assert {metric.statistic for metric in shown if metric.name == name} == {"p50", "p90"}


def test_counts_are_summed_and_ages_are_the_oldest(shown: list[Named]) -> None:
    """The mean of ones is one, and the mean age hides the job that is stuck."""
    for metric in shown:
        if metric.namespace == NAMESPACE:
            is_gauge = METRICS[metric.name].unit == "Seconds" or metric.name in GAUGES
            assert (metric.statistic == "Sum") != is_gauge, metric.name
    assert {metric.statistic for metric in shown if metric.name in GAUGES} == {"Maximum"}
    assert {m.statistic for m in shown if m.name in ("RecoveryAgeSeconds", "OverdueSeconds")} == {"Maximum"}


def test_the_graph_of_repairs_counts_every_repair(deployment: Deployment) -> None:
    """A fleet whose GPUs are reset again and again would look healthy without the resets."""
    (graph,) = [one for one in widgets(deployment) if one["properties"].get("title") == "Repairs in an hour"]
    assert {"InstanceResetting", "Reboots", "InstanceReplacing"} <= {metric.name for metric in of_widgets([graph])}


def test_every_function_queue_and_rule_is_on_the_page(shown: list[Named], deployment: Deployment) -> None:
    """Whoever looks for what is broken finds it there."""
    values = {value for metric in shown for _, value in metric.dimensions}
    assert {f"Functions{row.construct_id}Function" for row in FUNCTIONS} <= values
    assert set(deployment.at_run_time("AWS::Events::Rule")) <= values
    assert {f"{queue}.QueueName" for queue in deployment.of_type("AWS::SQS::Queue")} <= values
    assert {"TablesJobs", "TablesInstances", "OperatorsTopic.TopicName"} <= values


def test_what_rings_by_a_sum_is_on_the_page(shown: list[Named], deployment: Deployment) -> None:
    """The runbooks send people here to see which of the functions, tables or rules it is, and whether it is over."""
    watched = {metric for alarm in alarms(deployment).values() if expressions(alarm) for metric in of_alarm(alarm)}
    names = {"ThrottledRequests", "InvocationsFailedToBeSentToDlq", "RecursiveInvocationsDropped"}
    assert {metric.name for metric in watched} >= names
    assert not watched - set(shown)


def test_the_page_begins_with_what_rings_and_what_to_do(deployment: Deployment) -> None:
    """Every alarm as a square, beside the runbooks and the first commands."""
    welcome, squares, *graphs = widgets(deployment)
    assert "docs/runbooks/README.md" in welcome["properties"]["markdown"]
    assert re.findall(r"`(gpu-recovery [a-z]+)", welcome["properties"]["markdown"])
    assert welcome["y"] == squares["y"] == 0
    assert squares["type"] == "alarm"
    named = {arn.removesuffix(".Arn") for arn in squares["properties"]["alarms"]}
    assert named == set(deployment.of_type("AWS::CloudWatch::Alarm"))
    assert {graph["type"] for graph in graphs} == {"metric"}


def test_the_rows_fill_the_page_and_none_lies_on_another(deployment: Deployment) -> None:
    """24 columns; what overlaps is moved by CloudWatch as it likes."""
    taken: dict[tuple[int, int], str] = {}
    for widget in widgets(deployment):
        title = widget["properties"].get("title", "")
        for x in range(widget["x"], widget["x"] + widget["width"]):
            assert 0 <= x < 24, title
            for y in range(widget["y"], widget["y"] + widget["height"]):
                assert (x, y) not in taken, f"{title} on {taken.get((x, y))}"
                taken[x, y] = title
    assert len(taken) == 24 * (max(y for _, y in taken) + 1)


def test_the_metrics_are_those_the_functions_send(deployment: Deployment) -> None:
    """Namespace and service stand in the functions' environment, and the table of measures says the same."""
    for name, function in deployment.package_functions().items():
        variables = function["Environment"]["Variables"]
        assert variables["POWERTOOLS_METRICS_NAMESPACE"] == NAMESPACE, name
        assert variables["POWERTOOLS_SERVICE_NAME"] == SERVICE, name
