"""What docs/costs.md reckons with is what the stacks have."""

import re

import pytest
from gpu_recovery.aws.item_codec import TTL

from infra.functions import PACKAGE
from tests.aws.cost_page import ALARM_METRICS, PAGE, metrics_with_values
from tests.infra.deployment import Deployment
from tests.infra.watched_metrics import alarms, of_alarm

pytestmark = pytest.mark.slow


def test_the_fixed_costs_are_those_of_the_template(deployment: Deployment) -> None:
    """Alarms, dashboard, key and secrets of the default settings; a metric for each measure."""
    kinds = ("AWS::CloudWatch::Dashboard", "AWS::KMS::Key", "AWS::SecretsManager::Secret")
    assert [len(deployment.of_type(kind)) for kind in kinds] == [1, 1, 3]
    assert sum(len(of_alarm(alarm)) for alarm in alarms(deployment).values()) == ALARM_METRICS
    assert f"| CloudWatch metrics | {metrics_with_values()} |" in PAGE.read_text(encoding="utf-8")


def test_a_table_forgets_nothing_by_itself_but_keys_of_submissions_reports_and_unused_locks(
    deployment: Deployment,
) -> None:
    """Time to live deletes within two days or so. A claim or a deadline must never depend on it.

    These items have the attribute, and no others:

    - the key of a submission, whose end the API decides by the clock,
    - what a training reported of an attempt, which only a diagnosis reads,
    - a lock without use for 90 days,
    - the mark of a notification that was sent once,
    - the task of an agent, which its reports prolong,
    - the whole event history, which no decision reads.
    """
    tables = deployment.of_type("AWS::DynamoDB::Table")
    assert len(tables) == 3
    forgetful = {name: table for name, table in tables.items() if "TimeToLiveSpecification" in table}
    assert {table["TableName"] for table in forgetful.values()} == {"ecs-job-sub", "gpu-recovery-event-history"}
    for table in forgetful.values():
        assert table["TimeToLiveSpecification"] == {"AttributeName": TTL, "Enabled": True}
    name = re.compile(rf'"{TTL}"|\bTTL\b')
    known = {path.name for path in PACKAGE.rglob("*.py") if name.search(path.read_text(encoding="utf-8"))}
    assert known == {
        "item_codec.py",
        "event_history_store.py",
        "gpu_history_store.py",
        "submission_store.py",
        "observation_store.py",
        "gpu_lock_store.py",
        "notification_store.py",
        "agent_task_store.py",
    }
