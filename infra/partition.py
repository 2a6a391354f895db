"""What differs between the partitions of AWS: a condition that CloudFormation evaluates at the deployment."""

from typing import Any

from aws_cdk import Aws, CfnCondition, Fn, Stack
from constructs import Construct


def outside_china(scope: Construct, value: Any, in_china: Any = None) -> dict[str, Any]:
    """Return the property value `value`, which is `in_china` in the partition aws-cn; None: no such property there."""
    stack = Stack.of(scope)
    condition = stack.node.try_find_child("OutsideChina") or CfnCondition(
        stack, "OutsideChina", expression=Fn.condition_not(Fn.condition_equals(Aws.PARTITION, "aws-cn"))
    )
    assert isinstance(condition, CfnCondition)
    return {"Fn::If": [condition.logical_id, value, {"Ref": "AWS::NoValue"} if in_china is None else in_china]}
