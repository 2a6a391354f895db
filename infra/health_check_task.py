"""The task that examines one GPU instance: privileged, on the host's network, and allowed to leave a verdict.

The definition asks for no GPU. How many a check reserves is said at each RunTask, because it depends on the setting
and on who else works on the instance.
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
OWN_REPOSITORY = "gpu-recovery-health-check"
_ECR_IMAGE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/(?P<repository>[^:@]+)([:@].+)?"
)


class HealthCheckTask(Construct):
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
                "AWS_REGION": Aws.REGION,  # ECS on EC2 does not set it, and S3 is regional in aws-cn
                "XID_POLICY": settings.xid_policy,
            },
            stop_timeout=Duration.seconds(60),  # a check that is stopped still ends dcgmi and leaves its document
            privileged=True,
            memory_reservation_mib=1024,
            logging=ecs.LogDriver.aws_logs(stream_prefix="check", log_group=self.logs),
        )


def _image(configured: str) -> str:
    return configured or f"{Aws.ACCOUNT_ID}.dkr.ecr.{Aws.REGION}.{Aws.URL_SUFFIX}/{OWN_REPOSITORY}:latest"


def _allow_pull(role: iam.Role, configured: str) -> None:
    """Let ECS pull the image if a private ECR repository holds it; other registries need no permission of ours."""
    found = _ECR_IMAGE.fullmatch(configured)
    if configured and not found:
        return
    where = (
        (found["region"], found["account"], found["repository"])
        if found
        else (Aws.REGION, Aws.ACCOUNT_ID, OWN_REPOSITORY)
    )
    role.add_to_policy(iam.PolicyStatement(actions=["ecr:GetAuthorizationToken"], resources=["*"]))
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            resources=["arn:{}:ecr:{}:{}:repository/{}".format(Aws.PARTITION, *where)],
        )
    )
