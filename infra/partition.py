"""What some regions of AWS lack: conditions that CloudFormation evaluates at the deployment.

One template serves every region, so a property that a region lacks is left out by `Fn::If`. The schemas of resources do
not show what Lambda lacks: cfn-lint has the same schema of `AWS::Lambda::Function` for every region. So each feature
below has its document.
"""

from enum import StrEnum
from typing import Any

from aws_cdk import Aws, CfnCondition, Fn, Stack
from constructs import Construct

CHINA, GOVCLOUD = "aws-cn", "aws-us-gov"


class Feature(StrEnum):
    """A feature of Lambda that some regions lack. The value is the id of its condition in the templates."""

    X_RAY = "HasXRay"
    """Traces. Getting Started with Amazon Web Services in China, "Amazon Lambda": not available."""
    JSON_LOGS = "HasJsonLogs"
    """The log format JSON, with filters of log levels.

    AWS GovCloud (US) User Guide, "AWS Lambda in AWS GovCloud (US)": not available. The page of China does not list it
    among the differences, and the Lambda Developer Guide of China describes it.
    """
    LOOP_DETECTION = "HasLoopDetection"
    """Detection of recursive loops. Lambda Developer Guide, "Supported Regions for Lambda recursive loop detection":
    all commercial Regions except Mexico (Central) and Asia Pacific (New Zealand).
    """
    SNAP_START = "HasSnapStart"
    """Starts from snapshots. Lambda Developer Guide, "Improving startup performance with Lambda SnapStart": all
    commercial Regions except Asia Pacific (New Zealand) and Asia Pacific (Taipei). The guide of China describes the
    feature, but cfn-lint (rule E2530) lists the regions of China among those without it.
    """


LACKING_PARTITIONS: dict[Feature, tuple[str, ...]] = {
    Feature.X_RAY: (CHINA,),
    Feature.JSON_LOGS: (GOVCLOUD,),
    Feature.LOOP_DETECTION: (CHINA, GOVCLOUD),
    Feature.SNAP_START: (CHINA, GOVCLOUD),
}
"""Partitions that lack a feature."""
LACKING_REGIONS: dict[Feature, tuple[str, ...]] = {
    Feature.LOOP_DETECTION: ("ap-southeast-6", "mx-central-1"),
    Feature.SNAP_START: ("ap-southeast-6", "ap-east-2"),
}
"""Regions of the partition aws that lack a feature."""


def where_available(scope: Construct, feature: Feature, value: Any, elsewhere: Any = None) -> dict[str, Any]:
    """Return the property value `value`, which is `elsewhere` in regions without the feature.

    Args:
        scope: a construct of the stack.
        feature: the feature that the property needs.
        value: the value where the feature is available.
        elsewhere: the value in other regions. None: the property is left out there.
    """
    stack = Stack.of(scope)
    condition = stack.node.try_find_child(feature)
    if condition is None:
        lacking = [Fn.condition_equals(Aws.PARTITION, each) for each in LACKING_PARTITIONS[feature]]
        lacking += [Fn.condition_equals(Aws.REGION, each) for each in LACKING_REGIONS.get(feature, ())]
        condition = CfnCondition(stack, feature, expression=Fn.condition_not(Fn.condition_or(*lacking)))
    assert isinstance(condition, CfnCondition)
    return {"Fn::If": [condition.logical_id, value, {"Ref": "AWS::NoValue"} if elsewhere is None else elsewhere]}
