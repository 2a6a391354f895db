"""docs/deploy.md says what a deleted stack leaves behind, and the templates say the same."""

from pathlib import Path

import pytest

from tests.infra.deployment import Deployment
from tests.markdown import DEPLOY

pytestmark = pytest.mark.slow

KINDS = {
    "tables of jobs and instances": "AWS::DynamoDB::Table",
    "verdict bucket": "AWS::S3::Bucket",
    "key of the topics": "AWS::KMS::Key",
    "operator token and signing keys": "AWS::SecretsManager::Secret",
    "log groups": "AWS::Logs::LogGroup",
    "repositories of the images that the deployment builds": "AWS::ECR::Repository",
    "topics and their subscriptions": "AWS::SNS::Topic",
}
"""The rows of the page that hold something."""


def left_behind(deployment: Deployment) -> set[str]:
    """The types of the resources that CloudFormation keeps when their stack goes."""
    return {one["Type"] for one in deployment.resources.values() if one.get("DeletionPolicy", "").startswith("Retain")}


def test_what_is_kept_is_what_the_page_calls_kept(deployment: Deployment, validated: dict[str, Path]) -> None:
    """Profile by profile; with `dev` nothing is left."""
    (table,) = [one for one in DEPLOY.tables() if one[0] == ["What", "`dev`", "`prod`", "To delete it then"]]
    kept = {
        profile: {KINDS[row[0]] for row in table[1:] if row[number].startswith("kept")}
        for number, profile in ((1, "dev"), (2, "prod"))
    }
    assert kept == {"dev": left_behind(deployment), "prod": left_behind(Deployment.read(validated["prod"]))}
    assert KINDS.keys() < {row[0] for row in table[1:]}
    assert all(row[3] for row in table[1:] if row[2].startswith("kept")), "how is it deleted?"
