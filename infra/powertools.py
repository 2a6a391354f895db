"""Lambda layer with Powertools for AWS Lambda, which AWS publishes.

With the layer the deployment package contains no third-party code.
"""

from aws_cdk import Aws, CfnMapping
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.settings import DeploymentSettings

PUBLISHERS = {"aws": "017000801446", "aws-cn": "498634801083"}
"""Account that publishes the layer in each partition, from the Powertools installation page.

For China the page names only cn-north-1. In another region of China, or in another partition, set `powertools_layer` to
the ARN of a copy.
"""
LAYER = "AWSLambdaPowertoolsPythonV3-python313-arm64:27"
"""Name and version of the layer, from the same page."""


def powertools_layer(scope: Construct, settings: DeploymentSettings) -> lambda_.ILayerVersion | None:
    """Return the layer that the setting `powertools_layer` selects: the public layer, an own copy, or None."""
    if settings.powertools_layer == "none":
        return None
    if settings.powertools_layer != "public":
        return lambda_.LayerVersion.from_layer_version_arn(scope, "Powertools", settings.powertools_layer)
    # A CloudFormation mapping: one template serves every region, and the partition is known only at deployment.
    publishers = CfnMapping(
        scope,
        "PowertoolsPublishers",
        mapping={partition: {"account": account} for partition, account in PUBLISHERS.items()},
    )
    account = publishers.find_in_map(Aws.PARTITION, "account")
    return lambda_.LayerVersion.from_layer_version_arn(
        scope, "Powertools", f"arn:{Aws.PARTITION}:lambda:{Aws.REGION}:{account}:layer:{LAYER}"
    )
