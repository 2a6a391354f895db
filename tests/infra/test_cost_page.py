"""What docs/costs.md reckons with is what the stacks have."""

import pytest
from gpu_recovery.core.measures import MEASURES

from tests.aws.cost_page import ALARMS, PAGE
from tests.infra.deployment import Deployment

pytestmark = pytest.mark.slow


def test_the_fixed_costs_are_those_of_the_template(deployment: Deployment) -> None:
    """Alarms, dashboard, key and secret of the default settings; a metric for each measure."""
    kinds = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard", "AWS::KMS::Key", "AWS::SecretsManager::Secret")
    assert [len(deployment.of_type(kind)) for kind in kinds] == [ALARMS, 1, 1, 1]
    assert f"| CloudWatch metrics | {len(MEASURES)} |" in PAGE.read_text(encoding="utf-8")


def test_no_table_forgets_by_itself(deployment: Deployment) -> None:
    """Time to live deletes within two days or so: a claim or a deadline must never depend on it."""
    tables = deployment.of_type("AWS::DynamoDB::Table")
    assert len(tables) == 2
    assert not [name for name, table in tables.items() if "TimeToLiveSpecification" in table]
