"""Task definition of the health check of a GPU instance, with its roles and log group.

The container is privileged and uses the host's network. Its role may write a verdict and has no other permission.

The task definition requests no GPU. Each RunTask call sets how many GPUs the check reserves, because the number depends
on the setting and on the other tasks of the instance.
"""

import re

from aws_cdk import Aws, Duration
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.log_groups import log_group
from infra.settings import DeploymentSettings
from infra.verdict_bucket import VerdictBucket

CONTAINER = "health-check"
"""Name of the container in the task definition."""
OWN_REPOSITORY = "gpu-recovery-health-check"
"""ECR repository of the image if the settings name no image."""
_ECR_IMAGE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/(?P<repository>[^:@]+)([:@].+)?"
)


class HealthCheckTask(Construct):
    """The task definition of the health check (`definition`), its two roles and its log group (`logs`).

    Args:
        verdicts: the bucket to which checks write their verdicts.
    """

    def __init__(
        self, scope: Construct, construct_id: str, settings: DeploymentSettings, *, verdicts: VerdictBucket
    ) -> None:
        super().__init__(scope, construct_id)
        tasks = iam.ServicePrincipal("ecs-tasks.amazonaws.com")
        self.task_role = iam.Role(self, "TaskRole", assumed_by=tasks)
        self.task_role.add_to_policy(iam.PolicyStatement(actions=["s3:PutObject"], resources=[verdicts.verdicts_arn]))
        self.execution_role = iam.Role(self, "ExecutionRole", assumed_by=tasks)
        _allow_pull(self.execution_role, settings.health_check_image)
        self.logs = log_group(self, "Logs", settings)
        self.definition = ecs.Ec2TaskDefinition(
            self,
            "Definition",
            family=settings.check_family,
            network_mode=ecs.NetworkMode.HOST,
            task_role=self.task_role,
            execution_role=self.execution_role,
        )
        self.definition.add_container(
            CONTAINER,
            image=ecs.ContainerImage.from_registry(_image(settings.health_check_image)),
            command=["python", "-m", "health_check"],
            environment={
                "AWS_REGION": Aws.REGION,  # ECS on EC2 does not set the variable, and S3 in aws-cn needs the region
                "XID_POLICY": settings.xid_policy,
            },
            stop_timeout=Duration.seconds(60),  # a stopped check needs time to end dcgmi and write its verdict
            privileged=True,
            memory_reservation_mib=1024,
            logging=ecs.LogDriver.aws_logs(stream_prefix="check", log_group=self.logs),
        )


def _image(configured: str) -> str:
    return configured or f"{Aws.ACCOUNT_ID}.dkr.ecr.{Aws.REGION}.{Aws.URL_SUFFIX}/{OWN_REPOSITORY}:latest"


def _allow_pull(role: iam.Role, configured: str) -> None:
    """Let ECS pull the image from its private ECR repository. An image of another registry needs no permission."""
    match = _ECR_IMAGE.fullmatch(configured)
    if configured and not match:
        return
    location = (
        (match["region"], match["account"], match["repository"])
        if match
        else (Aws.REGION, Aws.ACCOUNT_ID, OWN_REPOSITORY)
    )
    role.add_to_policy(iam.PolicyStatement(actions=["ecr:GetAuthorizationToken"], resources=["*"]))
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            resources=["arn:{}:ecr:{}:{}:repository/{}".format(Aws.PARTITION, *location)],
        )
    )
