"""References into private ECR repositories, and the permission to pull from a repository."""

import re
from dataclasses import dataclass

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
"""Actions that pull an image from a repository."""
_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/(?P<name>[^:@]+)([:@](?P<version>.+))?"
)


@dataclass(frozen=True)
class EcrImage:
    """An image of a private ECR repository.

    registry: host of the registry.
    region:   region of the registry.
    arn:      ARN of the repository.
    name:     name of the repository.
    version:  tag or digest.
    """

    registry: str
    region: str
    arn: str
    name: str
    version: str


def ecr_image(reference: str) -> EcrImage | None:
    """Return the parts of a reference into ECR, or None for an image of another registry."""
    match = _ECR.fullmatch(reference)
    if not match:
        return None
    arn = f"arn:{Aws.PARTITION}:ecr:{match['region']}:{match['account']}:repository/{match['name']}"
    return EcrImage(reference.partition("/")[0], match["region"], arn, match["name"], match["version"] or "latest")


def allow_pull(role: iam.Role, repository_arn: str) -> None:
    """Let a role pull the images of one repository. The login to the registry has no resource level."""
    role.add_to_policy(iam.PolicyStatement(actions=["ecr:GetAuthorizationToken"], resources=["*"]))
    role.add_to_policy(iam.PolicyStatement(actions=list(PULL), resources=[repository_arn]))
