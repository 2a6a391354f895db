"""Powertools for AWS Lambda from the layer AWS publishes, so that nothing is vendored into the package."""

from aws_cdk import Aws, CfnMapping
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.settings import DeploymentSettings

# The publishing account of each partition and the layer version, from the Powertools installation page. In China the
# page names cn-north-1; elsewhere there, or in a partition not listed, pass the ARN of a copy as `powertools_layer`.
PUBLISHERS = {"aws": "017000801446", "aws-cn": "498634801083"}
LAYER = "AWSLambdaPowertoolsPythonV3-python313-arm64:27"


def powertools_layer(scope: Construct, settings: DeploymentSettings) -> lambda_.ILayerVersion | None:
    if settings.powertools_layer == "none":
        return None
    if settings.powertools_layer != "public":
        return lambda_.LayerVersion.from_layer_version_arn(scope, "Powertools", settings.powertools_layer)
    # A mapping, because one template serves every region and the partition is known only at deploy time.
    publishers = CfnMapping(
        scope,
        "PowertoolsPublishers",
        mapping={partition: {"account": account} for partition, account in PUBLISHERS.items()},
    )
    account = publishers.find_in_map(Aws.PARTITION, "account")
    return lambda_.LayerVersion.from_layer_version_arn(
        scope, "Powertools", f"arn:{Aws.PARTITION}:lambda:{Aws.REGION}:{account}:layer:{LAYER}"
    )
