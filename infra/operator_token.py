"""Secret with the operator token, the bearer token of the job API.

Secrets Manager generates the token at deployment, so no template contains it.
"""

from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.removal import removal_policy
from infra.settings import DeploymentSettings


class OperatorToken(Construct):
    """The secret with the operator token. `secret_arn` is its ARN."""

    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings) -> None:
        super().__init__(scope, construct_id)
        secret = secretsmanager.Secret(
            self,
            "Secret",
            description="Bearer token of the gpu-recovery job API",
            removal_policy=removal_policy(settings),
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=48, exclude_punctuation=True, include_space=False
            ),
        )
        resource = secret.node.default_child
        assert isinstance(resource, secretsmanager.CfnSecret)
        # The attribute `Id` instead of `Ref`. Both are the ARN on AWS, but in emulators `Ref` is the name.
        self.secret_arn = resource.attr_id
