"""Lambda layer with Powertools for AWS Lambda: the project's own, AWS's public layer, or a layer of the user."""

from aws_cdk import Aws, CfnMapping
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.function_code import code_of
from infra.layer import layer_folder
from infra.settings import DeploymentSettings

PUBLISHERS = {"aws": "017000801446", "aws-cn": "498634801083"}
"""Account that publishes the public layer in each partition, from the Powertools installation page.

For China the page names only cn-north-1. In GovCloud each region has another account, so the setting `public` is not
available there.
"""
LAYER = "AWSLambdaPowertoolsPythonV3-python313-arm64:27"
"""Name and version of the public layer, from the same page."""


class LayerNotBuilt(RuntimeError):
    """The folder of the own layer does not exist. `make setup` builds it."""


def powertools_layer(scope: Construct, settings: DeploymentSettings) -> lambda_.ILayerVersion:
    """Return the layer that the setting `powertools_layer` selects.

    Raises:
        LayerNotBuilt: the setting is `own`, and the layer is not built.
    """
    if settings.powertools_layer == "own":
        folder = layer_folder()
        if not folder.is_dir():
            raise LayerNotBuilt(f"the Lambda layer {folder} is not built: run `python -m infra.layer.build`")
        return lambda_.LayerVersion(
            scope,
            "Powertools",
            code=code_of(folder, "/opt"),
            description="gpu-recovery: third-party packages of the functions",
            compatible_runtimes=[lambda_.Runtime.PYTHON_3_13],
        )
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
