"""What the deployment remembers and whom it tells."""

from types import SimpleNamespace
from typing import Any

import pytest
from gpu_recovery.aws.console_snapshots import PREFIX

from tests.aws.deployed_tables import LISTING, create_history_table, create_tables
from tests.infra.deployment import Deployment, listed

pytestmark = pytest.mark.slow

JOB_LIST = ["attempt", "version", "spec", "instances", "repairing", "reason", "status_at", "origin"]


def _keys(schema: list[dict]) -> list[tuple[str, str]]:
    return [(key["AttributeName"], key["KeyType"]) for key in schema]


def test_the_table_of_jobs_has_its_key_and_its_indexes(deployment: Deployment) -> None:
    """Names and keys are what existing tools know; the indexes are all the functions may query."""
    projections = {"by_status": JOB_LIST, "line": ["line_entry"]}
    _check_table(
        _table(deployment, "ecs-job-sub"),
        ("job_id_rank", "S"),
        {"by_status": (("status", "S"), ("queued_at", "S")), "line": (("line", "S"), ("line_at", "S"))},
        {name: {"ProjectionType": "INCLUDE", "NonKeyAttributes": names} for name, names in projections.items()},
    )


@pytest.mark.parametrize(("where", "upgrades"), [("deployment", False), ("production", False), ("own_images", True)])
def test_only_an_upgrade_keeps_the_index_with_a_key_for_each_status(
    request: pytest.FixtureRequest, where: str, upgrades: bool
) -> None:
    """All instances of a gang change under one key of that index at once."""
    key = ("container_inst_id", "S")
    keys = {"listing": (("listing", "N"), key)}
    projections: dict[str, Any] = {"listing": {"ProjectionType": "INCLUDE", "NonKeyAttributes": LISTING}}
    if upgrades:
        keys["by_status"] = (("status", "S"), key)
        projections["by_status"] = {"ProjectionType": "ALL"}
    deployed: Deployment = request.getfixturevalue(where)
    _check_table(_table(deployed, "ecs_container_instance"), key, keys, projections)


def _table(where: Deployment, name: str) -> dict[str, Any]:
    (properties,) = (table for table in where.of_type("AWS::DynamoDB::Table").values() if table["TableName"] == name)
    return properties


Key = tuple[str, str]
"""Name and type of an attribute."""


def _check_table(
    properties: dict[str, Any], key: Key, keys: dict[str, tuple[Key, Key]], projections: dict[str, Any]
) -> None:
    """The table has this key, the indexes of `keys` with these projections, and the index `due`."""
    keys = {**keys, "due": (("shard", "N"), ("due_at", "S"))}
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["SSESpecification"] == {"SSEEnabled": True}
    assert _keys(properties["KeySchema"]) == [(key[0], "HASH")]
    indexes = {index["IndexName"]: index for index in properties["GlobalSecondaryIndexes"]}
    assert {name: _keys(index["KeySchema"]) for name, index in indexes.items()} == {
        name: [(partition[0], "HASH"), (sort[0], "RANGE")] for name, (partition, sort) in keys.items()
    }
    expected = {**projections, "due": {"ProjectionType": "KEYS_ONLY"}}
    assert {name: index["Projection"] for name, index in indexes.items()} == expected
    types = {each["AttributeName"]: each["AttributeType"] for each in properties["AttributeDefinitions"]}
    assert types == dict([key, *(one for pair in keys.values() for one in pair)])


@pytest.mark.parametrize(
    "kind",
    ["AWS::DynamoDB::Table", "AWS::KMS::Key", "AWS::S3::Bucket", "AWS::SecretsManager::Secret", "AWS::Logs::LogGroup"],
)
def test_production_keeps_what_development_deletes(deployment: Deployment, production: Deployment, kind: str) -> None:
    """Both when the stack goes and when a change replaces the resource."""
    for where, policy in ((deployment, "Delete"), (production, "Retain")):
        found = [resource for resource in where.resources.values() if resource["Type"] == kind]
        assert found
        for resource in found:
            assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == (policy, policy)


def test_production_tables_can_be_restored_and_not_be_deleted(deployment: Deployment, production: Deployment) -> None:
    """Point-in-time recovery and deletion protection."""
    for where, expected in ((deployment, False), (production, True)):
        for table in where.of_type("AWS::DynamoDB::Table").values():
            assert table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is expected
            assert table["DeletionProtectionEnabled"] is expected


def test_the_topic_is_encrypted_with_a_key_that_lets_alarms_in(deployment: Deployment) -> None:
    """Alarms publish as a service: without both statements they ring unheard."""
    topic = deployment.only("AWS::SNS::Topic")
    assert topic["TopicName"] == "gpu-training-notifications"
    assert topic["KmsMasterKeyId"] == "OperatorsKey.Arn"
    service = {"Service": "cloudwatch.amazonaws.com"}
    (publish,) = (
        each
        for each in deployment.only("AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
        if each["Effect"] == "Allow"
    )
    assert (publish["Principal"], publish["Action"]) == (service, "sns:Publish")
    (encrypt,) = (
        each for each in deployment.only("AWS::KMS::Key")["KeyPolicy"]["Statement"] if each["Principal"] == service
    )
    assert encrypt["Action"] == ["kms:Decrypt", "kms:GenerateDataKey*"]


@pytest.mark.parametrize(("where", "upgrade_from"), [("deployment", ""), ("own_images", "0.1")])
def test_the_tables_of_the_other_tests_are_those_of_the_template(
    request: pytest.FixtureRequest, where: str, upgrade_from: str
) -> None:
    """They are made by hand for servers that read no templates; a key that drifts would be tested nowhere."""
    deployment: Deployment = request.getfixturevalue(where)
    made: dict[str, dict[str, Any]] = {}
    client = SimpleNamespace(create_table=lambda **asked: made.__setitem__(asked["TableName"], asked))
    create_history_table(client, "gpu-recovery-event-history")
    create_tables(
        client,
        "ecs-job-sub",
        "ecs_container_instance",
        is_complete=False,
        upgrade_from=upgrade_from,
    )
    deployed = {table["TableName"]: table for table in deployment.of_type("AWS::DynamoDB::Table").values()}
    assert made.keys() == deployed.keys()
    for name, table in made.items():
        for part in ("KeySchema", "BillingMode"):
            assert table[part] == deployed[name][part]
        for part, key in (("AttributeDefinitions", "AttributeName"), ("GlobalSecondaryIndexes", "IndexName")):
            by_name = [{one[key]: one for one in where.get(part, ())} for where in (table, deployed[name])]
            assert by_name[0] == by_name[1], name


def test_a_second_topic_is_made_on_demand(deployment: Deployment, production: Deployment) -> None:
    """With the operators' key and nobody subscribed; an output tells where it is, and none where it is not."""
    topics = production.of_type("AWS::SNS::Topic")
    assert topics["OperatorsChat"]["TopicName"] == "gpu-training-notifications-chat"
    assert topics["OperatorsChat"]["KmsMasterKeyId"] == "OperatorsKey.Arn"
    assert {each["TopicArn"] for each in production.of_type("AWS::SNS::Subscription").values()} == {"OperatorsTopic"}
    assert production.outputs("GpuRecovery")["ChatTopicArn"] == "OperatorsChat"
    assert set(deployment.of_type("AWS::SNS::Topic")) == {"OperatorsTopic"}
    assert "ChatTopicArn" not in deployment.outputs("GpuRecovery")


@pytest.mark.parametrize(("where", "kept"), [("deployment", False), ("production", True)])
def test_the_state_stack_cannot_be_deleted_by_accident_in_production(
    request: pytest.FixtureRequest, where: str, kept: bool
) -> None:
    """CloudFormation itself refuses; the stack of what acts can always be deleted and made anew."""
    deployed: Deployment = request.getfixturevalue(where)
    assert deployed.termination_protection == {"GpuRecovery": False, "GpuRecoveryState": kept}


def test_operators_of_the_settings_are_subscribed(deployment: Deployment, production: Deployment) -> None:
    """One subscription per address, queue or e-mail, by its own protocol and in the envelope of SNS."""
    subscribed = production.of_type("AWS::SNS::Subscription").values()
    assert {(each["Protocol"], each["Endpoint"], each["TopicArn"]) for each in subscribed} == {
        ("email", "ops@example.com", "OperatorsTopic"),
        ("email", "night@example.com", "OperatorsTopic"),
        ("https", "https://alerts.example.com/gpu", "OperatorsTopic"),
        ("sqs", "arn:aws:sqs:us-east-1:111122223333:incidents", "OperatorsTopic"),
    }
    assert not [each for each in subscribed if "RawMessageDelivery" in each]
    assert not deployment.of_type("AWS::SNS::Subscription")


def test_verdicts_are_private_and_expire_after_a_month(deployment: Deployment) -> None:
    """Nobody needs a verdict for longer, and nobody outside ever."""
    bucket = deployment.only("AWS::S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    rule, _, _ = bucket["LifecycleConfiguration"]["Rules"]
    assert (rule["Prefix"], rule["ExpirationInDays"], rule["Status"]) == ("verdicts/", 30, "Enabled")


def test_records_of_jobs_expire_after_a_year(deployment: Deployment) -> None:
    """They lie in the same bucket, which is kept from everybody outside."""
    _, rule, _ = deployment.only("AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    assert (rule["Prefix"], rule["ExpirationInDays"], rule["Status"]) == ("jobs/", 365, "Enabled")


def test_console_snapshots_expire_after_a_week(deployment: Deployment) -> None:
    """A writer replaces them each minute; what nobody writes any more says nothing."""
    _, _, rule = deployment.only("AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    assert (rule["Prefix"], rule["ExpirationInDays"], rule["Status"]) == (PREFIX, 7, "Enabled")


def test_the_operator_token_and_the_signing_keys_are_made_by_aws(deployment: Deployment) -> None:
    """Long, plain to type into a header, and in no template."""
    made = deployment.of_type("AWS::SecretsManager::Secret")
    assert sorted(made) == ["NodeTokenKeySecret", "OperatorTokenSecret", "SigningKeySecret"]
    for secret in made.values():
        assert secret["GenerateSecretString"] == {
            "ExcludePunctuation": True,
            "IncludeSpace": False,
            "PasswordLength": 48,
        }
        assert "SecretString" not in secret


def test_our_events_have_a_bus_of_their_own(deployment: Deployment) -> None:
    """The default bus is for AWS's events."""
    assert deployment.only("AWS::Events::EventBus")["Name"] == "gpu-recovery"


def test_every_log_group_has_the_retention_of_the_settings(deployment: Deployment, production: Deployment) -> None:
    """Ten functions, the check, the API's access log, two of the image's build by default; none kept for ever."""
    for where, days, number in ((deployment, 7, 14), (production, 120, 11)):
        groups = where.of_type("AWS::Logs::LogGroup")
        assert len(groups) == number
        assert {group["RetentionInDays"] for group in groups.values()} == {days}


def test_every_function_logs_into_its_own_group(deployment: Deployment) -> None:
    """A group that Lambda makes by itself would be kept for ever."""
    for name, function in deployment.of_type("AWS::Lambda::Function").items():
        group = name.removesuffix("Function") + "Logs"
        assert function["LoggingConfig"]["LogGroup"] == group
        assert group in deployment.of_type("AWS::Logs::LogGroup")


def test_no_log_group_has_a_name_of_its_own(deployment: Deployment, production: Deployment) -> None:
    """A group that outlives its stack must not stand in the way of the next deployment.

    The name of the access log has the id of the API, which is new with each API.
    """
    for where in (deployment, production):
        groups = where.of_type("AWS::Logs::LogGroup")
        named = {name: group["LogGroupName"] for name, group in groups.items() if "LogGroupName" in group}
        assert named == {"JobApiAccessLogs": "/aws/vendedlogs/apis/JobApi/access"}


def test_everything_that_takes_tags_carries_the_projects(deployment: Deployment) -> None:
    """Costs are found by tag."""
    for kind in ("AWS::DynamoDB::Table", "AWS::Lambda::Function", "AWS::SQS::Queue", "AWS::KMS::Key"):
        for name, properties in deployment.of_type(kind).items():
            assert {"Key": "Project", "Value": "gpu-recovery"} in listed(properties["Tags"]), name
