"""Removal policy of resources that hold data, for when their stack is deleted."""

from aws_cdk import RemovalPolicy

from infra.settings import DeploymentSettings


def removal_policy(settings: DeploymentSettings) -> RemovalPolicy:
    """Return the removal policy: a production stack retains its data, a development stack deletes its data."""
    return RemovalPolicy.RETAIN if settings.is_prod else RemovalPolicy.DESTROY
