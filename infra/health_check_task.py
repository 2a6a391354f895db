"""Task definition of the health check of a GPU instance, with its roles and log group.

The container is privileged and uses the host's network. Its role may write a verdict and has no other permission.

The task definition requests no GPU. Each RunTask call sets how many GPUs the check reserves, because the number depends
on the setting and on the other tasks of the instance.
"""

from aws_cdk import Aws, Duration
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.image_build import ImageBuilder
from infra.image_reference import allow_pull, ecr_image
from infra.log_groups import log_group
from infra.setting_readers import BUILD
from infra.settings import DeploymentSettings
from infra.verdict_bucket import VerdictBucket

CONTAINER = "health-check"
"""Name of the container in the task definition."""
HOST_ENGINE_FOLDER = "/run/nvidia-dcgm"
"""Folder of the socket of the host's DCGM engine on the GPU-optimized AMIs."""
OWN_REPOSITORY = "gpu-recovery-health-check"
"""ECR repository of the image if the settings name no image."""
FILES = ["*", "!health_check", "health_check/README.md", "**/__pycache__"]
"""Exclusion patterns of the build context, in the syntax of .dockerignore: the folder `health_check` remains."""


class HealthCheckTask(Construct):
    """The task definition of the health check (`definition`), its two roles and its log group (`logs`).

    Args:
        verdicts: the bucket to which checks write their verdicts.
        images: the builder of images; None if the settings name every image.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: DeploymentSettings,
        *,
        verdicts: VerdictBucket,
        images: ImageBuilder | None,
    ) -> None:
        super().__init__(scope, construct_id)
        tasks = iam.ServicePrincipal("ecs-tasks.amazonaws.com")
        self.task_role = iam.Role(self, "TaskRole", assumed_by=tasks)
        self.task_role.add_to_policy(iam.PolicyStatement(actions=["s3:PutObject"], resources=[verdicts.verdicts_arn]))
        self.execution_role = iam.Role(self, "ExecutionRole", assumed_by=tasks)
        image, repository_arn = _image(settings, images)
        if repository_arn:
            allow_pull(self.execution_role, repository_arn)
        self.logs = log_group(self, "Logs", settings)
        self.definition = ecs.Ec2TaskDefinition(
            self,
            "Definition",
            family=settings.check_family,
            network_mode=ecs.NetworkMode.HOST,
            task_role=self.task_role,
            execution_role=self.execution_role,
        )
        uses_host_engine = settings.check_host_engine == "host"
        container = self.definition.add_container(
            CONTAINER,
            image=ecs.ContainerImage.from_registry(image),
            command=["python", "-m", "health_check"],
            environment={
                "AWS_REGION": Aws.REGION,  # ECS on EC2 does not set the variable, and S3 in aws-cn needs the region
                "XID_POLICY": settings.xid_policy,
                **({"HOST_ENGINE": "host"} if uses_host_engine else {}),
            },
            stop_timeout=Duration.seconds(60),  # a stopped check needs time to end dcgmi and write its verdict
            privileged=True,
            memory_reservation_mib=1024,
            logging=ecs.LogDriver.aws_logs(stream_prefix="check", log_group=self.logs),
        )
        if uses_host_engine:
            # Docker creates the folder on a host without the engine; the check then starts its own engine.
            self.definition.add_volume(name="host-engine", host=ecs.Host(source_path=HOST_ENGINE_FOLDER))
            container.add_mount_points(
                ecs.MountPoint(container_path=HOST_ENGINE_FOLDER, source_volume="host-engine", read_only=True)
            )


def _image(settings: DeploymentSettings, images: ImageBuilder | None) -> tuple[str, str]:
    """Return the reference of the image and the ARN of its ECR repository, which is "" for another registry."""
    configured = settings.health_check_image
    if configured == BUILD:
        assert images is not None
        built = images.build(
            "HealthCheck",
            dockerfile="health_check/Dockerfile",
            exclude=FILES,
            base_image=settings.health_check_base_image,
        )
        return built.uri, built.repository.repository_arn
    if not configured:
        return (
            f"{Aws.ACCOUNT_ID}.dkr.ecr.{Aws.REGION}.{Aws.URL_SUFFIX}/{OWN_REPOSITORY}:latest",
            f"arn:{Aws.PARTITION}:ecr:{Aws.REGION}:{Aws.ACCOUNT_ID}:repository/{OWN_REPOSITORY}",
        )
    in_ecr = ecr_image(configured)
    return configured, in_ecr.arn if in_ecr else ""
