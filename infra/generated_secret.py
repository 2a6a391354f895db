"""Secret whose value Secrets Manager generates at deployment, so no template contains it.

The operator token is such a secret, and so are the signing keys of issued tokens.
"""

from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.removal import removal_policy
from infra.settings import DeploymentSettings


class GeneratedSecret(Construct):
    """A secret of 48 random letters and digits, about 285 bits. `secret_arn` is its ARN."""

    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings, description: str) -> None:
        super().__init__(scope, construct_id)
        secret = secretsmanager.Secret(
            self,
            "Secret",
            description=description,
            removal_policy=removal_policy(settings),
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=48, exclude_punctuation=True, include_space=False
            ),
        )
        resource = secret.node.default_child
        assert isinstance(resource, secretsmanager.CfnSecret)
        # The attribute `Id` instead of `Ref`. Both are the ARN on AWS, but in emulators `Ref` is the name.
        self.secret_arn = resource.attr_id
