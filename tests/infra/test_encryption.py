"""Everything that holds data is encrypted at rest, with a key we can name, and refuses to be spoken to in the clear."""

from typing import Any

import pytest

from tests.infra.deployment import Deployment

pytestmark = pytest.mark.slow

AT_REST: dict[str, dict[str, Any]] = {
    # The key AWS manages for DynamoDB in this account.
    "AWS::DynamoDB::Table": {"SSESpecification": {"SSEEnabled": True}},
    # Keys of SQS and S3 themselves.
    "AWS::SQS::Queue": {"SqsManagedSseEnabled": True, "KmsMasterKeyId": None},
    "AWS::S3::Bucket": {
        "BucketEncryption": {
            "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        }
    },
    # A key of our own: alarms cannot use the one AWS manages for SNS.
    "AWS::SNS::Topic": {"KmsMasterKeyId": "OperatorsKey.Arn"},
    # These are never unencrypted; no property names the key of the service.
    "AWS::SecretsManager::Secret": {"KmsKeyId": None},
    "AWS::Logs::LogGroup": {"KmsKeyId": None},
    "AWS::Events::EventBus": {"KmsKeyIdentifier": None},
    "AWS::Lambda::Function": {"KmsKeyArn": None},
    "AWS::ECR::Repository": {"EncryptionConfiguration": None},
}
OPTIONAL = {("AWS::ECR::Repository", "production")}
"""Kinds that a set of settings lacks: there the image comes from elsewhere."""
HOLDS_NOTHING = {
    "AWS::ApiGatewayV2::Api",
    "AWS::ApiGatewayV2::Integration",
    "AWS::ApiGatewayV2::Route",
    "AWS::ApiGatewayV2::Stage",
    "AWS::CDK::Metadata",
    "AWS::CloudWatch::Alarm",
    "AWS::CloudWatch::CompositeAlarm",
    "AWS::CloudWatch::Dashboard",
    "AWS::CodeBuild::Project",
    "AWS::ECS::TaskDefinition",
    "AWS::Events::Rule",
    "AWS::IAM::Policy",
    "AWS::IAM::Role",
    "AWS::KMS::Key",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::EventSourceMapping",
    "AWS::Lambda::Alias",
    "AWS::Lambda::LayerVersion",
    "AWS::Lambda::Version",
    "AWS::Lambda::Permission",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Subscription",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
    "Custom::BuiltImage",
}
OVER_TLS = {
    "AWS::SQS::Queue": ("AWS::SQS::QueuePolicy", "Queues"),
    "AWS::SNS::Topic": ("AWS::SNS::TopicPolicy", "Topics"),
    "AWS::S3::Bucket": ("AWS::S3::BucketPolicy", "Bucket"),
}
"""What can be reached over plain HTTP, with the policy that refuses it and the property that names what it is for."""


@pytest.mark.parametrize("where", ["deployment", "production"])
def test_every_kind_of_resource_has_been_thought_about(request: pytest.FixtureRequest, where: str) -> None:
    """A kind that is in neither list is new, and may hold data in the clear."""
    deployed: Deployment = request.getfixturevalue(where)
    assert {resource["Type"] for resource in deployed.resources.values()} <= AT_REST.keys() | HOLDS_NOTHING


@pytest.mark.parametrize("where", ["deployment", "production"])
@pytest.mark.parametrize("kind", AT_REST)
def test_what_holds_data_is_encrypted_at_rest(request: pytest.FixtureRequest, where: str, kind: str) -> None:
    """Each resource of the kind, under both profiles; None stands for a property that is not there."""
    found = request.getfixturevalue(where).of_type(kind)
    assert found or (kind, where) in OPTIONAL
    for name, properties in found.items():
        assert {key: properties.get(key) for key in AT_REST[kind]} == AT_REST[kind], name


@pytest.mark.parametrize("where", ["deployment", "production"])
@pytest.mark.parametrize("kind", OVER_TLS)
def test_plain_http_is_refused(request: pytest.FixtureRequest, where: str, kind: str) -> None:
    """Each queue, topic and bucket has a policy that denies everybody everything without TLS."""
    deployed: Deployment = request.getfixturevalue(where)
    policies, names = OVER_TLS[kind]
    refusing = set()
    for policy in deployed.of_type(policies).values():
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Deny" and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}:
                assert statement["Principal"] in ("*", {"AWS": "*"})
                assert statement["Action"] in ("sqs:*", "sns:Publish", "s3:*")
                about = policy[names]
                refusing |= set(about) if isinstance(about, list) else {about}
    assert refusing == set(deployed.of_type(kind))


def test_the_key_is_rotated_and_lets_in_its_account_and_the_alarms_only(production: Deployment) -> None:
    """Its policy names two principals; functions use it by their roles."""
    key = production.only("AWS::KMS::Key")
    assert key["EnableKeyRotation"] is True
    principals = [statement["Principal"] for statement in key["KeyPolicy"]["Statement"]]
    assert principals == [{"AWS": "arn:aws:iam::111122223333:root"}, {"Service": "cloudwatch.amazonaws.com"}]
    assert key["KeyPolicy"]["Statement"][1]["Condition"] == {"StringEquals": {"aws:SourceAccount": "111122223333"}}
