"""Stack outputs under stable names, for operators and scripts."""

from collections.abc import Mapping

from aws_cdk import CfnOutput
from constructs import Construct


class Outputs(Construct):
    """A stack output for each name of `values`. The logical id is the name, without a prefix of the construct."""

    def __init__(self, scope: Construct, construct_id: str, values: Mapping[str, str]) -> None:
        super().__init__(scope, construct_id)
        for name, value in values.items():
            CfnOutput(self, name, value=value).override_logical_id(name)
