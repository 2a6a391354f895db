"""ARNs of the ECS cluster we watch. It is not ours: the stack names it and never creates it."""

from aws_cdk import Aws

from infra.settings import DeploymentSettings


class ClusterArns:
    """ARNs are built from the deployment's own partition, region and account, so one template serves them all."""

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
        """The streams of one log group, which are named after tasks."""
        return f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:{group}:log-stream:*"

    def task_definition_prefix(self, family: str) -> str:
        """What the ARN of every revision of the family, and of no other family, begins with."""
        return _ecs(f"task-definition/{family}:")


def _ecs(resource: str) -> str:
    return f"arn:{Aws.PARTITION}:ecs:{Aws.REGION}:{Aws.ACCOUNT_ID}:{resource}"
