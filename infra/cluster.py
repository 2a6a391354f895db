"""ARNs of the watched ECS cluster, which the stack does not create, and of its tasks."""

from aws_cdk import Aws

from infra.settings import DeploymentSettings


class ClusterArns:
    """ARNs of the cluster that the settings name.

    The ARNs use the pseudo parameters for partition, region and account, so one template serves every region.
    """

    def __init__(self, settings: DeploymentSettings) -> None:
        self.name = settings.cluster_name
        self.arn = _ecs(f"cluster/{self.name}")
        self.task_arns = _ecs(f"task/{self.name}/*")
        self.container_instance_arns = _ecs(f"container-instance/{self.name}/*")
        self.ec2_instance_arns = f"arn:{Aws.PARTITION}:ec2:{Aws.REGION}:{Aws.ACCOUNT_ID}:instance/*"
        self.auto_scaling_group_arns = (
            f"arn:{Aws.PARTITION}:autoscaling:{Aws.REGION}:{Aws.ACCOUNT_ID}:autoScalingGroup:*:autoScalingGroupName/*"
        )

    def log_stream_arns(self, group: str) -> str:
        """Return the ARN pattern of the streams of a log group. Streams are named after tasks."""
        return f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:{group}:log-stream:*"

    def task_definition_prefix(self, family: str) -> str:
        """Return the common prefix of the ARNs of all revisions of a task definition family, and of no other family."""
        return _ecs(f"task-definition/{family}:")


def _ecs(resource: str) -> str:
    return f"arn:{Aws.PARTITION}:ecs:{Aws.REGION}:{Aws.ACCOUNT_ID}:{resource}"
