"""What happens to things that hold data when their stack goes: production keeps them, development does not."""

from aws_cdk import RemovalPolicy

from infra.settings import DeploymentSettings


def removal_policy(settings: DeploymentSettings) -> RemovalPolicy:
    return RemovalPolicy.RETAIN if settings.is_prod else RemovalPolicy.DESTROY
