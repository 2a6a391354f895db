"""An upgrade never replaces what remembers: identities of stateful resources are pinned in stateful.json.

CloudFormation replaces a resource whose logical id changes, or one of the properties it calls "requires replacement".
For a table that is an empty table; for a queue the messages in it; for the API the address that people have.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.infra.deployment import Deployment

pytestmark = pytest.mark.slow

PINNED = Path(__file__).parent / "stateful.json"
IDENTITY = {
    "AWS::DynamoDB::Table": ("TableName", "KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes"),
    "AWS::S3::Bucket": ("BucketName",),
    "AWS::SNS::Topic": ("TopicName", "FifoTopic"),
    "AWS::KMS::Key": ("KeySpec", "KeyUsage", "MultiRegion"),
    "AWS::SecretsManager::Secret": ("Name", "GenerateSecretString"),
    "AWS::Events::EventBus": ("Name",),
    "AWS::SQS::Queue": ("QueueName", "FifoQueue"),
    "AWS::ApiGatewayV2::Api": ("ProtocolType",),
}
"""Kinds that hold state, or an address that people have, and the properties whose change makes a new one."""


def _stateful(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """By stack and logical id, hash included: type and identity, as the template has them."""
    return {
        stack: {
            logical_id: {
                "Type": resource["Type"],
                **{
                    name: resource["Properties"][name]
                    for name in IDENTITY[resource["Type"]]
                    if name in resource.get("Properties", {})
                },
            }
            for logical_id, resource in template["Resources"].items()
            if resource["Type"] in IDENTITY
        }
        for stack, template in deployment.templates.items()
    }


def test_no_upgrade_replaces_what_remembers(production: Deployment) -> None:
    """With every optional part on. A change of the file is a decision about everybody who has the last release."""
    assert _stateful(production) == json.loads(PINNED.read_text())


def test_only_the_second_topic_is_optional(deployment: Deployment) -> None:
    """No other setting makes state come or go, and none but a name setting renames it."""
    pinned = json.loads(PINNED.read_text())
    optional = [name for name in pinned["GpuRecoveryState"] if name.startswith("OperatorsChat")]
    assert len(optional) == 1
    del pinned["GpuRecoveryState"][optional[0]]
    assert _stateful(deployment) == pinned


RELEASE_0_1 = {"TablesJobs313634AE": {"due", "by_status"}, "TablesInstances67E1FF73": {"due", "by_status"}}
"""Indexes of each table in release 0.1."""


def _indexes(deployment: Deployment) -> dict[str, set[str]]:
    """Names of the indexes of each table that has any."""
    return {
        logical_id: {index["IndexName"] for index in resource["Properties"]["GlobalSecondaryIndexes"]}
        for logical_id, resource in deployment.templates["GpuRecoveryState"]["Resources"].items()
        if resource["Type"] == "AWS::DynamoDB::Table" and "GlobalSecondaryIndexes" in resource["Properties"]
    }


def test_each_deployment_of_an_upgrade_adds_or_removes_one_index_of_a_table(
    deployment: Deployment, own_images: Deployment
) -> None:
    """CloudFormation refuses two (User Guide, `AWS::DynamoDB::Table`), so 0.1 needs one with `upgrade_from` first."""
    before, between, after = RELEASE_0_1, _indexes(own_images), _indexes(deployment)
    assert before.keys() == between.keys() == after.keys()
    for old, new in ((before, between), (between, after)):
        assert max(len(old[table] ^ new[table]) for table in old) == 1
    assert max(len(before[table] ^ after[table]) for table in before) == 2
