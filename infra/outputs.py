"""What a person or a script needs to know after a deployment, under names that do not change."""

from collections.abc import Mapping

from aws_cdk import CfnOutput
from constructs import Construct


class Outputs(Construct):
    def __init__(self, scope: Construct, construct_id: str, values: Mapping[str, str]) -> None:
        super().__init__(scope, construct_id)
        for name, value in values.items():
            CfnOutput(self, name, value=value).override_logical_id(name)
